// A script of socket calls as semantics.cpp: numbers that are no sockets any more, copies of them,
// nested epolls, edges, signals, names of both families, ports that are shared.
#include <sched.h>
#include <sys/syscall.h>

#include <atomic>

#include "semantics.h"

namespace {
std::atomic<int> g_getpids = 0;
}

/// In place of libc's, for who is preloaded, too.
extern "C" pid_t getpid() noexcept {
  ++g_getpids;
  return static_cast<pid_t>(syscall(SYS_getpid));
}

namespace {

void closed_numbers() {
  const int closed = asked("echo\n");
  close(closed);
  char b[10];
  int value = 0;
  socklen_t n = sizeof value;
  sockaddr_in a{};
  auto* const name = reinterpret_cast<sockaddr*>(&a);
  socklen_t length = sizeof a;
  iovec v{b, 10};
  msghdr m{};
  mmsghdr mm{};
  m.msg_iov = mm.msg_hdr.msg_iov = &v;
  m.msg_iovlen = mm.msg_hdr.msg_iovlen = 1;
  int p[2];
  if (pipe(p) != 0) return;
  for (const int fd : {closed, -1}) {
    tried("close", [&] { return close(fd); });
    tried("read", [&] { return read(fd, b, 1); });
    tried("write", [&] { return write(fd, b, 1); });
    tried("readv", [&] { return readv(fd, &v, 1); });
    tried("writev", [&] { return writev(fd, &v, 1); });
    tried("recv", [&] { return recv(fd, b, 1, 0); });
    tried("send", [&] { return send(fd, b, 1, 0); });
    tried("recvfrom", [&] { return recvfrom(fd, b, 1, 0, name, &length); });
    tried("sendto", [&] { return sendto(fd, b, 1, 0, to(), sizeof g_to); });
    tried("recvmsg", [&] { return recvmsg(fd, &m, 0); });
    tried("sendmsg", [&] { return sendmsg(fd, &m, 0); });
    tried("recvmmsg", [&] { return recvmmsg(fd, &mm, 1, 0, nullptr); });
    tried("sendmmsg", [&] { return sendmmsg(fd, &mm, 1, 0); });
    tried("sendfile", [&] { return sendfile(fd, p[0], nullptr, 1); });
    tried("splice", [&] { return splice(fd, nullptr, p[1], nullptr, 1, 0); });
    tried("bind", [&] { return bind(fd, to(), sizeof g_to); });
    tried("connect", [&] { return connect(fd, to(), sizeof g_to); });
    tried("listen", [&] { return listen(fd, 1); });
    tried("accept", [&] { return accept(fd, nullptr, nullptr); });
    tried("accept4", [&] { return accept4(fd, nullptr, nullptr, 0); });
    tried("shutdown", [&] { return shutdown(fd, SHUT_RDWR); });
    tried("getsockname", [&] { return getsockname(fd, name, &length); });
    tried("getpeername", [&] { return getpeername(fd, name, &length); });
    tried("getsockopt", [&] { return getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &n); });
    tried("setsockopt", [&] { return setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, n); });
    tried("fcntl", [&] { return fcntl(fd, F_GETFL); });
    tried("ioctl", [&] { return ioctl(fd, FIONREAD, &value); });
    tried("dup", [&] { return dup(fd); });
    tried("dup2", [&] { return dup2(fd, 900); });
    tried("dup2 of itself", [&] { return dup2(fd, fd); });
    tried("dup3", [&] { return dup3(fd, 900, 0); });
    tried("fstat", [&] {
      struct stat s;
      return fstat(fd, &s);
    });
    note("poll", polled(fd, 0));
    const int e = epoll_create1(0);
    tried("epoll_ctl", [&] { return added(e, fd, EPOLLIN); });
    tried("epoll_ctl del", [&] { return epoll_ctl(e, EPOLL_CTL_DEL, fd, nullptr); });
    tried("epoll_ctl of it", [&] { return added(fd, e, EPOLLIN); });
    note("epoll_wait", waited(fd, 0));
    close(e);
    if (fd < 0) continue;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    timeval none{};
    tried("select", [&] { return select(fd + 1, &set, nullptr, nullptr, &none); });
  }
  close(p[0]);
  close(p[1]);
}

