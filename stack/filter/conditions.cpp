#include "stack/filter/conditions.h"

#include <netinet/in.h>
// After the header above: else these define its names again.
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/rtnetlink.h>

#include "core/byteorder.h"

namespace vireo::filter {
namespace {

constexpr size_t kMaxLoad = 16;

/// An 8- or 16-bit number as nf_tables stores it: the rest of the 32-bit register is 0.
template <class T>
Bits narrow(T number) {
  Bits b = Bits::of(uint32_t{0});
  b.put(0, Bits::of(number));
  return b;
}

Bits name_bits(const std::string& name) {
  std::array<uint8_t, IFNAMSIZ> bytes{};
  std::copy_n(name.begin(), std::min(name.size(), bytes.size() - 1), bytes.begin());
  return Bits::known(bytes);
}

/// The interface by which the packet comes (`in`) or leaves.
Bits interface_bits(const Packet& p, bool in, uint32_t key) {
  const bool is_name = key == NFT_META_IIFNAME || key == NFT_META_OIFNAME;
  const Interface& i = p.flow.interface;
  // On input the output interface is unset, and vice versa.
  if (in != p.inbound) return Bits::known(Bytes(is_name ? IFNAMSIZ : sizeof(uint32_t)));
  if (key == NFT_META_IIFTYPE || key == NFT_META_OIFTYPE)
    return narrow(static_cast<uint16_t>(ARPHRD_ETHER));
  if (i.index == IfIndex()) return Bits::unknown(is_name ? IFNAMSIZ : sizeof(uint32_t));
  return is_name ? name_bits(i.name) : Bits::of(i.index.value());
}

Bits meta(const Ruleset& rules, const Packet& p, uint32_t key) {
  switch (key) {
    case NFT_META_L4PROTO:
      return narrow(static_cast<uint8_t>(p.flow.proto));
    case NFT_META_NFPROTO:
      return narrow(static_cast<uint8_t>(p.flow.v6 ? NFPROTO_IPV6 : NFPROTO_IPV4));
    case NFT_META_PROTOCOL:
      return narrow(be16(p.flow.v6 ? ETH_P_IPV6 : ETH_P_IP).raw());
    case NFT_META_IIF:
    case NFT_META_IIFNAME:
    case NFT_META_IIFTYPE:
      return interface_bits(p, true, key);
    case NFT_META_OIF:
    case NFT_META_OIFNAME:
    case NFT_META_OIFTYPE:
      return interface_bits(p, false, key);
    case NFT_META_MARK:
      // The program's own mark (SO_MARK) is unknown.
      if (rules.sets_marks || !p.inbound) return Bits::unknown(sizeof(uint32_t));
      return Bits::of(uint32_t{0});
    default:
      return Bits::unknown(kMaxLoad);
  }
}

Bits conntrack(const Ruleset& rules, const Packet& p, uint32_t key) {
  switch (key) {
    case NFT_CT_STATE:
      if (rules.untracks) return Bits::unknown(sizeof(uint32_t));
      return Bits::of(static_cast<uint32_t>(p.state));
    case NFT_CT_MARK:
      if (rules.sets_marks) return Bits::unknown(sizeof(uint32_t));
      return Bits::of(uint32_t{0});
    default:
      return Bits::unknown(kMaxLoad);
  }
}

/// RTN_* of the destination.
Bits destination_type(const Packet& p) {
  const IpAddr to = p.destination().addr;
  const bool is_plain = !to.is_multicast() && !to.is_limited_broadcast();
  // A socket bound to the wildcard address also receives broadcasts.
  if (!is_plain || (p.inbound && to.is_unspecified() && p.flow.proto == IpProto::kUdp))
    return Bits::unknown(sizeof(uint32_t));
  if (p.inbound) return Bits::of(uint32_t{RTN_LOCAL});
  return Bits::of(uint32_t{RTN_UNICAST});
}

/// Each field of a concatenation begins at a 32-bit register.
constexpr size_t register_bytes(size_t n) { return (n + 3) / 4 * 4; }

Bits headers(const Packet& p, const Expr& e) {
  switch (e.base) {
    case NFT_PAYLOAD_NETWORK_HEADER:
      return p.network_header().part(e.offset, e.length);
    case NFT_PAYLOAD_TRANSPORT_HEADER:
      return p.transport_header().part(e.offset, e.length);
    default:
      return Bits::unknown(e.length);
  }
}

/// Register bytes beyond the loaded ones are 0.
Bits payload(const Packet& p, const Expr& e) {
  Bits whole = Bits::known(Bytes(register_bytes(e.length)));
  whole.put(0, headers(p, e));
  return whole;
}

Ternary compared(const Bits& with, const Expr& e) {
  switch (e.op) {
    case NFT_CMP_EQ:
      return with.equals(e.data);
    case NFT_CMP_NEQ:
      return negated(with.equals(e.data));
    case NFT_CMP_LT:
      return negated(with.at_least(e.data));
    case NFT_CMP_LTE:
      return with.at_most(e.data);
    case NFT_CMP_GT:
      return negated(with.at_most(e.data));
    case NFT_CMP_GTE:
      return with.at_least(e.data);
    default:
      return Ternary::kMaybe;
  }
}

Ternary is_element(const Set& set, const Set::Element& e, const Bits& key) {
  const Bytes& last = e.end.empty() ? e.key : e.end;
  if (last.size() != e.key.size()) return Ternary::kMaybe;
  Ternary is = Ternary::kYes;
  if (set.fields.empty()) {
    is = key.part(0, e.key.size()).within(e.key, last);
  } else {
    size_t at = 0;
    for (const uint32_t n : set.fields) {
      if (at + n > e.key.size()) return Ternary::kMaybe;
      const auto field = [&](const Bytes& b) { return std::span(b).subspan(at, n); };
      is = both(is, key.part(at, n).within(field(e.key), field(last)));
      at += register_bytes(n);
    }
  }
  return e.is_certain ? is : both(is, Ternary::kMaybe);
}

/// State of evaluating a rule: its registers, and whether it matches so far.
struct State {
  Bits registers = Bits::unknown(Bits::kMax);
  Ternary matches = Ternary::kYes;
  std::vector<Outcome> outcomes;
};

/// @return the verdict is decided, or one of several.
bool look_up(const Table& table, const Expr& e, State& s) {
  const Set* const set = table.set(e.name);
  const bool wants_verdict = e.to == kVerdictRegister;
  const bool wants_data = !wants_verdict && !e.inverted && e.length != 0;
  if (set == nullptr || !set->is_known) {
    s.matches = both(s.matches, Ternary::kMaybe);
    if (wants_data) s.registers.put(e.to, Bits::unknown(kMaxLoad));
    if (!wants_verdict) return false;
    s.outcomes.push_back({s.matches, {Verdict::Kind::kRefuse}});
    return true;
  }
  const Bits key = s.registers.part(e.from, Bits::kMax);
  Ternary found = Ternary::kNo;
  unsigned candidates = 0;
  const Set::Element* only = nullptr;
  const auto take = [&](const Set::Element& element, Ternary is) {
    if (is == Ternary::kNo) return;
    found = either(found, is);
    ++candidates;
    only = &element;
    if (wants_verdict) s.outcomes.push_back({both(s.matches, is), element.verdict});
  };
  for (const Set::Element& element : set->elements) take(element, is_element(*set, element, key));
  if (found != Ternary::kYes)
    for (const Set::Element& element : set->otherwise) take(element, Ternary::kYes);
  s.matches = both(s.matches, e.inverted ? negated(found) : found);
  if (wants_data) {
    s.registers.put(e.to, Bits::unknown(kMaxLoad));
    if (candidates == 1 && found == Ternary::kYes) s.registers.put(e.to, Bits::known(only->data));
  }
  // At most one element of a map matches: with several candidates none is certain.
  if (wants_verdict && candidates > 1)
    for (Outcome& o : s.outcomes) o.certainty = both(o.certainty, Ternary::kMaybe);
  return wants_verdict;
}

/// @return the rule ends here.
bool step(const Ruleset& rules, const Table& table, const Packet& p, const Expr& e, State& s) {
  const auto require = [&](Ternary t) { s.matches = both(s.matches, t); };
  switch (e.kind) {
    case Expr::Kind::kPass:
      break;
    case Expr::Kind::kMaybe:
      require(Ternary::kMaybe);
      break;
    case Expr::Kind::kLoad:
      s.registers.put(e.to, Bits::unknown(kMaxLoad));
      require(Ternary::kMaybe);  // if there is nothing to load, the rule does not match
      break;
    case Expr::Kind::kImmediate:
      s.registers.put(e.to, Bits::known(e.data));
      break;
    case Expr::Kind::kVerdict:
      s.outcomes.push_back({s.matches, e.verdict});
      return true;
    case Expr::Kind::kPayload:
      s.registers.put(e.to, payload(p, e));
      break;
    case Expr::Kind::kMeta:
      s.registers.put(e.to, meta(rules, p, e.key));
      break;
    case Expr::Kind::kCt:
      s.registers.put(e.to, conntrack(rules, p, e.key));
      break;
    case Expr::Kind::kDaddrType:
      s.registers.put(e.to, destination_type(p));
      break;
    case Expr::Kind::kCompare:
      require(compared(s.registers.part(e.from, e.data.size()), e));
      break;
    case Expr::Kind::kRange: {
      const Ternary in = s.registers.part(e.from, e.data.size()).within(e.data, e.more);
      require(e.inverted ? negated(in) : in);
      break;
    }
    case Expr::Kind::kBitwise:
      s.registers.put(e.to, s.registers.part(e.from, e.length).masked(e.data, e.more));
      break;
    case Expr::Kind::kByteorder:
      s.registers.put(e.to, s.registers.part(e.from, e.length).swapped(e.offset));
      break;
    case Expr::Kind::kLookup:
      return look_up(table, e, s);
    case Expr::Kind::kXtMatch: {
      const Ternary t = xt_match(e, p, !rules.sets_marks);
      require(t == Ternary::kMaybe || !rules.untracks ? t : Ternary::kMaybe);
      break;
    }
  }
  return s.matches == Ternary::kNo;
}

}  // namespace

std::vector<Outcome> outcomes(const Ruleset& rules, const Table& table, const Rule& rule,
                              const Packet& packet) {
  State s;
  for (const Expr& e : rule.exprs) {
    if (!step(rules, table, packet, e, s)) continue;
    return std::move(s.outcomes);
  }
  s.outcomes.push_back({s.matches, {}});
  return std::move(s.outcomes);
}

}  // namespace vireo::filter
