#include "dev/xdp/steer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "core/high_fd.h"
#include "core/log.h"
#include "dev/xdp/late_libbpf.h"
#include "dev/xdp/uapi.h"
#include "dev/xdp/verifier_log.h"
#include "steer.skel.h"

namespace vireo::xdp {
namespace {

int log_libbpf(libbpf_print_level, const char* format, va_list args) {
  if (!log_enabled(LogLevel::kDebug)) return 0;
  char line[512];
  const int n = vsnprintf(line, sizeof line, format, args);
  std::string_view text(line,
                        static_cast<size_t>(std::clamp(n, 0, static_cast<int>(sizeof line) - 1)));
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  log<LogLevel::kDebug>("{}", text);
  return n;
}

/// libbpf prints to stderr, which a preloaded library must not do, and may raise the program's
/// RLIMIT_MEMLOCK (the setter that prevents it is missing from Debian 12's libbpf.so). Both are
/// restored here.
class QuietLibbpf {
 public:
  QuietLibbpf() : print_(libbpf_set_print(log_libbpf)) { getrlimit(RLIMIT_MEMLOCK, &memlock_); }
  ~QuietLibbpf() {
    libbpf_set_print(print_);
    rlimit now;
    if (getrlimit(RLIMIT_MEMLOCK, &now) == 0 && now.rlim_cur != memlock_.rlim_cur)
      setrlimit(RLIMIT_MEMLOCK, &memlock_);
  }
  QuietLibbpf(const QuietLibbpf&) = delete;
  QuietLibbpf& operator=(const QuietLibbpf&) = delete;

