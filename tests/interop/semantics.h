// What the scripts of socket calls share: each line of their output says what one call answered,
// and is the same on the kernel's sockets and on Vireo's. main(ADDRESS PORT); semantics.py is at
// the address, and does to a connection what its first line asks for. Included by one program each.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

sockaddr_in g_to{};
volatile sig_atomic_t g_signals = 0;
std::string g_case;

void nap(int ms) {
  timespec t{ms / 1000, ms % 1000 * 1'000'000L};
  while (nanosleep(&t, &t) != 0) {
  }
}
long now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1'000'000;
}

/// One line of the answers.
void say(const char* what, long result) {
  const int error = errno;
  std::printf("%s: %s = %ld%s%s\n", g_case.c_str(), what, result, result < 0 ? " " : "",
              result < 0 ? strerrorname_np(error) : "");
  std::fflush(stdout);
}
void note(const char* what, const std::string& text) {
  std::printf("%s: %s = %s\n", g_case.c_str(), what, text.c_str());
  std::fflush(stdout);
}
/// How long since `since`: nobody counts milliseconds here.
void took(const char* what, long since, long least) {
  note(what, now_ms() - since < least - 5 ? "at once" : "in time");
}
template <class F>
void tried(const char* what, F f) {
  errno = 0;
  say(what, static_cast<long>(f()));
}

const sockaddr* to() { return reinterpret_cast<const sockaddr*>(&g_to); }

int asked(const char* line) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(s, to(), sizeof g_to) != 0) std::perror("connect");
  if (send(s, line, std::strlen(line), 0) < 0) std::perror("send");
  return s;
}
std::string read_some(int s, size_t most = 100, int flags = 0) {
  std::string b(most, 0);
  errno = 0;
  const ssize_t n = recv(s, b.data(), most, flags);
  if (n < 0) return std::string("!") + strerrorname_np(errno);
  b.resize(static_cast<size_t>(n));
  return b;
}
std::string events_of(short e) {
  std::string s;
  const std::pair<short, const char*> names[] = {
      {POLLIN, "IN "},       {POLLOUT, "OUT "},       {POLLPRI, "PRI "},
      {POLLERR, "ERR "},     {POLLHUP, "HUP "},       {POLLNVAL, "NVAL "},
      {POLLRDHUP, "RDHUP "}, {POLLRDNORM, "RDNORM "}, {POLLWRNORM, "WRNORM "}};
  for (const auto& [bit, name] : names)
    if ((e & bit) != 0) s += name;
  return s.empty() ? "-" : s;
}
std::string polled(int fd, int ms, short ask = POLLIN | POLLOUT | POLLRDHUP | POLLPRI) {
  pollfd p{fd, ask, 0};
  errno = 0;
  const int n = poll(&p, 1, ms);
  return n < 0 ? std::string("!") + strerrorname_np(errno) : events_of(p.revents);
}
/// Until the events are there, or time is up.
std::string polled_until(int fd, short wanted) {
  for (int i = 0; i < 200; ++i) {
    pollfd p{fd, static_cast<short>(wanted), 0};
    poll(&p, 1, 0);
    if ((p.revents & wanted) == wanted) break;
    nap(10);
  }
  return polled(fd, 0);
}
std::string waited(int e, int ms) {
  epoll_event got[8];
  errno = 0;
  const int n = epoll_wait(e, got, 8, ms);
  if (n < 0) return std::string("!") + strerrorname_np(errno);
  std::string s = std::to_string(n) + ":";
  for (int i = 0; i < n; ++i) s += " " + events_of(static_cast<short>(got[i].events));
  return s;
}
int added(int e, int fd, uint32_t events) {
  epoll_event ev{};
  ev.events = events;
  ev.data.fd = fd;
  return epoll_ctl(e, EPOLL_CTL_ADD, fd, &ev);
}
void set_timeout(int s, int which, int ms) {
  const timeval t{ms / 1000, ms % 1000 * 1000};
  setsockopt(s, SOL_SOCKET, which, &t, sizeof t);
}

void count(int) { g_signals = g_signals + 1; }

struct Part {
  const char* name;
  void (*run)();
};

/// Runs the parts, or those that are named behind the port.
template <size_t n>
int run_script(int argc, char** argv, const Part (&parts)[n]) {
  g_to.sin_family = AF_INET;
  g_to.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[2])));
  inet_pton(AF_INET, argv[1], &g_to.sin_addr);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::signal(SIGPIPE, count);
  for (const Part& part : parts) {
    bool wanted = argc <= 3;
    for (int i = 3; i < argc; ++i) wanted |= std::strcmp(argv[i], part.name) == 0;
    if (!wanted) continue;
    g_case = part.name;
    part.run();
  }
  return 0;
}

}  // namespace
