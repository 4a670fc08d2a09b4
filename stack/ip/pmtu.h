// The path MTUs that routers reported, by destination. An entry expires after ten minutes, so that
// a path that grew is found again (RFC 1191 §6.3, RFC 8201 §4; Linux: ip_rt_mtu_expires,
// ip_rt_min_pmtu). Fixed size, four places a set: a flood of errors evicts old entries and costs
// nothing else. Owner: one engine. Thread: holder of its lock. Time is passed in.
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

  /// A believed "too big": lowers the path's MTU, never below the family's floor and never raises
  /// it; a repeated report keeps it for another ten minutes.
  /// @return true if the MTU of the path is lower than before. `link_mtu`: of the interface or
  /// route.
  bool report(const IpAddr& dst, uint32_t mtu, uint32_t link_mtu, Instant now) noexcept;

  /// The largest IP packet to `dst`: what was reported, or `link_mtu`.
  uint32_t get(const IpAddr& dst, uint32_t link_mtu, Instant now) const noexcept;

  /// When something may have to be forgotten; Instant::never() if nothing is known.
  Instant first_expiry() const noexcept { return first_expiry_; }
  /// Forgets what is too old. @return something was.
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
  Instant first_expiry_ = Instant::never();  ///< or earlier: reports put it off
};

}  // namespace vireo::ip
