// A script of socket calls as semantics.cpp: signals whose handlers call into the library, calls by
// number, and what libc and the kernel do with a descriptor by themselves.
#include "semantics.h"

#include <aio.h>
#include <linux/aio_abi.h>
#include <sys/syscall.h>

namespace {

/// Read where compilers do not look.
void* const kNowhere = reinterpret_cast<void*>(std::strtoull("8", nullptr, 16));

volatile sig_atomic_t g_seen[64];
int g_socket = -1;
void see_and_send(int signo) {
  g_seen[signo] = g_seen[signo] + 1;
  (void)!send(g_socket, "s", 1, MSG_DONTWAIT);
}

/// More signals at once than the library has room for, to handlers that call into it.
void many_signals() {
  const int s = asked("echo\n");
  g_socket = s;
  const int signals[] = {SIGUSR1, SIGUSR2, SIGALRM,  SIGTERM,   SIGHUP,  SIGINT,  SIGQUIT, SIGCHLD,
                         SIGURG,  SIGIO,   SIGWINCH, SIGVTALRM, SIGXCPU, SIGPROF, SIGPWR};
  sigset_t all, none;
  sigemptyset(&none);
  sigfillset(&all);
  for (const int signo : signals) {
    struct sigaction a{};
    a.sa_handler = see_and_send;
    a.sa_mask = all;
    sigaction(signo, &a, nullptr);
  }
  // All at once, in a wait: they are blocked but there.
  sigprocmask(SIG_BLOCK, &all, nullptr);
  for (const int signo : signals) kill(getpid(), signo);
  pollfd p{s, POLLPRI, 0};
  const timespec second{1, 0};
  tried("a wait", [&] { return ppoll(&p, 1, &second, &none); });
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
  long seen = 0;
  for (const int signo : signals) seen += g_seen[signo];
  say("seen", seen);
  note("sent", read_some(s, std::size(signals), MSG_WAITALL));
  sigset_t left;
  sigprocmask(SIG_SETMASK, nullptr, &left);
  long blocks = 0;
  for (const int signo : signals) blocks += sigismember(&left, signo);
  say("blocked now", blocks);
  for (const int signo : signals) std::signal(signo, SIG_DFL);
  close(s);
}

/// Handlers by other ways than sigaction(3), which call into the library.
void other_ways() {
  const int s = asked("echo\n");
  g_socket = s;
  const auto wait = [&](const char* what) {
    set_timeout(s, SO_RCVTIMEO, 300);
    timer_t timer{};
    sigevent by{};
    by.sigev_notify = SIGEV_SIGNAL;
    by.sigev_signo = SIGUSR1;
    timer_create(CLOCK_MONOTONIC, &by, &timer);
    const itimerspec soon{{}, {0, 50'000'000}};
    timer_settime(timer, 0, &soon, nullptr);
    g_seen[SIGUSR1] = 0;
    char b = 0;
    tried(what, [&] { return recv(s, &b, 1, 0); });
    nap(100);
    say("seen", g_seen[SIGUSR1]);
    timer_delete(timer);
    note("sent", read_some(s, 1));
  };
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  note("sigset", sigset(SIGUSR1, see_and_send) == SIG_DFL ? "default" : "another");
  wait("a wait");
  note("again", sigset(SIGUSR1, see_and_send) == see_and_send ? "ours" : "another");
  note("held", sigset(SIGUSR1, SIG_HOLD) == see_and_send ? "ours" : "another");
  note("freed", sigset(SIGUSR1, see_and_send) == SIG_HOLD ? "held" : "another");
  say("ignored", sigignore(SIGUSR1));
#pragma GCC diagnostic pop
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    unsigned long mask;
  } now{see_and_send, 0, nullptr, 0}, was{};
#ifdef __x86_64__
  // By number the program brings its way back itself; libc's will do.
  std::signal(SIGUSR2, count);
  syscall(SYS_rt_sigaction, SIGUSR2, nullptr, &was, 8);
  now.flags = was.flags & 0x04000000;
  now.restorer = was.restorer;
#endif
  say("by number", syscall(SYS_rt_sigaction, SIGUSR1, &now, &was, 8));
  note("it was", was.handler == SIG_IGN ? "ignored" : "another");
  wait("a wait");
  struct sigaction told{};
  sigaction(SIGUSR1, nullptr, &told);
  note("told", told.sa_handler == see_and_send ? "ours" : "another");
  tried("of nowhere", [&] { return syscall(SYS_rt_sigaction, SIGUSR1, kNowhere, nullptr, 8); });
  tried("of another size", [&] { return syscall(SYS_rt_sigaction, SIGUSR1, &now, nullptr, 16); });
  std::signal(SIGUSR1, SIG_DFL);
  close(s);
}

