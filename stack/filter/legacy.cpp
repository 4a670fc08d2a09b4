#include "stack/filter/legacy.h"

#include <fcntl.h>
#include <netinet/in.h>
// After the header above: else these define its names again.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/fd.h"
#include "stack/filter/nft_exprs.h"

namespace vireo::filter {
namespace {

constexpr uint32_t kRegister = 0;

void compare(std::vector<Expr>& to, Bytes with, bool inverted) {
  to.push_back({.kind = Expr::Kind::kCompare,
                .op = static_cast<uint8_t>(inverted ? NFT_CMP_NEQ : NFT_CMP_EQ),
                .from = kRegister,
                .data = std::move(with)});
}

void address(std::vector<Expr>& to, uint32_t offset, std::span<const uint8_t> wanted,
             std::span<const uint8_t> mask, bool inverted) {
  if (std::ranges::all_of(mask, [](uint8_t b) { return b == 0; })) return;
  const auto length = static_cast<uint32_t>(wanted.size());
  to.push_back({.kind = Expr::Kind::kPayload,
                .base = NFT_PAYLOAD_NETWORK_HEADER,
                .to = kRegister,
                .offset = offset,
                .length = length});
  to.push_back({.kind = Expr::Kind::kBitwise,
                .from = kRegister,
                .to = kRegister,
                .length = length,
                .data = {mask.begin(), mask.end()},
                .more = Bytes(length)});
  compare(to, {wanted.begin(), wanted.end()}, inverted);
}

/// "eth0"; or the prefix of "eth+".
void interface(std::vector<Expr>& to, uint32_t key, const char* name, const unsigned char* mask,
               bool inverted) {
  const size_t n = static_cast<size_t>(std::count(mask, mask + IFNAMSIZ, 0xff));
  if (n == 0) return;
  to.push_back({.kind = Expr::Kind::kMeta, .key = key, .to = kRegister});
  compare(to, {name, name + n}, inverted);
}

void protocol(std::vector<Expr>& to, uint16_t proto, bool inverted) {
  if (proto == 0) return;
  to.push_back({.kind = Expr::Kind::kMeta, .key = NFT_META_L4PROTO, .to = kRegister});
  compare(to, {static_cast<uint8_t>(proto)}, inverted);
}

template <class T>
std::span<const uint8_t> raw(const T& t) {
  return {reinterpret_cast<const uint8_t*>(&t), sizeof t};
}

// Differences between the families.
struct V4 {
  using Entry = ipt_entry;
  static constexpr int kFamily = AF_INET, kLevel = IPPROTO_IP;
  static constexpr int kGetInfo = IPT_SO_GET_INFO, kGetEntries = IPT_SO_GET_ENTRIES;
  static constexpr const char* kNames = "/proc/thread-self/net/ip_tables_names";
  static constexpr uint32_t kSource = 12, kDestination = 16;
  static const ipt_ip& head(const Entry& e) { return e.ip; }
  static uint16_t proto(const Entry& e) { return e.ip.proto; }
  static bool is_goto(const Entry& e) { return (e.ip.flags & IPT_F_GOTO) != 0; }
  static const in_addr& source_mask(const Entry& e) { return e.ip.smsk; }
  static const in_addr& destination_mask(const Entry& e) { return e.ip.dmsk; }
  static bool is_fragment(const Entry& e) {
    return (e.ip.flags & IPT_F_FRAG) != 0 && (e.ip.invflags & IPT_INV_FRAG) == 0;
  }
};
struct V6 {
  using Entry = ip6t_entry;
  static constexpr int kFamily = AF_INET6, kLevel = IPPROTO_IPV6;
  static constexpr int kGetInfo = IP6T_SO_GET_INFO, kGetEntries = IP6T_SO_GET_ENTRIES;
  static constexpr const char* kNames = "/proc/thread-self/net/ip6_tables_names";
  static constexpr uint32_t kSource = 8, kDestination = 24;
  static const ip6t_ip6& head(const Entry& e) { return e.ipv6; }
  static uint16_t proto(const Entry& e) { return e.ipv6.proto; }
  static bool is_goto(const Entry& e) { return (e.ipv6.flags & IP6T_F_GOTO) != 0; }
  static const in6_addr& source_mask(const Entry& e) { return e.ipv6.smsk; }
  static const in6_addr& destination_mask(const Entry& e) { return e.ipv6.dmsk; }
  static bool is_fragment(const Entry&) { return false; }
};
static_assert(IPT_INV_SRCIP == IP6T_INV_SRCIP && IPT_INV_DSTIP == IP6T_INV_DSTIP &&
              IPT_INV_VIA_IN == IP6T_INV_VIA_IN && IPT_INV_VIA_OUT == IP6T_INV_VIA_OUT &&
              IPT_INV_PROTO == IP6T_INV_PROTO);

template <class V>
void conditions(const typename V::Entry& e, std::vector<Expr>& to) {
  const auto& ip = V::head(e);
  const auto inv = [&](int flag) { return (ip.invflags & flag) != 0; };
  address(to, V::kSource, raw(ip.src), raw(V::source_mask(e)), inv(IPT_INV_SRCIP));
  address(to, V::kDestination, raw(ip.dst), raw(V::destination_mask(e)), inv(IPT_INV_DSTIP));
  interface(to, NFT_META_IIFNAME, ip.iniface, ip.iniface_mask, inv(IPT_INV_VIA_IN));
  interface(to, NFT_META_OIFNAME, ip.outiface, ip.outiface_mask, inv(IPT_INV_VIA_OUT));
  protocol(to, V::proto(e), inv(IPT_INV_PROTO));
  if (V::is_fragment(e)) to.push_back({.kind = Expr::Kind::kMaybe});
}

/// Matches are between the entry and its target.
void matches(std::span<const std::byte> bytes, std::vector<Expr>& to) {
  while (bytes.size() >= sizeof(xt_entry_match)) {
    xt_entry_match m;
    std::memcpy(&m, bytes.data(), sizeof m);
    const size_t size = m.u.user.match_size;
    if (size < sizeof m || size > bytes.size()) {
      to.push_back({.kind = Expr::Kind::kMaybe});
      return;
    }
    const auto* info = reinterpret_cast<const uint8_t*>(bytes.data());
    to.push_back({.kind = Expr::Kind::kXtMatch,
                  .key = m.u.user.revision,
                  .data = {info + sizeof m, info + size},
                  .name = {m.u.user.name, ::strnlen(m.u.user.name, sizeof m.u.user.name)}});
    bytes = bytes.subspan(size);
  }
}

template <class V>
class Parser {
 public:
  Parser(const LegacyTable& from, Ruleset& rules)
      : from_(from),
        rules_(rules),
        table_(rules.table_at(V::kFamily == AF_INET ? Family::kIpv4 : Family::kIpv6,
                              V::kFamily == AF_INET ? "iptables-legacy" : "ip6tables-legacy",
                              from.name)) {}

