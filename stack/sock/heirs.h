// The children of this process that have descriptors of its carried sockets. fork(2) gives them
// such descriptors, but an engine is of one process. So there is a channel (AF_UNIX) between the
// two: when the child first uses such a socket, it asks, this process moves the socket to the
// kernel (hand_over.cpp) and sends its descriptor; from then on both use the kernel's. What
// this process closes while the child has it, is moved unasked, and a connection is sent. The child
// may carry a connection once it is its alone (promotion.h), so it is told of this process's close.
//
// The channel is made before each fork that gives a carried socket to the child, and ends with the
// child or its exec. A child's child gets one too, by its parent's. The children of vfork(2), which
// live for a moment, have one together.
// Owner: Stack. Thread: any; serve() the helper's. Guard: lock_, a leaf.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/fd.h"
#include "core/lock.h"
#include "core/result.h"
#include "stack/sock/file.h"
#include "stack/sock/held_files.h"

namespace vireo {

/// What the processes say to each other, one message each.
struct HeirMessage {
  enum class Kind : uint32_t {
    kUse,      ///< to the owner: the child uses this File's socket; perhaps where to answer
    kSocket,   ///< from the owner: its descriptor, if it was a connection; or `error`
    kNewHeir,  ///< to the owner: the child's child; its channel and the memory of its HeldFiles
  };
  Kind kind = Kind::kUse;
  uint32_t file = 0;  ///< index in the owner's table, and in those of its heirs
  uint32_t generation = 0;
  int32_t error = 0;   ///< errno; 0: the socket is the kernel's
  uint64_t inode = 0;  ///< kUse of a child of vfork(2): what it has at that number
};

/// How long a child waits for its owner, which may be stopped.
inline constexpr Duration kPatience = Duration::s(5);
/// @return false: no message came.
bool await_message(int channel, Duration patience) noexcept;

/// An end of a channel, and what the child has.
struct HeirEnd {
  UniqueFd channel;
  HeldFiles held;
  bool is_silent = false;  ///< the child's: its owner did not answer, do not wait again
};

class Heirs {
 public:
  /// Before the helper starts. Errors: EMFILE.
  Result<void> open() noexcept;
  /// Readable when serve() has work; -1 before open().
  int fd() const noexcept { return epoll_.get(); }
  void serve() noexcept;

  /// Before vfork(2).
  void vfork_prepare(const Stack& stack) noexcept;
  /// In its child, on the parent's memory: the child gives its number `fd` to another program. If
  /// that is a carried connection, the number becomes the kernel socket's.
  void vforked_gives(int fd) noexcept;

  /// Before this process closes its last descriptor of `h`.
  void leave(Handle h) noexcept {
    if (count_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      leave_if_held(h);
  }
  /// The last descriptor of a File of Holders::kChild is closed: tells the child.
  void closed(const File& f) noexcept;
  /// Before this process ends, or runs another program.
  void leave_all(const Stack& stack) noexcept;
  /// A child has a socket of this UDP port that was moved to the kernel. It may connect(2) it, and
  /// that peer's datagrams are then not for another socket of this port.
  bool has_udp_port(uint16_t port) noexcept;

  /// All locks are held that change what is carried.
  void fork_prepare(const Stack& stack) noexcept VIREO_NO_THREAD_ANALYSIS;
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS;
  /// Closes the copies of the parent's ends. @return the child's.
  std::optional<HeirEnd> fork_child() noexcept VIREO_NO_THREAD_ANALYSIS;

 private:
  /// The generation of each File that a child got, 0: it did not. The child can write its
  /// HeldFiles, and may have fewer rights than this process.
  using Lent = std::vector<uint32_t>;
  struct Heir {
    uint64_t id;
    HeirEnd end;
    Lent lent;  ///< empty: the children of vfork(2), which have this process's memory
    std::vector<uint16_t> udp_ports;  ///< of sockets that it has and the kernel got
  };
  struct NextChild {
    UniqueFd ours, its;
    HeldFiles held;
    Lent lent;
  };

  void prepare_next(const Stack& stack) noexcept VIREO_REQUIRES(lock_);
  void share(File& f) noexcept VIREO_REQUIRES(lock_);
  void leave_if_held(Handle h) noexcept;
  bool is_held(const Handle& h) noexcept;
  /// Before a UDP socket that children have is moved to the kernel.
  void note_udp_port(const Handle& h) noexcept;
  void leave_one(const Handle& h) noexcept;
  bool add(HeirEnd end, Lent lent) noexcept VIREO_REQUIRES(lock_);
  void add_heir_of(const Heir& parent, UniqueFd channel, UniqueFd memory) noexcept
      VIREO_REQUIRES(lock_);
  void hear(uint64_t id) noexcept;
  void answer(uint64_t id, const HeirMessage& asked) noexcept;
  void answer_vforked(const HeirMessage& asked, const UniqueFd& there) noexcept;
  Heir* find(uint64_t id) noexcept VIREO_REQUIRES(lock_);

  UniqueFd epoll_;  ///< of the channels
  std::atomic<uint32_t> count_{0};
  Lock lock_;
  std::vector<Heir> heirs_ VIREO_GUARDED_BY(lock_);
  uint64_t last_id_ VIREO_GUARDED_BY(lock_) = 0;
  std::optional<NextChild> next_ VIREO_GUARDED_BY(lock_);
  UniqueFd vforked_ VIREO_GUARDED_BY(lock_);  ///< the children's end
  std::atomic<int> vforked_number_{-1};       ///< of it
};

}  // namespace vireo
