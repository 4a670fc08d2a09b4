#include "stack/filter/nft_rules.h"

#include <netinet/in.h>
// After the header above: else these define its names again.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <algorithm>
#include <cstring>

#include "stack/filter/nft_exprs.h"

namespace vireo::filter {
namespace {

using net::Attributes;

/// Limit of a set; a larger one is treated as unknown.
constexpr size_t kMaxElements = 16'384;
/// Bytes of the names of a table and a set that fit a request.
constexpr size_t kMaxNames = 192;

struct FamilyName {
  Family family;
  const char* name;
};
FamilyName family_of(uint8_t nfproto) {
  switch (nfproto) {
    case NFPROTO_IPV4:
      return {Family::kIpv4, "ip"};
    case NFPROTO_IPV6:
      return {Family::kIpv6, "ip6"};
    case NFPROTO_INET:
      return {Family::kInet, "inet"};
    case NFPROTO_NETDEV:
      return {Family::kNetdev, "netdev"};
    default:
      return {Family::kOther, "other"};
  }
}

uint8_t nfproto_of(Family f) {
  switch (f) {
    case Family::kIpv4:
      return NFPROTO_IPV4;
    case Family::kIpv6:
      return NFPROTO_IPV6;
    case Family::kInet:
      return NFPROTO_INET;
    default:
      return NFPROTO_NETDEV;
  }
}

Hook hook_of(Family f, uint32_t number) {
  if (f == Family::kNetdev) return number == NF_NETDEV_INGRESS ? Hook::kIngress : Hook::kEgress;
  switch (number) {
    case NF_INET_PRE_ROUTING:
      return Hook::kPrerouting;
    case NF_INET_LOCAL_IN:
      return Hook::kInput;
    case NF_INET_LOCAL_OUT:
      return Hook::kOutput;
    case NF_INET_POST_ROUTING:
      return Hook::kPostrouting;
    case NF_INET_INGRESS:
      return Hook::kIngress;
    default:
      return Hook::kOther;
  }
}

void take_chain(const Attributes<NFTA_CHAIN_MAX>& a, Table& t) {
  Chain& c = t.chain_at(text(a[NFTA_CHAIN_NAME]));
  if (a[NFTA_CHAIN_HOOK] == nullptr) return;
  const Attributes<NFTA_HOOK_MAX> h(a[NFTA_CHAIN_HOOK]);
  c.hook = hook_of(t.family, number(h[NFTA_HOOK_HOOKNUM]));
  c.is_nat = text(a[NFTA_CHAIN_TYPE]) == "nat";
  c.refuses = number(a[NFTA_CHAIN_POLICY], NF_ACCEPT) != NF_ACCEPT;
  if (h[NFTA_HOOK_DEV] != nullptr) c.devices.push_back(text(h[NFTA_HOOK_DEV]));
  for_each_in(h[NFTA_HOOK_DEVS], [&](const nlattr* d) { c.devices.push_back(text(d)); });
}

void take_set(const Attributes<NFTA_SET_MAX>& a, Table& t) {
  Set& s = t.set_at(text(a[NFTA_SET_NAME]));
  const uint32_t flags = number(a[NFTA_SET_FLAGS]);
  s.is_known = (flags & (NFT_SET_EVAL | NFT_SET_OBJECT)) == 0;
  s.is_interval = (flags & NFT_SET_INTERVAL) != 0;
  s.fades = (flags & NFT_SET_TIMEOUT) != 0;
  const Attributes<NFTA_SET_DESC_MAX> d(a[NFTA_SET_DESC]);
  for_each_in(d[NFTA_SET_DESC_CONCAT], [&](const nlattr* field) {
    s.fields.push_back(number(Attributes<NFTA_SET_FIELD_MAX>(field)[NFTA_SET_FIELD_LEN]));
  });
}

/// The predecessor of `key`, of the same length: the last key of an interval that ends there.
Bytes before(Bytes key) {
  for (size_t i = key.size(); i-- != 0;)
    if (key[i]-- != 0) break;
  return key;
}

/// The kernel reports a range as its first key and, as another element, the first key behind it.
void join_ranges(Set& s) {
  std::ranges::sort(s.gaps);
  for (Set::Element& e : s.elements) {
    if (!e.end.empty()) continue;
    const auto gap = std::ranges::upper_bound(s.gaps, e.key);
    e.end = gap != s.gaps.end() ? before(*gap) : Bytes(e.key.size(), 0xff);
  }
  s.gaps.clear();
}

void take_elements(const Attributes<NFTA_SET_ELEM_LIST_MAX>& a, Table& t) {
  Set& s = t.set_at(text(a[NFTA_SET_ELEM_LIST_SET]));
  if (!s.is_known) return;
  for_each_in(a[NFTA_SET_ELEM_LIST_ELEMENTS], [&](const nlattr* elem) {
    const Attributes<NFTA_SET_ELEM_MAX> e(elem);
    const uint32_t flags = number(e[NFTA_SET_ELEM_FLAGS]);
    Data mapped = parse_data(e[NFTA_SET_ELEM_DATA]);
    Set::Element made{.key = parse_data(e[NFTA_SET_ELEM_KEY]).value,
                      .end = parse_data(e[NFTA_SET_ELEM_KEY_END]).value,
                      .data = std::move(mapped.value),
                      .verdict = std::move(mapped.verdict),
                      .is_certain = !s.fades && e[NFTA_SET_ELEM_EXPR] == nullptr &&
                                    e[NFTA_SET_ELEM_EXPRESSIONS] == nullptr};
    if ((flags & NFT_SET_ELEM_CATCHALL) != 0)
      s.otherwise.push_back(std::move(made));
    else if ((flags & NFT_SET_ELEM_INTERVAL_END) != 0)
      s.gaps.push_back(std::move(made.key));
    else
      s.elements.push_back(std::move(made));
  });
  if (s.elements.size() + s.gaps.size() <= kMaxElements) return;
  s = {.name = s.name, .is_known = false};
}

net::Request question(int type, uint8_t nfproto, uint32_t seq) {
  const nfgenmsg h{.nfgen_family = nfproto, .version = NFNETLINK_V0, .res_id = 0};
  return {static_cast<uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | type), NLM_F_REQUEST | NLM_F_DUMP, seq,
          h};
}

void attribute(net::Request& r, uint16_t type, const std::string& s) {
  r.attribute(type, s.c_str(), s.size() + 1);
}

/// One reading. @return false: the rules changed meanwhile.
Result<bool> read_once(Session& s, Ruleset& to) {
  bool is_whole = true;
  uint32_t seq = 0;
  const auto take = [&](const nlmsghdr& m) {
    if ((m.nlmsg_flags & NLM_F_DUMP_INTR) != 0) is_whole = false;
    take_nft(m, to);
  };
  for (const int type : {NFT_MSG_GETTABLE, NFT_MSG_GETCHAIN, NFT_MSG_GETSET, NFT_MSG_GETRULE}) {
    if (auto ok = s.dump(question(type, NFPROTO_UNSPEC, ++seq), take); !ok)
      return std::unexpected(ok.error());
    if (to.tables.empty()) return is_whole;  // the usual case
  }
  for (Table& t : to.tables) {
    for (Set& set : t.sets) {
      if (!set.is_known) continue;
      net::Request q = question(NFT_MSG_GETSETELEM, nfproto_of(t.family), ++seq);
      if (t.name.size() + set.name.size() > kMaxNames) {
        set.is_known = false;
        continue;
      }
      attribute(q, NFTA_SET_ELEM_LIST_TABLE, t.name);
      attribute(q, NFTA_SET_ELEM_LIST_SET, set.name);
      if (auto ok = s.dump(q, take); !ok) is_whole = false;  // the set was removed
    }
  }
  return is_whole;
}

}  // namespace

