#include "dev/xdp/steer_ports.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <bit>
#include <cstring>
#include <unordered_map>

#include "core/byteorder.h"
#include "core/high_fd.h"
#include "dev/xdp/steer_arrays.h"

namespace vireo::xdp {
namespace {

constexpr steer_kind kKinds[] = {STEER_EXACT4, STEER_LOCAL4, STEER_WILD4,
                                 STEER_EXACT6, STEER_LOCAL6, STEER_WILD6};
constexpr size_t kByLink = std::size(kKinds);

size_t index_of(uint16_t bit) {
  return bit == STEER_BY_LINK ? kByLink : static_cast<size_t>(std::countr_zero(bit));
}

uint32_t rules4(const SteerCounts::Port& p) {
  return p.rules[index_of(STEER_EXACT4)] + p.rules[index_of(STEER_LOCAL4)] +
         p.rules[index_of(STEER_WILD4)];
}

uint16_t bits_of(const SteerCounts::Port& p) {
  uint16_t bits = p.rules[kByLink] != 0 ? STEER_BY_LINK : 0;
  for (const steer_kind kind : kKinds)
    if (p.rules[index_of(kind)] != 0) bits |= static_cast<uint16_t>(kind);
  return bits;
}

void add_to(uint32_t& n, int change) { n += static_cast<uint32_t>(change); }

void clear_bits(std::atomic_ref<uint16_t> word, uint16_t bits) {
  word.fetch_and(static_cast<uint16_t>(~bits), std::memory_order_relaxed);
}

uint64_t member_bit(unsigned slot) { return uint64_t{1} << slot; }

uint32_t tcp_slot(uint16_t port) { return STEER_PORT_SLOT(0U, uint32_t{be16(port).raw()}); }

}  // namespace

Result<UniqueFd> SteerPorts::make_memory(const SteerFacts& facts) {
  UniqueFd fd(to_high_number(
      static_cast<int>(::syscall(SYS_memfd_create, "vireo-steering", unsigned{MFD_CLOEXEC}))));
  if (!fd || sys(SYS_ftruncate, fd.get(), sizeof(SteerCounts)) < 0 ||
      sys(SYS_pwrite64, fd.get(), reinterpret_cast<long>(&facts), sizeof facts,
          offsetof(SteerCounts, facts)) != sizeof facts)
    return fail(ENOMEM, "counts of the steering program");
  return fd;
}

Result<void> SteerPorts::map(int counts, int arrays) {
  const auto mapped = [](int fd, size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? Mapping() : Mapping(at, bytes);
  };
  counts_ = mapped(counts, sizeof(SteerCounts));
  if (counts_.base() == nullptr) return fail_errno("counts of the steering program");
  if (facts().arrays_bytes != sizeof(SteerArrays))
    return fail(ENOTSUP, "steering program of another build");
  arrays_ = mapped(arrays, sizeof(SteerArrays));
  if (arrays_.base() == nullptr) return fail_errno("memory of the steering program");
  return {};
}

std::atomic_ref<uint16_t> SteerPorts::kinds(uint32_t port_slot) const noexcept {
  return std::atomic_ref<uint16_t>(arrays().port_kinds[port_slot]);
}

bool SteerPorts::is_full(const SteerRule& rule) const noexcept {
  return !rule.is_exact() && counts().listeners[rule.is_v4() ? 0 : 1] >= facts().most_listeners;
}

/// Keeps the port filter up to date: a bit is set while any rule of its kind has the port.
void SteerPorts::count(uint32_t port_slot, uint16_t bit, int change) noexcept {
  uint32_t& rules = counts().ports[port_slot].rules[index_of(bit)];
  add_to(rules, change);
  if (rules != 0)
    kinds(port_slot).fetch_or(bit, std::memory_order_relaxed);
  else
    clear_bits(kinds(port_slot), bit);
}

void SteerPorts::count(const SteerRule& rule, int change) noexcept {
  if (!rule.is_exact()) add_to(counts().listeners[rule.is_v4() ? 0 : 1], change);
  if (rule.link() != STEER_ANY_LINK) count(rule.port_slot, STEER_BY_LINK, change);
  count(rule.port_slot, static_cast<uint16_t>(rule.kind), change);
}

/// The only IPv4 rule of a port goes into the lone4 array; with a second one the tables are used,
/// also after one of the two is removed. A frame that arrives meanwhile sees the rules before or
/// after the change.
void SteerPorts::set_lone(const SteerRule& rule, uint64_t value) noexcept {
  if (facts().tags != 0 || (value & STEER_MARKS) != 0) return;
  const bool exact = rule.kind == STEER_EXACT4;
  arrays().lone4[rule.port_slot] = {.local = exact ? rule.exact4.local : rule.local4.local,
                                    .remote = exact ? rule.exact4.remote : 0,
                                    .remote_port = exact ? rule.exact4.remote_port : uint16_t{0},
                                    .link = rule.link(),
                                    .slot = static_cast<uint16_t>(value >> 32),
                                    .pad = 0};
  // The rule is written before it can be found.
  kinds(rule.port_slot).fetch_or(STEER_LONE4, std::memory_order_release);
}

void SteerPorts::added(const SteerRule& rule, uint64_t value) noexcept {
  count(rule, 1);
  if (!rule.is_v4()) return;
  clear_bits(kinds(rule.port_slot), STEER_LONE4);
  if (rules4(counts().ports[rule.port_slot]) == 1) set_lone(rule, value);
}

void SteerPorts::removed(const SteerRule& rule) noexcept {
  count(rule, -1);
  if (rule.is_v4()) clear_bits(kinds(rule.port_slot), STEER_LONE4);
}

void SteerPorts::removed_unlocked(const SteerRule& rule) noexcept {
  if (rule.is_v4()) clear_bits(kinds(rule.port_slot), STEER_LONE4);
  mark_stale();
}

/// `at`: the slot in port_kinds of a TCP port.
void SteerPorts::ask(uint32_t at, uint64_t member, bool on) noexcept {
  std::atomic<uint64_t>& asking = counts().asking[at];
  if (on) {
    kinds(at).fetch_or(STEER_ASK, std::memory_order_relaxed);
    asking.fetch_or(member, std::memory_order_relaxed);
  } else if ((asking.fetch_and(~member, std::memory_order_relaxed) & ~member) == 0) {
    clear_bits(kinds(at), STEER_ASK);
  }
}

void SteerPorts::ask_kernel(uint16_t port, unsigned slot, bool on) noexcept {
  ask(tcp_slot(port), member_bit(slot), on);
}

void SteerPorts::ask_kernel_unlocked(uint16_t port, unsigned slot, bool on) noexcept {
  const uint32_t at = tcp_slot(port);
  if (on)
    ask(at, member_bit(slot), on);
  else  // STEER_ASK stays: another member may be setting it
    counts().asking[at].fetch_and(~member_bit(slot), std::memory_order_relaxed);
  mark_stale();
}

void SteerPorts::ask_no_more(unsigned slot) noexcept {
  for (uint32_t at = 0; at < std::size(counts().asking); ++at)
    if ((kinds(at).load(std::memory_order_relaxed) & STEER_ASK) != 0)
      ask(at, member_bit(slot), false);
}

std::vector<SharedRule> SteerPorts::rebuild(int counts_fd, const SteerTables& tables) {
  struct Found {
    SteerCounts::Port port{};
    SteerRule last4{};  ///< the port's only IPv4 rule, if it has one
    uint64_t value = 0;
  };
  SteerCounts& c = counts();
  c.is_stale.store(0, std::memory_order_seq_cst);  // before the tables are read
  std::unordered_map<uint32_t, Found> found;
  uint32_t listeners[2] = {};
  std::vector<SharedRule> shared;
  tables.for_each([&](const SteerRule& rule, uint64_t value) {
    if (STEER_IS_SHARED(value)) shared.push_back({rule, value});
    Found& f = found[rule.port_slot];
    ++f.port.rules[index_of(static_cast<uint16_t>(rule.kind))];
    if (rule.link() != STEER_ANY_LINK) ++f.port.rules[kByLink];
    if (!rule.is_exact()) ++listeners[rule.is_v4() ? 0 : 1];
    if (!rule.is_v4()) return;
    f.last4 = rule;
    f.value = value;
  });
  std::memcpy(c.listeners, listeners, sizeof listeners);
  if (sys(SYS_fallocate, counts_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
          offsetof(SteerCounts, ports), sizeof c.ports) < 0)
    std::memset(c.ports, 0, sizeof c.ports);
  for (const auto& [at, f] : found) c.ports[at] = f.port;
  for (uint32_t at = 0; at < STEER_PORTS; ++at) {
    const auto it = found.find(at);
    uint16_t bits = it == found.end() ? uint16_t{0} : bits_of(it->second.port);
    if (at < std::size(c.asking) && c.asking[at].load(std::memory_order_relaxed) != 0)
      bits |= STEER_ASK;
    // Without STEER_LONE4: the tables serve, too.
    if (kinds(at).load(std::memory_order_relaxed) != bits)
      kinds(at).store(bits, std::memory_order_relaxed);
  }
  for (const auto& [at, f] : found)
    if (rules4(f.port) == 1) set_lone(f.last4, f.value);
  return shared;
}

}  // namespace vireo::xdp
