// The processes of one user in one network namespace that share a NIC queue, without a daemon: the
// first process founds the group, others join, whoever is left keeps it. A member may be killed or
// stopped anywhere; the others notice, and clean up after it. Not used on the data path, and not
// dependent on AF_XDP.
//
//   rendezvous.h   how processes find each other
//   table.h        the members' slots, who lives, the control lock
//   bank.h         descriptors that outlive their depositor
//
// Owner: the device. Thread: any. Not to be used by a forked child; close_own_fds() closes its
// copies of the descriptors. A raw clone(2) without it keeps the group's name taken as long as the
// child lives.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "core/clock.h"
#include "core/fd.h"
#include "core/flow_hash.h"
#include "core/result.h"
#include "dev/xdp/group/bank.h"

namespace vireo::xdp {

class Group {
 public:
  static constexpr unsigned kMaxMembers = 64;
  struct Options {
    std::string_view name;  ///< distinguishes groups of a user in a network namespace
    uint32_t version = 0;   ///< of the layout of the shared memory; must agree
    Duration patience = Duration::ms(500);  ///< most time to enter, without `make_memory`
  };
  using MakeMemory = std::function<Result<UniqueFd>()>;

  /// Enters the group, or founds it with the memory of `make_memory`. Others wait meanwhile.
  /// Errors: ETIMEDOUT members do not answer, or hold the control lock (they are stopped); EBUSY no
  /// slot is free, or the name is another user's or program's; EEXIST this process is a member;
  /// ENOTSUP another version; EMFILE; those of `make_memory`.
  static Result<std::unique_ptr<Group>> enter(const Options& options,
                                              const MakeMemory& make_memory);
  /// Leaves: withdraws the deposits of its slot, then frees it. What it has in shared memory must
  /// be given back before. If that cannot be done in a short time, the others bury it. In a forked
  /// child, it does nothing.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  bool is_founder() const noexcept;
  unsigned slot() const noexcept;
  int memory_fd() const noexcept;
  /// Drawn at random by the founder.
  FlowHashKey secret() const noexcept;

  /// Readable when a process wants to join; then call serve(). Every member is to do so, so that a
  /// stopped one does not hold up the others.
  int fd() const noexcept;
  /// Does not block. @return false: there was no free descriptor, fd() stays readable; call again
  /// later.
  bool serve() noexcept;

  class Control;
  /// The control lock: exclusive among all processes and threads, not recursive. If its holder
  /// dies, the kernel releases it. Errors: ETIMEDOUT.
  Result<Control> control(Duration patience) noexcept;

  /// Slots in use, those of dead members not yet buried included.
  uint64_t members() const noexcept;
  /// Whether the slot's member lives; one system call, no lock, errno stays. A dead one writes no
  /// longer to shared memory, but its descriptors may be open for a moment longer.
  bool is_alive(unsigned slot) const noexcept;
  /// Of a slot's member, in the PID namespace of that member: to tell the operator.
  pid_t pid_of(unsigned slot) const noexcept;

  using Bury = std::function<bool(const Control&, unsigned slot)>;
  /// Calls `bury` for each dead member, then withdraws its deposits and frees its slot, all under
  /// the control lock. If the lock is taken, it returns at once. If the caller dies meanwhile, the
  /// next one buries again: `bury` must be idempotent. A slot for which `bury` returned false, or
  /// that could not be freed (no descriptors left), is buried again by the next call.
  void bury_dead(const Bury& bury) noexcept;

  /// Leaves copies of at most kMaxSentFds descriptors with the group, until they are withdrawn or
  /// the group ends. Errors: ENOBUFS (net.core.wmem_max; without CAP_SYS_RESOURCE and CAP_SYS_ADMIN
  /// RLIMIT_NOFILE limits the descriptors of all deposits of the user), EINVAL, EMFILE.
  Result<void> deposit(const Control&, const Deposit& d, std::span<const int> fds) noexcept;
  /// Visits the deposits that `which` wants, in any order, with duplicates of their descriptors;
  /// closed afterwards unless moved from. Errors: EMFILE.
  Result<void> for_each_deposit(const Control&, const Bank::Which& which,
                                const Bank::Visit& visit) noexcept;
  /// Removes those that `which` wants. Errors: ENOBUFS, EMFILE: some may be left.
  Result<void> withdraw(const Control&, const Bank::Which& which) noexcept;

 private:
  struct State;
  explicit Group(std::unique_ptr<State> state);
  uint64_t dead() const noexcept;
  void unlock() noexcept;

  std::unique_ptr<State> state_;
};

/// Holds the control lock, to be released by the thread that took it.
class Group::Control {
 public:
  Control(Control&& o) noexcept = default;
  ~Control() {
    if (held_.owns_lock()) group_->unlock();
  }

 private:
  friend class Group;
  Control(Group* group, std::unique_lock<std::mutex> held)
      : group_(group), held_(std::move(held)) {}
  Group* group_;
  std::unique_lock<std::mutex> held_;
};

}  // namespace vireo::xdp
