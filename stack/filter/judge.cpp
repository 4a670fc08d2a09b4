#include "stack/filter/judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "stack/filter/conditions.h"

namespace vireo::filter {
namespace {

/// More than the kernel's limit of nested jumps (NFT_JUMP_STACK_SIZE).
constexpr unsigned kMaxJumps = 16;

/// The ways in which packets may leave a chain.
struct Ways {
  bool accepts = false;
  bool falls = false;  ///< at its end, or by `return`
  const Chain* refused_in = nullptr;
  uint64_t refused_by = 0;  ///< handle; 0: policy

  void refuse(const Chain& in, uint64_t by) {
    if (refused_in != nullptr) return;
    refused_in = &in;
    refused_by = by;
  }
  /// Adds the result of a chain that was jumped to.
  void add(const Ways& o) {
    accepts |= o.accepts;
    if (o.refused_in != nullptr) refuse(*o.refused_in, o.refused_by);
  }
};

class Walk {
 public:
  Walk(const Ruleset& rules, const Table& table, const Packet& packet)
      : rules_(rules), table_(table), packet_(packet) {}

  Ways through(const Chain& chain, unsigned depth = 0) const {
    Ways ways;
    for (const Rule& rule : chain.rules)
      if (!goes_on(ways, chain, rule, depth)) return ways;
    ways.falls = true;
    return ways;
  }

 private:
  /// @return evaluation may continue with the next rule.
  bool goes_on(Ways& ways, const Chain& chain, const Rule& rule, unsigned depth) const {
    for (const Outcome& o : outcomes(rules_, table_, rule, packet_)) {
      if (o.certainty == Ternary::kNo) continue;
      bool next = false;  // the next rule is evaluated even if this one matches
      switch (o.verdict.kind) {
        case Verdict::Kind::kNone:
          next = true;
          break;
        case Verdict::Kind::kAccept:
          ways.accepts = true;
          break;
        case Verdict::Kind::kRefuse:
          ways.refuse(chain, rule.handle);
          break;
        case Verdict::Kind::kReturn:
          ways.falls = true;
          break;
        case Verdict::Kind::kJump:
        case Verdict::Kind::kGoto: {
          const Chain* const to = table_.chain(o.verdict.chain);
          if (to == nullptr || depth == kMaxJumps) {
            ways.refuse(chain, rule.handle);  // read during a change
            break;
          }
          const Ways inner = through(*to, depth + 1);
          ways.add(inner);
          if (o.verdict.kind == Verdict::Kind::kGoto)
            ways.falls |= inner.falls;
          else
            next = inner.falls;
          break;
        }
      }
      if (o.certainty == Ternary::kYes) return next;
    }
    return true;
  }

  const Ruleset& rules_;
  const Table& table_;
  const Packet& packet_;
};

bool passes_by(const Chain& c, const Table& t, const Packet& p) {
  switch (t.family) {
    case Family::kIpv4:
      if (p.flow.v6) return false;
      break;
    case Family::kIpv6:
      if (!p.flow.v6) return false;
      break;
    case Family::kInet:
    case Family::kNetdev:
      break;
    case Family::kOther:
      return false;
  }
  if (c.is_nat && p.state != CtState::kNew) return false;
  switch (c.hook.value_or(Hook::kOther)) {
    case Hook::kIngress:
      if (!p.inbound) return false;
      break;
    case Hook::kEgress:
      if (p.inbound) return false;
      break;
    case Hook::kPrerouting:
    case Hook::kInput:
      return p.inbound;
    case Hook::kOutput:
    case Hook::kPostrouting:
      return !p.inbound;
    case Hook::kOther:
      return false;
  }
  const Interface& i = p.flow.interface;
  return i.index == IfIndex() || std::ranges::find(c.devices, i.name) != c.devices.end();
}

std::string place(const Table& t, const Chain& c, uint64_t handle) {
  const std::string where = fmt::format("{} {} {}", t.family_name, t.name, c.name);
  if (handle == 0) return where + ", policy";
  return fmt::format("{}, {} {}", where, t.family_name == "iptables-legacy" ? "rule" : "handle",
                     handle);
}

std::optional<std::string> refused_by_chains(const Ruleset& rules, const Packet& p) {
  for (const Table& t : rules.tables) {
    for (const Chain& c : t.chains) {
      if (!c.hook || !passes_by(c, t, p)) continue;
      Ways ways = Walk(rules, t, p).through(c);
      if (ways.falls && c.refuses) ways.refuse(c, 0);
      if (ways.refused_in != nullptr) return place(t, *ways.refused_in, ways.refused_by);
    }
  }
  return std::nullopt;
}

Ternary within(const IpAddr& a, const IpAddr& net, uint8_t bits) {
  if (bits == 0) return Ternary::kYes;
  if (a.is_unspecified()) return Ternary::kMaybe;
  return surely(a.in_prefix(net, bits));
}

Ternary is_port(uint16_t port, uint16_t wanted, uint16_t mask) {
  if (mask == 0) return Ternary::kYes;
  if (port == 0) return Ternary::kMaybe;
  return surely(((port ^ wanted) & mask) == 0);
}

Ternary covers(const IpsecPolicy& i, const Packet& p) {
  const Flow& f = p.flow;
  if (i.inbound != p.inbound || i.v6 != f.v6) return Ternary::kNo;
  if (i.proto != 0 && i.proto != static_cast<uint8_t>(f.proto)) return Ternary::kNo;
  if (i.ifindex != IfIndex() && f.interface.index != IfIndex() && i.ifindex != f.interface.index)
    return Ternary::kNo;
  const Ternary addresses = both(within(p.source().addr, i.src, i.src_len),
                                 within(p.destination().addr, i.dst, i.dst_len));
  return both(addresses, both(is_port(p.source().port, i.sport, i.sport_mask),
                              is_port(p.destination().port, i.dport, i.dport_mask)));
}

std::optional<std::string> transformed(const Ruleset& rules, const Packet& p) {
  for (const IpsecPolicy& i : rules.ipsec) {
    const Ternary t = covers(i, p);
    if (t == Ternary::kNo) continue;
    if (!i.passes) return fmt::format("IPsec policy {} (ip xfrm policy)", p.inbound ? "in" : "out");
    if (t == Ternary::kYes) break;
  }
  return std::nullopt;
}

std::optional<std::string> controlled(const Ruleset& rules, const Packet& p) {
  for (const TrafficControl& t : rules.traffic_control) {
    if (t.inbound != p.inbound) continue;
    const Interface& i = p.flow.interface;
    if (i.index != IfIndex() && i.index != t.ifindex) continue;
    return fmt::format("tc filter {} of {}", t.inbound ? "ingress" : "egress",
                       i.name.empty() ? fmt::format("interface {}", t.ifindex.value()) : i.name);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> obstacle(const Ruleset& rules, const Flow& flow) {
  if (rules.is_empty()) return std::nullopt;
  for (const Packet& p : packets_of(flow)) {
    if (auto by = refused_by_chains(rules, p)) return by;
    if (auto by = transformed(rules, p)) return by;
    if (auto by = controlled(rules, p)) return by;
  }
  return std::nullopt;
}

}  // namespace vireo::filter
