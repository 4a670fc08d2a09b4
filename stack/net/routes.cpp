#include "stack/net/routes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace vireo::net {
namespace {

struct Bits128 {
  uint64_t hi, lo;
  auto operator<=>(const Bits128&) const = default;
};

Bits128 bits_of(const IpAddr& a) {
  uint64_t w[2];
  std::memcpy(w, a.bytes().data(), sizeof w);
  return {std::byteswap(w[0]), std::byteswap(w[1])};
}

/// Prefix length in the 128-bit space that IPv4 is mapped into.
unsigned mapped_len(const Route& r) {
  return r.dst.is_v4() && r.dst_len <= 32 ? r.dst_len + 96U
                                          : r.dst_len;  // ::ffff:0:0/96 itself is IPv6
}

bool contains(uint64_t hi, uint64_t lo, unsigned len, Bits128 a) {
  if (len <= 64) return len == 0 || ((hi ^ a.hi) >> (64 - len)) == 0;
  return hi == a.hi && ((lo ^ a.lo) >> (128 - len)) == 0;
}

}  // namespace

bool RouteTable::precedes(const Route& a, const Route& b) {
  if (a.dst != b.dst) return bits_of(a.dst) < bits_of(b.dst);
  if (a.dst_len != b.dst_len) return a.dst_len < b.dst_len;
  if (a.tos != b.tos) return a.tos > b.tos;
  return a.metric < b.metric;
}

RouteTable::RouteTable(std::vector<Route> routes, bool has_source_routes)
    : routes_(std::move(routes)), has_source_routes_(has_source_routes) {
  uint32_t enclosing = kNone;  // the innermost prefix still open: a stack linked by parent
  for (uint32_t i = 0; i < routes_.size(); ++i) {
    const Route& r = routes_[i];
    has_multipath_ |= !r.multipath.empty();
    const Bits128 a = bits_of(r.dst);
    const auto len = static_cast<uint8_t>(mapped_len(r));
    if (!prefixes_.empty()) {
      const Prefix& p = prefixes_.back();
      if (p.hi == a.hi && p.lo == a.lo && p.len == len) continue;
    }
    while (enclosing != kNone) {
      const Prefix& p = prefixes_[enclosing];
      if (p.len < len && contains(p.hi, p.lo, p.len, a)) break;
      enclosing = p.parent;
    }
    prefixes_.push_back({a.hi, a.lo, i, enclosing, len});
    enclosing = static_cast<uint32_t>(prefixes_.size() - 1);
  }
  prefixes_.push_back(
      {0, 0, static_cast<uint32_t>(routes_.size()), kNone, 0});  // ends the last set
}

RouteTable::Match RouteTable::at(uint32_t prefix) const {
  const Route* base = routes_.data();
  return {base + prefixes_[prefix].first, base + prefixes_[prefix + 1].first,
          prefixes_[prefix].parent};
}

std::optional<RouteTable::Match> RouteTable::longest(const IpAddr& dst) const {
  const Bits128 a = bits_of(dst);
  size_t lo = 0;
  size_t hi = prefixes_.size() - 1;  // without the sentinel
  while (lo < hi) {
    const size_t mid = (lo + hi) / 2;
    const Prefix& p = prefixes_[mid];
    if (p.hi < a.hi || (p.hi == a.hi && p.lo <= a.lo))
      lo = mid + 1;
    else
      hi = mid;
  }
  if (lo == 0) return std::nullopt;
  for (auto i = static_cast<uint32_t>(lo - 1); i != kNone; i = prefixes_[i].parent)
    if (contains(prefixes_[i].hi, prefixes_[i].lo, prefixes_[i].len, a)) return at(i);
  return std::nullopt;
}

std::optional<RouteTable::Match> RouteTable::shorter(const Match& m) const {
  if (m.parent == kNone) return std::nullopt;
  return at(m.parent);
}

const RouteTable* RouteTables::find(uint32_t id, bool v6) const {
  for (const Entry& e : all)
    if (e.id == id && e.v6 == v6) return e.table.get();
  return nullptr;
}

}  // namespace vireo::net