  void parse() {
    find_chains();
    Chain* chain = nullptr;
    for (size_t at = 0; const auto* e = entry(at); at += e->next_offset) {
      if (const auto it = chains_.find(at); it != chains_.end())
        chain = &table_.chain_at(it->second);
      if (chain == nullptr || is_header(*e)) continue;
      if (is_policy(at))
        chain->refuses = standard(*e).verdict.kind == Verdict::Kind::kRefuse;
      else
        add(*chain, *e, at);
    }
  }

 private:
  using Entry = typename V::Entry;

  const Entry* entry(size_t at) const {
    if (at + sizeof(Entry) > from_.entries.size()) return nullptr;
    const auto* e = reinterpret_cast<const Entry*>(from_.entries.data() + at);
    const bool fits = e->next_offset <= from_.entries.size() - at &&
                      e->target_offset >= sizeof(Entry) &&
                      e->target_offset + sizeof(xt_entry_target) <= e->next_offset;
    return fits ? e : nullptr;
  }
  const xt_entry_target& target(const Entry& e) const {
    return *reinterpret_cast<const xt_entry_target*>(reinterpret_cast<const char*>(&e) +
                                                     e.target_offset);
  }
  std::string_view target_name(const Entry& e) const {
    const auto& name = target(e).u.user.name;
    return {name, ::strnlen(name, sizeof name)};
  }
  /// A user-defined chain begins with an entry that has its name; jumps lead behind that.
  bool is_header(const Entry& e) const { return target_name(e) == XT_ERROR_TARGET; }
  bool is_policy(size_t at) const {
    for (unsigned h = 0; h < NF_INET_NUMHOOKS; ++h)
      if ((from_.valid_hooks >> h & 1U) != 0 && from_.underflow[h] == at) return true;
    return false;
  }

