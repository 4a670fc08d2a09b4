// A process that is stopped while it holds the lock of the steering tables. Owner: the test.
// Thread: the test's.
#pragma once

#include "child.h"
#include "group_lab.h"

namespace vireo::test {

class StoppedHolder {
 public:
  StoppedHolder(const GroupLab& lab, unsigned slot)
      : child_([&lab, slot](Child& self) {
          const xdp::SteerPorts ports = lab.mapped();
          if (!ports.counts().lock.try_lock(slot)) return 1;
          self.report(getpid());
          raise(SIGSTOP);
          ports.counts().lock.unlock();
          self.report(true);
          self.wait();
          return 0;
        }),
        pid_(child_.hear<pid_t>()) {}

  /// Waits for that.
  bool is_stopped() const {
    int status = 0;
    return pid_ > 0 && waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
  }
  /// It goes on, and has released the lock. @return false: it has not.
  bool release() {
    kill(pid_, SIGCONT);
    return child_.hear<bool>();
  }
  /// @return its status.
  int join() {
    child_.go();
    return child_.join();
  }

 private:
  Child child_;
  const pid_t pid_;
};

}  // namespace vireo::test
