// One script of socket calls, each line of whose output says what the calls answered: the same on
// the kernel's sockets and on Vireo's. semantics ADDRESS PORT; semantics.py is at the address, and
// does to a connection what its first line asks for.
#include <pthread.h>

#include "semantics.h"

namespace {

void connecting() {
  const int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const int e = epoll_create1(0);
  added(e, s, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  note("before", waited(e, 50));
  note("again before", waited(e, 50));
  errno = 0;  // Vireo may see the answer before the call returns
  const int begun = connect(s, to(), sizeof g_to);
  note("connect", begun == 0 || errno == EINPROGRESS ? "begun" : strerrorname_np(errno));
  note("connected", waited(e, 2000));
  note("once only", waited(e, 50));
  connect(s, to(), sizeof g_to);
  tried("connect again", [&] { return connect(s, to(), sizeof g_to); });
  int error = -1;
  socklen_t n = sizeof error;
  tried("SO_ERROR", [&] { return getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &n); });
  say("it is", error);
  send(s, "echo\n", 5, 0);
  nap(100);
  send(s, "abcdef", 6, 0);
  note("data", waited(e, 2000));
  note("part", read_some(s, 3));
  note("the rest is no edge", waited(e, 100));
  send(s, "gh", 2, 0);
  note("more is", waited(e, 2000));
  nap(100);
  note("all", read_some(s));
  note("no more", read_some(s));
  epoll_event ev{};
  ev.events = EPOLLIN | EPOLLOUT | EPOLLET;
  tried("mod", [&] { return epoll_ctl(e, EPOLL_CTL_MOD, s, &ev); });
  note("mod is an edge", waited(e, 100));
  tried("add twice", [&] { return added(e, s, EPOLLIN); });
  sockaddr_in any{};
  any.sin_family = AF_INET;
  tried("bind", [&] { return bind(s, reinterpret_cast<sockaddr*>(&any), sizeof any); });
  tried("listen", [&] { return listen(s, 1); });
  tried("accept", [&] { return accept(s, nullptr, nullptr); });
  close(e);
  close(s);
  const int r = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in nobody = g_to;
  nobody.sin_port = htons(9);
  tried("refused", [&] { return connect(r, reinterpret_cast<sockaddr*>(&nobody), sizeof nobody); });
  tried("then elsewhere", [&] { return connect(r, to(), sizeof g_to); });
  close(r);
  const int u = socket(AF_INET, SOCK_STREAM, 0);
  note("unconnected", polled(u, 0));
  tried("send", [&] { return send(u, "x", 1, MSG_NOSIGNAL); });
  tried("recv", [&] {
    char c;
    return recv(u, &c, 1, 0);
  });
  tried("shutdown", [&] { return shutdown(u, SHUT_WR); });
  sockaddr_in a;
  socklen_t al = sizeof a;
  tried("getpeername", [&] { return getpeername(u, reinterpret_cast<sockaddr*>(&a), &al); });
  close(u);
}

void halves() {
  int s = asked("echo\n");
  send(s, "abc", 3, 0);
  note("echo", polled_until(s, POLLIN));
  tried("shut read", [&] { return shutdown(s, SHUT_RD); });
  note("events", polled(s, 0));
  note("what is there", read_some(s));
  note("then", read_some(s));
  tried("send", [&] { return send(s, "def", 3, 0); });
  nap(200);
  note("later", polled(s, 0));
  note("what came", read_some(s));
  tried("shut write", [&] { return shutdown(s, SHUT_WR); });
  g_signals = 0;
  tried("send", [&] { return send(s, "x", 1, 0); });
  say("SIGPIPE", g_signals);
  tried("send", [&] { return send(s, "x", 1, MSG_NOSIGNAL); });
  say("SIGPIPE", g_signals);
  nap(200);
  note("events", polled(s, 0));
  tried("shut again", [&] { return shutdown(s, SHUT_RDWR); });
  tried("a third way", [&] { return shutdown(s, 7); });
  close(s);

  s = asked("sink\n");
  send(s, "12345", 5, 0);
  tried("shut write", [&] { return shutdown(s, SHUT_WR); });
  note("the answer", read_some(s, 100, MSG_WAITALL));
  note("events", polled(s, 0));
  note("the end", read_some(s));
  sockaddr_in a;
  socklen_t al = sizeof a;
  tried("getpeername", [&] { return getpeername(s, reinterpret_cast<sockaddr*>(&a), &al); });
  tried("shut", [&] { return shutdown(s, SHUT_RDWR); });
  close(s);

  s = asked("sendclose 5\n");
  note("closed", polled_until(s, POLLIN | POLLRDHUP));
  note("data", read_some(s));
  note("end", read_some(s));
  note("end", read_some(s));
  tried("send to who has closed", [&] { return send(s, "x", 1, MSG_NOSIGNAL); });
  nap(200);
  note("events", polled(s, 0));
  tried("send", [&] { return send(s, "x", 1, MSG_NOSIGNAL); });
  note("recv", read_some(s));
  close(s);

  s = asked("sendreset 5\n");
  note("reset", polled_until(s, POLLERR));
  note("what came before", read_some(s));
  note("then", read_some(s));
  note("then", read_some(s));
  tried("send", [&] { return send(s, "x", 1, MSG_NOSIGNAL); });
  note("events", polled(s, 0));
  tried("getpeername", [&] { return getpeername(s, reinterpret_cast<sockaddr*>(&a), &al); });
  close(s);

  s = asked("sendreset 0\n");
  note("reset", polled_until(s, POLLERR));
  int error = 0;
  socklen_t n = sizeof error;
  getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &n);
  say("SO_ERROR", error);
  getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &n);
  say("SO_ERROR", error);
  note("recv", read_some(s));
  tried("send", [&] { return send(s, "x", 1, MSG_NOSIGNAL); });
  close(s);
}

