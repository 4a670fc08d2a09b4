// A relay between two Ethernet interfaces that harms the traffic on purpose: loss, duplication,
// corruption, reordering, delay, jitter and a rate limit, for kernels without netem.
//
//   relay [--stats FILE] IFACE_A IFACE_B IMPAIRMENTS      e.g.
//   "loss=1%,reorder=1%,delay=1ms,rate=1gbit,seed=7" relay --check IMPAIRMENTS parse only
//
// What befalls frame n of a direction is a hash of seed, direction and n: the same traffic meets
// the same fate. ARP and IPv6 neighbour discovery pass unharmed (they are the kernel's and retried
// once a second). Corruption flips bits of a TCP segment behind its ports or of a UDP payload,
// leaves the checksum as it was and makes sure that the checksum shows it: what even the Internet
// checksum cannot see is no test of a stack. One thread; counts as JSON in FILE at start, on
// SIGUSR1 and at the end.   Source: packet(7).
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using Nanos = int64_t;

constexpr unsigned kBurst = 64;
constexpr size_t kFrameMax = 10240;  // jumbo frames and a tag
constexpr size_t kTagBytes = 4;      // room in front to put a VLAN tag back
constexpr Nanos kHoldMax =
    5'000'000;  // a held frame goes out after this even if nothing follows it

Nanos now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void die(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::exit(2);
}

// ---- what to do to the traffic
// ---------------------------------------------------------------------------------

/// Chances are in 2^-32 steps, so that a 32-bit hash compares with them directly.
struct Impairments {
  uint64_t loss = 0, dup = 0, corrupt = 0, reorder = 0;
  Nanos delay = 0, jitter = 0;
  double bits_per_second = 0;  // 0: no limit
  uint64_t limit = 1000;       // frames queued per direction
  uint64_t seed = 1;

  bool must_queue() const { return delay > 0 || jitter > 0 || bits_per_second > 0; }
};

struct Quantity {
  double value;
  std::string_view unit;
};

Quantity split(std::string_view key, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0))
    die("relay: " + std::string(key) + "=" + std::string(text) + ": not a number of zero or more");
  return {value, text.substr(static_cast<size_t>(end - text.data()))};
}

struct Unit {
  std::string_view name;
  double factor;
};

double scaled(std::string_view key, std::string_view text, std::span<const Unit> units) {
  const Quantity q = split(key, text);
  std::string known;
  for (const Unit& u : units) {
    if (u.name == q.unit) return q.value * u.factor;
    known += (known.empty() ? "" : " ") + (u.name.empty() ? "(none)" : std::string(u.name));
  }
  die("relay: " + std::string(key) + "=" + std::string(text) + ": the unit is one of: " + known);
}

uint64_t chance(std::string_view key, std::string_view text) {
  constexpr std::array<Unit, 2> kUnits{{{"%", 0.01}, {"", 1.0}}};
  const double p = scaled(key, text, kUnits);
  if (p > 1) die("relay: " + std::string(key) + "=" + std::string(text) + ": more than 100%");
  return static_cast<uint64_t>(p * 4294967296.0);
}

