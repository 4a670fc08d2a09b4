// The host that packetdrill drives: libc's calls at one end, answered by the socket layer as the
// preload layer would have it answer them, and IP packets at the other, in virtual time. Between
// them a Stack over one end of a `mem` wire, whose other end is packetdrill.
// Time moves when packetdrill sleeps or waits for a packet, and by a microsecond whenever it asks
// for the time (it spins through the last ones).
// Owner: the interface's userdata; one at a time. Thread: packetdrill's two, in turns.
#pragma once

#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "stack/sock/calls.h"
#include "stack/sock/stack.h"
#include "tests/apparatus/mem/mem_link.h"
#include "tests/packetdrill/ip.h"
#include "tests/packetdrill/time.h"

namespace vireo::packetdrill {

class Host {
 public:
  /// `merge`: contiguous segments of one instant leave as one packet, as with segmentation offload.
  explicit Host(bool merge);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// A call that needs no descriptor: f(Stack&) -> Result<T>. @return as libc's, errno included.
  template <class F>
  auto call(F&& f) {
    const Turns::Turn turn(turns_);
    return finish(f(stack()));
  }
  /// A call on `fd`: f(Handle) -> Result<T> if it is the socket layer's, else kernel() -> T.
  template <class F, class K>
  auto call(int fd, F&& f, K&& kernel) {
    const Turns::Turn turn(turns_);
    const Handle h = fd_table().find(fd);
    return h ? finish(f(h)) : static_cast<decltype(finish(f(h)))>(kernel());
  }
  /// Descriptors that are to be closed with the host.
  int opened(int fd) { return open_.insert(fd), fd; }
  void closed(int fd) { open_.erase(fd); }

  void packet_in(std::span<const uint8_t> packet);
  void packet_out(void* packet, size_t* n, long long* usecs);
  void sleep(Duration d);
  timeval time();

 private:
  /// A packet that leaves.
  struct Leaving {
    Bytes bytes;
    Instant at;
    bool again = false;  ///< data that was sent before
    size_t most = 0;     ///< payload bytes of the packet it may be joined to
  };

  Stack& stack();
  Engine* engine() { return stack_ ? stack_->engine_if_any() : nullptr; }
  template <class T>
  auto finish(Result<T> r) {
    settle();
    using Return = std::conditional_t<std::is_void_v<T>, int, T>;
    if (!r) {
      errno = r.error().code;
      return Return{-1};
    }
    if constexpr (std::is_void_v<T>)
      return Return{0};
    else
      return *r;
  }

  // wire.cpp
  void settle();
  void run_engine();
  void collect();
  void leave(Bytes packet);
  size_t most_at_once(const Segment& s);
  Instant deadline();
  void advance(Instant to);

  const bool merge_;
  const Instant start_;
  Turns turns_;
  std::unique_ptr<MemLink> link_;
  std::unique_ptr<Stack> stack_;
  std::set<int> open_;
  std::deque<Leaving> leaving_;
  std::map<std::pair<uint16_t, uint16_t>, uint32_t> sent_;  ///< by ports: end of what was sent
};

}  // namespace vireo::packetdrill
