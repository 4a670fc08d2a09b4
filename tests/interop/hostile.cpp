// A program that does to its descriptors and threads what programs do: hostile ADDRESS PORT WHAT.
// There is an echo server at the address. Says "ok" at the end, else what was wrong.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

namespace {

const char* g_address;
uint16_t g_port;

[[noreturn]] void die(const std::string& what) {
  std::printf("%s (errno %d, %s)\n", what.c_str(), errno, std::strerror(errno));
  std::fflush(stdout);
  _exit(1);
}
void expect(bool is_true, const std::string& what) {
  if (!is_true) die(what);
}

int connected() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(g_port);
  inet_pton(AF_INET, g_address, &to.sin_addr);
  expect(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0, "connect");
  return fd;
}

void echo(int fd, const char* when) {
  char c = 'e';
  expect(send(fd, &c, 1, 0) == 1, std::string("send ") + when);
  expect(recv(fd, &c, 1, 0) == 1 && c == 'e', std::string("recv ") + when);
}

/// The lowest numbers are the program's; what it closes and reuses is its own.
void numbers() {
  int lowest[8];
  for (int& fd : lowest) fd = open("/dev/null", O_RDONLY);
  for (const int fd : lowest) close(fd);
  const int s = connected();
  expect(s == lowest[0], "the socket's number is " + std::to_string(s));
  echo(s, "at first");
  const int poller = epoll_create1(0);
  expect(poller == lowest[1], "the epoll's number is " + std::to_string(poller));
  epoll_event e{.events = EPOLLIN, .data = {.fd = s}};
  epoll_ctl(poller, EPOLL_CTL_ADD, s, &e);
  expect(epoll_wait(poller, &e, 1, 10) == 0, "epoll_wait");
  close(poller);
  // Everything that is open below 512 is the program's.
  DIR* d = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(d)) {
    const int fd = std::atoi(entry->d_name);
    if (fd <= 2 || fd == s || fd == dirfd(d) || fd >= 512) continue;
    char target[256]{};
    (void)!readlinkat(dirfd(d), entry->d_name, target, sizeof target - 1);
    // As inherited from whoever started us, or ours?
    if (std::strstr(target, "anon_inode") != nullptr || std::strstr(target, "socket:") != nullptr ||
        std::strstr(target, "memfd") != nullptr)
      die("descriptor " + std::to_string(fd) + " is " + target);
  }
  closedir(d);
  const int copy = dup2(s, 400);
  expect(copy == 400, "dup2 to 400");
  for (int fd = 3; fd < 65536; ++fd)
    if (fd != copy) close(fd);
  echo(copy, "after closing all others one by one");
  expect(close_range(3, 399, 0) == 0 && close_range(401, ~0U, 0) == 0, "close_range");
  echo(copy, "after close_range");
  closefrom(401);
  echo(copy, "after closefrom");
  for (int fd = 3; fd < 390; ++fd) expect(dup2(2, fd) == fd, "dup2 to " + std::to_string(fd));
  echo(copy, "after dup2");
}

/// close_range(2).
void ranges() {
  const int s = connected();
  const auto refused = [](unsigned first, unsigned last, int flags) {
    errno = 0;
    return close_range(first, last, flags) == -1 && errno == EINVAL;
  };
  expect(refused(5, 3, 0), "first > last");
  expect(refused(3, ~0U, 0x40), "unknown flag");
  expect(refused(3, ~0U, 1), "flag 1");
  echo(s, "after refusals");
  expect(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0, "CLOEXEC");
  echo(s, "after CLOEXEC");
  expect((fcntl(s, F_GETFD) & FD_CLOEXEC) != 0, "FD_CLOEXEC is not set");
  expect(close_range(s, s, 0) == 0, "one");
  errno = 0;
  expect(send(s, "x", 1, 0) == -1 && errno == EBADF, "closed");
}

// ---- cancellation

volatile int g_cleaned;
int g_fd;
void* wait_in(void* what) {
  const std::string call = static_cast<const char*>(what);
  char c;
  pthread_cleanup_push([](void*) { g_cleaned = g_cleaned + 1; }, nullptr);
  if (call == "recv") (void)!recv(g_fd, &c, 1, 0);
  if (call == "read") (void)!read(g_fd, &c, 1);
  if (call == "poll") {
    pollfd p{g_fd, POLLIN, 0};
    poll(&p, 1, -1);
  }
  if (call == "epoll_wait") {
    const int poller = epoll_create1(0);
    epoll_event e{.events = EPOLLIN, .data = {.fd = g_fd}};
    epoll_ctl(poller, EPOLL_CTL_ADD, g_fd, &e);
    epoll_wait(poller, &e, 1, -1);
  }
  if (call == "accept") accept(g_fd, nullptr, nullptr);
  pthread_cleanup_pop(0);
  return nullptr;
}

