// A socket is checked against the rules when it binds or connects. If the rules change, listeners
// and UDP sockets are checked again. A rule may match each fragment by itself, so fragments are
// carried only if there are no rules at all.
#include "stack/sock/packet_filter.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "core/log.h"
#include "stack/filter/filter.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/stack.h"

namespace vireo {
namespace {

constexpr size_t kMaxDetails = 1024;

bool is_candidate(const Settings& s, const net::Link& l) {
  if (!l.is_up() || l.is_loopback()) return false;
  const bool is_named = std::ranges::find(s.interfaces, l.name) != s.interfaces.end();
  if (is_named || !s.interfaces.empty()) return is_named;
  return l.kind == net::LinkKind::kPhysical || l.kind == net::LinkKind::kVeth;
}

filter::Interface name_of(const net::Link& l) { return {l.index, l.name}; }

/// The interfaces that packets may arrive on: the bound one, else those with the local address,
/// else all that may be carried, and their VLANs. Never empty.
std::vector<filter::Interface> interfaces_of(const Settings& s, const net::Snapshot& now,
                                             const Passage& p) {
  std::vector<filter::Interface> all;
  const auto take = [&](IfIndex i) {
    if (const net::Link* l = now.links->find(i)) all.push_back(name_of(*l));
  };
  if (p.interface != IfIndex()) {
    take(p.interface);
  } else if (!p.local.addr.is_unspecified()) {
    for (const net::Addr& a : now.addrs->all)
      if (a.addr == p.local.addr) take(a.ifindex);
  } else {
    for (const net::Link& l : now.links->all) {
      const net::Link* const lower = l.kind == net::LinkKind::kVlan ? now.links->find(l.lower) : &l;
      if (lower != nullptr && is_candidate(s, *lower) && l.is_up()) all.push_back(name_of(l));
    }
  }
  if (all.empty()) all.emplace_back();
  return all;
}

std::optional<std::string> obstacle(const filter::Ruleset& rules, const Passage& p,
                                    const std::vector<filter::Interface>& interfaces) {
  const bool v6 = !p.local.addr.is_v4();
  const bool hears_v4 = v6 && p.local.addr.is_unspecified() && p.remote.port == 0 && !p.v6only;
  for (const filter::Interface& i : interfaces) {
    for (const bool as_v6 : {v6, false}) {
      if (as_v6 != v6 && !hears_v4) continue;
      auto by = filter::obstacle(rules, {.proto = p.proto,
                                         .v6 = as_v6,
                                         .local = p.local,
                                         .remote = p.remote,
                                         .interface = i,
                                         .begins_there = p.begins_there,
                                         .begins_here = p.begins_here,
                                         .is_established = p.is_established});
      if (by) return by;
    }
  }
  return std::nullopt;
}

/// SO_BINDTODEVICE of a carried listener or UDP socket. The engine's lock held.
IfIndex device_of(const File& f) {
  if (f.is_udp()) return f.udp_flow().device;
  if (!f.is_carried()) return f.listener().options.device;
  return {};
}

/// The packets of a carried socket. An unconnected UDP socket is made to look up its route again.
std::optional<Passage> passage_of(Handle h) {
  const File& f = *h.file;
  Engine* const e = f.engine.load(std::memory_order_acquire);
  if (e == nullptr) return std::nullopt;
  const EngineGuard guard(*e);
  if (!h.is_alive() || f.flow == nullptr) return std::nullopt;
  const FlowKey& k = f.flow->key;
  const bool is_connection = f.is_tcp() && f.is_carried();
  if (!f.is_tcp() && k.remote.port == 0) {
    f.udp_flow().go_to({});
    f.udp_flow().egress.generation = 0;
  }
  return Passage{.proto = k.proto,
                 .local = k.local,
                 .remote = k.remote,
                 .v6only = f.flow->v6only,
                 .interface = device_of(f),
                 .begins_there = !is_connection && k.remote.port == 0,
                 .is_established = is_connection || k.remote.port != 0};
}

}  // namespace

bool is_filtered(Stack& stack) noexcept {
  const filter::Filter* const filter = stack.host_filter().get();
  return filter != nullptr && !filter->is_empty();
}

uint32_t rules_generation(Stack& stack) noexcept {
  const filter::Filter* const filter = stack.host_filter().get();
  return filter != nullptr ? filter->generation() : 0;
}

size_t Verdicts::place_of(const Passage& p) noexcept {
  const auto& a = p.remote.addr.bytes();
  const std::string_view bytes(reinterpret_cast<const char*>(a.data()), a.size());
  return (std::hash<std::string_view>()(bytes) ^ p.remote.port) % kMax;
}

std::optional<bool> Verdicts::find(const Passage& p, uint32_t generation) const noexcept {
  if (kept_.empty()) return std::nullopt;
  const Verdict& v = kept_[place_of(p)];
  if (v.generation != generation || v.passage != p) return std::nullopt;
  return v.passes;
}

void Verdicts::keep(const Passage& p, uint32_t generation, bool passes) {
  if (kept_.empty()) kept_.resize(kMax);
  kept_[place_of(p)] = {p, generation, passes};
}

Carried<void> may_pass(Stack& stack, const Passage& p) {
  if (!is_filtered(stack)) return {};
  const auto rules = stack.host_filter().get()->rules();
  net::SnapshotStore::Reader reader(stack.mirror()->store());
  const auto by = obstacle(*rules, p, interfaces_of(stack.settings(), reader.snapshot(), p));
  if (!by) return {};
  return std::unexpected(Refusal{Carriage::kFilter, 0, stack.host_filter().keep(*by)});
}

Carried<void> may_still_pass(Stack& stack, const Passage& p, uint32_t generation) {
  if (rules_generation(stack) == generation) [[likely]]
    return {};
  return may_pass(stack, p);
}

void look_at_filter(Stack& stack) {
  filter::Filter* const filter = stack.host_filter().get();
  if (filter != nullptr && filter->is_legacy_due(Clock::now()) && net_namespace::is_thread_home())
    filter->look_at_legacy(Clock::now());
}

HostFilter::HostFilter() noexcept = default;
HostFilter::~HostFilter() = default;

void HostFilter::open(std::shared_ptr<DeviceGroup> group) {
  filter_ = std::make_unique<filter::Filter>([of = std::move(group)](uint32_t program) {
    return of != nullptr && of->has_program(program);
  });
  is_unread_ = filter_->rules()->unreadable != 0;
}

void HostFilter::close() noexcept { filter_.reset(); }

const char* HostFilter::keep(const std::string& detail) {
  const LockGuard guard(lock_);
  if (details_.size() >= kMaxDetails && !details_.contains(detail)) return "packet filter";
  return details_.insert(detail).first->c_str();
}

void HostFilter::say_unread() noexcept {
  // Inherited: where the parent has said it, its many children need not.
  static std::atomic<bool> is_said{false};
  if (!is_unread_.exchange(false, std::memory_order_relaxed) || is_said.exchange(true)) return;
  log<LogLevel::kWarn>(
      "the rules of the host's packet filter cannot be read (CAP_NET_ADMIN is needed): sockets are "
      "carried whatever they say; VIREO_RESPECT_FILTER=0 says the same, without this line");
}

void HostFilter::say_if_unread_again() noexcept {
  if (filter_->rules()->unreadable != 0 && !said_unread_again_.exchange(true))
    log<LogLevel::kWarn>(
        "the host's packet filter has changed, but its rules cannot be read any more "
        "(CAP_NET_ADMIN is needed): those that were read before are respected");
}

void Stack::tell_of_filter(Engine& e) {
  const EngineGuard guard(e);
  e.host().take_fragments(!is_filtered(*this));
}

void Stack::judge_again() {
  if (!host_filter_.get()->process()) return;
  host_filter_.say_if_unread_again();
  for (unsigned i = 0; i < engine_count(); ++i) tell_of_filter(*engines_[i]);
  unsigned given = 0;
  unsigned kept = 0;
  const char* by = "";
  for (int fd = 0; fd < fd_table().end(); ++fd) {
    const Handle h = fd_table().find(fd);
    if (!h || h->stack != this) continue;
    const auto passage = passage_of(h);
    if (!passage) continue;
    const auto pass = may_pass(*this, *passage);
    if (pass) continue;
    by = pass.error().where;
    if (h->is_tcp() && h->is_carried())
      ++kept;
    else if (sock::hand_over(h, pass.error()))
      ++given;
  }
  if (given != 0)
    log<LogLevel::kWarn>(
        "the packet filter has a new rule ({}): {} listeners or UDP sockets are the kernel's from "
        "now on",
        by, given);
  if (kept != 0)
    log<LogLevel::kWarn>(
        "the packet filter has a new rule ({}), which would keep packets from {} carried "
        "connections: they go on",
        by, kept);
}

}  // namespace vireo
