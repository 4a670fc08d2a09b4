#include "stack/filter/nft_exprs.h"

#include <netinet/in.h>
// After the header above: else these define its names again.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace vireo::filter {
namespace {

using net::Attributes;

Bytes bytes_of(const nlattr* a) {
  if (a == nullptr) return {};
  const auto* p = reinterpret_cast<const uint8_t*>(net::attribute_data(a));
  return {p, p + std::max(net::attribute_length(a), 0)};
}

/// Byte offset of a register (net/netfilter/nf_tables_api.c nft_parse_register).
uint32_t place(const nlattr* a) {
  const uint32_t n = number(a);
  if (n == NFT_REG_VERDICT) return kVerdictRegister;
  if (n <= NFT_REG_4) return (n - NFT_REG_1) * NFT_REG_SIZE;
  return (n - NFT_REG32_00) * NFT_REG32_SIZE;
}

Verdict verdict_of(uint32_t code, std::string chain) {
  switch (static_cast<int32_t>(code)) {
    case NF_ACCEPT:
    case NF_STOP:
      return {Verdict::Kind::kAccept};
    case NFT_RETURN:
      return {Verdict::Kind::kReturn};
    case NFT_JUMP:
      return {Verdict::Kind::kJump, std::move(chain)};
    case NFT_GOTO:
      return {Verdict::Kind::kGoto, std::move(chain)};
    case NFT_CONTINUE:
    case NFT_BREAK:
      return {};
    default:  // NF_DROP, NF_QUEUE
      return {Verdict::Kind::kRefuse};
  }
}

Expr maybe() { return {.kind = Expr::Kind::kMaybe}; }
Expr refuse() { return {.kind = Expr::Kind::kVerdict, .verdict = {Verdict::Kind::kRefuse}}; }
Expr accept() { return {.kind = Expr::Kind::kVerdict, .verdict = {Verdict::Kind::kAccept}}; }

Expr unknown_into(const nlattr* reg) { return {.kind = Expr::Kind::kLoad, .to = place(reg)}; }

Expr immediate(const nlattr* data) {
  const Attributes<NFTA_IMMEDIATE_MAX> a(data);
  Data d = parse_data(a[NFTA_IMMEDIATE_DATA]);
  const uint32_t to = place(a[NFTA_IMMEDIATE_DREG]);
  if (to == kVerdictRegister)
    return {.kind = Expr::Kind::kVerdict, .verdict = std::move(d.verdict)};
  return {.kind = Expr::Kind::kImmediate, .to = to, .data = std::move(d.value)};
}

Expr payload(const nlattr* data) {
  const Attributes<NFTA_PAYLOAD_MAX> a(data);
  if (a[NFTA_PAYLOAD_DREG] == nullptr) return {};  // it writes into the packet
  return {.kind = Expr::Kind::kPayload,
          .base = static_cast<uint8_t>(number(a[NFTA_PAYLOAD_BASE])),
          .to = place(a[NFTA_PAYLOAD_DREG]),
          .offset = number(a[NFTA_PAYLOAD_OFFSET]),
          .length = number(a[NFTA_PAYLOAD_LEN])};
}

Expr meta(const nlattr* data, Ruleset& rules) {
  const Attributes<NFTA_META_MAX> a(data);
  const uint32_t key = number(a[NFTA_META_KEY]);
  if (a[NFTA_META_DREG] == nullptr) {
    rules.sets_marks |= key == NFT_META_MARK;
    return {};
  }
  return {.kind = Expr::Kind::kMeta, .key = key, .to = place(a[NFTA_META_DREG])};
}

Expr conntrack(const nlattr* data, Ruleset& rules) {
  const Attributes<NFTA_CT_MAX> a(data);
  const uint32_t key = number(a[NFTA_CT_KEY]);
  if (a[NFTA_CT_DREG] == nullptr) {
    rules.sets_marks |= key == NFT_CT_MARK;
    return {};
  }
  return {.kind = Expr::Kind::kCt, .key = key, .to = place(a[NFTA_CT_DREG])};
}

Expr compare(const nlattr* data) {
  const Attributes<NFTA_CMP_MAX> a(data);
  return {.kind = Expr::Kind::kCompare,
          .op = static_cast<uint8_t>(number(a[NFTA_CMP_OP])),
          .from = place(a[NFTA_CMP_SREG]),
          .data = parse_data(a[NFTA_CMP_DATA]).value};
}

Expr range(const nlattr* data) {
  const Attributes<NFTA_RANGE_MAX> a(data);
  return {.kind = Expr::Kind::kRange,
          .inverted = number(a[NFTA_RANGE_OP]) == NFT_RANGE_NEQ,
          .from = place(a[NFTA_RANGE_SREG]),
          .data = parse_data(a[NFTA_RANGE_FROM_DATA]).value,
          .more = parse_data(a[NFTA_RANGE_TO_DATA]).value};
}

Expr bitwise(const nlattr* data) {
  const Attributes<NFTA_BITWISE_MAX> a(data);
  const bool is_bool = number(a[NFTA_BITWISE_OP], NFT_BITWISE_BOOL) == NFT_BITWISE_BOOL;
  if (!is_bool || a[NFTA_BITWISE_MASK] == nullptr || a[NFTA_BITWISE_XOR] == nullptr)
    return unknown_into(a[NFTA_BITWISE_DREG]);
  return {.kind = Expr::Kind::kBitwise,
          .from = place(a[NFTA_BITWISE_SREG]),
          .to = place(a[NFTA_BITWISE_DREG]),
          .length = number(a[NFTA_BITWISE_LEN]),
          .data = parse_data(a[NFTA_BITWISE_MASK]).value,
          .more = parse_data(a[NFTA_BITWISE_XOR]).value};
}

Expr byteorder(const nlattr* data) {
  const Attributes<NFTA_BYTEORDER_MAX> a(data);
  static_assert(std::endian::native == std::endian::little);
  return {.kind = Expr::Kind::kByteorder,
          .from = place(a[NFTA_BYTEORDER_SREG]),
          .to = place(a[NFTA_BYTEORDER_DREG]),
          .offset = number(a[NFTA_BYTEORDER_SIZE]),
          .length = number(a[NFTA_BYTEORDER_LEN])};
}

Expr lookup(const nlattr* data) {
  const Attributes<NFTA_LOOKUP_MAX> a(data);
  const nlattr* const dreg = a[NFTA_LOOKUP_DREG];
  return {.kind = Expr::Kind::kLookup,
          .inverted = (number(a[NFTA_LOOKUP_FLAGS]) & NFT_LOOKUP_F_INV) != 0,
          .from = place(a[NFTA_LOOKUP_SREG]),
          .to = dreg != nullptr ? place(dreg) : 0,
          .length = dreg != nullptr ? 1U : 0U,  // whether data is loaded
          .name = text(a[NFTA_LOOKUP_SET])};
}

Expr fib(const nlattr* data) {
  const Attributes<NFTA_FIB_MAX> a(data);
  const uint32_t flags = number(a[NFTA_FIB_FLAGS]);
  Expr e = unknown_into(a[NFTA_FIB_DREG]);
  if (number(a[NFTA_FIB_RESULT]) == NFT_FIB_RESULT_ADDRTYPE && flags == NFTA_FIB_F_DADDR)
    e.kind = Expr::Kind::kDaddrType;
  return e;
}

Expr xt_match(const nlattr* data) {
  const Attributes<NFTA_MATCH_MAX> a(data);
  return {.kind = Expr::Kind::kXtMatch,
          .key = number(a[NFTA_MATCH_REV]),
          .data = bytes_of(a[NFTA_MATCH_INFO]),
          .name = text(a[NFTA_MATCH_NAME])};
}

Expr xt_target_of(const nlattr* data, Ruleset& rules) {
  const Attributes<NFTA_TARGET_MAX> a(data);
  return xt_target(text(a[NFTA_TARGET_NAME]), rules);
}

/// An expression that mostly loads a value: the attribute of its register.
Expr other(std::string_view name, const nlattr* data) {
  struct Loader {
    std::string_view name;
    int dreg;
  };
  static constexpr std::array kLoaders{
      Loader{"exthdr", NFTA_EXTHDR_DREG}, Loader{"rt", NFTA_RT_DREG},
      Loader{"socket", NFTA_SOCKET_DREG}, Loader{"osf", NFTA_OSF_DREG},
      Loader{"numgen", NFTA_NG_DREG},     Loader{"hash", NFTA_HASH_DREG},
      Loader{"tunnel", NFTA_TUNNEL_DREG}, Loader{"xfrm", NFTA_XFRM_DREG}};
  const auto it = std::ranges::find(kLoaders, name, &Loader::name);
  if (it == kLoaders.end()) return maybe();
  const Attributes<16> a(data);
  return a[it->dreg] != nullptr ? unknown_into(a[it->dreg]) : Expr{};
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

Expr parse_expr(const nlattr* elem, Ruleset& rules) {
  const Attributes<NFTA_EXPR_MAX> a(elem);
  const std::string name = text(a[NFTA_EXPR_NAME]);
  const nlattr* const data = a[NFTA_EXPR_DATA];
  if (name == "immediate") return immediate(data);
  if (name == "payload") return payload(data);
  if (name == "meta") return meta(data, rules);
  if (name == "ct") return conntrack(data, rules);
  if (name == "cmp") return compare(data);
  if (name == "range") return range(data);
  if (name == "bitwise") return bitwise(data);
  if (name == "byteorder") return byteorder(data);
  if (name == "lookup") return lookup(data);
  if (name == "fib") return fib(data);
  if (name == "match") return xt_match(data);
  if (name == "target") return xt_target_of(data, rules);
  if (name == "notrack") rules.untracks = true;
  if (is_one_of(name, {"counter", "log", "last", "notrack", "dup"})) return {};
  // It gives packets the address of the interface by which they leave, which ours have already.
  if (name == "masq") return accept();
  if (is_one_of(name, {"reject", "queue", "nat", "redir", "tproxy", "fwd", "synproxy"}))
    return refuse();
  if (name == "objref") {
    const Attributes<NFTA_OBJREF_MAX> o(data);
    const uint32_t type = number(o[NFTA_OBJREF_IMM_TYPE]);
    if (type == NFT_OBJECT_SYNPROXY) return refuse();
    return type == NFT_OBJECT_QUOTA || type == NFT_OBJECT_LIMIT || type == NFT_OBJECT_CONNLIMIT ||
                   type == NFT_OBJECT_UNSPEC
               ? maybe()
               : Expr{};
  }
  return other(name, data);
}

}  // namespace

uint32_t number(const nlattr* a, uint32_t otherwise) {
  if (a == nullptr || net::attribute_length(a) < 4) return otherwise;
  uint32_t n = 0;
  std::memcpy(&n, net::attribute_data(a), sizeof n);
  return std::byteswap(n);
}

uint64_t long_number(const nlattr* a) {
  if (a == nullptr || net::attribute_length(a) < 8) return 0;
  uint64_t n = 0;
  std::memcpy(&n, net::attribute_data(a), sizeof n);
  return std::byteswap(n);
}

std::string text(const nlattr* a) {
  if (a == nullptr) return {};
  const char* const p = net::attribute_data(a);
  return {p, ::strnlen(p, static_cast<size_t>(std::max(net::attribute_length(a), 0)))};
}

Data parse_data(const nlattr* a) {
  const Attributes<NFTA_DATA_MAX> d(a);
  const Attributes<NFTA_VERDICT_MAX> v(d[NFTA_DATA_VERDICT]);
  Data out{.value = bytes_of(d[NFTA_DATA_VALUE])};
  if (v[NFTA_VERDICT_CODE] != nullptr)
    out.verdict = verdict_of(number(v[NFTA_VERDICT_CODE]), text(v[NFTA_VERDICT_CHAIN]));
  return out;
}

void parse_exprs(const nlattr* list, std::vector<Expr>& to, Ruleset& rules) {
  for_each_in(list, [&](const nlattr* elem) { to.push_back(parse_expr(elem, rules)); });
}

Expr xt_target(std::string_view name, Ruleset& rules) {
  if (name == "ACCEPT" || name == "MASQUERADE") return accept();
  if (name == "RETURN") return {.kind = Expr::Kind::kVerdict, .verdict = {Verdict::Kind::kReturn}};
  rules.sets_marks |= name == "MARK" || name == "CONNMARK" || name == "HMARK";
  rules.untracks |= name == "CT" || name == "NOTRACK";
  if (is_one_of(name, {"LOG",     "NFLOG",    "ULOG",        "AUDIT",    "TRACE",    "LED",
                       "MARK",    "CONNMARK", "HMARK",       "CLASSIFY", "TCPMSS",   "CHECKSUM",
                       "CT",      "NOTRACK",  "SET",         "DSCP",     "TOS",      "ECN",
                       "RATEEST", "SECMARK",  "CONNSECMARK", "TEE",      "IDLETIMER"}))
    return {};
  return refuse();  // DROP, REJECT, DNAT, REDIRECT, TPROXY, NFQUEUE, ..., and what is not known
}

}  // namespace vireo::filter
