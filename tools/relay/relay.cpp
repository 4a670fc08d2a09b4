// A relay between two Ethernet interfaces that impairs the traffic: loss, duplication, corruption,
// reordering, and a link with rate, queue, delay and jitter, for kernels without netem.
//
//   relay [--stats FILE] IFACE_A IFACE_B IMPAIRMENTS      e.g.
//       "loss=1%,reorder=1%,delay=1ms,rate=1gbit,queue=125kb,seed=7"
//   relay --check IMPAIRMENTS                             parse only
//
// The fate of frame n of a direction is a hash of seed, direction and n, so the same traffic has
// the same losses. A frame is first lost, duplicated, corrupted or held back, then waits for the
// wire, then is delayed (link.h); `loss_after` drops it after its transmission time. The link
// starts from the kernel's arrival timestamp, so that a late relay does not slow the link; the
// lateness is counted. While frames pass, the relay polls every kTick, so that its work per second
// is bounded; frames are sent up to half a tick early or late.
//
// ARP and IPv6 neighbour discovery pass unharmed (the kernel retries them once a second).
// Corruption flips bits of a TCP segment after its ports or of a UDP payload, keeps the checksum
// field and makes sure that the checksum fails: errors that it cannot detect test no stack. One
// thread; counters as JSON in FILE at start, on SIGUSR1 and at the end. Source: packet(7),
// socket(7) SO_TIMESTAMPNS.
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "frame.h"
#include "impairments.h"
#include "link.h"
#include "mark.h"

namespace relay {
namespace {

constexpr unsigned kBurst = 64;
constexpr unsigned kBurstsAtOnce = 8;
constexpr Nanos kTick = 20'000;
constexpr Nanos kLate = 1'000'000;
/// A held frame is sent after this time even if no frame follows it.
constexpr Nanos kHoldMax = 5'000'000;

template <class Clock>
Nanos read_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}
Nanos now_ns() { return read_clock<std::chrono::steady_clock>(); }

// ---- one packet socket per interface
// ---------------------------------------------------------------------------

class Port {
 public:
  Port(const char* name, bool stamps) {
    const unsigned index = if_nametoindex(name);
    if (index == 0) die(std::string("relay: no interface ") + name);
    fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC,
                 0);  // protocol 0: receives nothing until bound
    if (fd_ < 0) die(std::string("relay: packet socket: ") + std::strerror(errno));
    const int on = 1;
    const int buffer = 64 << 20;
    must(setsockopt(fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on),
         "PACKET_IGNORE_OUTGOING");
    must(setsockopt(fd_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on), "PACKET_AUXDATA");
    if (stamps) must(setsockopt(fd_, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on), "SO_TIMESTAMPNS");
    must(setsockopt(fd_, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on), "PACKET_QDISC_BYPASS");
    must(setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer), "SO_RCVBUFFORCE");
    must(setsockopt(fd_, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer), "SO_SNDBUFFORCE");
    packet_mreq promiscuous{};
    promiscuous.mr_ifindex = static_cast<int>(index);
    promiscuous.mr_type = PACKET_MR_PROMISC;
    must(setsockopt(fd_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous),
         "promiscuous mode");
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(index);
    must(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  ~Port() { close(fd_); }

  int fd() const { return fd_; }

  /// Frames the kernel dropped because the relay was too slow; since the last call.
  uint64_t overruns() {
    tpacket_stats stats{};
    socklen_t size = sizeof stats;
    return getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0 ? stats.tp_drops : 0;
  }

 private:
  static void must(int result, const char* what) {
    if (result != 0) die(std::string("relay: ") + what + ": " + std::strerror(errno));
  }
  int fd_ = -1;
};

// ---- one direction
// ---------------------------------------------------------------------------------------------

struct Counts {
  uint64_t received = 0, sent = 0, lost = 0, lost_after = 0, marked = 0, duplicated = 0,
           corrupted = 0, reordered = 0, delayed = 0, queue_full = 0, queue_bytes_most = 0,
           late = 0, late_us_most = 0, overrun = 0, finished_checksum = 0, send_failed = 0;
};

class Direction {
 public:
  Direction(Port& in, Port& out, const Impairments& im, uint64_t index, Marks& marks)
      : in_(in), out_(out), im_(im), dice_(im.seed, index), link_(im), marks_(marks) {
    for (unsigned i = 0; i < kBurst; ++i) rx_[i] = pool_.get();
  }

  /// Receives what has arrived, in a bounded number of bursts. @return how many frames.
  unsigned receive() {
    unsigned taken = 0;
    for (unsigned i = 0; i < kBurstsAtOnce; ++i) {
      const unsigned n = receive_burst();
      taken += n;
      if (n < kBurst) break;
    }
    return taken;
  }

