// The host's links and addresses, as the steering program knows them. Every member tells what the
// kernel says; the program's own arrays and tables are compared with that, whoever wrote them.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "dev/xdp/steer.h"
#include "dev/xdp/steer_arrays.h"
#include "dev/xdp/steer_hold.h"

namespace vireo::xdp {
namespace {

template <class Range>
bool has(const Range& all, const IpAddr& a) {
  return std::ranges::find(all, a) != all.end();
}

/// The places of a family's first addresses; an empty one is zero.
class FirstAddresses {
 public:
  FirstAddresses(steer_host& host, bool v4)
      : base_(v4 ? reinterpret_cast<uint8_t*>(host.v4) : host.v6[0]),
        count_(v4 ? STEER_FIRST_V4 : STEER_FIRST_V6),
        bytes_(v4 ? 4 : 16) {}

  bool contains(const IpAddr& a) const { return find(raw(a)) != nullptr; }
  /// @return false: there is no room.
  bool add(const IpAddr& a) {
    uint8_t* const at = find(kEmpty);
    if (at != nullptr) std::memcpy(at, raw(a), bytes_);
    return at != nullptr;
  }
  void keep_only(std::span<const IpAddr> wanted) {
    for (size_t i = 0; i < count_; ++i) {
      uint8_t* const at = base_ + i * bytes_;
      const auto is_at = [&](const IpAddr& a) { return std::memcmp(at, raw(a), bytes_) == 0; };
      if (std::ranges::none_of(wanted, is_at)) std::memset(at, 0, bytes_);
    }
  }

 private:
  static constexpr uint8_t kEmpty[16] = {};
  const uint8_t* raw(const IpAddr& a) const { return a.bytes().data() + 16 - bytes_; }
  uint8_t* find(const uint8_t* raw) const {
    for (size_t i = 0; i < count_; ++i)
      if (std::memcmp(base_ + i * bytes_, raw, bytes_) == 0) return base_ + i * bytes_;
    return nullptr;
  }

  uint8_t* const base_;
  const size_t count_, bytes_;
};

}  // namespace

void Steering::set_host(const HostOnWire& host) {
  // Held off by a stopped member, it is done all the same: a gone address must not be ours.
  const Hold hold(*this);
  set_links(host.links);
  for (const bool v4 : {true, false}) set_addresses(host.addresses, v4);
  set_fragments(slot(), host.fragments);
}

void Steering::set_links(std::span<const HostLink> links) noexcept {
  SteerArrays& arrays = ports_.arrays();
  for (uint16_t vlan = 1; vlan < STEER_VLANS; ++vlan)
    if (arrays.vlans[vlan].is_here != 0 &&
        std::ranges::find(links, VlanId(vlan), &HostLink::vlan) == links.end())
      arrays.vlans[vlan] = {};
  for (const HostLink& l : links) {
    if (l.vlan.value() >= STEER_VLANS) continue;
    auto& at = l.vlan.value() == 0 ? arrays.untagged : arrays.vlans[l.vlan.value()];
    std::memcpy(at.mac, l.mac.data(), sizeof at.mac);
    std::atomic_ref(at.is_here).store(1, std::memory_order_release);  // after the MAC is written
  }
}

/// Addresses that stay keep their places, because their frames arrive meanwhile.
void Steering::set_addresses(std::span<const IpAddr> addresses, bool v4) {
  steer_host& host = ports_.arrays().host;
  std::vector<IpAddr> wanted;
  std::ranges::copy_if(addresses, std::back_inserter(wanted),
                       [&](const IpAddr& a) { return a.is_v4() == v4 && !a.is_unspecified(); });
  uint8_t& more = v4 ? host.more_v4 : host.more_v6;
  std::vector<IpAddr> in_table;
  if (more != 0) tables().for_each_address(v4, [&](const IpAddr& a) { in_table.push_back(a); });

  FirstAddresses first(host, v4);
  first.keep_only(wanted);
  std::vector<IpAddr> further;
  for (const IpAddr& a : wanted)
    if (!first.contains(a) && !first.add(a)) further.push_back(a);
  if (!further.empty()) more = 1;  // before the first is there
  for (const IpAddr& a : further)
    if (!has(in_table, a)) tables().insert_address(a);
  for (const IpAddr& a : in_table)
    if (!has(further, a)) tables().erase_address(a);
  if (further.empty()) more = 0;
}

void Steering::set_fragments(unsigned slot, bool on) noexcept {
  const uint64_t member = uint64_t{1} << slot;
  std::atomic_ref wanted(ports_.arrays().host.takes_fragments);
  if (on)
    wanted.fetch_or(member, std::memory_order_relaxed);
  else
    wanted.fetch_and(~member, std::memory_order_relaxed);
}

}  // namespace vireo::xdp