void lingering() {
  int s = asked("how 1\n");
  const linger zero{1, 0};
  setsockopt(s, SOL_SOCKET, SO_LINGER, &zero, sizeof zero);
  nap(100);
  close(s);
  s = asked("how 2\n");
  nap(100);
  close(s);
  s = asked("how 3\n");  // closes with its answer unread
  note("waits", polled_until(s, POLLIN));
  close(s);
  nap(300);
  s = asked("tell\n");
  note("ends", read_some(s));
  close(s);
}

void numbers() {
  const int one = asked("echo\n"), two = asked("echo\n");
  tried("dup2 over", [&] { return dup2(two, one) == one ? 0 : -1; });
  send(one, "two", 3, 0);
  note("it is two", read_some(two));
  close(two);
  send(one, "still", 5, 0);
  note("a dup lives on", read_some(one));
  int p[2];
  if (pipe(p) != 0) return;
  tried("a pipe over it", [&] { return dup2(p[1], one) == one ? 0 : -1; });
  tried("write", [&] { return write(one, "pipe", 4); });
  char b[100];
  tried("read", [&] { return read(p[0], b, sizeof b); });
  const int three = asked("echo\n");
  tried("it over a pipe", [&] { return dup2(three, p[0]) == p[0] ? 0 : -1; });
  send(p[0], "three", 5, 0);
  note("echo", read_some(p[0]));
  tried("dup2 onto itself", [&] { return dup2(three, three) == three ? 0 : -1; });
  tried("dup3 onto itself", [&] { return dup3(three, three, 0); });
  tried("dup2 of nothing", [&] { return dup2(999, three); });
  send(three, "alive", 5, 0);
  note("echo", read_some(three));
  const int high = fcntl(three, F_DUPFD_CLOEXEC, 1500);
  tried("a high number", [&] { return high >= 1500 ? 0 : high; });
  tried("F_GETFD", [&] { return fcntl(high, F_GETFD); });
  std::vector<fd_mask> bits(64, 0);
  auto* const set = reinterpret_cast<fd_set*>(bits.data());
  const auto word = static_cast<size_t>(high) / NFDBITS;
  bits[word] |= fd_mask{1} << (high % NFDBITS);
  timeval wait{0, 50'000};
  tried("select, nothing", [&] { return select(high + 1, set, nullptr, nullptr, &wait); });
  bits[word] |= fd_mask{1} << (high % NFDBITS);
  send(high, "high", 4, 0);
  wait = {2, 0};
  tried("select, data", [&] { return select(high + 1, set, nullptr, nullptr, &wait); });
  note("set", (bits[word] >> (high % NFDBITS) & 1) != 0 ? "yes" : "no");
  note("echo", read_some(high));
  tried("O_NONBLOCK", [&] { return fcntl(high, F_SETFL, O_NONBLOCK); });
  note("is the description's", read_some(three));
  say("F_GETFL", fcntl(three, F_GETFL) & (O_NONBLOCK | O_ACCMODE));
  int off = 0;
  tried("FIONBIO", [&] { return ioctl(three, FIONBIO, &off); });
  say("F_GETFL", fcntl(high, F_GETFL) & (O_NONBLOCK | O_ACCMODE));
  struct stat st;
  tried("fstat", [&] { return fstat(three, &st); });
  note("a socket", S_ISSOCK(st.st_mode) ? "yes" : "no");
  tried("lseek", [&] { return lseek(three, 0, SEEK_CUR); });
  tried("pread", [&] { return pread(three, b, 1, 0); });
  send(three, "vector", 6, 0);
  iovec v{b, sizeof b};
  tried("preadv2", [&] { return preadv2(three, &v, 1, -1, 0); });
  v = {b, 3};
  tried("pwritev2", [&] { return pwritev2(three, &v, 1, -1, 0); });
  note("echo", read_some(three));
  for (const int fd : {one, three, high, p[0], p[1]}) close(fd);
}

void reading() {
  int s = asked("slow 3 200\n");
  char b[100];
  long since = now_ms();
  tried("WAITALL", [&] { return recv(s, b, 3, MSG_WAITALL); });
  took("waited", since, 300);
  close(s);
  s = asked("send 5\n");
  set_timeout(s, SO_RCVTIMEO, 300);
  since = now_ms();
  tried("PEEK WAITALL", [&] { return recv(s, b, 10, MSG_PEEK | MSG_WAITALL); });
  took("waited", since, 300);
  since = now_ms();
  tried("WAITALL", [&] { return recv(s, b, 10, MSG_WAITALL); });
  took("waited", since, 300);
  tried("timeout", [&] { return recv(s, b, 10, 0); });
  tried("no room", [&] { return recv(s, b, 0, MSG_DONTWAIT); });
  tried("read nothing", [&] { return read(s, b, 0); });
  tried("DONTWAIT", [&] { return recv(s, b, 10, MSG_DONTWAIT); });
  tried("OOB", [&] { return recv(s, b, 10, MSG_OOB); });
  tried("ERRQUEUE", [&] { return recv(s, b, 10, MSG_ERRQUEUE); });
  tried("sockatmark", [&] { return sockatmark(s); });
  tried("send nothing", [&] { return send(s, b, 0, 0); });
  tried("write nothing", [&] { return write(s, b, 0); });
  close(s);
  s = asked("sendclose 20\n");
  note("closed", polled_until(s, POLLIN | POLLRDHUP));
  int n = -1;
  tried("FIONREAD", [&] { return ioctl(s, FIONREAD, &n); });
  say("bytes", n);
  tried("TRUNC", [&] { return recv(s, nullptr, 4, MSG_TRUNC); });
  tried("PEEK", [&] { return recv(s, b, 4, MSG_PEEK); });
  iovec v[3] = {{b, 2}, {b + 10, 0}, {b + 20, 3}};
  tried("readv", [&] { return readv(s, v, 3); });
  sockaddr_in from;
  msghdr m{};
  m.msg_name = &from;
  m.msg_namelen = sizeof from;
  m.msg_iov = v;
  m.msg_iovlen = 3;
  m.msg_flags = 12345;
  tried("recvmsg", [&] { return recvmsg(s, &m, 0); });
  say("namelen", m.msg_namelen);
  say("flags", m.msg_flags);
  std::vector<iovec> many(2000, {b, 1});
  m.msg_iov = many.data();
  m.msg_iovlen = many.size();
  tried("too many", [&] { return recvmsg(s, &m, 0); });
  tried("too many to send", [&] { return sendmsg(s, &m, MSG_NOSIGNAL); });
  tried("too many", [&] { return readv(s, many.data(), 2000); });
  tried("too many to write", [&] { return writev(s, many.data(), 2000); });
  socklen_t al = sizeof from;
  tried("recvfrom", [&] { return recvfrom(s, b, 2, 0, reinterpret_cast<sockaddr*>(&from), &al); });
  say("addrlen", al);
  tried("WAITALL to the end", [&] { return recv(s, b, 90, MSG_WAITALL); });
  tried("the end", [&] { return recv(s, b, 90, 0); });
  close(s);

  s = asked("hold\n");
  set_timeout(s, SO_SNDTIMEO, 300);
  std::vector<char> much(64 << 20);
  since = now_ms();
  const ssize_t sent = send(s, much.data(), much.size(), 0);
  took("a send that fills", since, 300);
  note("took part", sent > 0 && static_cast<size_t>(sent) < much.size() ? "yes" : "no");
  close(s);

  s = asked("echo\n");
  const int f = open("/proc/self/exe", O_RDONLY);
  off_t at = 100;
  tried("sendfile", [&] { return sendfile(s, f, &at, 50); });
  say("offset", at);
  tried("its echo", [&] { return recv(s, b, 50, MSG_WAITALL); });
  close(f);
  close(s);
}

int g_said_amid_fork = -1;  ///< on which the handler speaks

/// One that comes while the program's threads are being stopped for a fork: registered before the
/// first socket is made, so that it runs last.
void signal_amid_fork() {
  if (g_said_amid_fork >= 0) raise(SIGUSR1);
}
[[gnu::constructor]] void register_early() { pthread_atfork(signal_amid_fork, nullptr, nullptr); }

void forking_amid_signals() {
  struct sigaction a{};
  a.sa_handler = [](int) {
    g_signals = g_signals + 1;
    if (send(g_said_amid_fork, "amid", 4, 0) != 4) g_signals = 100;
  };
  sigaction(SIGUSR1, &a, nullptr);
  g_signals = 0;
  const int s = asked("echo\n");
  char b[10];
  g_said_amid_fork = s;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  g_said_amid_fork = -1;
  waitpid(child, nullptr, 0);
  say("a handler amid a fork", g_signals);
  tried("its answer", [&] { return recv(s, b, 4, MSG_WAITALL); });
  close(s);
}

void signals() {
  forking_amid_signals();
  const auto arm = [](bool restart, int ms) {
    struct sigaction a{};
    a.sa_handler = count;
    a.sa_flags = restart ? SA_RESTART : 0;
    sigaction(SIGALRM, &a, nullptr);
    const itimerval t{{0, 0}, {ms / 1000, ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &t, nullptr);
    g_signals = 0;
  };
  char b[10];
  for (const bool restart : {false, true}) {
    note("restart", restart ? "yes" : "no");
    int s = asked("later 300\n");  // sends one byte then
    arm(restart, 100);
    tried("recv", [&] { return recv(s, b, 10, 0); });
    say("handlers", g_signals);
    close(s);
    s = asked("later 300\n");
    set_timeout(s, SO_RCVTIMEO, 2000);
    arm(restart, 100);
    tried("recv with a timeout", [&] { return recv(s, b, 10, 0); });
    close(s);
    s = asked("send 5\n");
    nap(100);
    arm(restart, 100);
    tried("WAITALL in part",
          [&] { return recv(s, b, 10, MSG_WAITALL | (restart ? MSG_DONTWAIT : 0)); });
    close(s);
    s = asked("hold\n");
    pollfd p{s, POLLIN, 0};
    arm(restart, 100);
    tried("poll", [&] { return poll(&p, 1, 400); });
    arm(restart, 100);
    timeval t{0, 400'000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(s, &set);
    tried("select", [&] { return select(s + 1, &set, nullptr, nullptr, &t); });
    note("the rest of its time", t.tv_usec < 350'000 ? "told" : "not told");
    const int e = epoll_create1(0);
    added(e, s, EPOLLIN);
    arm(restart, 100);
    note("epoll_wait", waited(e, 400));
    close(e);
    const int l = socket(AF_INET, SOCK_STREAM, 0);
    listen(l, 1);
    set_timeout(l, SO_RCVTIMEO, 300);
    arm(restart, 100);
    tried("accept with a timeout", [&] { return accept(l, nullptr, nullptr); });
    close(l);
    close(s);
  }
  // A signal that is blocked is read, not delivered.
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  sigprocmask(SIG_BLOCK, &alarm_only, nullptr);
  const int sf = signalfd(-1, &alarm_only, SFD_NONBLOCK);
  const int s = asked("later 300\n");
  const int e = epoll_create1(0);
  added(e, s, EPOLLIN);
  added(e, sf, EPOLLIN);
  arm(false, 100);
  epoll_event got[2];
  tried("epoll with a signalfd", [&] { return epoll_wait(e, got, 2, 2000); });
  note("it is the", got[0].data.fd == sf ? "signal" : "socket");
  signalfd_siginfo info;
  tried("read it", [&] { return read(sf, &info, sizeof info) == sizeof info ? 0 : -1; });
  tried("then", [&] { return epoll_wait(e, got, 2, 2000); });
  note("it is the", got[0].data.fd == s ? "socket" : "signal");
  say("handlers", g_signals);
  arm(false, 100);
  pollfd p{sf, POLLIN, 0};
  const timespec half{0, 400'000'000};
  sigset_t none;
  sigemptyset(&none);
  recv(s, b, 10, 0);
  pollfd both[2] = {{s, POLLIN, 0}, p};
  tried("ppoll that unblocks", [&] { return ppoll(both, 1, &half, &none); });
  say("handlers", g_signals);
  sigprocmask(SIG_UNBLOCK, &alarm_only, nullptr);
  for (const int fd : {s, e, sf}) close(fd);
}

void listening() {
  const int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  tried("listen unbound", [&] { return listen(l, 5); });
  socklen_t n = sizeof any;
  tried("getsockname", [&] { return getsockname(l, reinterpret_cast<sockaddr*>(&any), &n); });
  note("a port", any.sin_port != 0 ? "yes" : "no");
  tried("accept", [&] { return accept(l, nullptr, nullptr); });
  tried("connect", [&] { return connect(l, to(), sizeof g_to); });
  tried("recv", [&] {
    char c;
    return recv(l, &c, 1, 0);
  });
  tried("send", [&] { return send(l, "x", 1, MSG_NOSIGNAL); });
  int v = -1;
  n = sizeof v;
  tried("ACCEPTCONN", [&] { return getsockopt(l, SOL_SOCKET, SO_ACCEPTCONN, &v, &n); });
  say("it is", v);
  note("events", polled(l, 0));
  const int helper = asked(("dial " + std::to_string(ntohs(any.sin_port)) + "\n").c_str());
  note("arrives", polled_until(l, POLLIN));
  sockaddr_in peer{};
  n = sizeof peer;
  const int c = accept4(l, reinterpret_cast<sockaddr*>(&peer), &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
  tried("accept4", [&] { return c >= 0 ? 0 : -1; });
  say("addrlen", n);
  note("from", peer.sin_addr.s_addr == g_to.sin_addr.s_addr ? "the peer" : "nobody");
  say("F_GETFL", fcntl(c, F_GETFL) & O_NONBLOCK);
  say("F_GETFD", fcntl(c, F_GETFD));
  note("says", (polled_until(c, POLLIN), read_some(c)));
  tried("a bad flag", [&] { return accept4(l, nullptr, nullptr, 4); });
  close(c);
  close(helper);
  // How programs end a thread that waits in accept.
  fcntl(l, F_SETFL, 0);
  std::thread t([l] {
    nap(150);
    shutdown(l, SHUT_RD);
  });
  tried("accept until it is shut", [&] { return accept(l, nullptr, nullptr); });
  t.join();
  note("events", polled(l, 0));
  tried("listen again", [&] { return listen(l, 5); });
  close(l);
}

void options() {
  const int s = asked("echo\n");
  int on = 1;  // some profiles do
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const std::pair<const char*, std::pair<int, int>> all[] = {
      {"SO_TYPE", {SOL_SOCKET, SO_TYPE}},
      {"SO_DOMAIN", {SOL_SOCKET, SO_DOMAIN}},
      {"SO_PROTOCOL", {SOL_SOCKET, SO_PROTOCOL}},
      {"SO_ACCEPTCONN", {SOL_SOCKET, SO_ACCEPTCONN}},
      {"SO_KEEPALIVE", {SOL_SOCKET, SO_KEEPALIVE}},
      {"SO_REUSEADDR", {SOL_SOCKET, SO_REUSEADDR}},
      {"SO_BROADCAST", {SOL_SOCKET, SO_BROADCAST}},
      {"SO_OOBINLINE", {SOL_SOCKET, SO_OOBINLINE}},
      {"SO_PRIORITY", {SOL_SOCKET, SO_PRIORITY}},
      {"SO_RCVLOWAT", {SOL_SOCKET, SO_RCVLOWAT}},
      {"SO_SNDLOWAT", {SOL_SOCKET, SO_SNDLOWAT}},
      {"SO_MARK", {SOL_SOCKET, SO_MARK}},
      {"SO_ZEROCOPY", {SOL_SOCKET, SO_ZEROCOPY}},
      {"TCP_NODELAY", {IPPROTO_TCP, TCP_NODELAY}},
      {"TCP_CORK", {IPPROTO_TCP, TCP_CORK}},
      {"TCP_KEEPIDLE", {IPPROTO_TCP, TCP_KEEPIDLE}},
      {"TCP_KEEPINTVL", {IPPROTO_TCP, TCP_KEEPINTVL}},
      {"TCP_KEEPCNT", {IPPROTO_TCP, TCP_KEEPCNT}},
      {"TCP_SYNCNT", {IPPROTO_TCP, TCP_SYNCNT}},
      {"TCP_LINGER2", {IPPROTO_TCP, TCP_LINGER2}},
      {"TCP_DEFER_ACCEPT", {IPPROTO_TCP, TCP_DEFER_ACCEPT}},
      {"TCP_USER_TIMEOUT", {IPPROTO_TCP, TCP_USER_TIMEOUT}},
      {"TCP_MAXSEG", {IPPROTO_TCP, TCP_MAXSEG}},
      {"IP_TOS", {IPPROTO_IP, IP_TOS}},
      {"IP_TTL", {IPPROTO_IP, IP_TTL}},
      {"IP_MTU", {IPPROTO_IP, IP_MTU}},
      {"IP_MTU_DISCOVER", {IPPROTO_IP, IP_MTU_DISCOVER}},
      {"nothing", {SOL_SOCKET, 999}},
      {"nothing", {IPPROTO_TCP, 999}},
      {"nothing", {IPPROTO_IP, 999}},
      {"nothing", {999, 1}},
  };
  for (const auto& [name, which] : all) {
    int v = 0;
    socklen_t n = sizeof v;
    const int r = getsockopt(s, which.first, which.second, &v, &n);
    say(name, r == 0 ? v : r);
  }
  for (const socklen_t length : {0U, 1U, 2U, 3U, 8U, 100U}) {
    unsigned char v[100] = {};
    socklen_t n = length;
    const int r = getsockopt(s, SOL_SOCKET, SO_TYPE, v, &n);
    say("SO_TYPE in few bytes", r);
    say("length", n);
    const int one = 1;
    tried("TCP_NODELAY in few bytes",
          [&] { return setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, length > 4 ? 4 : length); });
  }
  int v = 0;
  socklen_t n = sizeof v;
  for (const int bytes : {1, 10'000, 100'000}) {
    setsockopt(s, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(s, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    getsockopt(s, SOL_SOCKET, SO_RCVBUF, &v, &n);
    say("SO_RCVBUF", v);
    getsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, &n);
    say("SO_SNDBUF", v);
  }
  for (const int bad : {-1, 0, 40'000}) {
    tried("TCP_KEEPIDLE", [&] { return setsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, &bad, 4); });
    tried("TCP_KEEPCNT", [&] { return setsockopt(s, IPPROTO_TCP, TCP_KEEPCNT, &bad, 4); });
    tried("TCP_MAXSEG", [&] { return setsockopt(s, IPPROTO_TCP, TCP_MAXSEG, &bad, 4); });
    tried("TCP_USER_TIMEOUT",
          [&] { return setsockopt(s, IPPROTO_TCP, TCP_USER_TIMEOUT, &bad, 4); });
    tried("IP_TTL", [&] { return setsockopt(s, IPPROTO_IP, IP_TTL, &bad, 4); });
    tried("SO_PRIORITY", [&] { return setsockopt(s, SOL_SOCKET, SO_PRIORITY, &bad, 4); });
  }
  timeval t{5, 999'999};
  setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  t = {};
  n = sizeof t;
  tried("SO_RCVTIMEO", [&] { return getsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, &n); });
  say("seconds", t.tv_sec);
  t = {0, 1'000'000};
  tried("a bad time", [&] { return setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t); });
  t = {-1, 0};
  tried("a negative time", [&] { return setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t); });
  note("at once", read_some(s));
  send(s, "goes on", 7, 0);
  note("events", polled_until(s, POLLIN));
  note("echo", read_some(s));
  close(s);
}

void datagrams() {
  const int s = socket(AF_INET, SOCK_DGRAM, 0);
  char b[70'000];
  set_timeout(s, SO_RCVTIMEO, 2000);
  tried("send nowhere", [&] { return send(s, "x", 1, 0); });
  note("events", polled(s, 0));
  tried("shut unconnected", [&] { return shutdown(s, SHUT_RD); });
  sockaddr_in port0 = g_to;
  port0.sin_port = 0;
  tried("port 0",
        [&] { return sendto(s, "x", 1, 0, reinterpret_cast<sockaddr*>(&port0), sizeof port0); });
  tried("short address", [&] { return sendto(s, "x", 1, 0, to(), 4); });
  tried("connect", [&] { return connect(s, to(), sizeof g_to); });
  tried("ask for 3", [&] { return send(s, "3", 1, 0); });
  nap(200);
  int n = -1;
  ioctl(s, FIONREAD, &n);
  say("FIONREAD", n);
  mmsghdr many[5]{};
  iovec v[5];
  char rooms[5][8];
  for (int i = 0; i < 5; ++i) {
    v[i] = {rooms[i], 8};
    many[i].msg_hdr.msg_iov = &v[i];
    many[i].msg_hdr.msg_iovlen = 1;
  }
  tried("PEEK", [&] { return recv(s, b, 2, MSG_PEEK); });
  tried("PEEK TRUNC", [&] { return recv(s, b, 2, MSG_PEEK | MSG_TRUNC); });
  long since = now_ms();
  timespec limit{1, 0};
  tried("recvmmsg", [&] { return recvmmsg(s, many, 5, MSG_WAITFORONE, &limit); });
  took("at once", since, 500);
  say("its first", many[0].msg_len);
  say("its flags", many[0].msg_hdr.msg_flags);
  say("its third", many[2].msg_len);
  tried("none", [&] { return recvmmsg(s, many, 5, MSG_DONTWAIT, nullptr); });
  send(s, "2", 1, 0);
  nap(200);
  limit = {0, 0};
  tried("no time", [&] { return recvmmsg(s, many, 5, 0, &limit); });
  limit = {0, 1'000'000'000};
  tried("bad time", [&] { return recvmmsg(s, many, 5, 0, &limit); });
  tried("the other", [&] { return recv(s, b, 100, 0); });
  since = now_ms();
  set_timeout(s, SO_RCVTIMEO, 300);
  tried("timeout", [&] { return recvmmsg(s, many, 5, 0, nullptr); });
  took("waited", since, 300);
  tried("too large", [&] { return send(s, b, 65'508, 0); });
  tried("empty", [&] { return send(s, b, 0, 0); });
  nap(200);  // the socket is shut for reading since "shut unconnected": an end, if it is not there
  tried("its echo", [&] { return recv(s, b, 100, 0); });
  for (int i = 0; i < 5; ++i) v[i] = {const_cast<char*>("1"), 1};
  tried("sendmmsg", [&] { return sendmmsg(s, many, 3, 0); });
  nap(200);
  tried("shut write", [&] { return shutdown(s, SHUT_WR); });
  tried("send", [&] { return send(s, "1", 1, MSG_NOSIGNAL); });
  tried("recv", [&] { return recv(s, b, 100, 0); });
  tried("shut read", [&] { return shutdown(s, SHUT_RD); });
  note("events", polled(s, 0));
  tried("recv", [&] { return recv(s, b, 100, 0); });
  tried("recv", [&] { return recv(s, b, 100, 0); });
  tried("recv", [&] { return recv(s, b, 100, 0); });
  close(s);

  const int u = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in nobody = g_to;
  nobody.sin_port = htons(9);
  connect(u, reinterpret_cast<sockaddr*>(&nobody), sizeof nobody);
  tried("to a closed port", [&] { return send(u, "x", 1, 0); });
  note("told", polled_until(u, POLLERR).find("ERR") != std::string::npos ? "yes" : "no");
  tried("recv", [&] { return recv(u, b, 10, MSG_DONTWAIT); });
  tried("recv", [&] { return recv(u, b, 10, MSG_DONTWAIT); });
  tried("to another", [&] { return sendto(u, "1", 1, 0, to(), sizeof g_to); });
  tried("whose answer is not ours", [&] {
    nap(150);
    return recv(u, b, 10, MSG_DONTWAIT);
  });
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  tried("disconnect", [&] { return connect(u, &none, sizeof none); });
  sockaddr_in a;
  socklen_t al = sizeof a;
  tried("getpeername", [&] { return getpeername(u, reinterpret_cast<sockaddr*>(&a), &al); });
  tried("to another", [&] { return sendto(u, "1", 1, 0, to(), sizeof g_to); });
  note("its answer", (polled_until(u, POLLIN), read_some(u)));
  tried("listen", [&] { return listen(u, 1); });
  tried("accept", [&] { return accept(u, nullptr, nullptr); });
  close(u);
}

void epolls() {
  const int s = asked("echo\n");
  const int e = epoll_create1(EPOLL_CLOEXEC);
  tried("oneshot", [&] { return added(e, s, EPOLLIN | EPOLLONESHOT); });
  send(s, "a", 1, 0);
  note("once", waited(e, 2000));
  note("no more", waited(e, 50));
  epoll_event ev{};
  ev.events = EPOLLIN | EPOLLONESHOT;
  epoll_ctl(e, EPOLL_CTL_MOD, s, &ev);
  note("again", waited(e, 2000));
  read_some(s);
  tried("del", [&] { return epoll_ctl(e, EPOLL_CTL_DEL, s, nullptr); });
  tried("del", [&] { return epoll_ctl(e, EPOLL_CTL_DEL, s, nullptr); });
  tried("exclusive", [&] { return added(e, s, EPOLLIN | EPOLLEXCLUSIVE); });
  ev.events = EPOLLIN;
  tried("mod of it", [&] { return epoll_ctl(e, EPOLL_CTL_MOD, s, &ev); });
  tried("exclusive and oneshot",
        [&] { return added(e, s, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT); });
  const int d = dup(s);
  tried("a dup", [&] { return added(e, d, EPOLLIN); });
  send(s, "b", 1, 0);
  nap(200);
  note("both", waited(e, 2000));
  close(s);
  note("the closed one stays with the dup", waited(e, 50));
  close(d);
  note("both are gone", waited(e, 50));
  epoll_event room;
  tried("no events", [&] { return epoll_wait(e, &room, 0, 0); });
  tried("itself", [&] { return added(e, e, EPOLLIN); });
  const int f = open("/proc/self/exe", O_RDONLY);
  tried("a file", [&] { return added(e, f, EPOLLIN); });
  close(f);
  tried("a closed number", [&] { return added(e, f, EPOLLIN); });
  close(e);
}

}  // namespace

int main(int argc, char** argv) {
  const Part all[] = {{"connecting", connecting}, {"halves", halves},   {"lingering", lingering},
                      {"numbers", numbers},       {"reading", reading}, {"signals", signals},
                      {"listening", listening},   {"options", options}, {"datagrams", datagrams},
                      {"epolls", epolls}};
  return run_script(argc, argv, all);
}