  /// Sends what is due. @return when to call again, or nullopt if idle.
  std::optional<Nanos> advance(Nanos now) {
    while (!held_.empty() && held_.front().until <= now) release(0, now);
    while (!way_.empty() && way_.front().due <= now + kTick / 2) {
      Due& first = way_.front();
      note_lateness(now - first.due);
      if (first.lost) {
        ++counts_.lost_after;
        pool_.put(std::move(first.frame));
      } else {
        transmit(std::move(first.frame));
      }
      way_.pop_front();
    }
    flush();
    std::optional<Nanos> next;
    if (!way_.empty()) next = way_.front().due;
    if (!held_.empty()) next = std::min(next.value_or(INT64_MAX), held_.front().until);
    return next;
  }

  Counts counts() {
    counts_.overrun += in_.overruns();
    counts_.queue_bytes_most = link_.most_waiting_bytes();
    return counts_;
  }

 private:
  struct Due {
    Nanos due;
    bool lost;  ///< dropped instead of sent when due
    std::unique_ptr<Frame> frame;
  };
  struct Held {
    uint64_t number;
    uint64_t passers;  // frames still to overtake it
    Nanos until;
    std::unique_ptr<Frame> frame;
  };

  unsigned receive_burst() {
    std::array<mmsghdr, kBurst> messages{};
    std::array<iovec, kBurst> vectors;
    struct alignas(cmsghdr) Control {
      char space[CMSG_SPACE(sizeof(tpacket_auxdata)) + CMSG_SPACE(sizeof(timespec))];
    };
    std::array<Control, kBurst> controls;
    for (unsigned i = 0; i < kBurst; ++i) {
      vectors[i] = {rx_[i]->bytes.data() + kTagBytes, kFrameMax - kTagBytes};
      messages[i].msg_hdr.msg_iov = &vectors[i];
      messages[i].msg_hdr.msg_iovlen = 1;
      messages[i].msg_hdr.msg_control = controls[i].space;
      messages[i].msg_hdr.msg_controllen = sizeof controls[i].space;
    }
    const int n = recvmmsg(in_.fd(), messages.data(), kBurst, 0, nullptr);
    if (n <= 0) return 0;
    const Nanos now = now_ns();
    const Nanos since_epoch = read_clock<std::chrono::system_clock>() - now;
    for (int i = 0; i < n; ++i) {
      const auto slot = static_cast<unsigned>(i);
      std::unique_ptr<Frame> frame = std::exchange(rx_[slot], pool_.get());
      frame->at = kTagBytes;
      frame->length = messages[slot].msg_len;
      Nanos arrival = now;
      read_control(*frame, messages[slot].msg_hdr, since_epoch, arrival);
      befall(std::move(frame), std::min(arrival, now));
    }
    return static_cast<unsigned>(n);
  }

  /// Reinserts the VLAN tag that the kernel removed (moves the MAC addresses forward), completes
  /// checksums that the kernel left to a NIC, and sets `arrival` if the kernel gave a timestamp.
  void read_control(Frame& frame, msghdr& header, Nanos since_epoch, Nanos& arrival) {
    bool is_unfinished = false;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
        timespec stamp;
        std::memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
        arrival = stamp.tv_sec * 1'000'000'000 + stamp.tv_nsec - since_epoch;
      }
      if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
      tpacket_auxdata aux;
      std::memcpy(&aux, CMSG_DATA(c), sizeof aux);
      is_unfinished = (aux.tp_status & TP_STATUS_CSUMNOTREADY) != 0;
      if ((aux.tp_status & TP_STATUS_VLAN_VALID) != 0) {
        uint8_t* at = frame.bytes.data();
        std::memmove(at, at + kTagBytes, 12);
        const uint16_t tpid =
            (aux.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0 ? aux.tp_vlan_tpid : ETH_P_8021Q;
        const std::array<uint16_t, 2> tag{htons(tpid), htons(aux.tp_vlan_tci)};
        std::memcpy(at + 12, tag.data(), kTagBytes);
        frame.at = 0;
        frame.length += kTagBytes;
      }
    }
    if (is_unfinished) {
      ++counts_.finished_checksum;
      finish(frame.view());
    }
  }

