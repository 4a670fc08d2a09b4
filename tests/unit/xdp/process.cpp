#include "tests/unit/xdp/process.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <optional>
#include <vector>

namespace vireo::xdp::test {
namespace {

constexpr int kAnswerMs = 5000;

struct Question {
  Ask what{};
  uint32_t argument = 0;
};

bool readable(int fd, int ms) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, ms) == 1;
}

template <class T>
void tell(int socket, const T& value) {
  (void)!send(socket, &value, sizeof value, MSG_NOSIGNAL);
}

/// What the member does, in its process.
class Member {
 public:
  Member(Group& group, int socket) : group_(group), socket_(socket) {}

  /// @return after kQuit, or when the test is gone.
  void run() {
    for (;;) {
      pollfd p[2] = {{group_.fd(), POLLIN, 0}, {socket_, POLLIN, 0}};
      poll(p, 2, 1000);
      group_.serve();
      if (p[1].revents == 0) continue;
      Question q;
      if (read(socket_, &q, sizeof q) != sizeof q || q.what == Ask::kQuit) return;
      test::tell(socket_, answer(q));
    }
  }

 private:
  uint64_t answer(const Question& q) {
    switch (q.what) {
      case Ask::kMembers:
        return group_.members();
      case Ask::kIsAlive:
        return group_.is_alive(q.argument);
      case Ask::kBury: {
        uint64_t buried = 0;
        group_.bury_dead([&](const Group::Control&, unsigned slot) {
          buried |= 1ULL << slot;
          return true;
        });
        return buried;
      }
      case Ask::kDeposit:
        return deposit(group_, q.argument, 2, group_.slot()) ? 0 : 1;
      case Ask::kDepositForAll:
        return deposit(group_, q.argument, 1, Deposit::kNoSlot) ? 0 : 1;
      case Ask::kWithdraw: {
        const auto held = group_.control(Duration::s(1));
        if (!held) return kNoAnswer;
        return group_.withdraw(*held, [&](const Deposit& d) { return d.kind == q.argument; }) ? 0
                                                                                              : 1;
      }
      case Ask::kKinds: {
        const auto held = group_.control(Duration::s(1));
        if (!held) return kNoAnswer;
        const Kinds found = deposits(group_, *held);
        return found.any_other() ? kNoAnswer : found.mask();
      }
      case Ask::kLock: {
        auto held = group_.control(Duration::ms(100));
        if (!held) return static_cast<uint64_t>(held.error().code);
        held_.emplace(std::move(*held));
        return 0;
      }
      case Ask::kDescriptors:
        return open_descriptors();
      case Ask::kForkAndWait:
        return fork_and_wait();
      default:
        execl("/bin/sleep", "sleep", "20", nullptr);
        return kNoAnswer;
    }
  }

  uint64_t fork_and_wait() {
    int pipe_fds[2];
    if (pipe(pipe_fds) != 0) return kNoAnswer;
    const int number = group_.memory_fd();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      prctl(PR_SET_PDEATHSIG, 0);
      close_own_fds();
      dup2(pipe_fds[1], number);  // now it is something else, and the child's
      group_.~Group();
      (void)!write(number, "x", 1);
      for (;;) pause();
    }
    close(pipe_fds[1]);
    const bool untouched = readable(pipe_fds[0], kAnswerMs);
    close(pipe_fds[0]);
    return untouched ? static_cast<uint64_t>(child) : kNoAnswer;
  }

  Group& group_;
  const int socket_;
  std::optional<Group::Control> held_;
};

void be_member(const std::string& name, uint32_t version, int socket) {
  Process::Entered report;
  auto group = Group::enter({.name = name, .version = version}, make_memory);
  if (!group) {
    report.error = group.error().code;
    tell(socket, report);
    return;
  }
  report = {0, (*group)->is_founder(), (*group)->slot(), identity((*group)->memory_fd())};
  tell(socket, report);
  Member(**group, socket).run();
}

}  // namespace

std::string unique_name() {
  static std::atomic<unsigned> count{0};
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

Result<UniqueFd> make_memory() {
  UniqueFd fd(memfd_create("memory", MFD_CLOEXEC));
  if (!fd) return fail_errno("memfd");
  return fd;
}

uint64_t identity(int fd) {
  struct stat is{};
  return fstat(fd, &is) == 0 ? is.st_ino : 0;
}

unsigned open_descriptors() {
  DIR* const all = opendir("/proc/self/fd");
  unsigned n = 0;
  while (readdir(all) != nullptr) ++n;
  closedir(all);
  return n;
}

Result<void> deposit(Group& g, uint32_t kind, size_t fds, uint32_t slot) {
  std::vector<UniqueFd> made;
  std::vector<int> numbers;
  for (size_t i = 0; i < fds; ++i) {
    made.emplace_back(memfd_create("deposit", MFD_CLOEXEC));
    if (pwrite(made.back().get(), &kind, sizeof kind, 0) != sizeof kind)
      return fail_errno("content");
    numbers.push_back(made.back().get());
  }
  const auto held = g.control(Duration::s(2));
  if (!held) return std::unexpected(held.error());
  return g.deposit(*held, {.kind = kind, .slot = slot, .a = static_cast<uint32_t>(fds)}, numbers);
}

uint64_t Kinds::mask() const {
  uint64_t m = 0;
  for (unsigned kind = 0; kind < 64; ++kind) m |= uint64_t{count[kind] == 1} << kind;
  return m;
}

bool Kinds::any_other() const {
  for (const unsigned n : count)
    if (n > 1) return true;
  return false;
}

Kinds deposits(Group& g, const Group::Control& held) {
  Kinds found;
  const auto visited = g.for_each_deposit(
      held, [](const Deposit&) { return true; },
      [&](const Deposit& d, std::span<UniqueFd> fds) {
        bool right = fds.size() == d.a && d.kind < 64;
        for (const UniqueFd& fd : fds) {
          uint32_t kind = 0;
          right = right && pread(fd.get(), &kind, sizeof kind, 0) == sizeof kind && kind == d.kind;
        }
        unsigned& n = found.count[d.kind % 64];
        n = right ? n + 1 : ~0U;
      });
  if (!visited) found.count[0] = ~0U;
  return found;
}

Process::Process(std::string name, uint32_t version, const std::function<void()>& before) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return;
  const pid_t test = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    // A test that is aborted leaves nothing behind.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != test) _exit(0);
    close(pair[0]);
    if (before) before();
    be_member(name, version, pair[1]);
    _exit(0);
  }
  close(pair[1]);
  socket_ = pair[0];
}

Process::Entered Process::entered() {
  Entered e;
  if (!readable(socket_, kAnswerMs) || read(socket_, &e, sizeof e) != sizeof e) return {};
  return e;
}

uint64_t Process::ask(Ask what, uint32_t argument) {
  tell(what, argument);
  return hear();
}

void Process::tell(Ask what, uint32_t argument) { test::tell(socket_, Question{what, argument}); }

uint64_t Process::hear() {
  uint64_t answer = 0;
  if (!readable(socket_, kAnswerMs) || read(socket_, &answer, sizeof answer) != sizeof answer)
    return kNoAnswer;
  return answer;
}

void Process::stop() {
  kill(pid_, SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);
}

void Process::go_on() { kill(pid_, SIGCONT); }

void Process::kill_now() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  join();
}

int Process::join() {
  if (pid_ <= 0) return -1;
  int status = 0;
  const pid_t ended = waitpid(std::exchange(pid_, -1), &status, 0);
  close(std::exchange(socket_, -1));
  if (ended < 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace vireo::xdp::test