Nanos duration(std::string_view key, std::string_view text) {
  constexpr std::array<Unit, 4> kUnits{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  return static_cast<Nanos>(scaled(key, text, kUnits));
}

uint64_t count(std::string_view key, std::string_view text) {
  constexpr std::array<Unit, 1> kUnits{{{"", 1}}};
  return static_cast<uint64_t>(scaled(key, text, kUnits));
}

Impairments parse(std::string_view text) {
  constexpr std::array<Unit, 4> kRates{{{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}};
  Impairments im;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = equals == item.npos ? "" : item.substr(equals + 1);
    if (key == "loss")
      im.loss = chance(key, value);
    else if (key == "dup")
      im.dup = chance(key, value);
    else if (key == "corrupt")
      im.corrupt = chance(key, value);
    else if (key == "reorder")
      im.reorder = chance(key, value);
    else if (key == "delay")
      im.delay = duration(key, value);
    else if (key == "jitter")
      im.jitter = duration(key, value);
    else if (key == "rate")
      im.bits_per_second = scaled(key, value, kRates);
    else if (key == "limit")
      im.limit = std::max<uint64_t>(1, count(key, value));
    else if (key == "seed")
      im.seed = count(key, value);
    else
      die("relay: no impairment " + std::string(key) +
          "; known: loss dup corrupt reorder delay jitter rate limit seed");
  }
  return im;
}

// ---- chance
// ----------------------------------------------------------------------------------------------------

enum class Draw : uint64_t { loss = 1, dup, corrupt, reorder, hold, jitter, bits };

/// splitmix64 over what identifies the draw: no state, so one draw never shifts another.
class Dice {
 public:
  Dice(uint64_t seed, uint64_t direction) : base_(mix(seed * 2 + direction + 0x9e3779b97f4a7c15)) {}
  uint64_t roll(uint64_t frame, Draw draw, uint64_t index = 0) const {
    return mix(base_ ^ mix(frame * 16 + static_cast<uint64_t>(draw)) ^
               (index * 0xd1342543de82ef95));
  }
  bool hits(uint64_t frame, Draw draw, uint64_t chance) const {
    return (roll(frame, draw) >> 32) < chance;
  }

 private:
  static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  uint64_t base_;
};

// ---- frames
// ----------------------------------------------------------------------------------------------------

uint16_t load16(const uint8_t* p) { return static_cast<uint16_t>(p[0] << 8 | p[1]); }

/// What the relay has to know of a frame.
struct Shape {
  bool discovery = false;           // ARP, IPv6 neighbour discovery: let it pass
  std::span<uint8_t> covered = {};  // bytes that may be flipped and that a checksum covers
};

Shape inspect(std::span<uint8_t> frame) {
  Shape shape;
  if (frame.size() < ETH_HLEN) return shape;
  size_t at = 12;
  uint16_t type = load16(&frame[at]);
  while ((type == ETH_P_8021Q || type == ETH_P_8021AD) && at + 6 <= frame.size()) {
    at += 4;
    type = load16(&frame[at]);
  }
  at += 2;
  if (type == ETH_P_ARP) {
    shape.discovery = true;
    return shape;
  }
  uint8_t protocol = 0;
  size_t end = 0;
  if (type == ETH_P_IP && at + 20 <= frame.size()) {
    const size_t header = size_t{frame[at] & 15u} * 4;
    if ((load16(&frame[at + 6]) & 0x3fff) != 0)
      return shape;  // fragments: their checksum is elsewhere
    protocol = frame[at + 9];
    end = at + load16(&frame[at + 2]);
    at += header;
  } else if (type == ETH_P_IPV6 && at + 40 <= frame.size()) {
    protocol = frame[at + 6];
    end = at + 40 + load16(&frame[at + 4]);
    at += 40;
    shape.discovery =
        protocol == IPPROTO_ICMPV6 && at < frame.size() && frame[at] >= 130 && frame[at] <= 143;
  }
  if (end > frame.size()) return shape;
  size_t skip = 0;
  if (protocol == IPPROTO_TCP && at + 20 <= end) {
    skip = 4;
  } else if (protocol == IPPROTO_UDP && at + 8 < end && load16(&frame[at + 6]) != 0) {
    skip = 8;
  } else {
    return shape;
  }
  shape.covered = frame.subspan(at + skip, end - at - skip);
  return shape;
}

/// The one's complement sum of a region that starts on an even byte of the checksummed text, modulo
/// 0xffff.
uint32_t sum16(std::span<const uint8_t> bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) sum += i % 2 == 0 ? bytes[i] * 256u : bytes[i];
  return static_cast<uint32_t>(sum % 0xffff);
}

/// Flips 1 to 3 bits, more if those cancel out, so that the checksum is wrong afterwards.
/// @return false if there is nothing to corrupt.
bool corrupt(const Shape& shape, const Dice& dice, uint64_t frame) {
  const std::span<uint8_t> bytes = shape.covered;
  if (bytes.empty()) return false;
  const uint32_t before = sum16(bytes);
  const uint64_t flips = 1 + dice.roll(frame, Draw::bits) % 3;
  for (uint64_t i = 0, done = 0; i < 64; ++i) {
    const uint64_t bit = dice.roll(frame, Draw::bits, i + 1) % (bytes.size() * 8);
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    if (++done >= flips && sum16(bytes) != before) return true;
  }
  return sum16(bytes) != before;
}