  void befall(std::unique_ptr<Frame> frame, Nanos arrival) {
    ++counts_.received;
    const Shape shape = inspect(frame->view());
    if (shape.discovery) {
      transmit(std::move(frame));
      return;
    }
    const uint64_t n = number_++;
    if (dice_.hits(n, Draw::loss, im_.loss)) {
      ++counts_.lost;
      pool_.put(std::move(frame));
      return;
    }
    if (im_.marked != 0 && marks_.loses(shape.covered)) {
      ++counts_.marked;
      pool_.put(std::move(frame));
      return;
    }
    std::unique_ptr<Frame> twin;
    if (dice_.hits(n, Draw::dup, im_.dup)) {
      ++counts_.duplicated;
      twin = pool_.get();
      twin->at = frame->at;
      twin->length = frame->length;
      std::memcpy(twin->view().data(), frame->view().data(), frame->length);
    }
    if (dice_.hits(n, Draw::corrupt, im_.corrupt) && corrupt(shape, dice_, n)) ++counts_.corrupted;
    if (dice_.hits(n, Draw::reorder, im_.reorder)) {
      ++counts_.reordered;
      held_.push_back({n, 1 + dice_.roll(n, Draw::hold) % 8, arrival + kHoldMax, std::move(frame)});
    } else {
      enqueue(std::move(frame), n, arrival);
      pass_held(arrival);
    }
    if (twin) enqueue(std::move(twin), n, arrival);
  }

  /// One frame has overtaken all held ones; sends those that enough frames have overtaken.
  void pass_held(Nanos arrival) {
    for (size_t i = 0; i < held_.size();) {
      if (--held_[i].passers == 0) {
        release(i, arrival);
      } else {
        ++i;
      }
    }
  }

  void release(size_t index, Nanos arrival) {
    const auto at = held_.begin() + static_cast<ptrdiff_t>(index);
    Held held = std::move(*at);
    held_.erase(at);
    enqueue(std::move(held.frame), held.number, arrival);
  }

  void enqueue(std::unique_ptr<Frame> frame, uint64_t n, Nanos arrival) {
    if (!im_.must_queue()) {
      if (dice_.hits(n, Draw::loss_after, im_.loss_after)) {
        ++counts_.lost_after;
        pool_.put(std::move(frame));
      } else {
        transmit(std::move(frame));
      }
      return;
    }
    Nanos jitter = 0;
    if (im_.jitter > 0) {
      const auto span = static_cast<uint64_t>(im_.jitter) * 2 + 1;
      jitter = static_cast<Nanos>(dice_.roll(n, Draw::jitter) % span) - im_.jitter;
    }
    const std::optional<Nanos> due = link_.admit(frame->length, arrival, jitter);
    if (!due) {
      ++counts_.queue_full;
      pool_.put(std::move(frame));
      return;
    }
    ++counts_.delayed;
    way_.push_back({*due, dice_.hits(n, Draw::loss_after, im_.loss_after), std::move(frame)});
  }

  void note_lateness(Nanos late) {
    if (late > kLate) ++counts_.late;
    counts_.late_us_most =
        std::max(counts_.late_us_most, static_cast<uint64_t>(std::max<Nanos>(late, 0)) / 1000);
  }

  void transmit(std::unique_ptr<Frame> frame) {
    tx_[tx_count_++] = std::move(frame);
    if (tx_count_ == kBurst) flush();
  }

