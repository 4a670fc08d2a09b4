// Many idle connections between two engines of one process, over shared memory: one listens, the
// other connects, from an address of its own for each 50 000. Both ends are ours, so both are
// counted. Neither making one nor an echo may cost more among all than among few, in instructions.
// VIREO_SCALE=1000000 chooses the number; 10 000 by default.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "dev/shm/shm_device.h"
#include "stack/engine/engine.h"
#include "tests/scale/meters.h"
#include "tests/scale/steps.h"
#include "tests/unit/engine/tables.h"

namespace vireo::test {
namespace {

/// Of the engine and the device, for one end of a connection: half of a flow rule among it, which
/// the connecting end has.
constexpr double kMaxBytes = 1023;
constexpr uint16_t kPort = 80;

// A pair of addresses has 64 K ports.
constexpr uint32_t kSources = 32, kPortsEach = 50'000;
IpAddr source(uint32_t n) { return IpAddr::v4(be32(0x0b000001 + n)); }

struct Owner {
  SocketStats stats;
};
void on_tcp(TcpFlow&, tcp::Effects) {}
void on_accept(Listener&) {}
void on_udp(UdpFlow&) {}

/// An engine at one end of the wire; each is the other's router.
class End {
 public:
  End(const std::string& wire, const Place& at, uint32_t sources) {
    auto mirror = net::Mirror::open();
    VIREO_ASSERT(mirror.has_value());
    mirror_ = std::move(*mirror);
    auto snapshot = tables(at);
    net::Addrs addrs = *snapshot->addrs;
    for (uint32_t n = 0; n < sources; ++n)
      addrs.all.push_back(
          {.ifindex = kEth0, .addr = source(n), .prefix = source(n), .prefix_len = 32});
    snapshot->addrs = std::make_shared<const net::Addrs>(std::move(addrs));
    mirror_->store().publish(std::move(snapshot));
    EngineConfig config;
    config.arena_bytes = size_t{8} << 20;
    config.huge_pages = false;
    DeviceOpener opener = [wire](const net::Link&, Arena&) -> Carried<std::unique_ptr<Device>> {
      auto d = open_shm(wire);
      if (!d) return std::unexpected(Refusal{Carriage::kDevice, d.error().code, d.error().where});
      return std::move(*d);
    };
    auto engine = Engine::create(EngineId(0), config, std::move(opener), *mirror_,
                                 {on_tcp, on_accept, on_udp}, counters_);
    VIREO_ASSERT(engine.has_value());
    engine_ = std::move(*engine);
  }
  Engine* operator->() { return engine_.get(); }
  void* owner() { return &owner_; }
  SocketStats& stats() { return owner_.stats; }
  void turn(Instant now) {
    engine_->lock().lock();
    engine_->poll(now);
    engine_->unlock();
  }
  void own(TcpFlow& f) {
    f.owner = &owner_;
    f.stats = &owner_.stats;
  }

 private:
  std::unique_ptr<net::Mirror> mirror_;
  EngineStats counters_;
  Owner owner_;
  std::unique_ptr<Engine> engine_;
};

struct Pair {
  TcpFlow* client = nullptr;
  TcpFlow* server = nullptr;
};

class Wire {
 public:
  Wire() {
    tcp::Config config;
    config.mss = 65'495;
    const auto l = b_->listeners().listen({ip("10.0.0.2"), kPort, 0}, false, 1024, config,
                                          b_.owner(), b_.stats(), {});
    VIREO_ASSERT(l.has_value());
    listener_ = *l;
    a_->lock().lock();
    RouteRequest to;
    to.dst = ip("10.0.0.2");
    const auto route = a_->next_hops().route(to);
    a_->unlock();
    VIREO_ASSERT(route.has_value());
    route_ = *route;
  }
  End& client() { return a_; }
  End& server() { return b_; }

  /// @return instructions, if they are to be counted.
  uint64_t connect(bool counts = false) {
    const uint32_t n = static_cast<uint32_t>(all_.size());
    const Endpoint from{source(n / kPortsEach), static_cast<uint16_t>(1024 + n % kPortsEach), 0};
    tcp::Config config;
    config.mss = 65'495;
    if (counts) begin_steps();
    a_->lock().lock();
    const auto flow = a_->tcp().connect(route_, from, {ip("10.0.0.2"), kPort, 0}, config, {},
                                        a_.owner(), a_.stats(), now_);
    a_->unlock();
    b_.turn(now_);
    a_.turn(now_);
    b_.turn(now_);
    TcpFlow* const theirs = b_->listeners().accept(*listener_);
    const uint64_t steps = counts ? end_steps() : 0;
    EXPECT_TRUE(flow.has_value() && theirs != nullptr) << n;
    if (!flow || theirs == nullptr) return 0;
    b_.own(*theirs);
    all_.push_back({*flow, theirs});
    return steps;
  }

  /// A byte there and back. @return instructions of both ends.
  uint64_t echo(uint32_t n) {
    begin_steps();
    say(a_, *all_[n].client);
    hear(b_, *all_[n].server);
    say(b_, *all_[n].server);
    hear(a_, *all_[n].client);
    const uint64_t steps = end_steps();
    b_.turn(now_);
    return steps;
  }

