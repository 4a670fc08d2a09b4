// The frames that a TCP connection of one byte there and back takes at least, without the protocol:
// four of the client's, three of the server's.
//
//   client: SYN         data+ACK          FIN  (and the next one's SYN)   ACK
//   server:     SYN+ACK          data+ACK                         FIN+ACK
//
// One at a time each frame leaves by a doorbell of its own, as the calls of a program follow each
// other; of several, what answers one burst leaves together.
#include <fmt/format.h>
#include <unistd.h>

#include <span>
#include <vector>

#include "bench/plain/connect_tally.h"
#include "device_end.h"

namespace vireo::bench {
namespace {

enum Kind : uint32_t { kSyn, kSynAck, kAsk, kAnswer, kFin, kFinAck, kLastAck };
constexpr uint32_t kKinds = 8;  ///< a frame's number: connection * kKinds + kind
constexpr Duration kPatience = Duration::ms(200);

/// Frames of one length that differ by their number.
class Sender {
 public:
  Sender(const Options& o, Queue& queue) : queue_(queue), is_alone_(o.batch == 1), bytes_(o.size) {
    frame_ = new (bytes_.data()) Frame(frame_to_peer(o));
  }
  void send(uint32_t connection, Kind kind) {
    frame_->number = connection * kKinds + kind;
    const Doorbell bell = is_alone_ ? Doorbell::kNow : Doorbell::kLater;
    while (!queue_.tx({bytes_, {}}, bell)) {
      queue_.tx_flush();
      queue_.tx_reap();
    }
  }
  /// A burst is answered.
  void finish() {
    if (!is_alone_) queue_.tx_flush();
    queue_.tx_reap();
    queue_.rx_refill();
  }

 private:
  Queue& queue_;
  bool is_alone_;
  std::vector<std::byte> bytes_;
  Frame* frame_;
};

/// Calls heard(connection, kind) of each frame that has come. @return how many.
template <class Heard>
unsigned hear(Queue& q, Heard&& heard) {
  RxDesc in[64];
  const unsigned n = q.rx_burst(in);
  for (RxDesc& d : std::span(in).first(n)) {
    const uint32_t number = reinterpret_cast<const Frame*>(d.packet->data())->number;
    d.packet.reset();
    heard(number / kKinds, static_cast<Kind>(number % kKinds));
  }
  return n;
}

}  // namespace

void connect_server(const Options& o) {
  pin(o.cpu);
  End end(o, frames_flow(o));
  Queue& q = *end.queue;
  Sender sender(o, q);
  fmt::print(stderr, "ready\n");
  const auto answer = [&](uint32_t connection, Kind kind) {
    if (kind == kSyn) sender.send(connection, kSynAck);
    if (kind == kAsk) sender.send(connection, kAnswer);
    if (kind == kFin) sender.send(connection, kFinAck);
  };
  while (g_stop == 0)
    if (hear(q, answer) != 0) sender.finish();
  fmt::print("{{}}\n");
}

void connect_client(const Options& o) {
  pin(o.cpu);
  Clock::calibrate();
  End end(o, frames_flow(o));
  Queue& q = *end.queue;
  Sender sender(o, q);
  usleep(50'000);  // a queue that was just opened may lose a frame
  plain::ConnectTally tally(o.seconds);
  std::vector<uint64_t> started(o.batch);
  const auto open = [&](uint32_t connection) {
    started[connection] = plain::ticks();
    sender.send(connection, kSyn);
  };
  const auto answer = [&](uint32_t connection, Kind kind) {
    if (connection >= o.batch) return;
    if (kind == kSynAck) sender.send(connection, kAsk);
    if (kind == kFinAck) sender.send(connection, kLastAck);
    if (kind != kAnswer) return;
    sender.send(connection, kFin);
    tally.add(started[connection]);
    open(connection);
  };
  for (uint32_t i = 0; i < o.batch; ++i) open(i);
  sender.finish();
  Instant heard = Clock::now();
  while (!tally.is_over() && g_stop == 0) {
    if (hear(q, answer) != 0) {
      sender.finish();
      heard = Clock::now();
    } else if (Clock::now() - heard > kPatience) {
      die("no answer: a frame is lost, or the server is not there");
    }
  }
  tally.print();
}

}  // namespace vireo::bench
