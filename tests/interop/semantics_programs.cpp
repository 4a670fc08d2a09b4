// A script of socket calls as semantics.cpp: calls by their numbers, streams of libc, signals that
// have no handler, threads that may be cancelled anywhere, children made in odd ways, and at the
// end another program.
#include <pthread.h>
#include <spawn.h>
#include <sys/syscall.h>

#include "semantics.h"

extern char** environ;

namespace {

/// The other end of `s` has it over: what a connection says whose last number is closed.
std::string end_of_served(int listener, int closes_by_number) {
  sockaddr_in a{};
  socklen_t n = sizeof a;
  getsockname(listener, reinterpret_cast<sockaddr*>(&a), &n);
  const int by = asked(("dial " + std::to_string(ntohs(a.sin_port)) + "\n").c_str());
  const int s = accept(listener, nullptr, nullptr);
  const std::string got = read_some(s, 7, MSG_WAITALL);
  if (closes_by_number != 0)
    syscall(SYS_close, s);
  else
    close(s);
  // The peer closes this one when the dialled one is at its end.
  set_timeout(by, SO_RCVTIMEO, 3000);
  const std::string end = read_some(by);
  close(by);
  return got + ", then '" + end + "'";
}

int listening() {
  const int l = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  if (bind(l, reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 || listen(l, 4) != 0)
    std::perror("listen");
  return l;
}

void by_number() {
  const int s = asked("echo\n");
  char b[16] = {};
  tried("write", [&] { return syscall(SYS_write, s, "one", 3); });
  tried("read", [&] { return syscall(SYS_read, s, b, 3); });
  note("what", b);
  tried("sendto", [&] { return syscall(SYS_sendto, s, "two", 3, 0, nullptr, 0); });
  tried("recvfrom", [&] { return syscall(SYS_recvfrom, s, b, 3, MSG_WAITALL, nullptr, nullptr); });
  note("what", b);
  iovec v{b, 2};
  mmsghdr m{};
  m.msg_hdr.msg_iov = &v;
  m.msg_hdr.msg_iovlen = 1;
  tried("sendmmsg", [&] { return syscall(SYS_sendmmsg, s, &m, 1, 0); });
  polled_until(s, POLLIN);
  tried("recvmmsg", [&] { return syscall(SYS_recvmmsg, s, &m, 1, 0, nullptr); });
  int value = 0;
  socklen_t n = sizeof value;
  tried("getsockopt", [&] { return syscall(SYS_getsockopt, s, SOL_SOCKET, SO_TYPE, &value, &n); });
  tried("fcntl", [&] { return syscall(SYS_fcntl, s, F_SETFL, O_NONBLOCK); });
  tried("nothing there", [&] { return recv(s, b, 1, 0); });
  tried("shutdown", [&] { return syscall(SYS_shutdown, s, SHUT_WR); });
  polled_until(s, POLLRDHUP);
  tried("dup3", [&] { return syscall(SYS_dup3, s, 700, 0); });
  tried("the end by the copy", [&] { return syscall(SYS_read, 700, b, 1); });
  tried("close", [&] { return syscall(SYS_close, s); });
  tried("closed", [&] { return recv(s, b, 1, 0); });
  tried("close_range", [&] { return syscall(SYS_close_range, 700, 700, 0); });
  tried("closed", [&] { return recv(700, b, 1, 0); });
  const int l = listening();
  note("closed by libc", end_of_served(l, 0));
  note("closed by number", end_of_served(l, 1));
  close(l);
}

void streams() {
  const int s = asked("echo\n");
  FILE* const f = fdopen(s, "r+");
  tried("puts", [&] { return std::fputs("a line\n", f) >= 0 ? 0 : -1; });
  tried("flush", [&] { return std::fflush(f); });
  char line[32] = {};
  tried("gets", [&] { return std::fgets(line, sizeof line, f) != nullptr ? 0 : -1; });
  note("what", line);
  tried("close", [&] { return std::fclose(f); });

  const int t = asked("echo\n");
  send(t, "early", 5, 0);
  const int kept = dup(STDOUT_FILENO);
  dup2(t, STDOUT_FILENO);
  std::printf(" and by a stream");
  const int flushed = std::fflush(stdout);
  dup2(kept, STDOUT_FILENO);
  close(kept);
  say("flushed", flushed);
  std::string all;
  while (all.size() < 21) {
    const std::string more = read_some(t);
    if (more.empty() || more[0] == '!') break;
    all += more;
  }
  note("echo", all);
  close(t);
}

void without_handlers() {
  for (const auto action : {SIG_DFL, SIG_IGN}) {
    const pid_t child = fork();
    if (child == 0) {
      struct sigaction a{};
      a.sa_handler = action;
      a.sa_flags = SA_SIGINFO;
      sigaction(SIGTERM, &a, nullptr);
      raise(SIGTERM);
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say("status", status);
  }
}

void* reads_for_ever(void* fd) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
  char b[8];
  for (;;)
    if (read(*static_cast<int*>(fd), b, sizeof b) <= 0 && errno != EAGAIN) pause();
}
void* counts_for_ever(void*) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
  for (volatile long n = 0;;) {
    n = n + 1;
  }
}

void cancelled_anywhere() {
  int type = -1;
  tried("a type that is none", [&] { return pthread_setcanceltype(99, &type); });
  for (int round = 0; round < 10; ++round) {
    int s[4];
    pthread_t readers[4];
    for (int i = 0; i < 4; ++i) {
      s[i] = asked("echo\n");
      if (i % 2 != 0) fcntl(s[i], F_SETFL, O_NONBLOCK);
      pthread_create(&readers[i], nullptr, reads_for_ever, &s[i]);
    }
    pthread_t counter;
    pthread_create(&counter, nullptr, counts_for_ever, nullptr);
    nap(round);
    for (pthread_t each : readers) pthread_cancel(each);
    pthread_cancel(counter);
    for (pthread_t each : readers) pthread_join(each, nullptr);
    pthread_join(counter, nullptr);
    send(s[0], "x", 1, 0);
    note("still there", read_some(s[0]));
    for (const int fd : s) close(fd);
  }
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
  say("was deferred", type == PTHREAD_CANCEL_DEFERRED);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
  say("was asynchronous", type == PTHREAD_CANCEL_ASYNCHRONOUS);
}

/// Accepts one, which a child is to answer that `make` makes of the accepted number.
template <class Make>
void served_by_child(const char* what, int listener, Make&& make) {
  sockaddr_in a{};
  socklen_t n = sizeof a;
  getsockname(listener, reinterpret_cast<sockaddr*>(&a), &n);
  const int by = asked(("dial " + std::to_string(ntohs(a.sin_port)) + "\n").c_str());
  const int s = accept(listener, nullptr, nullptr);
  const pid_t child = make(s);
  close(s);
  int status = -1;
  waitpid(child, &status, __WALL);
  say(what, status);
  close(by);
}

int answer(void* fd) {
  char b[8] = {};
  const ssize_t n = recv(*static_cast<int*>(fd), b, 7, MSG_WAITALL);
  return n == 7 && send(*static_cast<int*>(fd), b, 7, 0) == 7 ? 0 : 1;
}

void odd_children() {
  const int l = listening();
  served_by_child("fork", l, [](int s) {
    const pid_t child = fork();
    if (child == 0) _exit(answer(&s));
    return child;
  });
  served_by_child("clone by number", l, [](int s) {
    const auto child = static_cast<pid_t>(
        syscall(SYS_clone, CLONE_NEWIPC | SIGCHLD, nullptr, nullptr, nullptr, 0));
    if (child == 0) _exit(answer(&s));
    return child;
  });
  served_by_child("clone", l, [](int s) {
    alignas(16) static char stack[1 << 18];
    return static_cast<pid_t>(clone(answer, stack + sizeof stack, CLONE_NEWIPC | SIGCHLD, &s));
  });
  served_by_child("posix_spawn", l, [](int s) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, s, 0);
    const char* const argv[] = {"sh", "-c", "test \"$(head -c 7)\" = dialled", nullptr};
    pid_t child = -1;
    posix_spawn(&child, "/bin/sh", &files, nullptr, const_cast<char**>(argv), environ);
    posix_spawn_file_actions_destroy(&files);
    return child;
  });
  close(l);
}