  /// Resets all; both ends are rid of them.
  void close_all() {
    const auto close = [this](End& end, TcpFlow& f) {
      end->lock().lock();
      end->tcp().close(f, UniqueFd(), true, now_);
      end->unlock();
    };
    for (const Pair& p : all_) {
      close(a_, *p.client);
      b_.turn(now_);
      close(b_, *p.server);
    }
    b_->lock().lock();
    b_->listeners().close(*listener_, now_);
    b_->unlock();
    for (int i = 0; i < 4; ++i) a_.turn(now_), b_.turn(now_);
  }
  const std::vector<Pair>& all() const { return all_; }
  void reserve(size_t n) { all_.resize(n), all_.clear(); }  // touched, so resident already

 private:
  void say(End& from, TcpFlow& f) {
    char byte = 'x';
    const iovec v{&byte, 1};
    from->lock().lock();
    EXPECT_EQ(from->tcp().send(f, {&v, 1}, false, now_), 1U);
    from->unlock();
  }
  void hear(End& to, TcpFlow& f) {
    to->lock().lock();
    to->poll(now_);
    PacketChain& q = tcp::recv_queue(f.tcb);
    EXPECT_FALSE(q.empty());
    if (!q.empty()) q.trim_front(1);
    to->tcp().received(f, 1, now_);
    to->unlock();
  }

  /// Stands still, so that no timer is due among the instructions that are counted.
  const Instant now_ = Clock::now() + Duration::s(10);
  const std::string name_ = "vr-scale-" + std::to_string(::getpid());
  End a_{name_, {}, kSources};
  End b_{name_, {.v4 = "10.0.0.2", .v6 = "fd00::2", .mac = kRouterMac, .router_mac = kHostMac}, 0};
  Listener* listener_ = nullptr;
  Route route_;
  std::vector<Pair> all_;
};

constexpr int kSamples = 5;
uint64_t median(std::vector<uint64_t> v) {
  std::ranges::nth_element(v, v.begin() + static_cast<ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

TEST(Scale, IdleOverSharedMemory) {
  const uint32_t count = std::clamp(scale(10'000), 512U, kSources * kPortsEach);
  Wire wire;
  wire.reserve(count);
  for (int i = 0; i < 64; ++i) wire.connect();
  const auto connects = [&] {
    std::vector<uint64_t> steps;
    for (int i = 0; i < kSamples; ++i) steps.push_back(wire.connect(true));
    return median(steps);
  };
  const auto echoes = [&](size_t among) {
    std::vector<uint64_t> steps;
    for (size_t i = 0; i < kSamples; ++i)
      steps.push_back(wire.echo(static_cast<uint32_t>(i * among / kSamples)));
    return median(steps);
  };
  const uint64_t connect_first = connects();
  const uint64_t echo_first = echoes(64);
  const uint32_t a_frames = wire.client()->pool().free_count();
  const uint32_t b_frames = wire.server()->pool().free_count();

  const size_t begun = wire.all().size(), heap_before = heap(), resident_before = resident();
  size_t mark = begun;
  int64_t since = cpu_ns();
  for (uint32_t shown = 10'000; wire.all().size() < count;) {
    wire.connect();
    if (wire.all().size() != std::min(shown, count)) continue;
    const double us = static_cast<double>(cpu_ns() - since) / 1e3;
    std::printf("up to %zu connections: %.2f us each, both ends\n", wire.all().size(),
                us / static_cast<double>(wire.all().size() - mark));
    mark = wire.all().size();
    shown *= 10;
    since = cpu_ns();
  }
  const double ends = 2 * static_cast<double>(count - begun);
  const double bytes = static_cast<double>(heap() - heap_before) / ends;
  const double pages = static_cast<double>(resident() - resident_before) / ends;
  EXPECT_EQ(wire.client()->census().connections, count);
  EXPECT_EQ(wire.server()->census().connections, count);
  EXPECT_EQ(wire.client()->pool().free_count(), a_frames) << "an idle connection has a buffer";
  EXPECT_EQ(wire.server()->pool().free_count(), b_frames);

  const uint64_t connect_last = connects(), echo_last = echoes(count);
  std::printf(
      "%u connections: %.0f bytes of heap an end (%.0f resident); instructions of both ends: "
      "to connect %lu among few, %lu among all; an echo %lu, %lu\n",
      count, bytes, pages, connect_first, connect_last, echo_first, echo_last);
  EXPECT_LE(bytes, kMaxBytes);
  if (kIsMeasured) {
    EXPECT_LE(static_cast<double>(connect_last), 1.3 * static_cast<double>(connect_first));
    EXPECT_LE(static_cast<double>(echo_last), 1.1 * static_cast<double>(echo_first));
  }

  wire.close_all();
  EXPECT_EQ(wire.client()->census(), Census{});
  EXPECT_EQ(wire.server()->census(), Census{});
  EXPECT_EQ(wire.client()->pool().free_count(), a_frames);
  EXPECT_EQ(wire.server()->pool().free_count(), b_frames);
}

}  // namespace
}  // namespace vireo::test
