// What goes on beside the connections of a World: datagrams, and paths that carry less for a while.
#include <algorithm>
#include <cstring>

#include "core/byteorder.h"
#include "core/checksum.h"
#include "stack/wire/parse.h"
#include "tests/sim/soak_world.h"
#include "tests/unit/engine/tables.h"

namespace vireo::sim {
namespace {

constexpr uint16_t kFirstMouth = 60'000;
constexpr unsigned kMouths = 12;
constexpr size_t kMaxWord = 1'600;  ///< more than a frame holds: some are refused
constexpr uint16_t kMtu = 1500;
constexpr size_t kIp = 14, kIcmp = kIp + 20, kQuote = kIcmp + 8, kQuoted = 28;

/// What a datagram begins with; the rest is of the stream, from `at` on.
struct Word {
  uint32_t bytes;
  uint32_t at;
};

uint16_t field(std::span<const std::byte> frame, size_t at) {
  be16 v;
  std::memcpy(&v, frame.data() + at, sizeof v);
  return v;
}

/// An IPv4 packet of TCP that no router may cut.
bool is_uncut(std::span<const std::byte> f) {
  constexpr uint16_t kIpv4 = 0x0800, kDontFragment = 0x4000;
  return f.size() >= kIp + kQuoted && field(f, 12) == kIpv4 && f[kIp] == std::byte{0x45} &&
         f[kIp + 9] == std::byte{6} && (field(f, kIp + 6) & kDontFragment) != 0;
}

}  // namespace

// ---- the path

void World::move_path() {
  static constexpr uint16_t kPaths[] = {576, 800, 1280, 1400, kMtu, kMtu, kMtu};
  path_mtu_[rng_.below(2)] = kPaths[rng_.below(std::size(kPaths))];
  ++counts_["path changes"];
}

bool World::is_too_big(unsigned from, std::span<const std::byte> frame) {
  if (frame.size() - kIp <= path_mtu_[from] || !is_uncut(frame)) return false;
  if (field(frame, kIp + 2) <= path_mtu_[from]) return false;  // the rest is padding
  too_big_.push_back({from, {frame.begin(), frame.begin() + kIp + kQuoted}});
  return true;
}

/// The router's word goes the way back, and may be lost like any frame.
void World::answer_for_router() {
  for (const auto all = std::exchange(too_big_, {}); const TooBig& t : all) {
    ++counts_["reports of routers"];
    std::array<std::byte, kQuote + kQuoted> f{};
    const auto put = [&](size_t at, auto v) { std::memcpy(f.data() + at, &v, sizeof v); };
    const auto sum = [&](size_t at, size_t n, size_t to) {
      put(to, checksum::finish(checksum::sum(f.data() + at, n)));
    };
    std::memcpy(f.data() + kQuote, t.frame.data() + kIp, kQuoted);
    std::memcpy(f.data(), t.frame.data(), kIcmp);
    put(0, kMac[t.from]);
    put(6, kMac[1 - t.from]);
    put(kIp + 2, be16(20 + 8 + kQuoted));
    put(kIp + 6, be16(0));
    f[kIp + 9] = std::byte{1};
    std::memcpy(f.data() + kIp + 12, t.frame.data() + kIp + 16, 4);  // the peer's, as good as any
    std::memcpy(f.data() + kIp + 16, t.frame.data() + kIp + 12, 4);
    put(kIp + 10, be16(0));
    sum(kIp, 20, kIp + 10);
    f[kIcmp] = std::byte{3};
    f[kIcmp + 1] = std::byte{4};
    put(kIcmp + 6, be16(path_mtu_[t.from]));
    sum(kIcmp, 8 + kQuoted, kIcmp + 2);
    link_.inject(t.from == 0 ? MemEnd::kB : MemEnd::kA, f);
  }
}

// ---- datagrams

void World::on_udp(UdpFlow& u) {
  auto& m = *static_cast<Mouth*>(u.owner);
  if (!std::exchange(m.is_told, true)) m.world->spoken_to_.push_back(&m);
}

/// A UDP socket comes, or goes with what it has not read.
void World::toggle_mouth() {
  const auto host = static_cast<unsigned>(rng_.below(2));
  const auto port = static_cast<uint16_t>(kFirstMouth + rng_.below(kMouths));
  if (const auto i = mouths_.find({host, port}); i != mouths_.end()) {
    std::erase(spoken_to_, i->second.get());
    hosts_[host].engine->udp().close(*i->second->flow);
    mouths_.erase(i);
    return;
  }
  auto m = std::make_unique<Mouth>();
  m->world = this;
  m->host = host;
  const bool v6 = rng_.below(4) == 0;
  const Endpoint here{rng_.below(3) == 0 ? IpAddr() : address(host, v6), port, 0};
  const auto u = hosts_[host].engine->udp().open(here, {}, false, m.get(), m->stats);
  if (!u) return wrong("cannot bind a UDP port that nobody has");
  m->flow = *u;
  mouths_[{host, port}] = std::move(m);
  ++counts_["UDP sockets"];
}

/// One of those open says a word to where another may listen.
void World::speak() {
  if (mouths_.empty()) return;
  auto i = mouths_.begin();
  std::advance(i, static_cast<ptrdiff_t>(rng_.below(mouths_.size())));
  Mouth& m = *i->second;
  const Endpoint local = m.flow->key.local;
  const bool v6 = local.addr != IpAddr() && !local.addr.is_v4();
  const Endpoint from{address(m.host, v6), local.port, 0};
  const Endpoint to{address(1 - m.host, v6),
                    static_cast<uint16_t>(kFirstMouth + rng_.below(kMouths)), 0};
  Word word{};
  word.bytes = static_cast<uint32_t>(sizeof word + rng_.below(kMaxWord));
  word.at = static_cast<uint32_t>(rng_.below(stream_.size() - kMaxWord));
  const iovec v[] = {{&word, sizeof word}, {&stream_[word.at], word.bytes - sizeof word}};
  Engine& e = *hosts_[m.host].engine;
  const auto route =
      e.next_hops().route({.dst = to.addr, .src = from.addr, .proto = IpProto::kUdp});
  VIREO_ASSERT(route.has_value());
  const bool is_sent =
      e.udp().send(*m.flow, *route, from, to, {v}, Doorbell::kNow, now()).has_value();
  ++counts_[is_sent ? "datagrams sent" : "datagrams refused"];
}

/// Whole or not at all, and as it was said.
void World::hear(Mouth& m) {
  m.is_told = false;
  PacketChain& q = m.flow->queue;
  while (!q.empty()) {
    std::vector<std::byte> said;
    for (bool goes_on = true; goes_on && !q.empty();) {
      const PacketBuf& p = *q.front();
      said.insert(said.end(), p.bytes().begin(), p.bytes().end());
      goes_on = p.offset == 1;
      UdpFlows::received(*m.flow, p);
      q.pop_front();
    }
    Word word{};
    if (said.size() < sizeof word) return wrong("a datagram without its head");
    std::memcpy(&word, said.data(), sizeof word);
    if (said.size() != word.bytes) return wrong("a datagram of another length");
    if (std::memcmp(said.data() + sizeof word, &stream_[word.at], said.size() - sizeof word) != 0)
      return wrong("a datagram with a wrong byte");
    ++counts_["datagrams heard"];
  }
}

void World::close_mouths() {
  spoken_to_.clear();
  for (auto& [key, m] : mouths_) hosts_[m->host].engine->udp().close(*m->flow);
  mouths_.clear();
}

}  // namespace vireo::sim
