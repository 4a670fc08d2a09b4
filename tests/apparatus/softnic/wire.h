// One end of what a port is plugged into. Frames keep their order; a full wire holds the sender
// back and loses nothing. Owner: Port. Thread: holder of the port's lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/address.h"

namespace vireo::softnic {

class Wire {
 public:
  virtual ~Wire() = default;
  /// Room for one frame, or empty: the wire is full. Nothing has happened until publish().
  virtual std::span<std::byte> reserve() noexcept = 0;
  /// The first `bytes` of what reserve() gave are a frame.
  virtual void publish(size_t bytes) noexcept = 0;
  /// Wakes the peer if it sleeps and frames were published. @return a word of the peer's on which
  /// the caller is to wake who waits; nullptr: all is done.
  virtual const std::atomic<uint32_t>* ring() noexcept { return nullptr; }
  /// The oldest frame not yet popped; empty: none. Until pop().
  virtual std::span<const std::byte> front() noexcept = 0;
  virtual void pop() noexcept = 0;
  /// Asks that bell_fd() become readable with the next frame. @return false: one is there.
  virtual bool arm() noexcept = 0;
  /// -1: frames come only by calls in this process.
  virtual int bell_fd() const noexcept { return -1; }
  virtual void clear_bell() noexcept {}
  /// A word for futex(2) instead of bell_fd(); nullptr: there is none. As arm(), arm_word() asks
  /// that it be changed, and who waits for it woken.
  virtual const std::atomic<uint32_t>* word() const noexcept { return nullptr; }
  virtual bool arm_word() noexcept { return false; }
  /// May cost a system call.
  virtual bool peer_is_gone() noexcept { return false; }
  /// True: only frames of flows that it was asked for come; the others are somebody else's.
  virtual bool is_selective() const noexcept { return false; }
  /// Frames of `key` shall come, until as many unwant(). @return 0 or an errno: EEXIST another
  /// process has them, ENOSPC.
  virtual int want(const FlowKey&) { return 0; }
  virtual void unwant(const FlowKey&) {}
};

/// The two ends of a wire within the process.
struct LocalWire {
  std::unique_ptr<Wire> end[2];
};
LocalWire make_local_wire(uint32_t mtu);

/// One end of the shared-memory wire `name` (dev/shm). @return nullptr and errno: as take_seat().
std::unique_ptr<Wire> join_shared_wire(const std::string& name, uint32_t mtu);

/// The interface itself, by AF_XDP. @return nullptr and errno: as open_xdp(), ENOTSUP too many
/// queues.
std::unique_ptr<Wire> open_interface(uint32_t ifindex);

}  // namespace vireo::softnic
