// A forked process that does one thing and reports: for tests of what several processes do to each
// other. Owner: the test. Thread: the test's.
#pragma once

#include <linux/capability.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <initializer_list>
#include <utility>

namespace vireo::test {

class Child {
 public:
  /// Runs `body` in a child. It may report() and wait(); its result is the exit status.
  explicit Child(const std::function<int(Child&)>& body) {
    if (pipe(to_child_) != 0 || pipe(to_parent_) != 0) return;
    pid_ = fork();
    if (pid_ != 0) {
      close(std::exchange(to_parent_[1], -1));  // or hear() would not see the child's end
      return;
    }
    close(to_child_[1]);  // or wait() would not see the parent's end
    close(to_parent_[0]);
    _exit(body(*this));
  }
  ~Child() {
    if (pid_ > 0) kill_now();
    for (const int fd : {to_child_[0], to_child_[1], to_parent_[0], to_parent_[1]}) close(fd);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool started() const { return pid_ > 0; }

  // In the child.
  template <class T>
  void report(const T& value) {
    if (write(to_parent_[1], &value, sizeof value) != static_cast<ssize_t>(sizeof value)) _exit(99);
  }
  /// Until the parent says go(), or is gone.
  void wait() {
    char c;
    (void)!read(to_child_[0], &c, 1);
  }

  // In the parent.
  template <class T>
  T hear() {
    T value{};
    if (read(to_parent_[0], &value, sizeof value) != static_cast<ssize_t>(sizeof value))
      value = T{};
    return value;
  }
  void go() { (void)!write(to_child_[1], "g", 1); }
  void kill_now() {
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  /// @return the exit status, or 128 + signal.
  int join() {
    int status = 0;
    if (waitpid(std::exchange(pid_, -1), &status, 0) < 0) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  int to_child_[2] = {-1, -1};
  int to_parent_[2] = {-1, -1};
  pid_t pid_ = -1;
};

/// Takes capabilities (CAP_...) from this process, for good.
inline bool drop_capabilities(std::initializer_list<unsigned> which) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  if (syscall(SYS_capget, &header, data) != 0) return false;
  for (const unsigned c : which) {
    data[c / 32].effective &= ~(1U << (c % 32));
    data[c / 32].permitted &= ~(1U << (c % 32));
    data[c / 32].inheritable &= ~(1U << (c % 32));
  }
  return syscall(SYS_capset, &header, data) == 0;
}

}  // namespace vireo::test