 private:
  libbpf_print_fn_t print_;
  rlimit memlock_{};
};

/// Host addresses per family beyond the first few; wildcard rules do not match the rest.
constexpr uint32_t kMaxAddresses = 16'384;

/// Duplicates the descriptor to a high number.
UniqueFd copy_of(int fd) { return UniqueFd(to_high_number(fcntl(fd, F_DUPFD_CLOEXEC, 3))); }

/// Logs the reason, and returns it on request. @return false: the verifier did not run.
bool is_refused(const VerifierLog& said, std::string* last_line) {
  constexpr size_t kLines = 8;
  const auto lines = said.last_lines(kLines);
  if (lines.empty()) return false;
  utsname u{};
  uname(&u);
  log<LogLevel::kInfo>("Linux {} refuses the steering program; its verifier's last lines:",
                       u.release);
  for (const std::string_view line : lines) log<LogLevel::kInfo>("  {}", line);
  if (last_line != nullptr) *last_line = lines.back();
  return true;
}

uint64_t port_key(uint32_t port_slot, uint16_t bit) { return uint64_t{port_slot} << 16 | bit; }

bool is_v4(steer_kind kind) {
  return kind == STEER_EXACT4 || kind == STEER_LOCAL4 || kind == STEER_WILD4;
}

bool is_exact(steer_kind kind) { return kind == STEER_EXACT4 || kind == STEER_EXACT6; }

using Arrays = steer_bpf::steer_bpf__bss;

template <class Bytes>
void copy_address(Bytes& to, const IpAddr& from) {
  std::memcpy(to, from.bytes().data(), sizeof to);
}

}  // namespace

Result<std::shared_ptr<Steering>> Steering::load(const Interface& interface,
                                                 const SteeringSizes& sizes, bool tags,
                                                 std::string* refusal, unsigned slot) {
  if (auto r = load_libbpf(); !r) return std::unexpected(r.error());
  const QuietLibbpf quiet;
  const VerifierLog said;
  const bpf_object_open_opts options = said.options();
  const std::unique_ptr<steer_bpf, void (*)(steer_bpf*)> skeleton(steer_bpf::open(&options),
                                                                  steer_bpf::destroy);
  if (!skeleton) return fail(errno, "open of the steering program");
  bpf_map__set_max_entries(skeleton->maps.exact4, sizes.flows);
  bpf_map__set_max_entries(skeleton->maps.exact6, sizes.flows);
  bpf_map__set_max_entries(skeleton->maps.local4, sizes.listeners + kMaxAddresses);
  bpf_map__set_max_entries(skeleton->maps.local6, sizes.listeners + kMaxAddresses);
  bpf_map__set_max_entries(skeleton->maps.sockets, interface.queues * STEER_MEMBERS);
  skeleton->rodata->write_tags = tags ? 1 : 0;
  const int r = steer_bpf::load(skeleton.get());
  if (r < 0 && is_refused(said, refusal))
    return fail(ENOTSUP, "load of the steering program (the kernel's verifier refuses it)");
  if (r == -EPERM || r == -EACCES)
    return fail(EPERM, "load of the steering program (needs CAP_BPF and CAP_NET_ADMIN)");
  if (r == -ENOMEM || r == -E2BIG) return fail(ENOMEM, "maps of the steering program");
  if (r == -EMFILE || r == -ENFILE)
    return fail(-r, "descriptors of the steering program (RLIMIT_NOFILE)");
  if (r < 0) return fail(ENOTSUP, "load of the steering program");
  // libbpf's descriptors have low numbers and cannot be moved: keep copies and close libbpf's.
  std::shared_ptr<Steering> made(new Steering(tags, sizes.listeners, slot));
  made->program_ = copy_of(bpf_program__fd(skeleton->progs.vireo_steer));
  made->exact4_ = copy_of(bpf_map__fd(skeleton->maps.exact4));
  made->exact6_ = copy_of(bpf_map__fd(skeleton->maps.exact6));
  made->local4_ = copy_of(bpf_map__fd(skeleton->maps.local4));
  made->local6_ = copy_of(bpf_map__fd(skeleton->maps.local6));
  made->sockets_ = copy_of(bpf_map__fd(skeleton->maps.sockets));
  for (const UniqueFd* fd : {&made->program_, &made->exact4_, &made->exact6_, &made->local4_,
                             &made->local6_, &made->sockets_})
    if (!*fd) return fail_errno("descriptors of the steering program");
  void* at = mmap(nullptr, sizeof(Arrays), PROT_READ | PROT_WRITE, MAP_SHARED,
                  bpf_map__fd(skeleton->maps.bss), 0);
  if (at == MAP_FAILED) return fail_errno("memory of the steering program");
  made->arrays_ = Mapping(at, sizeof(Arrays));
  return made;
}

Result<void> Steering::attach(IfIndex ifindex, Attach how) {
  bpf_link_create_opts options{};
  options.sz = sizeof options;
  options.flags = how == Attach::kNative ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE;
  const int fd =
      bpf_link_create(program_fd(), static_cast<int>(ifindex.value()), BPF_XDP, &options);
  if (fd >= 0) {
    link_.reset(to_high_number(fd));
    return {};
  }
  switch (-fd) {
    case EBUSY:
    case EEXIST:
      return fail(EBUSY, "interface has an XDP program already");
    case EPERM:
    case EACCES:
      return fail(EPERM, "attach of the steering program (needs CAP_NET_ADMIN)");
    case ENODEV:
      return fail(ENODEV, "attach of the steering program");
    default:
      return fail(ENOTSUP, how == Attach::kNative ? "driver refuses native XDP"
                                                  : "interface refuses generic XDP");
  }
}

bool Steering::is_attached() const {
  if (!link_) return false;
  bpf_link_info info{};
  uint32_t length = sizeof info;
  if (bpf_obj_get_info_by_fd(link_.get(), &info, &length) != 0) return false;
  return info.xdp.ifindex != 0;
}

void Steering::leave_joined() noexcept { static_cast<Arrays*>(arrays_.base())->brings_joined = 1; }

Result<void> Steering::set_socket(QueueId queue, int xsk) {
  const uint32_t key = STEER_SOCKET(slot_, queue.value());
  if (bpf_map_update_elem(sockets_.get(), &key, &xsk, BPF_ANY) != 0)
    return fail_errno("entry of the queue in the steering program");
  return {};
}

void Steering::clear_socket(QueueId queue) noexcept {
  const uint32_t key = STEER_SOCKET(slot_, queue.value());
  bpf_map_delete_elem(sockets_.get(), &key);
}

/// The link that the rule names.
uint16_t Steering::link_of(const Entry& e) {
  switch (e.kind) {
    case STEER_LOCAL4:
    case STEER_WILD4:
      return e.local4.link;
    case STEER_LOCAL6:
    case STEER_WILD6:
      return e.local6.link;
    default:
      return STEER_ANY_LINK;
  }
}

Result<Steering::Entry> Steering::entry_of(const FlowKey& key) {
  if (key.proto != IpProto::kTcp && key.proto != IpProto::kUdp)
    return fail(ENOTSUP, "steering of this protocol");
  const bool wild = key.local.addr.is_unspecified();
  const bool exact = key.is_exact();
  if (key.local.port == 0 || exact == key.remote.addr.is_unspecified() || (exact && wild) ||
      (!wild && key.local.addr.is_v4() == key.v6) || (exact && key.remote.addr.is_v4() == key.v6))
    return fail(EINVAL, "steering key");

  const uint16_t local_port = be16(key.local.port).raw();
  const uint16_t remote_port = be16(key.remote.port).raw();
  const auto proto = static_cast<uint8_t>(key.proto);
  Entry e;
  std::memset(&e, 0, sizeof e);  // keys are compared bytewise, padding included
  e.port_slot = STEER_PORT_SLOT(key.proto == IpProto::kUdp, uint32_t{local_port});
  if (exact && key.v6) {
    e.kind = STEER_EXACT6;
    copy_address(e.exact6.local, key.local.addr);
    copy_address(e.exact6.remote, key.remote.addr);
    e.exact6.local_port = local_port;
    e.exact6.remote_port = remote_port;
    e.exact6.proto = proto;
  } else if (exact) {
    e.kind = STEER_EXACT4;
    e.exact4.local = key.local.addr.as_v4().raw();
    e.exact4.remote = key.remote.addr.as_v4().raw();
    e.exact4.local_port = local_port;
    e.exact4.remote_port = remote_port;
    e.exact4.proto = proto;
  } else if (key.v6) {
    e.kind = wild ? STEER_WILD6 : STEER_LOCAL6;
    if (!wild) copy_address(e.local6.local, key.local.addr);
    e.local6.local_port = local_port;
    e.local6.link = key.vlan.value();
    e.local6.proto = proto;
  } else {
    e.kind = wild ? STEER_WILD4 : STEER_LOCAL4;
    if (!wild) e.local4.local = key.local.addr.as_v4().raw();
    e.local4.local_port = local_port;
    e.local4.link = key.vlan.value();
    e.local4.proto = proto;
  }
  return e;
}

int Steering::map_of(steer_kind kind) const {
  switch (kind) {
    case STEER_EXACT4:
      return exact4_.get();
    case STEER_EXACT6:
      return exact6_.get();
    case STEER_LOCAL4:
    case STEER_WILD4:
      return local4_.get();
    case STEER_LOCAL6:
    case STEER_WILD6:
      break;
  }
  return local6_.get();
}

uint32_t Steering::rules_at(uint32_t port_slot, steer_kind kind) const noexcept {
  const auto it = per_port_.find(port_key(port_slot, kind));
  return it == per_port_.end() ? 0 : it->second;
}

/// Keeps the port filter up to date: a bit is set while any rule of its kind has the port.
void Steering::note(uint32_t port_slot, uint16_t bit, bool added) noexcept {
  uint32_t& rules = per_port_[port_key(port_slot, bit)];
  rules += added ? 1U : ~0U;
  std::atomic_ref<uint16_t> bits(static_cast<Arrays*>(arrays_.base())->port_kinds[port_slot]);
  if (rules != 0) {
    bits.fetch_or(bit, std::memory_order_relaxed);
  } else {
    bits.fetch_and(static_cast<uint16_t>(~bit), std::memory_order_relaxed);
    per_port_.erase(port_key(port_slot, bit));
  }
}

void Steering::note_rule(const Entry& e, bool added) noexcept {
  if (link_of(e) != STEER_ANY_LINK) note(e.port_slot, STEER_BY_LINK, added);
  note(e.port_slot, static_cast<uint16_t>(e.kind), added);
}

/// Called after note_rule() for an IPv4 rule. The only rule of a port goes into the lone4 array;
/// with a second one the tables are used, also after one of the two is removed. A frame that
/// arrives meanwhile sees the rules before or after the change.
void Steering::note_lone(const Entry& e, bool may_be_lone) noexcept {
  Arrays& arrays = *static_cast<Arrays*>(arrays_.base());
  std::atomic_ref<uint16_t> bits(arrays.port_kinds[e.port_slot]);
  bits.fetch_and(static_cast<uint16_t>(~STEER_LONE4), std::memory_order_relaxed);
  uint32_t rules = 0;
  for (const steer_kind kind : {STEER_EXACT4, STEER_LOCAL4, STEER_WILD4})
    rules += rules_at(e.port_slot, kind);
  if (rules != 1 || !may_be_lone) return;
  const bool exact = e.kind == STEER_EXACT4;
  arrays.lone4[e.port_slot] = {.local = exact ? e.exact4.local : e.local4.local,
                               .remote = exact ? e.exact4.remote : 0,
                               .remote_port = exact ? e.exact4.remote_port : uint16_t{0},
                               .link = link_of(e),
                               .slot = static_cast<uint16_t>(slot_),
                               .pad = 0};
  bits.fetch_or(STEER_LONE4,
                std::memory_order_release);  // the rule is written before it can be found
}

Result<uint64_t> Steering::add(const FlowKey& key, FlowTag tag) {
  return add_rule(key, STEER_VALUE(slot_, tag.value()));
}

Result<uint64_t> Steering::spare(const FlowKey& key) {
  return add_rule(key, STEER_SPARED | STEER_VALUE(slot_, 0));
}

Result<uint64_t> Steering::add_rule(const FlowKey& key, uint64_t value) {
  const auto e = entry_of(key);
  if (!e) return std::unexpected(e.error());
  const std::lock_guard hold(lock_);
  uint32_t* const listeners = is_exact(e->kind) ? nullptr : &listeners_[is_v4(e->kind) ? 0 : 1];
  if (listeners != nullptr && *listeners == most_listeners_)
    return fail(ENOSPC, "steering table is full");
  if (bpf_map_update_elem(map_of(e->kind), &e->exact4, &value, BPF_NOEXIST) != 0) {
    const int code = errno;
    if (code == EEXIST) return fail(EEXIST, "flow is steered already");
    if (code == E2BIG || code == ENOMEM) return fail(ENOSPC, "steering table is full");
    return fail(code, "steering table");
  }
  if (listeners != nullptr) ++*listeners;
  note_rule(*e, true);
  if (is_v4(e->kind)) note_lone(*e, !tags_ && (value & STEER_SPARED) == 0);
  rules_.emplace(++last_id_, *e);
  return last_id_;
}

void Steering::remove(uint64_t id) noexcept {
  const std::lock_guard hold(lock_);
  const auto it = rules_.find(id);
  if (it == rules_.end()) return;
  bpf_map_delete_elem(map_of(it->second.kind), &it->second.exact4);
  if (!is_exact(it->second.kind)) --listeners_[is_v4(it->second.kind) ? 0 : 1];
  note_rule(it->second, false);
  if (is_v4(it->second.kind)) note_lone(it->second, false);
  rules_.erase(it);
}

void Steering::ask_kernel(uint16_t port, bool on) noexcept {
  const uint32_t slot = STEER_PORT_SLOT(0U, uint32_t{be16(port).raw()});
  std::atomic_ref<uint16_t> bits(static_cast<Arrays*>(arrays_.base())->port_kinds[slot]);
  if (on)
    bits.fetch_or(STEER_ASK, std::memory_order_relaxed);
  else
    bits.fetch_and(static_cast<uint16_t>(~STEER_ASK), std::memory_order_relaxed);
}

void Steering::set_host(const HostOnWire& host) {
  const std::lock_guard hold(lock_);
  set_links(host.links);
  set_addresses(host.addresses);
  const uint64_t mine = uint64_t{1} << slot_;
  std::atomic_ref wanted(static_cast<Arrays*>(arrays_.base())->host.takes_fragments);
  if (host.fragments)
    wanted.fetch_or(mine, std::memory_order_relaxed);
  else
    wanted.fetch_and(~mine, std::memory_order_relaxed);
}

void Steering::set_links(std::span<const HostLink> links) noexcept {
  Arrays& arrays = *static_cast<Arrays*>(arrays_.base());
  const auto is_here = [&](VlanId vlan) {
    return std::ranges::find(links, vlan, &HostLink::vlan) != links.end();
  };
  for (const VlanId gone : vlans_)
    if (!is_here(gone)) arrays.vlans[gone.value()] = {};
  vlans_.clear();
  for (const HostLink& l : links) {
    if (l.vlan.value() >= STEER_VLANS) continue;
    auto& at = l.vlan.value() == 0 ? arrays.untagged : arrays.vlans[l.vlan.value()];
    std::memcpy(at.mac, l.mac.data(), sizeof at.mac);
    std::atomic_ref(at.is_here).store(1, std::memory_order_release);  // after the MAC is written
    if (l.vlan.value() != 0) vlans_.push_back(l.vlan);
  }
}

/// Addresses that stay keep their slots, because their frames arrive meanwhile.
void Steering::set_addresses(std::span<const IpAddr> addresses) {
  auto& host = static_cast<Arrays*>(arrays_.base())->host;
  const auto stays = [&](const IpAddr& a) {
    return std::ranges::find(addresses, a) != addresses.end();
  };
  const IpAddr none;
  const auto place = [&](const IpAddr& wanted, bool v4) -> std::byte* {
    for (auto& at : host.v4)
      if (v4 && at == (wanted == none ? 0 : wanted.as_v4().raw()))
        return reinterpret_cast<std::byte*>(&at);
    for (auto& at : host.v6)
      if (!v4 && std::memcmp(at, wanted.bytes().data(), 16) == 0)
        return reinterpret_cast<std::byte*>(&at);
    return nullptr;
  };
  const auto write = [](std::byte* at, const IpAddr& a, bool v4) {
    if (!v4) {
      std::memcpy(at, a.bytes().data(), 16);
      return;
    }
    const uint32_t raw = a == IpAddr() ? 0 : a.as_v4().raw();
    std::memcpy(at, &raw, sizeof raw);
  };
  struct Key {
    union {
      steer_local4 v4;
      steer_local6 v6;
    };
  };
  const auto key_of = [](const IpAddr& a) {
    Key k;
    std::memset(&k, 0, sizeof k);
    if (a.is_v4())
      k.v4.local = a.as_v4().raw();
    else
      copy_address(k.v6.local, a);
    return k;
  };
  for (const IpAddr& a : addresses_) {
    if (stays(a)) continue;
    if (std::byte* at = place(a, a.is_v4())) write(at, none, a.is_v4());
    const Key k = key_of(a);  // it may also be in the table, if there was no free slot then
    bpf_map_delete_elem(a.is_v4() ? local4_.get() : local6_.get(), &k);
  }
  bool more[2] = {};
  for (const IpAddr& a : addresses) {
    if (place(a, a.is_v4()) != nullptr) continue;
    if (std::byte* at = place(none, a.is_v4())) {
      write(at, a, a.is_v4());
      continue;
    }
    const Key k = key_of(a);
    const uint64_t value = 0;
    bpf_map_update_elem(a.is_v4() ? local4_.get() : local6_.get(), &k, &value, BPF_ANY);
    more[a.is_v4() ? 0 : 1] = true;
  }
  host.more_v4 = more[0] ? 1 : 0;
  host.more_v6 = more[1] ? 1 : 0;
  addresses_.assign(addresses.begin(), addresses.end());
}

}  // namespace vireo::xdp
