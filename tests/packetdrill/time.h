// Virtual time, and whose turn it is. All calls of packetdrill's two threads go one at a time. One
// that blocks sleeps in ppoll(2), as the socket layer does when it has nothing to spin for; this is
// that ppoll: it ends when a descriptor is ready or its virtual time is over, and until then the
// other thread has its turn.
// What stands in the library's place: clock_gettime(CLOCK_MONOTONIC), by the linker's --wrap
// (CMakeLists.txt), and Libc::ppoll. Owner: Host. Thread: packetdrill's two.
#pragma once

#include <poll.h>

#include <condition_variable>
#include <list>
#include <mutex>

#include "core/clock.h"
#include "tests/apparatus/mem/virtual_clock.h"

namespace vireo::packetdrill {

/// The process's time; every now() of the library is this one.
VirtualClock& clock();

class Turns {
 public:
  Turns();
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// The turn of a thread, for a scope.
  class Turn {
   public:
    explicit Turn(Turns& all);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();

   private:
    Turns& all_;
  };

  // ---- holder of the turn
  static int ppoll(pollfd* fds, nfds_t n, const timespec* timeout, const sigset_t*);
  /// The time at which a call that sleeps must go on, whatever happens.
  Instant next_wake() const;
  /// Calls that have something to go on with do so, until each sleeps again or has returned.
  /// @return one returned.
  bool let_go_on();
  /// Waits, in real time, until all other threads of the process wait for something: packetdrill's
  /// other one then has begun the call that it was told to make, or has told of the one it made.
  void let_others_settle();

 private:
  struct Sleeper {
    pollfd* fds;
    nfds_t n;
    Instant until;
    bool called = false;
  };
  int sleep(Sleeper s);

  std::mutex mutex_;
  std::condition_variable moved_;
  std::list<Sleeper*> sleepers_;
  int under_way_ = 0;  ///< calls that slept, were called, and neither sleep again nor have returned
  int returned_ = 0;
};

}  // namespace vireo::packetdrill
