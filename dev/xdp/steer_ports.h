// What the members of a group have on each port: counts of rules, and who wants the kernel asked.
// From these follow the program's port filter (port_kinds) and its array of lone rules (lone4).
// Owner: Steering; the counts are a memfd that all members map. Thread: the holder of the lock in
// it, except where said. If that one died, the tables of rules are the truth.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/result.h"
#include "dev/xdp/group/shared_lock.h"
#include "dev/xdp/steer_rule.h"
#include "dev/xdp/steer_tables.h"
#include "dev/xdp/xsk.h"

namespace vireo::xdp {

struct SteerArrays;

/// What a founder decides for all.
struct SteerFacts {
  uint32_t arrays_bytes = 0;    ///< of the program's variables: another build may have others
  uint32_t queues = 0;          ///< of the interface
  uint32_t most_listeners = 0;  ///< per family: the rest of the table is for addresses
  uint32_t tags = 0;            ///< the program writes tags
};

/// The memfd. Zero bytes are its first state; ports that have no rule take no memory.
struct SteerCounts {
  SharedLock lock;
  std::atomic<uint32_t> is_stale;  ///< something was changed without the lock
  uint32_t listeners[2];           ///< rules for local ends, by family: IPv4, IPv6
  SteerFacts facts;
  /// By the number of a shared end: a bit for each member that shares it; 0: the number is free.
  std::atomic<uint64_t> sharers[STEER_SHARED_ENDS];
  struct Port {
    uint32_t rules[7];  ///< by bit of steer_kind; the last one: rules that name a link
  };
  alignas(4096) Port ports[STEER_PORTS];  ///< by STEER_PORT_SLOT
  /// By TCP port on the wire: a bit for each member, as of Device::ask_kernel().
  alignas(4096) std::atomic<uint64_t> asking[65536];
};

/// A rule with STEER_SHARED.
struct SharedRule {
  SteerRule rule;
  uint64_t value;
};

class SteerPorts {
 public:
  SteerPorts() = default;
  /// @return the memfd. Errors: those of memfd_create(2).
  static Result<UniqueFd> make_memory(const SteerFacts& facts);
  /// Maps a memfd of make_memory() and `arrays`, the map of the program's variables. Errors:
  /// ENOTSUP another build made them.
  Result<void> map(int counts, int arrays);

  SteerCounts& counts() const { return *static_cast<SteerCounts*>(counts_.base()); }
  SteerArrays& arrays() const { return *static_cast<SteerArrays*>(arrays_.base()); }
  const SteerFacts& facts() const { return counts().facts; }

  bool is_full(const SteerRule& rule) const noexcept;
  /// After the rule was added to the table.
  void added(const SteerRule& rule, uint64_t value) noexcept;
  /// After the rule was removed from the table.
  void removed(const SteerRule& rule) noexcept;
  /// Likewise, without the lock: no frame finds the rule, the counts are put right later.
  void removed_unlocked(const SteerRule& rule) noexcept;

  /// As Device::ask_kernel(), for the member.
  void ask_kernel(uint16_t port, unsigned slot, bool on) noexcept;
  /// Likewise, without the lock.
  void ask_kernel_unlocked(uint16_t port, unsigned slot, bool on) noexcept;
  /// For all ports.
  void ask_no_more(unsigned slot) noexcept;

  /// Something was changed without the lock: its next holder rebuilds.
  void mark_stale() noexcept { counts().is_stale.store(1, std::memory_order_release); }
  bool is_stale() const noexcept { return counts().is_stale.load(std::memory_order_acquire) != 0; }
  /// Makes all but the shared ends follow from the tables, while frames arrive. @return the rules
  /// of those.
  std::vector<SharedRule> rebuild(int counts_fd, const SteerTables& tables);

 private:
  void count(uint32_t port_slot, uint16_t bit, int change) noexcept;
  void count(const SteerRule& rule, int change) noexcept;
  void ask(uint32_t at, uint64_t member, bool on) noexcept;
  void set_lone(const SteerRule& rule, uint64_t value) noexcept;
  std::atomic_ref<uint16_t> kinds(uint32_t port_slot) const noexcept;

  Mapping counts_, arrays_;
};

}  // namespace vireo::xdp