void cancel() {
  const int s = connected();
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  expect(listen(listener, 5) == 0, "listen");
  for (const char* call : {"recv", "read", "poll", "epoll_wait", "accept"}) {
    for (const long ms : {0L, 300L}) {  // at once, while it may spin; and asleep
      g_fd = std::strcmp(call, "accept") == 0 ? listener : s;
      g_cleaned = 0;
      pthread_t t;
      pthread_create(&t, nullptr, wait_in, const_cast<char*>(call));
      const timespec pause{0, ms * 1'000'000};
      nanosleep(&pause, nullptr);
      expect(pthread_cancel(t) == 0, "pthread_cancel");
      timespec limit;
      clock_gettime(CLOCK_REALTIME, &limit);
      limit.tv_sec += 5;
      void* result = nullptr;
      errno = pthread_timedjoin_np(t, &result, &limit);
      expect(errno == 0, std::string(call) + ": the thread goes on");
      expect(result == PTHREAD_CANCELED, std::string(call) + ": not cancelled");
      expect(ms == 0 || g_cleaned == 1, std::string(call) + ": its cleanup handler did not run");
      echo(s, call);  // no lock stays held
    }
  }
  const timespec pause{0, 300'000'000};
  nanosleep(&pause, nullptr);
  echo(s, "after all");
  // No reference stays: the close is the connection's end, which the server answers.
  expect(shutdown(s, SHUT_WR) == 0, "shutdown");
  char c;
  expect(recv(s, &c, 1, 0) == 0, "end of stream");
}

// ---- children that no handler hears of

void raw_child() {
  const int s = connected();
  echo(s, "at first");
  const auto ended = [&](const char* how, pid_t child) {
    int status = 0;
    expect(waitpid(child, &status, 0) == child, "waitpid");
    expect(status == 0,
           std::string(how) + ": the child ended with status " + std::to_string(status));
    echo(s, how);
  };
  const pid_t unheard = _Fork();
  if (unheard == 0) {
    char c = 'c';
    errno = 0;
    const bool no_send =
        send(s, &c, 1, MSG_NOSIGNAL) == -1 && (errno == ENOTCONN || errno == EPIPE);
    errno = 0;
    const bool no_recv = recv(s, &c, 1, MSG_DONTWAIT) == -1 && errno == ENOTCONN;
    const int fresh = socket(AF_INET, SOCK_STREAM, 0);
    const bool closed = close(s) == 0 && close(fresh) == 0;
    syscall(SYS_exit_group, no_send ? no_recv ? fresh >= 0 ? closed ? 0 : 4 : 3 : 2 : 1);
  }
  ended("_Fork", unheard);
  // As one of fork: it uses its parent's connection.
  const auto raw = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (raw == 0) {
    echo(s, "in the child");
    syscall(SYS_exit_group, close(s) == 0 ? 0 : 1);
  }
  ended("clone", raw);
}

/// A child of vfork opens a file, gets the number of its parent's connection, and gives it to a
/// program as its output.
void vfork_file() {
  const int s = connected();
  echo(s, "at first");
  const char* const name = "vfork-file.out";
  const pid_t child = vfork();
  if (child == 0) {
    close(s);
    const int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file != s) _exit(9);
    dup2(file, STDOUT_FILENO);
    execl("/bin/echo", "echo", "for the file", nullptr);
    _exit(8);
  }
  int status = 0;
  expect(waitpid(child, &status, 0) == child && status == 0,
         "the child ended with status " + std::to_string(status));
  char text[64];
  const int file = open(name, O_RDONLY);
  const ssize_t n = read(file, text, sizeof text);
  close(file);
  unlink(name);
  expect(n == 13, "the file has " + std::to_string(n) + " bytes");
  echo(s, "after it");
}

/// Someone takes the steering program off while a thread waits.
void detached() {
  const int s = connected();
  echo(s, "at first");
  std::printf("ready\n");
  std::fflush(stdout);
  char c;
  errno = 0;
  expect(recv(s, &c, 1, 0) == -1 && errno == ENETDOWN, "recv");
  errno = 0;
  expect(send(s, &c, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE, "send");
  close(s);
  const int fresh = connected();
  echo(fresh, "on a new socket");
  timespec before;
  timespec after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  sleep(2);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used = static_cast<double>(after.tv_sec - before.tv_sec) +
                      static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e9;
  expect(used < 0.4, "the helper spins: " + std::to_string(used) + " s of 2");
}

}  // namespace

int main(int, char** argv) {
  g_address = argv[1];
  g_port = static_cast<uint16_t>(std::atoi(argv[2]));
  const std::string what = argv[3];
  if (what == "numbers") numbers();
  if (what == "ranges") ranges();
  if (what == "cancel") cancel();
  if (what == "raw-child") raw_child();
  if (what == "vfork-file") vfork_file();
  if (what == "detached") detached();
  std::printf("ok\n");
}