void copies() {
  const int s = asked("echo\n");
  tried("F_DUPFD of -1", [&] { return fcntl(s, F_DUPFD, -1); });
  tried("F_DUPFD of too much", [&] { return fcntl(s, F_DUPFD, 1 << 30); });
  tried("dup2 to -1", [&] { return dup2(s, -1); });
  tried("dup2 to too much", [&] { return dup2(s, 1 << 30); });
  tried("dup3 with a bad flag", [&] { return dup3(s, 800, O_APPEND); });
  tried("dup3 with a good one", [&] { return dup3(s, 800, O_CLOEXEC); });
  say("F_GETFD", fcntl(800, F_GETFD));
  tried("F_SETFD", [&] { return fcntl(800, F_SETFD, 0); });
  say("F_GETFD", fcntl(800, F_GETFD));
  say("of the other", fcntl(s, F_GETFD));
  for (const int at : {801, 802, 803, 804}) dup2(s, at);
  tried("close_range, bad flags", [&] { return close_range(801, 803, 16); });
  tried("close_range, wrong way", [&] { return close_range(803, 801, 0); });
  tried("close_range, on exec", [&] { return close_range(801, 803, CLOSE_RANGE_CLOEXEC); });
  say("F_GETFD", fcntl(802, F_GETFD));
  say("F_GETFD", fcntl(804, F_GETFD));
  send(802, "alive", 5, 0);
  note("echo", read_some(804));
  tried("close_range", [&] { return close_range(801, 803, 0); });
  tried("is closed", [&] { return send(802, "x", 1, 0); });
  send(804, "still", 5, 0);
  note("echo", read_some(s));
  closefrom(800);
  tried("is closed", [&] { return fcntl(804, F_GETFD); });
  send(s, "still", 5, 0);
  note("echo", read_some(s));
  const int t = dup(s);
  close(s);
  tried("the first is closed", [&] { return send(s, "x", 1, MSG_NOSIGNAL); });
  send(t, "goes on", 7, 0);
  note("echo", read_some(t));
  FILE* f = fdopen(dup(t), "r+");
  const int number = fileno(f);
  fclose(f);
  tried("fclose closes", [&] { return fcntl(number, F_GETFD); });
  tried("fsync", [&] { return fsync(t); });
  tried("ftruncate", [&] { return ftruncate(t, 0); });
  tried("lseek", [&] { return lseek(t, 0, SEEK_SET); });
  tried("F_GETPIPE_SZ", [&] { return fcntl(t, F_GETPIPE_SZ); });
  tried("an unknown command", [&] { return fcntl(t, 12345); });
  tried("SHUT_RDWR of one", [&] { return shutdown(t, SHUT_RDWR); });
  nap(100);
  note("events", polled(t, 0));
  close(t);
}

/// A thread does `f` after some time; `g` answers meanwhile.
template <class F, class G>
void meanwhile(int ms, F f, G g) {
  std::thread t([&] {
    nap(ms);
    f();
  });
  g();
  t.join();
}

/// It depends on who is faster what.
const char* told(const std::string& events) { return events == "-" ? "nothing" : "something"; }

