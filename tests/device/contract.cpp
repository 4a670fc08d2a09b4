#include "contract.h"

#include <sched.h>

#include <cstring>

namespace vireo::test {
namespace {
constexpr Milliseconds kPatience(5'000);
using SteadyClock = std::chrono::steady_clock;
}  // namespace

// Programs that hold the suite and no back end of their own (all skipped) are no error.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceContract);

IpAddr DevicePair::v6(int side) const {
  uint8_t a[16] = {0xfd, 0x76};
  a[15] = static_cast<uint8_t>(side + 1);
  return IpAddr::v6(a);
}

bool DevicePair::progress() {
  sched_yield();
  return true;
}

PacketRef body_of(PacketPool& pool, std::span<const std::byte> bytes) {
  PacketRef p(pool.take());
  if (!p) return p;
  p->length = static_cast<uint16_t>(bytes.size());
  std::memcpy(p->data(), bytes.data(), bytes.size());
  return p;
}

void DeviceContract::SetUp() { open({}); }

void DeviceContract::TearDown() { close(); }

void DeviceContract::reopen(const PairOptions& options) {
  close();
  open(options);
}

void DeviceContract::open(const PairOptions& options) {
  pair_ = GetParam().make(options);
  if (pair_ == nullptr) GTEST_SKIP() << "back end not available here";
  for (int side : {0, 1}) {
    auto q = pair_->device(side).open_queue(QueueId(0), pool(side));
    ASSERT_TRUE(q) << q.error().where << ": " << std::strerror(q.error().code);
    queues_[side] = std::move(*q);
    queue(side).rx_refill();
    const HostLink links[] = {{VlanId(), pair_->mac(side)}, {VlanId(5), pair_->mac(side)}};
    const IpAddr addresses[] = {pair_->v4(side), pair_->v6(side)};
    pair_->device(side).set_host({links, addresses});
    auto rule = pair_->device(side).steer(local_key(side), FlowTag(0), queue(side));
    ASSERT_TRUE(rule) << rule.error().where << ": " << std::strerror(rule.error().code);
    rules_.push_back(std::move(*rule));
    idle_free_[side] = pool(side).free_count();
  }
}

void DeviceContract::close() {
  rules_.clear();
  for (auto& q : queues_) q.reset();
  if (pair_ == nullptr) return;
  for (int side : {0, 1})
    EXPECT_EQ(pool(side).free_count(), pool(side).size()) << "frames leaked by side " << side;
  pair_.reset();
}

FrameSpec DeviceContract::flow(int from, uint16_t from_port, uint16_t to_port) const {
  FrameSpec s;
  s.from_mac = pair_->mac(from);
  s.to_mac = pair_->mac(1 - from);
  s.from = {pair_->v4(from), from_port, 0};
  s.to = {pair_->v4(1 - from), to_port, 0};
  return s;
}

FlowKey DeviceContract::local_key(int side, uint16_t port) const {
  FlowKey k;
  k.proto = IpProto::kUdp;
  k.local = {pair_->v4(side), port, 0};
  return k;
}

Bytes DeviceContract::frame(int from, uint32_t number, size_t size) const {
  return build_frame(flow(from), numbered_payload(number, size - kHeader));
}

bool DeviceContract::send(int side, std::span<const std::byte> bytes, Doorbell bell, size_t head) {
  PacketRef body = body_of(pool(side), bytes.subspan(head));
  if (!body) return false;
  const PacketSlice slice{body.get(), body->data_at, body->length};
  return queue(side).tx({bytes.first(head), {&slice, 1}}, bell);
}

void DeviceContract::send_surely(int side, std::span<const std::byte> bytes) {
  const auto end = SteadyClock::now() + kPatience;
  while (!send(side, bytes)) {
    ASSERT_LT(SteadyClock::now(), end) << "no room for ever";
    queue(side).tx_reap();
    pair_->progress();
  }
}

unsigned DeviceContract::receive_burst(int side, std::vector<Received>& out, size_t limit) {
  RxDesc descs[64];
  const unsigned n = queue(side).rx_burst(std::span(descs).first(std::min<size_t>(limit, 64)));
  EXPECT_LE(n, limit);

  for (RxDesc& d : std::span(descs).first(n)) {
    if (!joins_[side]) out.emplace_back();
    Received& r = out.back();
    const auto part = std::as_const(*d.packet).bytes();
    r.bytes.insert(r.bytes.end(), part.begin(), part.end());
    r.flags = r.flags | (d.flags & ~RxFlags::kMore);
    r.tag = d.tag;
    joins_[side] = has(d.flags, RxFlags::kMore);
    d.packet.reset();
  }
  if (n > 0) queue(side).rx_refill();
  return n;
}

std::vector<Received> DeviceContract::receive(int side, size_t count) {
  std::vector<Received> out;
  auto end = SteadyClock::now() + kPatience;
  while (out.size() < count && SteadyClock::now() < end) {
    if (receive_burst(side, out) > 0) {
      end = SteadyClock::now() + kPatience;
    } else if (!pair_->progress()) {
      break;
    }
  }
  return out;
}

void DeviceContract::carry(std::vector<Received>& got, uint32_t sent, uint32_t total,
                           const std::function<bool(uint32_t)>& send_number) {
  const auto end = SteadyClock::now() + Milliseconds(10'000);
  while (got.size() < total && SteadyClock::now() < end) {
    if (sent < total && send_number(sent)) {
      ++sent;
      continue;
    }
    queue(0).tx_reap();
    pair_->progress();
    while (receive_burst(1, got) > 0) {
    }
  }
  ASSERT_EQ(got.size(), total);
  for (uint32_t i = 0; i < total; ++i) ASSERT_EQ(got[i].bytes, frame(0, i)) << i;
}

bool DeviceContract::stays_quiet(int side) {
  std::vector<Received> out;
  const auto end = SteadyClock::now() + pair_->quiet();
  while (SteadyClock::now() < end)
    if (receive_burst(side, out) == 0 && !pair_->progress()) break;
  return out.empty();
}

unsigned DeviceContract::reap_until_idle(int side) {
  unsigned reaped = 0;
  const auto end = SteadyClock::now() + kPatience;
  while (pool(side).free_count() < idle_free_[side] && SteadyClock::now() < end) {
    reaped += queue(side).tx_reap();
    queue(side).rx_refill();
    pair_->progress();
  }
  return reaped;
}

}  // namespace vireo::test
