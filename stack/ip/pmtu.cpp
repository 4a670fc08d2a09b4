#include "stack/ip/pmtu.h"

#include <algorithm>

#include "stack/ip/icmp_error.h"

namespace vireo::ip {

bool PmtuTable::report(const IpAddr& dst, uint32_t mtu, uint32_t link_mtu, Instant now) noexcept {
  mtu = std::max(mtu, dst.is_v4() ? kMinPathMtuV4 : kMinPathMtuV6);
  const uint32_t before = get(dst, link_mtu, now);
  if (mtu > before) return false;
  if (mtu == link_mtu) return false;  // nothing to store
  Set& set = const_cast<Set&>(set_of(dst));
  Entry* to = nullptr;
  for (Entry& e : set)
    if (e.mtu != 0 && e.dst == dst) to = &e;
  if (to == nullptr)  // a free entry, else the one that expires first
    to = &*std::min_element(set.begin(), set.end(), [](const Entry& a, const Entry& b) {
      return (a.mtu == 0 ? Instant() : a.expires) < (b.mtu == 0 ? Instant() : b.expires);
    });
  *to = {dst, mtu, now + kExpiry};
  first_expiry_ = std::min(first_expiry_, to->expires);
  return mtu < before;
}

uint32_t PmtuTable::get(const IpAddr& dst, uint32_t link_mtu, Instant now) const noexcept {
  if (first_expiry_.is_never()) return link_mtu;
  for (const Entry& e : set_of(dst))
    if (e.mtu != 0 && e.dst == dst && now < e.expires) return std::min(e.mtu, link_mtu);
  return link_mtu;
}

bool PmtuTable::expire(Instant now) noexcept {
  bool any = false;
  first_expiry_ = Instant::never();
  for (Set& set : sets_)
    for (Entry& e : set) {
      if (e.mtu == 0) continue;
      if (e.expires <= now) {
        e = {};
        any = true;
      } else {
        first_expiry_ = std::min(first_expiry_, e.expires);
      }
    }
  return any;
}

}  // namespace vireo::ip