  void find_chains() {
    static constexpr struct {
      Hook hook;
      const char* name;
    } kHooks[NF_INET_NUMHOOKS] = {{Hook::kPrerouting, "PREROUTING"},
                                  {Hook::kInput, "INPUT"},
                                  {Hook::kOther, "FORWARD"},
                                  {Hook::kOutput, "OUTPUT"},
                                  {Hook::kPostrouting, "POSTROUTING"}};
    for (unsigned h = 0; h < NF_INET_NUMHOOKS; ++h) {
      if ((from_.valid_hooks >> h & 1U) == 0) continue;
      chains_[from_.hook_entry[h]] = kHooks[h].name;
      Chain& c = table_.chain_at(kHooks[h].name);
      c.hook = kHooks[h].hook;
      c.is_nat = from_.name == "nat";
    }
    for (size_t at = 0; const auto* e = entry(at); at += e->next_offset) {
      if (!is_header(*e)) continue;
      xt_error_target named;
      if (e->target_offset + sizeof named > e->next_offset) continue;
      std::memcpy(&named, &target(*e), sizeof named);
      chains_[at] = {named.errorname, ::strnlen(named.errorname, sizeof named.errorname)};
      begins_[at + e->next_offset] = chains_[at];
    }
  }

  void add(Chain& chain, const Entry& e, size_t at) {
    Rule rule{.handle = chain.rules.size() + 1};
    conditions<V>(e, rule.exprs);
    matches(std::span(from_.entries).subspan(at + sizeof(Entry), e.target_offset - sizeof(Entry)),
            rule.exprs);
    const std::string_view name = target_name(e);
    rule.exprs.push_back(name == XT_STANDARD_TARGET ? standard(e) : xt_target(name, rules_));
    chain.rules.push_back(std::move(rule));
  }

  /// A verdict, or a jump to the beginning of a chain.
  Expr standard(const Entry& e) const {
    int verdict = 0;
    if (e.target_offset + sizeof(xt_standard_target) > e.next_offset) return kRefuse;
    std::memcpy(&verdict, reinterpret_cast<const char*>(&target(e)) + sizeof(xt_entry_target),
                sizeof verdict);
    Expr out{.kind = Expr::Kind::kVerdict};
    if (verdict == XT_RETURN)
      out.verdict.kind = Verdict::Kind::kReturn;
    else if (verdict == -NF_ACCEPT - 1)
      out.verdict.kind = Verdict::Kind::kAccept;
    else if (verdict < 0)
      return kRefuse;
    else
      out.verdict = jump(e, static_cast<size_t>(verdict));
    return out;
  }
  Verdict jump(const Entry& e, size_t to) const {
    const auto* next = reinterpret_cast<const std::byte*>(&e) + e.next_offset;
    if (static_cast<size_t>(next - from_.entries.data()) == to) return {};  // no target: continue
    const auto it = begins_.find(to);
    if (it == begins_.end()) return {Verdict::Kind::kRefuse};
    return {V::is_goto(e) ? Verdict::Kind::kGoto : Verdict::Kind::kJump, it->second};
  }