  void flush() {
    if (tx_count_ == 0) return;
    std::array<mmsghdr, kBurst> messages{};
    std::array<iovec, kBurst> vectors;
    for (unsigned i = 0; i < tx_count_; ++i) {
      vectors[i] = {tx_[i]->view().data(), tx_[i]->length};
      messages[i].msg_hdr.msg_iov = &vectors[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    unsigned patience = 2000;
    for (unsigned done = 0; done < tx_count_;) {
      const int n = sendmmsg(out_.fd(), messages.data() + done, tx_count_ - done, 0);
      if (n > 0) {
        done += static_cast<unsigned>(n);
        counts_.sent += static_cast<unsigned>(n);
      } else if (errno == EINTR) {
      } else if ((errno == EAGAIN || errno == ENOBUFS) && patience-- > 0) {
        // The peer's ring is full. Losses must come from the draws, not from scheduling.
        const timespec pause{0, 20'000};
        nanosleep(&pause, nullptr);
      } else {  // ENETDOWN, EMSGSIZE, or the peer is gone
        ++counts_.send_failed;
        ++done;
      }
    }
    for (unsigned i = 0; i < tx_count_; ++i) pool_.put(std::move(tx_[i]));
    tx_count_ = 0;
  }

  Port& in_;
  Port& out_;
  const Impairments& im_;
  Dice dice_;
  Link link_;
  Marks& marks_;
  Counts counts_;
  FramePool pool_;
  uint64_t number_ = 0;  // of the frame, ARP and neighbour discovery not counted
  std::deque<Due> way_;  // frames admitted by the link, ordered by `due`
  std::deque<Held> held_;
  std::array<std::unique_ptr<Frame>, kBurst> rx_;
  std::array<std::unique_ptr<Frame>, kBurst> tx_;
  unsigned tx_count_ = 0;
};

// ---- reports and signals
// ---------------------------------------------------------------------------------------

std::string json(const Counts& c) {
  const std::pair<const char*, uint64_t> rows[] = {
      {"received", c.received},
      {"sent", c.sent},
      {"lost", c.lost},
      {"lost_after", c.lost_after},
      {"marked", c.marked},
      {"duplicated", c.duplicated},
      {"corrupted", c.corrupted},
      {"reordered", c.reordered},
      {"delayed", c.delayed},
      {"queue_full", c.queue_full},
      {"queue_bytes_most", c.queue_bytes_most},
      {"late", c.late},
      {"late_us_most", c.late_us_most},
      {"overrun", c.overrun},
      {"finished_checksum", c.finished_checksum},
      {"send_failed", c.send_failed},
  };
  std::string text;
  for (const auto& [name, value] : rows)
    text += (text.empty() ? "{\"" : ",\"") + std::string(name) + "\":" + std::to_string(value);
  return text + "}";
}

void report(Direction& ab, Direction& ba, const std::string& file) {
  const std::string text =
      "{\"a_to_b\":" + json(ab.counts()) + ",\"b_to_a\":" + json(ba.counts()) + "}\n";
  if (file.empty()) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    return;
  }
  const std::string part = file + ".part";  // renamed, so that readers never see a partial file
  if (FILE* const out = std::fopen(part.c_str(), "we")) {
    std::fputs(text.c_str(), out);
    std::fclose(out);
    std::rename(part.c_str(), file.c_str());
  }
}

volatile std::sig_atomic_t g_report = 0;
volatile std::sig_atomic_t g_end = 0;

sigset_t block_signals() {
  sigset_t blocked;
  sigset_t open;
  sigemptyset(&blocked);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&blocked, number);
  sigprocmask(SIG_BLOCK, &blocked, &open);
  struct sigaction action{};
  action.sa_handler = [](int number) { (number == SIGUSR1 ? g_report : g_end) = 1; };
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaction(number, &action, nullptr);
  return open;
}

/// Waits until a frame arrives or `wait` has passed (nullopt: for ever). Signals are blocked except
/// here, so none is missed between the test and the sleep.
void sleep_until(std::array<pollfd, 2>& fds, bool for_frames, std::optional<Nanos> wait,
                 const sigset_t& open) {
  timespec limit{};
  if (wait) limit = {*wait / 1'000'000'000, *wait % 1'000'000'000};
  ppoll(fds.data(), for_frames ? fds.size() : 0, wait ? &limit : nullptr, &open);
}

int run(const char* a_name, const char* b_name, const Impairments& im,
        const std::string& stats_file) {
  Port a(a_name, im.must_queue());
  Port b(b_name, im.must_queue());
  Marks marks;
  auto ab = std::make_unique<Direction>(a, b, im, 0, marks);
  auto ba = std::make_unique<Direction>(b, a, im, 1, marks);
  const sigset_t open = block_signals();
  prctl(PR_SET_TIMERSLACK, 1);

  report(*ab, *ba, stats_file);  // also signals that the relay is ready
  std::array<pollfd, 2> fds{{{a.fd(), POLLIN, 0}, {b.fd(), POLLIN, 0}}};
  while (g_end == 0) {
    const unsigned taken = ab->receive() + ba->receive();
    const Nanos now = now_ns();
    const std::optional<Nanos> next_ab = ab->advance(now);
    const std::optional<Nanos> next_ba = ba->advance(now);
    const Nanos next = std::min(next_ab.value_or(INT64_MAX), next_ba.value_or(INT64_MAX));
    const Nanos left = next == INT64_MAX ? INT64_MAX : std::max<Nanos>(0, next - now_ns());
    if (im.must_queue() && (taken > 0 || left < kTick))
      sleep_until(fds, false, kTick, open);
    else if (taken > 0)
      sleep_until(fds, true, 0, open);  // only to let signals in
    else
      sleep_until(fds, true, left == INT64_MAX ? std::nullopt : std::optional(left), open);
    if (g_report != 0) {
      g_report = 0;
      report(*ab, *ba, stats_file);
    }
  }
  report(*ab, *ba, stats_file);
  return 0;
}

}  // namespace
}  // namespace relay

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--check") == 0) {
    relay::parse(argv[2]);
    return 0;
  }
  std::string stats_file;
  int at = 1;
  if (argc > 2 && std::strcmp(argv[1], "--stats") == 0) {
    stats_file = argv[2];
    at = 3;
  }
  if (argc - at != 3)
    relay::die(
        "usage: relay [--stats FILE] IFACE_A IFACE_B IMPAIRMENTS | relay --check IMPAIRMENTS");
  return relay::run(argv[at], argv[at + 1], relay::parse(argv[at + 2]), stats_file);
}
