// Path MTUs reported by routers, by destination. An entry expires after ten minutes, so that an
// increase is found (RFC 1191 §6.3, RFC 8201 §4; Linux: ip_rt_mtu_expires, ip_rt_min_pmtu). Fixed
// size, four entries per set: a flood of errors only evicts old entries. Owner: one engine. Thread:
// holder of its lock. The caller passes the time.
#pragma once

#include <array>
#include <cstdint>

#include "core/address.h"
#include "core/clock.h"
#include "core/flow_hash.h"

namespace vireo::ip {

class PmtuTable {
 public:
  static constexpr Duration kExpiry = Duration::s(600);
  static constexpr unsigned kCapacity = 256;

  explicit PmtuTable(const FlowHashKey& key) noexcept : key_(key) {}

  /// An accepted "packet too big": lowers the path MTU, never below the family's minimum, and never
  /// raises it; a repeated report keeps it for another ten minutes. `link_mtu`: of the interface or
  /// route. @return true if the path MTU is lower than before.
  bool report(const IpAddr& dst, uint32_t mtu, uint32_t link_mtu, Instant now) noexcept;

  /// The largest IP packet to `dst`: the reported MTU, or `link_mtu`.
  uint32_t get(const IpAddr& dst, uint32_t link_mtu, Instant now) const noexcept;

  /// When an entry may expire; Instant::never() if there is none.
  Instant first_expiry() const noexcept { return first_expiry_; }
  /// Removes expired entries. @return any was removed.
  bool expire(Instant now) noexcept;

 private:
  static constexpr unsigned kWays = 4;
  struct Entry {
    IpAddr dst;
    uint32_t mtu = 0;  ///< 0: free
    Instant expires;
  };
  using Set = std::array<Entry, kWays>;

  const Set& set_of(const IpAddr& dst) const noexcept {
    return sets_[flow_hash(key_, dst.bytes().data(), 16) % sets_.size()];
  }

  FlowHashKey key_;
  std::array<Set, kCapacity / kWays> sets_{};
  Instant first_expiry_ = Instant::never();  ///< or earlier: reports renew entries
};

}  // namespace vireo::ip
