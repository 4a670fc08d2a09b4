// Two engines at the ends of one link in virtual time, and two programs: one writes, the other
// reads, compares and waits for the end. Every frame is kept.
#pragma once

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stack/engine/engine.h"
#include "stack/wire/parse.h"
#include "tests/apparatus/mem/mem_link.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {

constexpr uint16_t kPort = 80;
constexpr const char* kV4[] = {"10.0.0.1", "10.0.0.2"};
constexpr const char* kV6[] = {"fd00::1", "fd00::2"};
constexpr net::Mac kMacs[] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};

/// What is done with a link and two programs.
struct Story {
  bool v6 = false;
  uint64_t seed = 1;
  MemImpairments there{.delay = Duration::ms(2)};
  MemImpairments back{.delay = Duration::ms(2)};
  tcp::Config config{};
  IpSettings ip{};
  uint32_t bytes = 600'000;
  uint32_t chunk = 100'000;
  Duration between{};         ///< writes
  bool more = false;          ///< MSG_MORE on each write but the last
  uint32_t urgent_at = 0;     ///< the write that reaches this is urgent, 0: none
  uint32_t mtu_falls_at = 0;  ///< so many bytes read, and the way carries less; 0: never
  uint32_t falls_to = 1200;   ///< bytes of a packet
  uint32_t mtu = 1500;        ///< of both interfaces
  bool is_silent = false;     ///< of which no router tells
  bool is_fast = false;       ///< RFC 7413: the first chunk goes with the SYN
};

struct Told {
  Instant at;
  unsigned by = 0;
  std::vector<std::byte> bytes;
};

/// What came of it.
struct Outcome {
  std::vector<Told> frames;
  uint64_t bursts = 0;
  uint64_t retransmits = 0;
  uint64_t sent_packets = 0, sent_bytes = 0;  ///< as the engine counts them
  uint64_t wire_frames = 0, wire_bytes = 0;
  tcp::Info info{};
  std::string failure;
};

inline std::byte stream_byte(uint64_t i) {
  return static_cast<std::byte>((i * 0x9e3779b97f4a7c15ULL) >> 56);
}

inline std::vector<std::byte> stream(uint64_t from, size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = stream_byte(from + i);
  return bytes;
}

constexpr FastConnect kFast{.data_follows = true, .without_cookie = true};

/// Tells a story once.
class Pair {
 public:
  Pair(const Story& story, const MemDeviceOptions& device)
      : story_(story),
        clock_(Instant::from_ns(int64_t{10} * 366 * 86'400 * 1'000'000'000)),
        link_(story.seed, story.there, story.back, clock_, device) {
    for (unsigned i = 0; i < 2; ++i) {
      auto mirror = net::Mirror::open();
      VIREO_ASSERT(mirror.has_value());
      mirrors_[i] = std::move(*mirror);
      mirrors_[i]->store().publish(tables({.v4 = kV4[i],
                                           .v6 = kV6[i],
                                           .mac = kMacs[i],
                                           .router_mac = kMacs[1 - i],
                                           .mtu = story.mtu}));
      EngineConfig config;
      config.arena_bytes = size_t{16} << 20;
      config.huge_pages = false;
      config.secret = {story.seed, ~story.seed};
      const MemEnd end = i == 0 ? MemEnd::kA : MemEnd::kB;
      DeviceOpener opener = [this, end](const net::Link&,
                                        Arena&) -> Carried<std::unique_ptr<Device>> {
        return link_.release(end);
      };
      auto engine = Engine::create(EngineId(static_cast<uint8_t>(i)), config, std::move(opener),
                                   *mirrors_[i], {on_tcp, on_accept, on_udp}, stats_[i]);
      VIREO_ASSERT(engine.has_value());
      engines_[i] = std::move(*engine);
      VIREO_ASSERT(engines_[i]->ports().open_all().has_value());
      link_.wire(end).set_filter([this, i](std::span<const std::byte> frame, uint64_t) {
        out_.frames.push_back({clock_.now(), i, {frame.begin(), frame.end()}});
        return i == 0 ? befalls(frame) : MemVerdict::kPass;
      });
    }
  }

