// Descriptors that outlive the process that deposited them: they lie as messages in the queue of a
// socket pair, both ends of which every member has. The queue, and what is in it, lives as long as
// a member. Owner: a Group. Thread: holder of the group's control lock.
//
// A message can be taken only from the head. To withdraw one behind others, those are first copied
// to the tail. A member that is killed between copy and removal leaves a double, never a gap;
// doubles have the same number and are passed over, and dropped by the next withdrawal.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/fd.h"
#include "core/result.h"

namespace vireo::xdp {

/// What lies with descriptors in the bank. Meaning of `kind`, `a`, `b`: the depositor's.
struct Deposit {
  static constexpr uint32_t kNoSlot = ~uint32_t{0};  ///< stays when its depositor leaves or dies
  uint32_t kind = 0;
  uint32_t slot = kNoSlot;  ///< the member it belongs to
  uint32_t a = 0;
  uint32_t b = 0;
};

class Bank {
 public:
  using Which = std::function<bool(const Deposit&)>;
  using Visit = std::function<void(const Deposit&, std::span<UniqueFd>)>;
  struct Ends {
    UniqueFd tail;  ///< to which deposits are sent
    UniqueFd head;
  };
  static Result<Ends> create();

  /// Of ends that the caller keeps.
  Bank(int tail, int head) : tail_(tail), head_(head) {}

  /// @param number unique; fds at most kMaxSentFds.
  /// Errors: ENOBUFS no room, see Group::deposit(); EINVAL too many descriptors.
  Result<void> deposit(uint64_t number, const Deposit& d, std::span<const int> fds) noexcept;
  /// Calls `visit` with duplicates of the descriptors; those not moved from are closed.
  /// Errors: EMFILE.
  Result<void> for_each(const Which& which, const Visit& visit) const noexcept;
  /// Errors: EMFILE, ENOBUFS; some may have been removed.
  Result<void> withdraw(const Which& which) noexcept;

 private:
  struct Message;
  bool peek(size_t index, Message& m) const noexcept;
  bool has_room() const noexcept;
  void drop_head() noexcept;
  Result<void> move_head_to_tail() noexcept;
  void drop_probe() noexcept;

  int tail_, head_;
};

}  // namespace vireo::xdp