struct Frame {
  uint32_t length = 0;
  std::array<uint8_t, kFrameMax> bytes;
};

/// Frames are large, so they are kept and used again.
class FramePool {
 public:
  std::unique_ptr<Frame> get() {
    if (free_.empty()) return std::make_unique_for_overwrite<Frame>();
    auto frame = std::move(free_.back());
    free_.pop_back();
    return frame;
  }
  void put(std::unique_ptr<Frame> frame) { free_.push_back(std::move(frame)); }

 private:
  std::vector<std::unique_ptr<Frame>> free_;
};

// ---- one packet socket per interface
// ---------------------------------------------------------------------------

class Port {
 public:
  explicit Port(const char* name) {
    const unsigned index = if_nametoindex(name);
    if (index == 0) die(std::string("relay: no interface ") + name);
    fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC,
                 0);  // protocol 0: deaf until bound
    if (fd_ < 0) die(std::string("relay: packet socket: ") + std::strerror(errno));
    const int on = 1;
    const int buffer = 64 << 20;
    must(setsockopt(fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on),
         "PACKET_IGNORE_OUTGOING");
    must(setsockopt(fd_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on), "PACKET_AUXDATA");
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

  /// Frames the kernel threw away because we were too slow; counted since the last call.
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
  uint64_t received = 0, sent = 0, lost = 0, duplicated = 0, corrupted = 0, reordered = 0,
           delayed = 0, queue_full = 0, overrun = 0, unfinished_checksum = 0, send_failed = 0;
};

class Direction {
 public:
  Direction(Port& in, Port& out, const Impairments& im, uint64_t index)
      : in_(in), out_(out), im_(im), dice_(im.seed, index) {
    for (unsigned i = 0; i < kBurst; ++i) rx_[i] = pool_.get();
  }

  /// Takes one burst from the wire. @return whether more may be waiting.
  bool receive(Nanos now) {
    std::array<mmsghdr, kBurst> messages{};
    std::array<iovec, kBurst> vectors;
    struct alignas(cmsghdr) Control {
      char space[CMSG_SPACE(sizeof(tpacket_auxdata))];
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
    for (int i = 0; i < n; ++i) {
      const auto slot = static_cast<unsigned>(i);
      std::unique_ptr<Frame> frame = std::exchange(rx_[slot], pool_.get());
      frame->length = messages[slot].msg_len;
      restore_tag(*frame, messages[slot].msg_hdr);
      befall(std::move(frame), now);
    }
    return n == static_cast<int>(kBurst);
  }

  /// Sends what is due. @return when to call again, or nothing if idle.
  std::optional<Nanos> advance(Nanos now) {
    while (!held_.empty() && held_.front().until <= now) release(0, now);
    while (!queue_.empty() && queue_.front().due <= now) {
      transmit(std::move(queue_.front().frame));
      queue_.pop_front();
    }
    flush();
    std::optional<Nanos> next;
    if (!queue_.empty()) next = queue_.front().due;
    if (!held_.empty()) next = std::min(next.value_or(INT64_MAX), held_.front().until);
    return next;
  }

  Counts counts() {
    counts_.overrun += in_.overruns();
    return counts_;
  }

 private:
  struct Due {
    Nanos due;
    std::unique_ptr<Frame> frame;
  };
  struct Held {
    uint64_t number;
    uint64_t passers;  // frames still to overtake it
    Nanos until;
    std::unique_ptr<Frame> frame;
  };

  /// The frame starts kTagBytes in; the kernel has taken the tag off, so the addresses move forward
  /// to make room.
  void restore_tag(Frame& frame, msghdr& header) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
      tpacket_auxdata aux;
      std::memcpy(&aux, CMSG_DATA(c), sizeof aux);
      if ((aux.tp_status & TP_STATUS_CSUMNOTREADY) != 0) ++counts_.unfinished_checksum;
      if ((aux.tp_status & TP_STATUS_VLAN_VALID) != 0) {
        uint8_t* at = frame.bytes.data();
        std::memmove(at, at + kTagBytes, 12);
        const uint16_t tpid =
            (aux.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0 ? aux.tp_vlan_tpid : ETH_P_8021Q;
        const std::array<uint16_t, 2> tag{htons(tpid), htons(aux.tp_vlan_tci)};
        std::memcpy(at + 12, tag.data(), kTagBytes);
        frame.length += kTagBytes;
        return;
      }
    }
    std::memmove(frame.bytes.data(), frame.bytes.data() + kTagBytes, frame.length);
  }