  Outcome run() {
    tcp::Config config = story_.config;
    config.mss = 65'495;
    const ListenOptions options{.fast_open = story_.is_fast ? 16U : 0U,
                                .fast_open_without_cookie = story_.is_fast,
                                .ip = story_.ip};
    const IpAddr any = story_.v6 ? IpAddr() : IpAddr::any_v4();
    auto listener = engines_[1]->listeners().listen({any, kPort, 0}, false, 16, config, &accepted_,
                                                    accepted_.stats, options);
    VIREO_ASSERT(listener.has_value());
    const char* const* addresses = story_.v6 ? kV6 : kV4;
    auto route = engines_[0]->next_hops().route({.dst = ip(addresses[1]), .src = ip(addresses[0])});
    VIREO_ASSERT(route.has_value());
    auto flow = engines_[0]->tcp().connect(
        *route, {ip(addresses[0]), 40'000, 0}, {ip(addresses[1]), kPort, 0}, config, story_.ip,
        &connected_, connected_.stats, now(), story_.is_fast ? &kFast : nullptr);
    VIREO_ASSERT(flow.has_value());
    connected_.flow = *flow;
    if (story_.is_fast) {
      const auto first = stream(0, story_.chunk);
      const iovec v{const_cast<std::byte*>(first.data()), first.size()};
      written_ = static_cast<uint32_t>(engines_[0]->tcp().send_syn(**flow, kFast, {&v, 1}, now()));
      if (written_ == 0) out_.failure = "no data on the SYN";
    }
    const Instant end = now() + Duration::s(300);
    while (!is_over_ && now() < end && out_.failure.empty()) {
      settle();
      act(**listener);
      Instant next = std::min(link_.next_event(), write_at_ > now() ? write_at_ : Instant::never());
      for (auto& e : engines_)
        next = std::min(next, std::max(e->next_deadline(), now() + Wheel::kTick));
      link_.step(std::max(next, now()));
    }
    if (!is_over_ && out_.failure.empty()) out_.failure = "did not end";
    out_.bursts = link_.stats(MemEnd::kA).tx_bursts;
    out_.retransmits = stats_[0].retransmits.get();
    out_.sent_packets = stats_[0].tx_packets.get();
    out_.sent_bytes = stats_[0].tx_bytes.get();
    out_.wire_frames = link_.wire(MemEnd::kA).stats().sent;
    out_.wire_bytes = link_.wire(MemEnd::kA).stats().sent_bytes;
    engines_[1]->listeners().close(**listener, now());
    return std::move(out_);
  }

 private:
  struct End {
    TcpFlow* flow = nullptr;
    SocketStats stats;
    tcp::Effects effects = tcp::Effects::kNone;
  };
  static void on_tcp(TcpFlow& f, tcp::Effects e) { static_cast<End*>(f.owner)->effects |= e; }
  static void on_accept(Listener&) {}
  static void on_udp(UdpFlow&) {}

  Instant now() const { return clock_.now(); }

  /// Until they rest, or wait for a ring that only time makes room in.
  void settle() {
    for (int i = 0; i < 100; ++i) {
      bool is_worked = false;
      for (auto& e : engines_) {
        e->lock().lock();
        is_worked |= e->poll(now()) || e->next_deadline() <= now();
        e->unlock();
      }
      link_.step(now());
      if (!is_worked) return;
    }
  }

  /// A way that carries less than it did (RFC 1191 §4): the frame is dropped, and the router says
  /// so unless it is silent.
  MemVerdict befalls(std::span<const std::byte> frame) {
    if (story_.mtu_falls_at == 0 || read_ < story_.mtu_falls_at ||
        frame.size() <= 14 + story_.falls_to)
      return MemVerdict::kPass;
    if (!story_.is_silent) too_big_ = wire::parse_frame(frame).tcp().seq();
    return MemVerdict::kDrop;
  }

  void act(Listener& l) {
    if (const auto quoted = std::exchange(too_big_, std::nullopt)) {
      auto f = icmp_error_frame({ip(kV4[0]), 40'000, 0}, {ip(kV4[1]), kPort, 0}, *quoted, 3, 4,
                                static_cast<uint16_t>(story_.falls_to));
      link_.inject(MemEnd::kB, f);
    }
    if (accepted_.flow == nullptr) {
      accepted_.flow = engines_[1]->listeners().accept(l);
      if (accepted_.flow != nullptr) accepted_.flow->owner = &accepted_;
      if (accepted_.flow != nullptr) accepted_.flow->stats = &accepted_.stats;
    }
    write();
    read();
  }

  void write() {
    if (connected_.flow == nullptr || now() < write_at_) return;
    tcp::Tcb& t = connected_.flow->tcb;
    while (written_ < story_.bytes && tcp::can_send(t)) {
      const uint32_t n = std::min(story_.chunk, story_.bytes - written_);
      auto bytes = stream(written_, n);
      const iovec v{bytes.data(), n};
      const bool is_last = written_ + n == story_.bytes;
      size_t took;
      if (story_.urgent_at != 0 && written_ < story_.urgent_at &&
          written_ + n >= story_.urgent_at) {
        took = tcp::append(t, {&v, 1}, false, now());
        tcp::mark_urgent(t);
        engines_[0]->tcp().progress(*connected_.flow, now());
      } else {
        took = engines_[0]->tcp().send(*connected_.flow, {&v, 1}, story_.more && !is_last, now());
      }
      written_ += static_cast<uint32_t>(took);
      if (took < n) return;
      if (story_.between > Duration()) {
        write_at_ = now() + story_.between;
        return;
      }
    }
    if (written_ < story_.bytes) return;
    out_.info = tcp::info(t);
    engines_[0]->tcp().close(*std::exchange(connected_.flow, nullptr), UniqueFd(), false, now());
  }

  void read() {
    if (accepted_.flow == nullptr) return;
    PacketChain& q = tcp::recv_queue(accepted_.flow->tcb);
    uint32_t took = 0;
    for (; !q.empty(); q.pop_front()) {
      for (const std::byte b : std::as_const(*q.front()).bytes())
        if (b != stream_byte(read_++)) out_.failure = "wrong byte " + std::to_string(read_ - 1);
      took += q.front()->length;
    }
    if (took > 0) engines_[1]->tcp().received(*accepted_.flow, took, now());
    if (!tcp::peer_closed(accepted_.flow->tcb)) return;
    if (read_ != story_.bytes) out_.failure = "read " + std::to_string(read_);
    engines_[1]->tcp().close(*std::exchange(accepted_.flow, nullptr), UniqueFd(), false, now());
    settle();
    is_over_ = true;
  }

  Story story_;
  VirtualClock clock_;
  MemLink link_;
  std::unique_ptr<net::Mirror> mirrors_[2];
  EngineStats stats_[2];
  std::unique_ptr<Engine> engines_[2];
  End connected_, accepted_;
  uint32_t written_ = 0;
  uint32_t read_ = 0;
  Instant write_at_;
  std::optional<Seq32> too_big_;
  bool is_over_ = false;
  Outcome out_;
};

}  // namespace vireo::test
