#include "tests/apparatus/mem/wire.h"

#include <algorithm>

#include "core/byteorder.h"

namespace vireo {
namespace {

constexpr size_t kEthernetBytes = 14;

uint16_t load16(const std::vector<std::byte>& f, size_t at) {
  return static_cast<uint16_t>(std::to_integer<unsigned>(f[at]) << 8 |
                               std::to_integer<unsigned>(f[at + 1]));
}

void store16(std::vector<std::byte>& f, size_t at, uint16_t v) {
  f[at] = static_cast<std::byte>(v >> 8);
  f[at + 1] = static_cast<std::byte>(v & 0xff);
}

/// Where the IP header starts, behind any VLAN tags (IEEE 802.1Q, 802.1ad).
size_t ip_at(const std::vector<std::byte>& f) {
  size_t at = kEthernetBytes;
  while (at + 4 <= f.size() && (load16(f, at - 2) == 0x8100 || load16(f, at - 2) == 0x88a8))
    at += 4;
  return at;
}

/// Sets CE on an ECN-capable packet (RFC 3168 §5); the IPv4 checksum follows by RFC 1624. @return
/// false: not capable.
bool mark_ce(std::vector<std::byte>& f) {
  const size_t ip = ip_at(f);
  if (ip + 20 > f.size()) return false;
  const uint16_t type = load16(f, ip - 2);
  const uint16_t before = load16(f, ip);
  const unsigned shift =
      type == 0x86dd ? 4 : 0;  // the traffic class lies 4 bits further left in IPv6
  if ((type != 0x0800 && type != 0x86dd) || (before >> shift & 3) == 0) return false;
  const auto after = static_cast<uint16_t>(before | 3U << shift);
  store16(f, ip, after);
  if (type == 0x0800) {
    uint32_t sum = static_cast<uint16_t>(~load16(f, ip + 10)) +
                   uint32_t{static_cast<uint16_t>(~before)} + after;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    store16(f, ip + 10, static_cast<uint16_t>(~sum));
  }
  return true;
}

}  // namespace

MemWire::MemWire(uint64_t seed, const MemImpairments& impairments)
    : imp_(impairments),
      loss_(splitmix64(seed ^ 1)),
      burst_rng_(splitmix64(seed ^ 2)),
      jitter_(splitmix64(seed ^ 3)),
      reorder_(splitmix64(seed ^ 4)),
      duplicate_(splitmix64(seed ^ 5)),
      corrupt_(splitmix64(seed ^ 6)),
      corrupt_place_(splitmix64(seed ^ 7)) {}

bool MemWire::lost_in_burst() {
  burst_ = burst_ ? !burst_rng_.chance(imp_.burst_leave) : burst_rng_.chance(imp_.burst_enter);
  const bool hit = burst_rng_.chance(imp_.burst_loss);
  return burst_ && hit;
}

bool MemWire::survives(const Frame& frame) {
  // Every stream is drawn from for every frame, so that one outcome never shifts another.
  const bool lost = loss_.chance(imp_.loss);
  const bool burst_lost = lost_in_burst();
  if (frame.size() > ip_at(frame) + imp_.mtu) return ++stats_.too_big, false;
  if (lost) return ++stats_.lost, false;
  if (burst_lost) return ++stats_.burst_lost, false;
  return true;
}

void MemWire::send(Frame frame, Instant now) {
  ++stats_.sent;
  stats_.sent_bytes += frame.size();
  const uint64_t index = index_++;
  const bool alive = survives(frame);
  const bool corrupted = corrupt_.chance(imp_.corrupt);
  const bool twice = duplicate_.chance(imp_.duplicate);

  const MemVerdict verdict = filter_ ? filter_(frame, index) : MemVerdict::kPass;
  if (drop_next_ > 0 || verdict == MemVerdict::kDrop) {
    if (drop_next_ > 0) --drop_next_;
    ++stats_.dropped_by_hook;
    return;
  }
  if (!alive) return;
  if (verdict == MemVerdict::kHold) {
    held_.push_back(std::move(frame));
    return;
  }
  if (twice || verdict == MemVerdict::kDuplicate) {
    ++stats_.duplicated;
    travel(frame, now);
  }
  if (corrupted || verdict == MemVerdict::kCorrupt) corrupt(frame);
  travel(std::move(frame), now);
}

void MemWire::release_held(Instant now) {
  for (Frame& frame : std::exchange(held_, {})) travel(std::move(frame), now);
}

void MemWire::corrupt(Frame& frame) {
  if (frame.size() <= kEthernetBytes) return;
  ++stats_.corrupted;
  for (uint32_t i = 0; i < imp_.corrupt_bits; ++i) {
    const uint64_t bit = corrupt_place_.below((frame.size() - kEthernetBytes) * 8);
    frame[kEthernetBytes + bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
  }
}

std::optional<Instant> MemWire::serialise(Frame& frame, Instant now) {
  if (imp_.bytes_per_second == 0) return now;
  while (!queue_.empty() && queue_.front() <= now) queue_.pop_front();
  if (queue_.size() >= imp_.queue_frames) {
    ++stats_.queue_full;
    return std::nullopt;
  }
  if (imp_.ecn_mark_frames > 0 && queue_.size() >= imp_.ecn_mark_frames && mark_ce(frame))
    ++stats_.ecn_marked;
  const uint64_t nanoseconds =
      (uint64_t{frame.size()} * 1'000'000'000 + imp_.bytes_per_second - 1) / imp_.bytes_per_second;
  wire_free_ = std::max(wire_free_, now) + Duration::ns(static_cast<int64_t>(nanoseconds));
  queue_.push_back(wire_free_);
  stats_.queue_peak = std::max<uint64_t>(stats_.queue_peak, queue_.size());
  return wire_free_;
}

void MemWire::travel(Frame frame, Instant now) {
  const bool late = reorder_.chance(imp_.reorder);
  const uint64_t jitter = jitter_.next();
  const auto left = serialise(frame, now);
  if (!left) return;
  Instant arrival = *left + imp_.delay;
  if (imp_.jitter > Duration()) {
    const auto span = static_cast<uint64_t>(imp_.jitter.ns());
    arrival = arrival + Duration::ns(static_cast<int64_t>(static_cast<uint64_t>(
                            static_cast<unsigned __int128>(jitter) * span >> 64)));
  }
  arrival = std::max(arrival, last_in_order_);
  if (late) {
    ++stats_.reordered;
    const Slot slot{arrival + imp_.reorder_extra, order_};
    fly(std::move(frame), slot.first);
    if (imp_.reorder_positions > 0) overtaken_.push_back({slot, imp_.reorder_positions});
    return;
  }
  last_in_order_ = arrival;
  fly(std::move(frame), arrival);
  overtake(arrival);
}

void MemWire::fly(Frame frame, Instant arrival) {
  flying_.emplace(Slot{arrival, order_++}, std::move(frame));
}

/// A frame arriving at `arrival` has gone past the ones waiting to be overtaken; those that were
/// passed often enough follow right behind it.
void MemWire::overtake(Instant arrival) {
  std::erase_if(overtaken_, [&](Overtaken& o) {
    const auto at = flying_.find(o.slot);
    if (at == flying_.end()) return true;  // its time ran out, it has been delivered
    if (--o.still_to_pass > 0) return false;
    if (o.slot.first > arrival) {
      auto node = flying_.extract(at);
      node.key() = {arrival, order_++};
      flying_.insert(std::move(node));
    }
    return true;
  });
}

Instant MemWire::next_arrival() const {
  return flying_.empty() ? Instant::never() : flying_.begin()->first.first;
}

std::optional<std::vector<std::byte>> MemWire::receive(Instant now) {
  if (next_arrival() > now) return std::nullopt;
  Frame frame = std::move(flying_.begin()->second);
  flying_.erase(flying_.begin());
  ++stats_.delivered;
  return frame;
}

}  // namespace vireo
