// A script of socket calls as semantics.cpp: pointers that lead nowhere, memory that goes away, and
// the signals that the processor makes of them.
#include "semantics.h"

#include <setjmp.h>
#include <sys/mman.h>

namespace {

/// Read where compilers do not look.
void* address(const char* digits) {
  return reinterpret_cast<void*>(std::strtoull(digits, nullptr, 16));
}
void* const kNowhere = address("8");
/// No address at all: the processor does not even look.
void* const kNoAddress = address("8000000000000000");

/// Pages of which the last may not be touched; and one that may only be read.
struct Pages {
  char* at;
  char* end;  ///< of what is there
  char* read_only;
  Pages() {
    at = static_cast<char*>(
        mmap(nullptr, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    end = at + 3 * 4096;
    read_only = at + 4 * 4096;
    std::memset(at, 'p', 3 * 4096);
    std::memset(read_only, 'r', 4096);
    mprotect(end, 4096, PROT_NONE);
    mprotect(read_only, 4096, PROT_READ);
  }
  ~Pages() { munmap(at, 5 * 4096); }
};

iovec piece(void* at, size_t n) { return {at, n}; }

void streams() {
  Pages pages;
  int s = asked("echo\n");
  tried("send", [&] { return send(s, kNowhere, 10, 0); });
  tried("send from no address", [&] { return send(s, kNoAddress, 10, 0); });
  tried("send from null", [&] { return send(s, nullptr, 10, 0); });
  tried("send nothing", [&] { return send(s, kNowhere, 0, 0); });
  tried("send from the end", [&] { return send(s, pages.end - 4, 10, 0); });
  tried("write", [&] { return write(s, kNowhere, 10); });
  tried("sendto nowhere",
        [&] { return sendto(s, "x", 1, 0, static_cast<sockaddr*>(kNowhere), 16); });
  iovec two[2] = {piece(const_cast<char*>("ab"), 2), piece(kNowhere, 2)};
  tried("writev of one that is there", [&] { return writev(s, two, 2) <= 0 ? -1 : 0; });
  tried("writev", [&] { return writev(s, static_cast<iovec*>(kNowhere), 2); });
  tried("sendmsg", [&] { return sendmsg(s, static_cast<msghdr*>(kNowhere), 0); });
  msghdr m{};
  m.msg_iov = static_cast<iovec*>(kNowhere);
  m.msg_iovlen = 1;
  tried("sendmsg of no vector", [&] { return sendmsg(s, &m, 0); });
  tried("send read-only", [&] { return send(s, pages.read_only, 5, 0); });
  note("it went", read_some(s, 5, MSG_WAITALL));
  tried("small ones on end", [&] {
    long bad = 0;
    for (int i = 0; i < 20; ++i) bad += send(s, i % 2 != 0 ? kNowhere : "y", 1, 0) < 0 ? 1 : 0;
    return bad;
  });
  note("they went", read_some(s, 10, MSG_WAITALL));

  tried("ask", [&] { return send(s, "0123456789", 10, 0); });
  polled_until(s, POLLIN);
  tried("recv", [&] { return recv(s, kNowhere, 10, 0); });
  tried("recv to no address", [&] { return recv(s, kNoAddress, 10, 0); });
  tried("recv to null", [&] { return recv(s, nullptr, 10, 0); });
  tried("recv read-only", [&] { return recv(s, pages.read_only, 10, 0); });
  tried("recv to the end", [&] { return recv(s, pages.end - 4, 10, 0); });
  tried("peek", [&] { return recv(s, kNowhere, 10, MSG_PEEK); });
  tried("wait for all", [&] { return recv(s, kNowhere, 10, MSG_WAITALL); });
  tried("recvmsg", [&] { return recvmsg(s, static_cast<msghdr*>(kNowhere), 0); });
  tried("recvmsg of no vector", [&] { return recvmsg(s, &m, 0); });
  tried("readv", [&] { return readv(s, static_cast<iovec*>(kNowhere), 1); });
  tried("recvmmsg", [&] { return recvmmsg(s, static_cast<mmsghdr*>(kNowhere), 1, 0, nullptr); });
  tried("thrown away", [&] { return recv(s, kNowhere, 1, MSG_TRUNC); });
  note("all else is there", read_some(s, 9, MSG_WAITALL));

  // Asleep when it comes.
  int slow = asked("later 100\n");
  tried("waiting", [&] { return recv(slow, kNowhere, 10, 0); });
  note("it is there", read_some(slow, 1));
  close(slow);

  // The answer to what was sent just now may go straight to the buffer.
  for (int i = 0; i < 3; ++i) {
    send(s, "ping", 4, 0);
    tried("answer", [&] { return recv(s, kNowhere, 10, 0); });
    note("it is there", read_some(s, 4, MSG_WAITALL));
  }
  close(s);

  s = asked("sink\n");
  // As far as there is, or nothing: Linux takes as much at once as its buffer's page has room for.
  const ssize_t sent = send(s, pages.at, 5 * 4096, 0);
  const bool is_fault = sent == -1 && errno == EFAULT;
  note("some", is_fault || (sent > 0 && sent <= 3 * 4096) ? "as far as there is" : "no");
  shutdown(s, SHUT_WR);
  note("it went", read_some(s) == std::to_string(is_fault ? 0 : sent) ? "all" : "not");
  close(s);
}

void datagrams() {
  Pages pages;
  const int s = socket(AF_INET, SOCK_DGRAM, 0);
  connect(s, to(), sizeof g_to);
  set_timeout(s, SO_RCVTIMEO, 300);
  char b[32];
  for (int i = 0; i < 2; ++i) {  // the second time the way is known
    tried("send", [&] { return send(s, kNowhere, 1, 0); });
    tried("send to the end", [&] { return send(s, pages.end - 1, 2, 0); });
    tried("sendto", [&] { return sendto(s, "1", 1, 0, static_cast<sockaddr*>(kNowhere), 16); });
    tried("ask", [&] { return send(s, "2", 1, 0); });
    polled_until(s, POLLIN);
    nap(20);
    tried("recv", [&] { return recv(s, kNowhere, 30, 0); });  // the kernel has lost it then
    tried("the second", [&] { return recv(s, b, 30, 0); });
    tried("no more", [&] { return recv(s, b, 30, MSG_DONTWAIT); });
  }
  tried("ask", [&] { return sendto(s, "3", 1, 0, to(), sizeof g_to); });
  polled_until(s, POLLIN);
  nap(20);
  tried("peek", [&] { return recv(s, kNowhere, 30, MSG_PEEK); });
  tried("recv at the end", [&] { return recv(s, pages.end - 4, 30, 0); });
  sockaddr_in from{};
  socklen_t n = sizeof from;
  tried("recvfrom whom",
        [&] { return recvfrom(s, b, 30, 0, static_cast<sockaddr*>(kNowhere), &n); });
  tried("recvfrom with no length", [&] {
    return recvfrom(s, b, 30, 0, reinterpret_cast<sockaddr*>(&from),
                    static_cast<socklen_t*>(kNowhere));
  });
  tried("no more", [&] { return recv(s, b, 30, MSG_DONTWAIT); });
  tried("ask", [&] { return send(s, "3", 1, 0); });
  polled_until(s, POLLIN);
  nap(20);
  iovec v = piece(b, sizeof b);
  mmsghdr several[3] = {};
  for (auto& one : several) one.msg_hdr.msg_iov = &v, one.msg_hdr.msg_iovlen = 1;
  several[1].msg_hdr.msg_iov = static_cast<iovec*>(kNowhere);
  tried("recvmmsg", [&] { return recvmmsg(s, several, 3, MSG_DONTWAIT, nullptr); });
  while (recv(s, b, 30, MSG_DONTWAIT) >= 0 || errno == EFAULT) {
  }
  v = piece(const_cast<char*>("1"), 1);
  tried("sendmmsg", [&] { return sendmmsg(s, several, 3, 0); });
  tried("sendmmsg of nothing", [&] { return sendmmsg(s, static_cast<mmsghdr*>(kNowhere), 1, 0); });
  tried("recvmmsg of nothing",
        [&] { return recvmmsg(s, static_cast<mmsghdr*>(kNowhere), 1, 0, nullptr); });
  // Asleep when it comes.
  const int t = socket(AF_INET, SOCK_DGRAM, 0);
  set_timeout(t, SO_RCVTIMEO, 300);
  tried("ask", [&] { return sendto(t, "1", 1, 0, to(), sizeof g_to); });
  tried("waiting", [&] { return recv(t, kNowhere, 30, 0); });
  tried("it is lost", [&] { return recv(t, b, 30, 0); });
  close(t);
  close(s);
}

void names_and_options() {
  const int s = asked("echo\n");
  const int k = socket(AF_INET, SOCK_STREAM, 0);
  const int u = socket(AF_INET, SOCK_DGRAM, 0);
  auto* const bad = static_cast<sockaddr*>(kNowhere);
  auto* const bad_length = static_cast<socklen_t*>(kNowhere);
  sockaddr_in a{};
  socklen_t n = sizeof a;
  auto* const good = reinterpret_cast<sockaddr*>(&a);
  int value = 0;
  for (const int fd : {s, k, u}) {
    tried("bind", [&] { return bind(fd, bad, 16); });
    tried("connect", [&] { return connect(fd, bad, 16); });
    tried("getsockname", [&] { return getsockname(fd, bad, &n); });
    tried("getsockname, length", [&] { return getsockname(fd, good, bad_length); });
    tried("getpeername", [&] { return getpeername(fd, bad, &n); });
    for (const auto& [level, name] :
         {std::pair(SOL_SOCKET, SO_RCVBUF), std::pair(SOL_SOCKET, SO_LINGER),
          std::pair(SOL_SOCKET, SO_RCVTIMEO), std::pair(SOL_SOCKET, SO_ERROR),
          std::pair(int{IPPROTO_IP}, IP_TOS)}) {
      n = sizeof value;
      if (name != SO_ERROR)
        tried("setsockopt", [&] { return setsockopt(fd, level, name, kNowhere, 16); });
      tried("getsockopt", [&] { return getsockopt(fd, level, name, kNowhere, &n); });
      tried("getsockopt, length", [&] { return getsockopt(fd, level, name, &value, bad_length); });
    }
  }
  for (const int name : {TCP_NODELAY, TCP_CONGESTION, TCP_INFO, TCP_MAXSEG, TCP_CORK}) {
    n = sizeof value;
    if (name != TCP_INFO)
      tried("setsockopt of TCP", [&] { return setsockopt(s, IPPROTO_TCP, name, kNowhere, 4); });
    tried("getsockopt of TCP", [&] { return getsockopt(s, IPPROTO_TCP, name, kNowhere, &n); });
  }
  tried("FIONREAD", [&] { return ioctl(s, FIONREAD, kNowhere); });
  tried("FIONBIO", [&] { return ioctl(s, FIONBIO, kNowhere); });
  tried("SIOCOUTQ", [&] { return ioctl(s, SIOCOUTQ, kNowhere); });
  tried("F_SETOWN_EX", [&] { return fcntl(s, F_SETOWN_EX, kNowhere); });
  tried("F_GETOWN_EX", [&] { return fcntl(s, F_GETOWN_EX, kNowhere); });
  tried("sendfile", [&] { return sendfile(s, 0, static_cast<off_t*>(kNowhere), 1); });

  const int l = socket(AF_INET, SOCK_STREAM, 0);
  a = {};
  a.sin_family = AF_INET;
  tried("listen", [&] { return bind(l, good, sizeof a) + listen(l, 4); });
  n = sizeof a;
  getsockname(l, good, &n);
  const std::string dial = "dial " + std::to_string(ntohs(a.sin_port)) + "\n";
  int by = asked(dial.c_str());
  n = sizeof a;
  tried("accept whom", [&] { return accept(l, bad, &n); });
  note("it is lost", read_some(by).empty() ? "closed" : "open");
  close(by);
  by = asked(dial.c_str());
  tried("accept, length", [&] { return accept(l, good, bad_length); });
  close(by);
  for (const int fd : {s, k, u, l}) close(fd);
}

void waiting() {
  Pages pages;
  const int s = asked("sendclose 5\n");
  polled_until(s, POLLRDHUP);
  tried("poll", [&] { return poll(static_cast<pollfd*>(kNowhere), 1, 0); });
  auto* const fds = reinterpret_cast<pollfd*>(pages.end) - 1;
  *fds = {s, POLLIN, 0};
  tried("poll at the end", [&] { return poll(fds, 1, 0); });
  tried("poll beyond", [&] { return poll(fds, 2, 0); });
  fd_set in;
  FD_ZERO(&in);
  FD_SET(s, &in);
  tried("select",
        [&] { return select(s + 1, &in, static_cast<fd_set*>(kNowhere), nullptr, nullptr); });
  const int e = epoll_create1(0);
  tried("epoll_ctl",
        [&] { return epoll_ctl(e, EPOLL_CTL_ADD, s, static_cast<epoll_event*>(kNowhere)); });
  say("added", added(e, s, EPOLLIN));
  tried("epoll_wait", [&] { return epoll_wait(e, static_cast<epoll_event*>(kNowhere), 1, 0); });
  tried("epoll_wait read-only",
        [&] { return epoll_wait(e, reinterpret_cast<epoll_event*>(pages.read_only), 1, 0); });
  const int t = asked("sendclose 5\n");
  polled_until(t, POLLRDHUP);
  say("added", added(e, t, EPOLLIN));
  // Packed: the first has a place, and what of them is told by how many there are.
  auto* const one = reinterpret_cast<epoll_event*>(pages.end) - 1;
  tried("epoll_wait, one place", [&] { return epoll_wait(e, one, 2, 100); });
  note("epoll goes on", waited(e, 100));
  close(e);
  close(s);
  close(t);
}

/// A place for events that is none matters once there is one.
void waiting_for_nothing() {
  auto* const nowhere = static_cast<epoll_event*>(kNowhere);
  auto* const kernels = reinterpret_cast<epoll_event*>(~uintptr_t{0xfff});
  const int s = asked("echo\n");
  const int e = epoll_create1(0);
  tried("epoll_wait on none", [&] { return epoll_wait(e, nowhere, 1, 10); });
  say("added", added(e, s, EPOLLIN));
  for (const int timeout : {0, 20})
    tried("epoll_wait", [&] { return epoll_wait(e, nowhere, 1, timeout); });
  tried("epoll_wait to the kernel", [&] { return epoll_wait(e, kernels, 1, 0); });
  tried("epoll_wait to the kernel", [&] { return epoll_wait(e, kernels, 1, 20); });
  for (const int max : {0, -1})
    tried("epoll_wait for none", [&] { return epoll_wait(e, nowhere, max, 20); });
  const int t = asked("later 50\n");
  say("added", added(e, t, EPOLLIN));
  tried("epoll_wait for what comes", [&] { return epoll_wait(e, nowhere, 1, 5000); });
  note("epoll goes on", waited(e, 100));
  note("it came", read_some(t, 1));
  tried("epoll_wait again", [&] { return epoll_wait(e, nowhere, 1, 20); });
  int p[2];
  say("pipe", pipe(p));
  say("added", added(e, p[0], EPOLLIN));
  tried("epoll_wait, with a pipe", [&] { return epoll_wait(e, nowhere, 1, 20); });
  say("written", static_cast<int>(write(p[1], "x", 1)));
  tried("epoll_wait, with a full one", [&] { return epoll_wait(e, nowhere, 1, 20); });
  note("epoll goes on", waited(e, 100));
  for (const int fd : {e, s, t, p[0], p[1]}) close(fd);
}

void truncated_file() {
  char name[] = "/tmp/semantics.XXXXXX";
  const int f = mkstemp(name);
  unlink(name);
  if (ftruncate(f, 8192) != 0) std::perror("ftruncate");
  auto* const m = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0));
  std::memset(m, 'f', 8192);
  const int s = asked("echo\n");
  tried("send", [&] { return send(s, m + 4096, 10, 0); });
  note("it went", read_some(s, 10, MSG_WAITALL));
  if (ftruncate(f, 4096) != 0) std::perror("ftruncate");
  tried("send of what is gone", [&] { return send(s, m + 4096, 10, 0); });
  tried("ask", [&] { return send(s, m, 10, 0); });
  polled_until(s, POLLIN);
  tried("recv to what is gone", [&] { return recv(s, m + 4096, 10, 0); });
  note("it is there", read_some(s, 10, MSG_WAITALL));
  munmap(m, 8192);
  close(f);
  close(s);
}

sigjmp_buf g_back;
volatile sig_atomic_t g_code = 0;
volatile sig_atomic_t g_in_handler = 0;
int g_fd = -1;
void jump_back(int signo, siginfo_t* info, void*) {
  g_code = info->si_code;
  siglongjmp(g_back, signo);
}
void handle(int signo, int flags, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction a{};
  a.sa_sigaction = handler;
  a.sa_flags = SA_SIGINFO | flags;
  say("handled", sigaction(signo, &a, nullptr));
}
int touch(void* at) {
  const int signo = sigsetjmp(g_back, 1);
  if (signo == 0) *static_cast<volatile char*>(at) = 1;
  return signo;
}

void own_handlers() {
  Pages pages;
  const int s = asked("echo\n");
  handle(SIGSEGV, SA_ONSTACK, jump_back);
  for (int i = 0; i < 3; ++i) {
    say("a fault of the program's", touch(kNowhere));
    say("its code", g_code);
    say("of what may not be touched", touch(pages.end));
    say("its code", g_code);
    tried("send", [&] { return send(s, kNowhere, 10, 0); });
  }
  struct sigaction was{};
  say("asked", sigaction(SIGSEGV, nullptr, &was));
  note("whose", was.sa_sigaction == jump_back ? "ours" : "another's");
  note("flags", std::to_string(was.sa_flags & (SA_ONSTACK | SA_SIGINFO | SA_RESTART)));
  std::thread([&] {
    // On a stack of its own.
    std::vector<char> room(65536);
    stack_t other{};
    other.ss_sp = room.data();
    other.ss_size = room.size();
    sigaltstack(&other, nullptr);
    tried("send in a thread", [&] { return send(s, kNowhere, 10, 0); });
    say("a fault in a thread", touch(kNowhere));
    other.ss_flags = SS_DISABLE;
    sigaltstack(&other, nullptr);
  }).join();
  handle(SIGSEGV, static_cast<int>(SA_RESETHAND), jump_back);
  say("once", touch(kNowhere));
  sigaction(SIGSEGV, nullptr, &was);
  note("then", was.sa_handler == SIG_DFL ? "default" : "still");
  struct sigaction one{};
  one.sa_handler = count;
  one.sa_flags = static_cast<int>(SA_RESETHAND);
  g_signals = 0;
  sigaction(SIGSEGV, &one, nullptr);
  raise(SIGSEGV);
  say("raised once", g_signals);
  sigaction(SIGSEGV, nullptr, &was);
  note("then", was.sa_handler == SIG_DFL ? "default" : "still");
  // As runtimes do it: the handler blocks more, takes back what it found, and leaves.
  handle(SIGSEGV, 0, [](int signo, siginfo_t*, void*) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    siglongjmp(g_back, signo);
  });
  for (int i = 0; i < 3; ++i) {
    say("a fault, its handler blocks", touch(kNowhere));
    tried("send", [&] { return send(s, kNowhere, 10, 0); });
  }
  std::signal(SIGUSR2, [](int) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
  });
  raise(SIGUSR2);
  say("a fault after a handler that blocked", touch(kNowhere));
  struct sigaction full{};
  full.sa_handler = [](int) { g_in_handler = send(g_fd, kNowhere, 10, 0) < 0 ? errno : 0; };
  sigfillset(&full.sa_mask);
  g_fd = s;
  sigaction(SIGUSR1, &full, nullptr);
  raise(SIGUSR1);
  note("send in a handler that blocks all", strerrorname_np(g_in_handler));
  g_signals = 0;
  std::signal(SIGSEGV, count);
  raise(SIGSEGV);
  say("raised", g_signals);
  std::signal(SIGSEGV, SIG_IGN);
  raise(SIGSEGV);
  tried("send while ignored", [&] { return send(s, kNowhere, 10, 0); });
  std::signal(SIGSEGV, SIG_DFL);
  tried("send by default", [&] { return send(s, kNowhere, 10, 0); });
  close(s);
}

