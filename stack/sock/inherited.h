// Sockets that this process has from its parent, which carries them (heirs.h has the other side).
// They are void (Mode::kVoid) until their first use; then the parent moves them to the kernel, and
// both go on with the kernel's socket.
// Owner: Stack. Thread: any. Guard: lock_, taken with a File's control lock held and before
// engines' locks and the table's.
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "core/lock.h"
#include "core/result.h"
#include "stack/sock/file.h"
#include "stack/sock/heirs.h"
#include "stack/sock/worker.h"

namespace vireo {

class Inherited {
 public:
  /// The void `h` is used: it is the kernel's from here on. Waits until its owner has answered.
  /// Errors: EBADF; ENOTCONN a connection whose owner has ended or does not answer.
  Result<void> take(Handle h, const char* call) noexcept;
  /// The last descriptor of the void `f` is closed.
  void drop(const File& f) noexcept;

  /// Whether the parent has closed this File of Holders::kParent, which nobody else had.
  bool is_closed_by_parent(const File& f) noexcept;

  /// Before fork(2), as the first: gives the child channels of its own.
  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS;
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS;
  /// All descriptors but those of `next_` are closed with Vireo's own: keep_fds() before that,
  /// then fork_child(). `parents`: to the process that forked.
  void keep_fds(std::optional<HeirEnd>& parents) noexcept VIREO_NO_THREAD_ANALYSIS;
  void fork_child(std::optional<HeirEnd> parents) noexcept VIREO_NO_THREAD_ANALYSIS;

 private:
  struct Socket {
    uint32_t file;
    uint32_t generation;
    UniqueFd fd;
  };
  struct Answer {
    int error = ENOTCONN;
    UniqueFd fd;
  };

  void take_sent() noexcept;
  Answer fetch(const File& f, uint32_t generation) noexcept VIREO_REQUIRES(lock_);
  HeirEnd* owner_of(uint32_t file) noexcept VIREO_REQUIRES(lock_);
  /// Waits for what the owner has to say about the File; keeps what it says about others.
  Answer hear(HeirEnd& owner, uint32_t file, uint32_t generation) noexcept VIREO_REQUIRES(lock_);

  std::atomic<bool> any_{false};
  Lock lock_;
  std::vector<HeirEnd> owners_ VIREO_GUARDED_BY(lock_);
  std::vector<Socket> sent_ VIREO_GUARDED_BY(lock_);  ///< unasked, not used yet
  std::vector<HeirEnd> next_ VIREO_GUARDED_BY(lock_);
};

/// The processes that share sockets with this one by fork(2): younger and older ones.
struct Family {
  Heirs heirs;
  Inherited inherited;
  Worker worker;
};

}  // namespace vireo