void closed_while_waited_for() {
  int s = asked("hold\n");
  long since = now_ms();
  meanwhile(100, [&] { close(s); }, [&] { note("poll", polled(s, 400, POLLIN)); });
  took("waited", since, 400);
  s = asked("hold\n");
  since = now_ms();
  meanwhile(
      100,
      [&] {
        shutdown(s, SHUT_RDWR);
        close(s);
      },
      [&] { note("poll of a shut one", told(polled(s, 1000, POLLIN | POLLRDHUP))); });
  took("waited", since, 900);
  s = asked("hold\n");
  since = now_ms();
  meanwhile(
      100, [&] { close(s); },
      [&] {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(s, &set);
        timeval t{0, 400'000};
        tried("select", [&] { return select(s + 1, &set, nullptr, nullptr, &t); });
      });
  took("waited", since, 400);
  s = asked("hold\n");
  const int e = epoll_create1(0);
  added(e, s, EPOLLIN);
  since = now_ms();
  meanwhile(100, [&] { close(s); }, [&] { note("epoll", waited(e, 400)); });
  took("waited", since, 400);
  close(e);
  s = asked("later 300\n");
  char b[10];
  meanwhile(100, [&] { close(s); }, [&] { tried("recv", [&] { return recv(s, b, 10, 0); }); });
  s = asked("hold\n");
  meanwhile(
      100, [&] { shutdown(s, SHUT_RD); },
      [&] { tried("recv of a shut one", [&] { return recv(s, b, 10, 0); }); });
  close(s);
  const int l = socket(AF_INET, SOCK_STREAM, 0);
  listen(l, 1);
  since = now_ms();
  meanwhile(100, [&] { close(l); }, [&] { note("a listener", polled(l, 400, POLLIN)); });
  took("waited", since, 400);
  const int m = socket(AF_INET, SOCK_STREAM, 0);
  listen(m, 1);
  meanwhile(
      100,
      [&] {
        shutdown(m, SHUT_RD);
        close(m);
      },
      [&] { note("a shut listener", told(polled(m, 1000, POLLIN))); });
  const int u = socket(AF_INET, SOCK_DGRAM, 0);
  connect(u, to(), sizeof g_to);
  since = now_ms();
  meanwhile(100, [&] { close(u); }, [&] { note("datagrams", polled(u, 400, POLLIN)); });
  took("waited", since, 400);
}

void edges() {
  const int s = asked("echo\n");
  const int e = epoll_create1(0);
  added(e, s, EPOLLIN | EPOLLET);
  send(s, "abc", 3, 0);
  note("first", waited(e, 2000));
  note("none", waited(e, 50));
  send(s, "def", 3, 0);
  note("more is an edge", waited(e, 2000));
  note("all", (nap(50), read_some(s)));
  note("none", waited(e, 50));
  epoll_event ev{};
  ev.events = EPOLLIN | EPOLLET | EPOLLONESHOT;
  ev.data.fd = s;
  epoll_ctl(e, EPOLL_CTL_MOD, s, &ev);
  send(s, "x", 1, 0);
  note("once", waited(e, 2000));
  send(s, "y", 1, 0);
  nap(100);
  note("disarmed", waited(e, 50));
  epoll_ctl(e, EPOLL_CTL_MOD, s, &ev);
  note("armed again", waited(e, 50));
  ev.events = EPOLLOUT | EPOLLET | EPOLLONESHOT;
  epoll_ctl(e, EPOLL_CTL_MOD, s, &ev);
  note("out", waited(e, 50));
  note("once", waited(e, 50));
  ev.events = 0;
  epoll_ctl(e, EPOLL_CTL_MOD, s, &ev);
  note("nothing asked for", waited(e, 50));
  tried("an unknown op", [&] { return epoll_ctl(e, 99, s, &ev); });
  tried("no event", [&] { return epoll_ctl(e, EPOLL_CTL_MOD, s, nullptr); });
  tried("no event", [&] { return epoll_ctl(e, EPOLL_CTL_ADD, s, nullptr); });
  tried("too many", [&] { return epoll_wait(e, &ev, 1 << 30, 0); });
  tried("-1", [&] { return epoll_wait(e, &ev, -1, 0); });
  tried("bad flags", [&] { return epoll_create1(1); });
  tried("bad size", [&] { return epoll_create(0); });
  ev.events = EPOLLRDHUP | EPOLLET;
  epoll_ctl(e, EPOLL_CTL_MOD, s, &ev);
  shutdown(s, SHUT_WR);
  note("hung up", waited(e, 2000));
  note("once", waited(e, 50));
  close(s);
  note("gone", waited(e, 50));

  // Written full, then drained.
  const int h = asked("slow 1 300\n");
  fcntl(h, F_SETFL, O_NONBLOCK);
  added(e, h, EPOLLIN | EPOLLOUT | EPOLLET);
  note("fresh", waited(e, 50));
  note("later", waited(e, 2000));
  note("none", waited(e, 50));
  close(h);

  // One of two threads' epolls hears of it.
  const int t = asked("echo\n");
  const int e2 = epoll_create1(0);
  tried("exclusive", [&] { return added(e, t, EPOLLIN | EPOLLEXCLUSIVE); });
  tried("exclusive", [&] { return added(e2, t, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET); });
  send(t, "z", 1, 0);
  polled_until(t, POLLIN);
  note("the level shows in one", waited(e, 50));
  note("and the other", waited(e2, 50));
  tried("RDHUP is not allowed", [&] { return added(e2, e, EPOLLIN | EPOLLEXCLUSIVE); });
  close(t);
  close(e2);
  close(e);
}

void nested() {
  const int s = asked("echo\n");
  const int inner = epoll_create1(0), outer = epoll_create1(0), third = epoll_create1(0);
  tried("the socket", [&] { return added(inner, s, EPOLLIN); });
  tried("an epoll", [&] { return added(outer, inner, EPOLLIN); });
  tried("two deep", [&] { return added(third, outer, EPOLLIN | EPOLLET); });
  tried("a loop", [&] { return added(inner, third, EPOLLIN); });
  note("nothing", waited(outer, 50));
  send(s, "n", 1, 0);
  note("third", waited(third, 2000));
  note("outer", waited(outer, 50));
  note("again", waited(outer, 50));
  note("an edge once", waited(third, 50));
  note("poll of an epoll", polled(outer, 0, POLLIN | POLLOUT));
  fd_set in;
  FD_ZERO(&in);
  FD_SET(inner, &in);
  timeval none{};
  tried("select of an epoll", [&] { return select(inner + 1, &in, nullptr, nullptr, &none); });
  note("inner", waited(inner, 50));
  read_some(s);
  note("inner", waited(inner, 50));
  note("outer", waited(outer, 50));
  note("poll of an epoll", polled(outer, 0, POLLIN | POLLOUT));
  tried("read", [&] {
    char c;
    return read(inner, &c, 1);
  });
  tried("write", [&] { return write(inner, "x", 1); });
  tried("recv", [&] {
    char c;
    return recv(inner, &c, 1, 0);
  });
  tried("shutdown", [&] { return shutdown(inner, SHUT_RDWR); });
  meanwhile(100, [&] { send(s, "m", 1, 0); }, [&] { note("outer waits", waited(outer, 2000)); });
  const int copy = dup(inner);
  close(inner);
  note("the copy keeps it", waited(outer, 50));
  close(copy);
  note("gone", waited(outer, 50));
  for (const int fd : {s, outer, third}) close(fd);
}

void waiting() {
  const int s = asked("echo\n");
  pollfd p[3] = {{-1, POLLIN, 7}, {s, 0, 7}, {s, POLLIN | POLLOUT, 7}};
  tried("poll", [&] { return poll(p, 3, 0); });
  note("-1", events_of(p[0].revents));
  note("nothing asked for", events_of(p[1].revents));
  note("both", events_of(p[2].revents));
  tried("poll of none", [&] { return poll(nullptr, 0, 10); });
  timespec bad{0, -1};
  tried("ppoll, a bad time", [&] { return ppoll(p, 3, &bad, nullptr); });
  bad = {-1, 0};
  tried("ppoll, a negative time", [&] { return ppoll(p, 3, &bad, nullptr); });
  fd_set set;
  const auto fill = [&](int fd) {
    FD_ZERO(&set);
    FD_SET(fd, &set);
  };
  timeval t{-1, 0};
  fill(s);
  tried("select, a negative time", [&] { return select(s + 1, &set, nullptr, nullptr, &t); });
  t = {0, 2'000'000};
  tried("select, many microseconds", [&] { return select(s + 1, nullptr, &set, nullptr, &t); });
  t = {0, 10'000};
  tried("select of -1", [&] { return select(-1, &set, nullptr, nullptr, &t); });
  tried("select of none", [&] { return select(0, nullptr, nullptr, nullptr, &t); });
  note("its time", t.tv_sec == 0 && t.tv_usec == 0 ? "is over" : "is left");
  t = {0, 0};
  fill(s);
  tried("select below it", [&] { return select(s, nullptr, &set, nullptr, &t); });
  fill(s);
  tried("select, to write", [&] { return select(s + 1, nullptr, &set, nullptr, &t); });
  timespec ts{0, 1'000'000'000};
  tried("pselect, a bad time",
        [&] { return pselect(s + 1, nullptr, &set, nullptr, &ts, nullptr); });
  // Blocked signals: only the mask of the call lets them through.
  sigset_t block, none;
  sigemptyset(&none);
  sigemptyset(&block);
  sigaddset(&block, SIGUSR1);
  sigprocmask(SIG_BLOCK, &block, nullptr);
  std::signal(SIGUSR1, count);
  g_signals = 0;
  kill(getpid(), SIGUSR1);
  pollfd in{s, POLLIN, 0};
  const timespec little{0, 50'000'000};
  tried("ppoll keeps it out", [&] { return ppoll(&in, 1, &little, nullptr); });
  say("handlers", g_signals);
  tried("ppoll lets it in", [&] { return ppoll(&in, 1, &little, &none); });
  say("handlers", g_signals);
  kill(getpid(), SIGUSR1);
  FD_ZERO(&set);
  FD_SET(s, &set);
  tried("pselect lets it in",
        [&] { return pselect(s + 1, &set, nullptr, nullptr, &little, &none); });
  say("handlers", g_signals);
  const int e = epoll_create1(0);
  added(e, s, EPOLLIN);
  kill(getpid(), SIGUSR1);
  epoll_event got;
  tried("epoll_pwait lets it in", [&] { return epoll_pwait(e, &got, 1, 50, &none); });
  say("handlers", g_signals);
  // Ready and pending at once.
  send(s, "r", 1, 0);
  polled_until(s, POLLIN);
  kill(getpid(), SIGUSR1);
  tried("ppoll of a ready one", [&] { return ppoll(&in, 1, &little, &none); });
  say("handlers", g_signals);
  tried("epoll_pwait of a ready one", [&] { return epoll_pwait(e, &got, 1, 50, &none); });
  say("handlers", g_signals);
  sigprocmask(SIG_UNBLOCK, &block, nullptr);
  say("handlers", g_signals);
  close(e);
  close(s);
}

void asking() {
  int s = asked("hold\n");
  int n = -1;
  tried("FIONREAD", [&] { return ioctl(s, FIONREAD, &n); });
  say("bytes", n);
  tcp_info info{};
  const auto state = [&](int fd) {
    socklen_t length = sizeof info;
    info = {};
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return -1;
    return static_cast<int>(info.tcpi_state);
  };
  say("TCP_INFO", state(s));
  note("options", std::to_string(info.tcpi_options & 7));
  note("windows", info.tcpi_snd_wscale > 0 && info.tcpi_rcv_wscale > 0 ? "scaled" : "not scaled");
  note("mss", info.tcpi_snd_mss >= 1000 && info.tcpi_pmtu == 1500 ? "of the path" : "other");
  note("rtt", info.tcpi_rtt > 0 && info.tcpi_rto >= 200'000 ? "measured" : "none");
  socklen_t little = 5;
  tried("in few bytes", [&] { return getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &little); });
  say("length", little);
  fcntl(s, F_SETFL, O_NONBLOCK);
  const std::string much(1 << 20, 'm');
  while (send(s, much.data(), much.size(), 0) > 0) nap(20);
  nap(100);
  ioctl(s, SIOCOUTQ, &n);
  note("SIOCOUTQ", n > 0 ? "some" : "none");
  ioctl(s, SIOCOUTQNSD, &n);
  note("SIOCOUTQNSD", n > 0 ? "some" : "none");
  close(s);
  s = asked("sendclose 7\n");
  polled_until(s, POLLRDHUP);
  ioctl(s, FIONREAD, &n);
  say("bytes", n);
  say("after its FIN", state(s));
  shutdown(s, SHUT_WR);
  nap(100);
  say("after ours", state(s));
  tried("SIOCOUTQ", [&] { return ioctl(s, SIOCOUTQ, &n); });
  say("bytes", n);
  tried("SIOCATMARK", [&] { return ioctl(s, SIOCATMARK, &n); });
  close(s);
  s = asked("sink\n");
  shutdown(s, SHUT_WR);
  polled_until(s, POLLRDHUP);
  say("closed by both", state(s));
  close(s);
  s = asked("sendreset 0\n");
  polled_until(s, POLLERR);
  say("reset", state(s));
  close(s);
  s = socket(AF_INET, SOCK_STREAM, 0);
  say("new", state(s));
  tried("FIONREAD", [&] { return ioctl(s, FIONREAD, &n); });
  tried("SIOCOUTQ", [&] { return ioctl(s, SIOCOUTQ, &n); });
  listen(s, 7);
  say("listens", state(s));
  say("backlog", info.tcpi_sacked);
  tried("FIONREAD", [&] { return ioctl(s, FIONREAD, &n); });
  tried("SIOCOUTQ", [&] { return ioctl(s, SIOCOUTQ, &n); });
  close(s);
}

std::string name_of(int fd, bool peer) {
  sockaddr_storage sa{};
  socklen_t n = sizeof sa;
  auto* const at = reinterpret_cast<sockaddr*>(&sa);
  if ((peer ? getpeername(fd, at, &n) : getsockname(fd, at, &n)) != 0)
    return std::string("!") + strerrorname_np(errno);
  char text[INET6_ADDRSTRLEN] = "?";
  uint16_t port = 0;
  if (sa.ss_family == AF_INET6) {
    const auto& a = reinterpret_cast<const sockaddr_in6&>(sa);
    inet_ntop(AF_INET6, &a.sin6_addr, text, sizeof text);
    port = a.sin6_port;
  } else if (sa.ss_family == AF_INET) {
    const auto& a = reinterpret_cast<const sockaddr_in&>(sa);
    inet_ntop(AF_INET, &a.sin_addr, text, sizeof text);
    port = a.sin_port;
  }
  return std::to_string(n) + " " + text +
         (port == g_to.sin_port ? " its port"
          : port != 0           ? " a port"
                                : " no port");
}

void names() {
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = g_to.sin_port;
  mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(mapped.sin6_addr.s6_addr + 12, &g_to.sin_addr, 4);
  auto* const there = reinterpret_cast<sockaddr*>(&mapped);
  for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
    note("type", type == SOCK_STREAM ? "stream" : "datagram");
    int s = socket(AF_INET6, type, 0);
    note("before", name_of(s, false));
    note("its peer", name_of(s, true));
    tried("an IPv4 address", [&] { return connect(s, to(), sizeof g_to); });
    tried("short", [&] { return connect(s, there, 20); });
    tried("mapped", [&] { return connect(s, there, sizeof mapped); });
    note("our name", name_of(s, false));
    note("its name", name_of(s, true));
    if (type == SOCK_STREAM) send(s, "echo\n", 5, 0);
    nap(50);
    send(s, "1", 1, 0);
    set_timeout(s, SO_RCVTIMEO, 2000);
    char b[100];
    sockaddr_in6 from{};
    socklen_t n = sizeof from;
    tried("recvfrom",
          [&] { return recvfrom(s, b, 100, 0, reinterpret_cast<sockaddr*>(&from), &n); });
    say("addrlen", n);
    say("family", from.sin6_family);
    for (const int name : {IPV6_V6ONLY, IPV6_MTU, IPV6_UNICAST_HOPS}) {
      int value = -1;
      socklen_t length = sizeof value;
      tried("an option", [&] { return getsockopt(s, IPPROTO_IPV6, name, &value, &length); });
      say("value", value);
    }
    close(s);
    s = socket(AF_INET6, type, 0);
    const int on = 1;
    setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    tried("V6ONLY", [&] { return connect(s, there, sizeof mapped); });
    close(s);
    s = socket(AF_INET, type, 0);
    tried("an IPv6 address", [&] { return connect(s, there, sizeof mapped); });
    note("then", name_of(s, false));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    auto* const nowhere = reinterpret_cast<sockaddr*>(&any);
    tried("bind, short", [&] { return bind(s, nowhere, 4); });
    sockaddr_in strange = g_to;
    strange.sin_port = 0;
    tried("bind, not ours",
          [&] { return bind(s, reinterpret_cast<sockaddr*>(&strange), sizeof strange); });
    tried("bind", [&] { return bind(s, nowhere, sizeof any); });
    note("bound", name_of(s, false));
    tried("bind again", [&] { return bind(s, nowhere, sizeof any); });
    tried("connect", [&] { return connect(s, to(), sizeof g_to); });
    note("connected", name_of(s, false));
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    tried("disconnect", [&] { return connect(s, &none, sizeof none); });
    note("its peer", name_of(s, true));
    note("our name", name_of(s, false));
    close(s);
  }
}

void sharing() {
  const int on = 1;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  auto* const at = reinterpret_cast<sockaddr*>(&any);
  const auto made = [&](int type, bool shares) {
    const int s = socket(AF_INET, type | SOCK_NONBLOCK, 0);
    if (shares) setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    return s;
  };
  any.sin_port = htons(45'678);
  const int a = made(SOCK_STREAM, true), b = made(SOCK_STREAM, true), c = made(SOCK_STREAM, false);
  tried("first", [&] { return bind(a, at, sizeof any); });
  tried("second", [&] { return bind(b, at, sizeof any); });
  tried("one that does not share", [&] { return bind(c, at, sizeof any); });
  tried("listen", [&] { return listen(a, 10); });
  tried("listen", [&] { return listen(b, 10); });
  int helpers[12];
  for (int& h : helpers) h = asked("dial 45678\n");
  int got = 0, of_a = 0;
  for (int i = 0; i < 200 && got < 12; ++i) {
    for (const int l : {a, b}) {
      const int n = accept(l, nullptr, nullptr);
      if (n < 0) continue;
      ++got;
      of_a += l == a ? 1 : 0;
      close(n);
    }
    if (got < 12) nap(10);
  }
  say("connections", got);
  note("both have some", of_a > 0 && of_a < 12 ? "yes" : "perhaps");
  close(a);
  const int one = asked("dial 45678\n");
  note("the other goes on", polled_until(b, POLLIN));
  close(one);
  for (const int fd : {b, c}) close(fd);
  for (const int h : helpers) close(h);
  const int d = made(SOCK_STREAM, false);
  tried("a port that is free again", [&] { return bind(d, at, sizeof any); });
  tried("listen of 0", [&] { return listen(d, 0); });
  const int e = made(SOCK_STREAM, false);
  setsockopt(e, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  tried("REUSEADDR beside a listener", [&] { return bind(e, at, sizeof any); });
  close(e);
  socklen_t n = static_cast<socklen_t>(-1);
  sockaddr_in peer{};
  auto* const from = reinterpret_cast<sockaddr*>(&peer);
  const int first = asked("dial 45678\n");
  polled_until(d, POLLIN);
  tried("accept, a negative room", [&] { return accept(d, from, &n); });
  n = 3;
  const int second = asked("dial 45678\n");
  polled_until(d, POLLIN);
  tried("accept, little room", [&] { return accept(d, from, &n) >= 0 ? 0 : -1; });
  say("length", n);
  const int third = asked("dial 45678\n");
  polled_until(d, POLLIN);
  tried("accept without room", [&] { return accept(d, from, nullptr) >= 0 ? 0 : -1; });
  tried("accept4, bad flags", [&] { return accept4(d, nullptr, nullptr, 1); });
  for (const int fd : {first, second, third, d}) close(fd);
  const int u = made(SOCK_DGRAM, true), v = made(SOCK_DGRAM, true), w = made(SOCK_DGRAM, false);
  tried("datagrams, first", [&] { return bind(u, at, sizeof any); });
  tried("second", [&] { return bind(v, at, sizeof any); });
  tried("one that does not share", [&] { return bind(w, at, sizeof any); });
  for (const int fd : {u, v, w}) close(fd);
}

void signalled() {
  const int s = asked("echo\n");
  std::signal(SIGIO, count);
  g_signals = 0;
  say("owner", fcntl(s, F_GETOWN));
  tried("F_SETOWN", [&] { return fcntl(s, F_SETOWN, getpid()); });
  note("owner", fcntl(s, F_GETOWN) == getpid() ? "we" : "other");
  tried("O_ASYNC", [&] { return fcntl(s, F_SETFL, O_ASYNC); });
  say("F_GETFL", fcntl(s, F_GETFL) & (O_ASYNC | O_NONBLOCK));
  send(s, "signal", 6, 0);
  const auto await = [&] {
    for (int i = 0; i < 100 && g_signals == 0; ++i) {
      timespec t{0, 10'000'000};
      nanosleep(&t, nullptr);
    }
    note("SIGIO", g_signals > 0 ? "came" : "did not");
  };
  await();
  note("echo", read_some(s));
  int off = 0;
  tried("FIOASYNC", [&] { return ioctl(s, FIOASYNC, &off); });
  say("F_GETFL", fcntl(s, F_GETFL) & (O_ASYNC | O_NONBLOCK));
  g_signals = 0;
  send(s, "silent", 6, 0);
  note("echo", read_some(s));
  nap(50);
  say("handlers", g_signals);
  close(s);
  const int u = socket(AF_INET, SOCK_DGRAM, 0);
  connect(u, to(), sizeof g_to);
  fcntl(u, F_SETOWN, getpid());
  fcntl(u, F_SETFL, O_ASYNC);
  g_signals = 0;
  send(u, "1", 1, 0);
  await();
  note("answer", read_some(u));
  close(u);
}

/// In a child that has the parent's memory: closes the socket, and puts another over its number.
int in_child(void* number) {
  const int s = *static_cast<int*>(number);
  const int none = open("/dev/null", O_RDWR);
  if (close(s) != 0 || dup2(none, s) != s || write(s, "lost", 4) != 4) return 1;
  return close(socket(AF_INET, SOCK_STREAM, 0)) == 0 ? 0 : 2;
}

/// What children do that share our memory is nothing to our sockets.
void children() {
  int s = asked("echo\n");
  const auto goes_on = [&](const char* what, pid_t child) {
    int status = -1;
    tried(what, [&] { return waitpid(child, &status, __WALL) == child ? status : -1; });
    tried("send", [&] { return send(s, what, strlen(what), 0); });
    note("echo", read_some(s));
    const int next = socket(AF_INET, SOCK_STREAM, 0);
    say("the next number", next - s);
    close(next);
  };
  for (int i = 0; i < 2; ++i) {
    const pid_t child = vfork();
    if (child == 0) _exit(in_child(&s));
    goes_on("vfork", child);
  }
  // Who waited for all its children, and a device's helper, asks no more who it is.
  g_getpids = 0;
  tried("send", [&] { return send(s, "still we", 8, 0); });
  note("echo", read_some(s));
  say("getpid", g_getpids);
  alignas(16) static char stack[1 << 18];
  for (const int flags : {CLONE_VM | CLONE_VFORK | SIGCHLD, SIGCHLD, CLONE_VM | SIGCHLD})
    goes_on("clone", clone(in_child, stack + sizeof stack, flags, &s));
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (child == 0) syscall(SYS_exit, in_child(&s));
  goes_on("syscall", child);
  close(s);
}

}  // namespace

int main(int argc, char** argv) {
  const Part all[] = {{"closed numbers", closed_numbers},
                      {"copies", copies},
                      {"closed while waited for", closed_while_waited_for},
                      {"edges", edges},
                      {"nested", nested},
                      {"waiting", waiting},
                      {"asking", asking},
                      {"names", names},
                      {"sharing", sharing},
                      {"signalled", signalled},
                      {"children", children}};
  return run_script(argc, argv, all);
}