  void befall(std::unique_ptr<Frame> frame, Nanos now) {
    ++counts_.received;
    const Shape shape = inspect({frame->bytes.data(), frame->length});
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
    std::unique_ptr<Frame> twin;
    if (dice_.hits(n, Draw::dup, im_.dup)) {
      ++counts_.duplicated;
      twin = pool_.get();
      twin->length = frame->length;
      std::memcpy(twin->bytes.data(), frame->bytes.data(), frame->length);
    }
    if (dice_.hits(n, Draw::corrupt, im_.corrupt) && corrupt(shape, dice_, n)) ++counts_.corrupted;
    if (dice_.hits(n, Draw::reorder, im_.reorder)) {
      ++counts_.reordered;
      held_.push_back({n, 1 + dice_.roll(n, Draw::hold) % 8, now + kHoldMax, std::move(frame)});
    } else {
      enqueue(std::move(frame), n, now);
      pass_held(now);
    }
    if (twin) enqueue(std::move(twin), n, now);
  }

  /// One frame has overtaken all that are held; those that have let enough pass go out behind it.
  void pass_held(Nanos now) {
    for (size_t i = 0; i < held_.size();) {
      if (--held_[i].passers == 0) {
        release(i, now);
      } else {
        ++i;
      }
    }
  }

  void release(size_t index, Nanos now) {
    const auto at = held_.begin() + static_cast<ptrdiff_t>(index);
    Held held = std::move(*at);
    held_.erase(at);
    enqueue(std::move(held.frame), held.number, now);
  }

  void enqueue(std::unique_ptr<Frame> frame, uint64_t n, Nanos now) {
    if (!im_.must_queue()) {
      transmit(std::move(frame));
      return;
    }
    if (queue_.size() >= im_.limit) {
      ++counts_.queue_full;
      pool_.put(std::move(frame));
      return;
    }
    Nanos due = now;
    if (im_.bits_per_second > 0) {
      // The wire is busy for the frame, its checksum, preamble and gap.
      const double bits = (frame->length + 24.0) * 8;
      wire_free_ = std::max(wire_free_, now) + static_cast<Nanos>(bits / im_.bits_per_second * 1e9);
      due = wire_free_;
    }
    due += im_.delay;
    if (im_.jitter > 0) {
      const auto span = static_cast<uint64_t>(im_.jitter) * 2 + 1;
      due += static_cast<Nanos>(dice_.roll(n, Draw::jitter) % span) - im_.jitter;
    }
    last_due_ = std::max(
        last_due_, due);  // jitter spreads but keeps the order: reordering is its own impairment
    ++counts_.delayed;
    queue_.push_back({last_due_, std::move(frame)});
  }

  void transmit(std::unique_ptr<Frame> frame) {
    tx_[tx_count_++] = std::move(frame);
    if (tx_count_ == kBurst) flush();
  }