/// A command that is run, or is not there, costs a client that waits to be accepted nothing.
void commands_amid_listening() {
  const int l = listening();
  sockaddr_in a{};
  socklen_t n = sizeof a;
  getsockname(l, reinterpret_cast<sockaddr*>(&a), &n);
  const int by = asked(("dial " + std::to_string(ntohs(a.sin_port)) + "\n").c_str());
  note("a client waits", polled_until(l, POLLIN));
  const char* const argv[] = {"true", nullptr};
  pid_t child = -1;
  tried("spawn", [&] {
    return posix_spawnp(&child, "true", nullptr, nullptr, const_cast<char**>(argv), environ);
  });
  int status = -1;
  waitpid(child, &status, 0);
  say("status", status);
  tried("exec", [&] { return execv("/there/is/no/such", const_cast<char**>(argv)); });
  tried("exec", [&] { return execlp("no-such-program", "no-such-program", nullptr); });
  const int s = accept(l, nullptr, nullptr);
  note("accepted", read_some(s, 7, MSG_WAITALL));
  close(s);
  close(by);
  close(l);
}

/// inetd's way: the lowest number is free, and standard input's.
void lowest_number() {
  const int kept = dup(STDIN_FILENO);
  const int s = asked("echo\n");
  send(s, "a line\n", 7, 0);
  close(STDIN_FILENO);
  say("dup", dup(s));
  char line[32] = {};
  tried("gets", [&] { return std::fgets(line, sizeof line, stdin) != nullptr ? 0 : -1; });
  note("what", line);
  close(s);
  dup2(kept, STDIN_FILENO);
  close(kept);
}

/// The last of all: this program ends with it.
void next_program() {
  const int s = asked("echo\n");
  send(s, "hello, next", 11, 0);
  note("peeked", (polled_until(s, POLLIN), read_some(s, 5, MSG_PEEK | MSG_WAITALL)));
  if (s != 9) dup2(s, 9);
  execl("/bin/sh", "sh", "-c", "echo \"next: read = $(head -c 11 <&9)\"", nullptr);
  say("exec", -1);
}

}  // namespace

int main(int argc, char** argv) {
  const Part all[] = {{"by number", by_number},
                      {"streams", streams},
                      {"without handlers", without_handlers},
                      {"cancelled anywhere", cancelled_anywhere},
                      {"odd children", odd_children},
                      {"commands amid listening", commands_amid_listening},
                      {"lowest number", lowest_number},
                      {"next program", next_program}};
  return run_script(argc, argv, all);
}