  inline static const Expr kRefuse{.kind = Expr::Kind::kVerdict,
                                   .verdict = {Verdict::Kind::kRefuse}};
  const LegacyTable& from_;
  Ruleset& rules_;
  Table& table_;
  std::map<size_t, std::string> chains_;  ///< by offset of their first entry
  std::map<size_t, std::string> begins_;  ///< by offset that rules jump to
};

/// Names of tables, one per line; none if the file does not exist. Errors: EACCES.
Result<std::vector<std::string>> names(const char* path) {
  std::vector<std::string> all;
  const UniqueFd fd(static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC)));
  if (!fd) {
    if (errno == ENOENT) return all;
    return fail_errno("names of iptables' tables");
  }
  char bytes[512];
  const long n = ::syscall(SYS_read, fd.get(), bytes, sizeof bytes);
  std::string_view left(bytes, n > 0 ? static_cast<size_t>(n) : 0);
  for (size_t end = 0; (end = left.find('\n')) != left.npos; left.remove_prefix(end + 1))
    all.emplace_back(left.substr(0, end));
  return all;
}

/// Packet counters: a change of these is no change of the rules.
template <class V>
void forget_counters(std::span<std::byte> entries) {
  using Entry = typename V::Entry;
  while (entries.size() >= sizeof(Entry)) {
    auto* const e = reinterpret_cast<Entry*>(entries.data());
    e->counters = {};
    if (e->next_offset < sizeof(Entry) || e->next_offset > entries.size()) return;
    entries = entries.subspan(e->next_offset);
  }
}

template <class V>
Result<LegacyTable> read_table(int fd, const std::string& name) {
  ipt_getinfo info{};  // ip6t_getinfo is identical
  std::strncpy(info.name, name.c_str(), sizeof info.name - 1);
  socklen_t size = sizeof info;
  if (::syscall(SYS_getsockopt, fd, V::kLevel, V::kGetInfo, &info, &size) != 0)
    return fail_errno("iptables' table");
  std::vector<std::byte> answer(sizeof(ipt_get_entries) + info.size);
  ipt_get_entries ask{};
  std::memcpy(ask.name, info.name, sizeof ask.name);
  ask.size = info.size;
  std::memcpy(answer.data(), &ask, sizeof ask);
  size = static_cast<socklen_t>(answer.size());
  if (::syscall(SYS_getsockopt, fd, V::kLevel, V::kGetEntries, answer.data(), &size) != 0)
    return fail_errno("iptables' rules");
  LegacyTable t{.v6 = V::kFamily == AF_INET6, .name = name, .valid_hooks = info.valid_hooks};
  std::copy_n(info.hook_entry, NF_INET_NUMHOOKS, t.hook_entry);
  std::copy_n(info.underflow, NF_INET_NUMHOOKS, t.underflow);
  t.entries.assign(answer.begin() + static_cast<long>(offsetof(ipt_get_entries, entrytable)),
                   answer.end());
  t.entries.resize(info.size);
  forget_counters<V>(t.entries);
  return t;
}

template <class V>
Result<void> read_family(std::vector<LegacyTable>& to) {
  const auto known = names(V::kNames);
  if (!known) return std::unexpected(known.error());
  if (known->empty()) return {};
  const UniqueFd fd(
      static_cast<int>(::syscall(SYS_socket, V::kFamily, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
  if (!fd) return fail_errno("socket");
  for (const std::string& name : *known) {
    constexpr int kTries = 4;
    for (int i = 0; i < kTries; ++i) {
      auto t = read_table<V>(fd.get(), name);
      // EAGAIN: its size changed between the two calls.
      if (!t && t.error().code == EAGAIN && i + 1 < kTries) continue;
      if (!t) return std::unexpected(t.error());
      to.push_back(std::move(*t));
      break;
    }
  }
  return {};
}

static_assert(sizeof(ipt_getinfo) == sizeof(ip6t_getinfo) &&
              sizeof(ipt_get_entries) == sizeof(ip6t_get_entries));

}  // namespace

Result<std::vector<LegacyTable>> read_legacy() {
  std::vector<LegacyTable> all;
  if (auto ok = read_family<V4>(all); !ok) return std::unexpected(ok.error());
  if (auto ok = read_family<V6>(all); !ok) return std::unexpected(ok.error());
  return all;
}

void add_legacy(std::span<const LegacyTable> tables, Ruleset& to) {
  for (const LegacyTable& t : tables) {
    if (t.v6)
      Parser<V6>(t, to).parse();
    else
      Parser<V4>(t, to).parse();
  }
}

}  // namespace vireo::filter