  void flush() {
    std::array<mmsghdr, kBurst> messages{};
    std::array<iovec, kBurst> vectors;
    for (unsigned i = 0; i < tx_count_; ++i) {
      vectors[i] = {tx_[i]->bytes.data(), tx_[i]->length};
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
        // The peer's ring is full. Loss is our task, but by the dice and not by the scheduler.
        const timespec pause{0, 20'000};
        nanosleep(&pause, nullptr);
      } else {  // ENETDOWN, EMSGSIZE, or a peer that is gone
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
  Counts counts_;
  FramePool pool_;
  uint64_t number_ = 0;  // of the frame, discovery not counted
  Nanos wire_free_ = 0;
  Nanos last_due_ = 0;
  std::deque<Due> queue_;
  std::deque<Held> held_;
  std::array<std::unique_ptr<Frame>, kBurst> rx_;
  std::array<std::unique_ptr<Frame>, kBurst> tx_;
  unsigned tx_count_ = 0;
};

// ---- reports and signals
// ---------------------------------------------------------------------------------------

std::string json(const Counts& c) {
  std::array<char, 512> text;
  std::snprintf(
      text.data(), text.size(),
      "{\"received\":%llu,\"sent\":%llu,\"lost\":%llu,\"duplicated\":%llu,\"corrupted\":%llu,"
      "\"reordered\":%llu,"
      "\"delayed\":%llu,\"queue_full\":%llu,\"overrun\":%llu,\"unfinished_checksum\":%llu,\"send_"
      "failed\":%llu}",
      static_cast<unsigned long long>(c.received), static_cast<unsigned long long>(c.sent),
      static_cast<unsigned long long>(c.lost), static_cast<unsigned long long>(c.duplicated),
      static_cast<unsigned long long>(c.corrupted), static_cast<unsigned long long>(c.reordered),
      static_cast<unsigned long long>(c.delayed), static_cast<unsigned long long>(c.queue_full),
      static_cast<unsigned long long>(c.overrun),
      static_cast<unsigned long long>(c.unfinished_checksum),
      static_cast<unsigned long long>(c.send_failed));
  return text.data();
}

void report(Direction& ab, Direction& ba, const std::string& file) {
  const std::string text =
      "{\"a_to_b\":" + json(ab.counts()) + ",\"b_to_a\":" + json(ba.counts()) + "}\n";
  if (file.empty()) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    return;
  }
  const std::string part = file + ".part";  // renamed, so a reader never sees half of it
  if (FILE* const out = std::fopen(part.c_str(), "we")) {
    std::fputs(text.c_str(), out);
    std::fclose(out);
    std::rename(part.c_str(), file.c_str());
  }
}

volatile std::sig_atomic_t g_report = 0;
volatile std::sig_atomic_t g_end = 0;

int relay(const char* a_name, const char* b_name, const Impairments& im,
          const std::string& stats_file) {
  Port a(a_name);
  Port b(b_name);
  auto ab = std::make_unique<Direction>(a, b, im, 0);
  auto ba = std::make_unique<Direction>(b, a, im, 1);

  // Signals are blocked save in ppoll: none is missed between the test and the sleep.
  sigset_t blocked;
  sigset_t open;
  sigemptyset(&blocked);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&blocked, number);
  sigprocmask(SIG_BLOCK, &blocked, &open);
  struct sigaction action{};
  action.sa_handler = [](int number) { (number == SIGUSR1 ? g_report : g_end) = 1; };
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaction(number, &action, nullptr);
  prctl(PR_SET_TIMERSLACK, 1);

  report(*ab, *ba, stats_file);  // also says: ready
  std::array<pollfd, 2> fds{{{a.fd(), POLLIN, 0}, {b.fd(), POLLIN, 0}}};
  bool more = false;
  while (g_end == 0) {
    Nanos now = now_ns();
    const std::optional<Nanos> next_ab = ab->advance(now);
    const std::optional<Nanos> next_ba = ba->advance(now);
    const Nanos next = std::min(next_ab.value_or(INT64_MAX), next_ba.value_or(INT64_MAX));
    timespec wait{};
    timespec* timeout = &wait;  // zero: only look
    if (!more) {
      if (next == INT64_MAX) {
        timeout = nullptr;
      } else {
        const Nanos left = std::max<Nanos>(0, next - now_ns());
        wait = {left / 1'000'000'000, left % 1'000'000'000};
      }
    }
    ppoll(fds.data(), fds.size(), timeout, &open);
    if (g_report != 0) {
      g_report = 0;
      report(*ab, *ba, stats_file);
    }
    now = now_ns();
    const bool more_a = (fds[0].revents & POLLIN) != 0 && ab->receive(now);
    const bool more_b = (fds[1].revents & POLLIN) != 0 && ba->receive(now);
    more = more_a || more_b;
  }
  report(*ab, *ba, stats_file);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--check") == 0) {
    parse(argv[2]);
    return 0;
  }
  std::string stats_file;
  int at = 1;
  if (argc > 2 && std::strcmp(argv[1], "--stats") == 0) {
    stats_file = argv[2];
    at = 3;
  }
  if (argc - at != 3)
    die("usage: relay [--stats FILE] IFACE_A IFACE_B IMPAIRMENTS | relay --check IMPAIRMENTS");
  return relay(argv[at], argv[at + 1], parse(argv[at + 2]), stats_file);
}
