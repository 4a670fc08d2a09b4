// A process that is a member of a group, serves, and does what the test tells it. Owner: the test.
// Thread: the test's. Every wait is bounded; what does not come in time reads as kNoAnswer.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "core/own_fds.h"
#include "dev/xdp/group/group.h"

namespace vireo::xdp::test {

inline constexpr uint64_t kNoAnswer = ~uint64_t{0};

/// A name no other test has.
std::string unique_name();
/// As the group's memory: its inode tells groups apart.
Result<UniqueFd> make_memory();
/// The inode.
uint64_t identity(int fd);
unsigned open_descriptors();

/// Deposits `fds` memfds, each with `kind` as content.
Result<void> deposit(Group& g, uint32_t kind, size_t fds, uint32_t slot);
/// How often each kind below 64 is deposited; ~0 for one whose descriptors are wrong.
struct Kinds {
  unsigned count[64] = {};
  uint64_t mask() const;   ///< those that are there exactly once
  bool any_other() const;  ///< more than once, or wrong
};
Kinds deposits(Group& g, const Group::Control& held);

enum class Ask : uint32_t {
  kMembers,        ///< bit mask of slots
  kIsAlive,        ///< of the slot
  kBury,           ///< bit mask of the buried
  kDeposit,        ///< of the kind, with two descriptors, for its slot
  kDepositForAll,  ///< of the kind, with a descriptor, for no slot
  kWithdraw,       ///< of the kind
  kKinds,          ///< bit mask of kinds that are deposited; kNoAnswer if any is so twice, or wrong
  kLock,           ///< keeps the control lock; result: errno
  kDescriptors,
  kForkAndWait,  ///< a child that closes our descriptors, destroys the group, and lives on; its PID
  kExec,
  kQuit  ///< leaves
};

class Process {
 public:
  /// Forks. `before` runs in the child before it enters.
  explicit Process(std::string name, uint32_t version = 1,
                   const std::function<void()>& before = {});
  ~Process() { kill_now(); }
  Process(Process&& o) noexcept
      : pid_(std::exchange(o.pid_, -1)), socket_(std::exchange(o.socket_, -1)) {}
  Process& operator=(Process&&) = delete;

  struct Entered {
    int error = -1;  ///< errno; -1: no answer
    bool founder = false;
    unsigned slot = 0;
    uint64_t memory = 0;
  };
  /// The first answer: call once, before ask().
  Entered entered();
  uint64_t ask(Ask what, uint32_t argument = 0);
  /// Does not wait for the answer.
  void tell(Ask what, uint32_t argument = 0);
  uint64_t hear();
  void stop();
  void go_on();
  void kill_now();
  /// Waits for its end. @return the exit status, 128 + signal, or -1.
  int join();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

}  // namespace vireo::xdp::test