void blocked() {
  const int s = asked("echo\n");
  sigset_t faults, before;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  sigaddset(&faults, SIGBUS);
  say("blocked", pthread_sigmask(SIG_BLOCK, &faults, &before));
  note("before", std::to_string(sigismember(&before, SIGSEGV)));
  tried("send", [&] { return send(s, kNowhere, 10, 0); });
  std::thread([&] { tried("send of another", [&] { return send(s, kNowhere, 10, 0); }); }).join();
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  note("it is", std::to_string(sigismember(&before, SIGSEGV)));
  g_signals = 0;
  std::signal(SIGSEGV, count);
  kill(getpid(), SIGSEGV);
  say("waits", g_signals);
  sigset_t waiting;
  sigpending(&waiting);
  note("pending", std::to_string(sigismember(&waiting, SIGSEGV)));
  say("unblocked", sigprocmask(SIG_UNBLOCK, &faults, nullptr));
  say("came", g_signals);
  std::signal(SIGSEGV, SIG_DFL);
  close(s);
}

/// How a child ends that does what `f` does.
template <class F>
void end_of_child(const char* what, F f) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  note(what, WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : "no signal");
}

void ends() {
  const int s = asked("echo\n");
  end_of_child("a fault", [] { *static_cast<volatile char*>(kNowhere) = 1; });
  end_of_child("ignored", [] {
    std::signal(SIGSEGV, SIG_IGN);
    *static_cast<volatile char*>(kNowhere) = 1;
  });
  end_of_child("blocked, with a handler", [] {
    std::signal(SIGSEGV, count);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    *static_cast<volatile char*>(kNowhere) = 1;
  });
  end_of_child("raised", [] { raise(SIGSEGV); });
  end_of_child("sent", [] { kill(getpid(), SIGBUS); });
  end_of_child("sent and ignored", [] {
    std::signal(SIGBUS, SIG_IGN);
    kill(getpid(), SIGBUS);
  });
  close(s);
}

}  // namespace

int main(int argc, char** argv) {
  const Part all[] = {{"streams", streams},
                      {"datagrams", datagrams},
                      {"names and options", names_and_options},
                      {"waiting", waiting},
                      {"waiting for nothing", waiting_for_nothing},
                      {"truncated file", truncated_file},
                      {"own handlers", own_handlers},
                      {"blocked", blocked},
                      {"ends", ends}};
  return run_script(argc, argv, all);
}
