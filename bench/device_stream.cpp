// Frames one way, as fast as the device takes them: what a protocol could reach at most. By --copy
// and --ack what one with sockets could: the bytes are the program's, and the sender hears of them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "device_end.h"

namespace vireo::bench {
namespace {

constexpr uint32_t kPrepared = 512;  ///< frames' worth of packets, used in turn
constexpr uint32_t kSlice = 1536;    ///< bytes of a longer frame in each packet
constexpr Duration kLookEvery = Duration::ms(10);
constexpr uint32_t kAckBytes = 66;  ///< of a frame that acknowledges
constexpr size_t kMaxFrame = 9014;

/// The bytes behind the head of one frame, in packets that stay ours.
struct Body {
  std::vector<PacketRef> packets;
  std::vector<PacketSlice> slices;
};

Body body_of(PacketPool& pool, uint32_t bytes) {
  Body body;
  while (bytes > 0) {
    PacketRef p(pool.take());
    if (!p) die("the pool is too small for frames of this size");
    const auto part = static_cast<uint16_t>(std::min(bytes, kSlice));
    p->length = part;
    std::memset(p->data(), 'v', part);
    body.slices.push_back({p.get(), p->data_at, part});
    body.packets.push_back(std::move(p));
    bytes -= part;
  }
  return body;
}

/// What a program has its messages in, one after the other in the same place.
class Program {
 public:
  explicit Program(uint32_t bytes) : bytes_(bytes), buffer_(bytes + kMaxFrame, std::byte{'v'}) {}
  void fill(const Body& body) {
    for (const PacketSlice& s : body.slices)
      std::memcpy(s.packet->data(), take(s.length), s.length);
  }
  void empty(const PacketBuf& p) { std::memcpy(take(p.length), p.bytes().data(), p.length); }

 private:
  std::byte* take(size_t n) {
    if (at_ >= bytes_) at_ = 0;
    return buffer_.data() + std::exchange(at_, at_ + n);
  }
  size_t bytes_, at_ = 0;
  std::vector<std::byte> buffer_;
};

/// Answers of the sink, a frame each.
class Acks {
 public:
  explicit Acks(const Options& o) : every_(o.ack), frame_(kAckBytes) {
    Options small = o;
    small.size = kAckBytes;
    new (frame_.data()) Frame(frame_to_peer(small));
  }
  /// A frame has come.
  void count(Queue& q) {
    if (every_ == 0 || ++owed_ < every_) return;
    owed_ = 0;
    while (!q.tx({frame_, {}}, Doorbell::kNow)) q.tx_reap();
  }
  void drain(Queue& q) {
    RxDesc in[64];
    const unsigned n = q.rx_burst(in);
    for (RxDesc& d : std::span(in).first(n)) d.packet.reset();
    if (n != 0) q.rx_refill();
  }

 private:
  uint32_t every_, owed_ = 0;
  std::vector<std::byte> frame_;
};

}  // namespace

void source(const Options& o) {
  pin(o.cpu);
  Clock::calibrate();
  End end(o, frames_flow(o));
  Queue& q = *end.queue;
  Frame head = frame_to_peer(o);
  const std::span<const std::byte> head_bytes(reinterpret_cast<const std::byte*>(&head),
                                              sizeof head);
  const uint32_t frames = o.size > kSlice ? kPrepared / 4 : kPrepared;
  std::vector<Body> bodies;
  for (uint32_t i = 0; i < frames; ++i)
    bodies.push_back(body_of(end.pool, o.size - static_cast<uint32_t>(sizeof head)));

  Program program(o.copy);
  Acks acks(o);
  uint64_t sent = 0, full = 0;
  size_t next = 0;
  const Instant begin = Clock::now();
  const Instant over = begin + Duration::us(static_cast<int64_t>(o.seconds * 1e6));
  Instant now = begin;
  // Whether the device lives is a question of system calls: seldom, or they are what is measured.
  Instant look = begin;
  while (now < over && g_stop == 0) {
    if (now >= look) {
      if (!q.alive()) break;
      look = now + kLookEvery;
    }
    for (uint32_t i = 1; i <= o.batch; ++i) {
      head.number = static_cast<uint32_t>(sent);
      if (o.copy != 0) program.fill(bodies[next]);
      const Doorbell bell = i == o.batch ? Doorbell::kNow : Doorbell::kLater;
      while (!q.tx({head_bytes, bodies[next].slices}, bell)) {
        ++full;
        q.tx_flush();
        q.tx_reap();
        now = Clock::now();
        if (now >= over || g_stop != 0) break;
      }
      if (now >= over) break;
      ++sent;
      if (++next == bodies.size()) next = 0;
    }
    q.tx_reap();
    if (o.ack != 0) acks.drain(q);
    now = Clock::now();
  }
  q.tx_flush();
  fmt::print(
      "{{\"wire\":\"{}\",\"frame_bytes\":{},\"batch\":{},\"sent\":{},\"ring_full\":{},"
      "\"seconds\":{:.6f}}}\n",
      wire_of(o, end), o.size, o.batch, sent, full,
      static_cast<double>((Clock::now() - begin).ns()) / 1e9);
  for (int i = 0; i < 1000 && o.shm.empty(); ++i) {  // what is queued still leaves
    q.tx_reap();
    q.tx_flush();
  }
}

void sink(const Options& o) {
  pin(o.cpu);
  Clock::calibrate();
  End end(o, frames_flow(o));
  Queue& q = *end.queue;
  fmt::print(stderr, "ready\n");
  const Duration warm_up = Duration::us(static_cast<int64_t>(o.seconds * 1e5));
  Program program(o.copy);
  Acks acks(o);
  RxDesc in[64];
  uint64_t all = 0, counted = 0, bytes = 0;
  Instant first, start, last;
  bool is_begun = false, is_counting = false;
  while (g_stop == 0) {
    const unsigned n = q.rx_burst(in);
    if (n == 0) continue;
    uint64_t burst_bytes = 0, burst_frames = 0;
    for (RxDesc& d : std::span(in).first(n)) {
      burst_bytes += d.packet->length;
      if (o.copy != 0) program.empty(*d.packet);
      d.packet.reset();
      if ((d.flags & RxFlags::kMore) != RxFlags::kNone) continue;
      ++burst_frames;
      acks.count(q);
    }
    q.rx_refill();
    if (o.ack != 0) q.tx_reap();
    const Instant now = Clock::now();
    all += burst_frames;
    if (!is_begun) {
      is_begun = true;
      first = now;
    }
    if (now - first < warm_up) continue;
    if (!is_counting) {
      is_counting = true;
      start = now;
      continue;
    }
    counted += burst_frames;
    bytes += burst_bytes;
    last = now;
  }
  const double seconds = std::max(1e-9, static_cast<double>((last - start).ns()) / 1e9);
  fmt::print("{{\"wire\":\"{}\",\"received\":{},\"frames\":{},\"bytes\":{},\"seconds\":{:.6f}}}\n",
             wire_of(o, end), all, counted, bytes, seconds);
}

}  // namespace vireo::bench