void end_nft(Ruleset& r) {
  for (Table& t : r.tables)
    for (Set& s : t.sets)
      if (s.is_interval && s.fields.empty()) join_ranges(s);
}

void take_nft(const nlmsghdr& m, Ruleset& to) {
  const auto* h = net::header_of<nfgenmsg>(m);
  if (h == nullptr || m.nlmsg_type >> 8 != NFNL_SUBSYS_NFTABLES) return;
  const auto [family, name] = family_of(h->nfgen_family);
  if (family == Family::kOther) return;
  const auto table = [&](const nlattr* a) {
    const std::string wanted = text(a);
    const auto it = std::ranges::find_if(
        to.tables, [&](const Table& t) { return t.family == family && t.name == wanted; });
    return it != to.tables.end() && it->family_name == name ? &*it : nullptr;
  };
  switch (m.nlmsg_type & 0xff) {
    case NFT_MSG_NEWTABLE: {
      const auto a = net::attributes_of<NFTA_TABLE_MAX>(m, h);
      if ((number(a[NFTA_TABLE_FLAGS]) & NFT_TABLE_F_DORMANT) == 0)
        to.table_at(family, name, text(a[NFTA_TABLE_NAME]));
      break;
    }
    case NFT_MSG_NEWCHAIN: {
      const auto a = net::attributes_of<NFTA_CHAIN_MAX>(m, h);
      if (Table* t = table(a[NFTA_CHAIN_TABLE])) take_chain(a, *t);
      break;
    }
    case NFT_MSG_NEWSET: {
      const auto a = net::attributes_of<NFTA_SET_MAX>(m, h);
      if (Table* t = table(a[NFTA_SET_TABLE])) take_set(a, *t);
      break;
    }
    case NFT_MSG_NEWRULE: {
      const auto a = net::attributes_of<NFTA_RULE_MAX>(m, h);
      Table* const t = table(a[NFTA_RULE_TABLE]);
      if (t == nullptr) break;
      Rule rule{.handle = long_number(a[NFTA_RULE_HANDLE])};
      parse_exprs(a[NFTA_RULE_EXPRESSIONS], rule.exprs, to);
      t->chain_at(text(a[NFTA_RULE_CHAIN])).rules.push_back(std::move(rule));
      break;
    }
    case NFT_MSG_NEWSETELEM: {
      const auto a = net::attributes_of<NFTA_SET_ELEM_LIST_MAX>(m, h);
      if (Table* t = table(a[NFTA_SET_ELEM_LIST_TABLE])) take_elements(a, *t);
      break;
    }
    default:
      break;
  }
}

Result<void> read_nft(Session& s, Ruleset& to) {
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    Ruleset r;
    const auto done = read_once(s, r);
    if (!done) return std::unexpected(done.error());
    if (!*done) continue;
    end_nft(r);
    std::ranges::move(r.tables, std::back_inserter(to.tables));
    to.sets_marks |= r.sets_marks;
    to.untracks |= r.untracks;
    return {};
  }
  return fail(EBUSY, "nf_tables");
}

}  // namespace vireo::filter