void by_number() {
  const int s = asked("echo\n");
  send(s, "abcdef", 6, 0);
  polled_until(s, POLLIN);
  pollfd p{s, POLLIN, 0};
  timespec t{0, 200'000'000};
#ifdef SYS_poll
  tried("poll", [&] { return syscall(SYS_poll, &p, 1, 100); });
#endif
  tried("ppoll", [&] { return syscall(SYS_ppoll, &p, 1, &t, nullptr, 8); });
  fd_set in;
  FD_ZERO(&in);
  FD_SET(s, &in);
#ifdef SYS_select
  timeval tv{0, 100'000};
  tried("select", [&] { return syscall(SYS_select, s + 1, &in, nullptr, nullptr, &tv); });
#endif
  struct {
    sigset_t* mask;
    size_t bytes;
  } nothing{nullptr, 8};
  tried("pselect6",
        [&] { return syscall(SYS_pselect6, s + 1, &in, nullptr, nullptr, &t, &nothing); });
  const int e = epoll_create1(0);
  added(e, s, EPOLLIN);
  epoll_event got{};
  tried("epoll_pwait2", [&] { return syscall(SYS_epoll_pwait2, e, &got, 1, &t, nullptr, 8); });
  char b[4] = {};
  iovec v{b, 3};
  tried("preadv2", [&] { return syscall(SYS_preadv2, s, &v, 1, -1L, -1L, 0); });
  note("what", b);
  tried("pwritev2", [&] { return syscall(SYS_pwritev2, s, &v, 1, -1L, -1L, 0); });
  note("the rest", read_some(s, 6, MSG_WAITALL));
  // Nothing more: the time is told.
  t = {0, 50'000'000};
  tried("ppoll in vain", [&] { return syscall(SYS_ppoll, &p, 1, &t, nullptr, 8); });
  say("left", t.tv_nsec);
  t = {0, 50'000'000};
  FD_SET(s, &in);
  tried("pselect6 in vain",
        [&] { return syscall(SYS_pselect6, s + 1, &in, nullptr, nullptr, &t, &nothing); });
  say("left", t.tv_nsec);
  tried("a mask of another size", [&] { return syscall(SYS_ppoll, &p, 1, &t, &in, 16); });
  tried("poll of nowhere", [&] { return syscall(SYS_ppoll, kNowhere, 1, nullptr, nullptr, 8); });
  close(e);
  close(s);
}

void printed() {
  const int s = asked("echo\n");
  say("dprintf", dprintf(s, "%d and %s", 12, "more"));
  note("it went", read_some(s, 11, MSG_WAITALL));
  const std::string large(5000, 'l');
  say("a large one", dprintf(s, "%s", large.c_str()));
  note("it went", read_some(s, 5000, MSG_WAITALL) == large ? "all" : "not");
  close(s);
  tried("closed", [&] { return dprintf(s, "x"); });
}

/// The library's counters would say nothing of it: the kernel serves these from then on.
void asynchronous() {
  const int s = asked("echo\n");
  char b[8] = "async";
  aiocb out{};
  out.aio_fildes = s;
  out.aio_buf = b;
  out.aio_nbytes = 5;
  tried("aio_write", [&] { return aio_write(&out); });
  const aiocb* const list[] = {&out};
  aio_suspend(list, 1, nullptr);
  say("its end", aio_return(&out));
  note("it went", read_some(s, 5, MSG_WAITALL));
  close(s);

  const int t = asked("echo\n");
  aio_context_t context = 0;
  tried("io_setup", [&] { return syscall(SYS_io_setup, 4, &context); });
  iocb block{};
  block.aio_fildes = static_cast<uint32_t>(t);
  block.aio_lio_opcode = IOCB_CMD_PWRITE;
  block.aio_buf = reinterpret_cast<uintptr_t>(b);
  block.aio_nbytes = 5;
  iocb* blocks[] = {&block};
  tried("io_submit", [&] { return syscall(SYS_io_submit, context, 1, blocks); });
  io_event event{};
  tried("io_getevents", [&] { return syscall(SYS_io_getevents, context, 1, 1, &event, nullptr); });
  say("its end", static_cast<long>(event.res));
  note("it went", read_some(t, 5, MSG_WAITALL));
  syscall(SYS_io_destroy, context);
  close(t);
}

}  // namespace

int main(int argc, char** argv) {
  const Part all[] = {{"many signals", many_signals},
                      {"other ways", other_ways},
                      {"by number", by_number},
                      {"printed", printed},
                      {"asynchronous", asynchronous}};
  return run_script(argc, argv, all);
}
