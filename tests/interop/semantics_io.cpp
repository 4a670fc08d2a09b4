// A script of socket calls as semantics.cpp: pipes and files, odd arguments, what a read waits for,
// ancillary data, errors of datagrams.
#include "semantics.h"

namespace {

struct Pipe {
  int in = -1;   ///< to read from
  int out = -1;  ///< to write to
  explicit Pipe(int flags = 0) {
    int p[2];
    if (pipe2(p, flags) == 0) in = p[0], out = p[1];
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(in);
    close(out);
  }
  std::string text(size_t most = 100) const {
    std::string b(most, 0);
    const ssize_t n = read(in, b.data(), most);
    b.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return b;
  }
};

void splicing_in() {
  Pipe p;
  int s = asked("send 5\n");
  tried("to a pipe", [&] { return splice(s, nullptr, p.out, nullptr, 100, 0); });
  note("there is", p.text());
  set_timeout(s, SO_RCVTIMEO, 300);
  long since = now_ms();
  tried("nothing more", [&] { return splice(s, nullptr, p.out, nullptr, 100, 0); });
  took("waited", since, 300);
  tried("nothing", [&] { return splice(s, nullptr, p.out, nullptr, 0, 0); });
  tried("an unknown flag", [&] { return splice(s, nullptr, p.out, nullptr, 1, 64); });
  off64_t at = 0;
  tried("offset of the socket", [&] { return splice(s, &at, p.out, nullptr, 1, 0); });
  tried("offset of the pipe", [&] { return splice(s, nullptr, p.out, &at, 1, 0); });
  tried("the wrong end", [&] { return splice(s, nullptr, p.in, nullptr, 1, 0); });
  tried("itself", [&] { return splice(s, nullptr, s, nullptr, 1, 0); });
  tried("nowhere", [&] { return splice(s, nullptr, -1, nullptr, 1, 0); });
  tried("tee", [&] { return tee(s, p.out, 1, 0); });
  tried("tee to it", [&] { return tee(p.in, s, 1, 0); });
  tried("vmsplice", [&] {
    char c = 0;
    iovec v{&c, 1};
    return vmsplice(s, &v, 1, 0);
  });
  fcntl(s, F_SETFL, O_NONBLOCK);
  tried("nothing there", [&] { return splice(s, nullptr, p.out, nullptr, 100, 0); });
  close(s);

  s = asked("sendclose 5\n");
  tried("a part", [&] { return splice(s, nullptr, p.out, nullptr, 2, 0); });
  tried("the rest", [&] { return splice(s, nullptr, p.out, nullptr, 100, SPLICE_F_MORE); });
  tried("the end", [&] { return splice(s, nullptr, p.out, nullptr, 100, SPLICE_F_MOVE); });
  note("there is", p.text());
  close(s);

  s = asked("sendreset 0\n");
  polled_until(s, POLLERR);
  tried("reset", [&] { return splice(s, nullptr, p.out, nullptr, 100, 0); });
  tried("then", [&] { return splice(s, nullptr, p.out, nullptr, 100, 0); });
  close(s);

  s = asked("send 200000\n");
  fcntl(p.out, F_SETPIPE_SZ, 4096);
  size_t total = 0;
  while (total < 200'000) {
    const ssize_t n = splice(s, nullptr, p.out, nullptr, 65536, 0);
    if (n <= 0) break;
    for (ssize_t left = n; left > 0;) left -= static_cast<ssize_t>(p.text(100'000).size());
    total += static_cast<size_t>(n);
  }
  note("all of it", std::to_string(total));
  close(s);

  s = asked("send 20000\n");
  polled_until(s, POLLIN);
  const std::string page(4096, 'p');
  (void)!write(p.out, page.data(), page.size());
  tried("a full pipe", [&] { return splice(s, nullptr, p.out, nullptr, 10, SPLICE_F_NONBLOCK); });
  fcntl(p.out, F_SETFL, O_NONBLOCK);
  tried("one that does not wait", [&] { return splice(s, nullptr, p.out, nullptr, 10, 0); });
  p.text(4096);
  tried("an empty one", [&] { return splice(s, nullptr, p.out, nullptr, 10, 0); });
  g_signals = 0;
  close(std::exchange(p.in, -1));
  tried("nobody reads", [&] { return splice(s, nullptr, p.out, nullptr, 10, 0); });
  say("SIGPIPE", g_signals);
  char b[100];
  tried("what is left", [&] { return recv(s, b, sizeof b, MSG_WAITALL); });
  close(s);
}

void splicing_out() {
  Pipe p;
  int s = asked("echo\n");
  tried("nothing to send",
        [&] { return splice(p.in, nullptr, s, nullptr, 10, SPLICE_F_NONBLOCK); });
  (void)!write(p.out, "through the pipe", 16);
  tried("a part", [&] { return splice(p.in, nullptr, s, nullptr, 7, 0); });
  tried("more than there is", [&] { return splice(p.in, nullptr, s, nullptr, 100, 0); });
  char b[100];
  tried("its echo", [&] { return recv(s, b, 16, MSG_WAITALL); });
  note("text", std::string(b, 16));
  off64_t at = 0;
  (void)!write(p.out, "x", 1);
  tried("offset of the socket", [&] { return splice(p.in, nullptr, s, &at, 1, 0); });
  tried("offset of the pipe", [&] { return splice(p.in, &at, s, nullptr, 1, 0); });
  tried("the wrong end", [&] { return splice(p.out, nullptr, s, nullptr, 1, 0); });
  tried("it", [&] { return splice(p.in, nullptr, s, nullptr, 1, 0); });
  tried("its echo", [&] { return recv(s, b, 1, MSG_WAITALL); });
  fcntl(p.in, F_SETFL, O_NONBLOCK);
  tried("a pipe that does not wait", [&] { return splice(p.in, nullptr, s, nullptr, 1, 0); });
  fcntl(p.in, F_SETFL, 0);
  long since = now_ms();
  std::thread later([&] {
    nap(200);
    (void)!write(p.out, "late", 4);
  });
  tried("what comes", [&] { return splice(p.in, nullptr, s, nullptr, 100, 0); });
  took("waited", since, 200);
  later.join();
  tried("its echo", [&] { return recv(s, b, 4, MSG_WAITALL); });
  tried("sendfile of a pipe", [&] {
    (void)!write(p.out, "file", 4);
    return sendfile(s, p.in, nullptr, 4);
  });
  close(std::exchange(p.out, -1));
  tried("what is left", [&] { return splice(p.in, nullptr, s, nullptr, 10, 0); });
  tried("nobody writes", [&] { return splice(p.in, nullptr, s, nullptr, 10, 0); });
  close(s);

  Pipe q;
  s = asked("hold\n");
  fcntl(s, F_SETFL, O_NONBLOCK);
  const std::string page(4096, 'p');
  size_t moved = 0;
  ssize_t n = 0;
  int left = 0;
  do {
    if (left == 0) (void)!write(q.out, page.data(), page.size());
    n = splice(q.in, nullptr, s, nullptr, page.size(), 0);
    if (n > 0) moved += static_cast<size_t>(n);
    const int error = errno;
    ioctl(q.in, FIONREAD, &left);
    errno = error;
  } while (n > 0 && moved < 64 << 20);
  say("a socket that is full", n);
  note("what it did not take", left > 0 ? "is there" : "is lost");
  close(s);
  q.text(5000);

  s = asked("sendreset 0\n");
  polled_until(s, POLLERR);
  (void)!write(q.out, "x", 1);
  g_signals = 0;
  tried("reset", [&] { return splice(q.in, nullptr, s, nullptr, 10, 0); });
  say("SIGPIPE", g_signals);
  tried("then", [&] { return splice(q.in, nullptr, s, nullptr, 10, 0); });
  say("SIGPIPE", g_signals);
  close(s);

  s = socket(AF_INET, SOCK_DGRAM, 0);
  connect(s, to(), sizeof g_to);
  set_timeout(s, SO_RCVTIMEO, 2000);
  q.text();
  (void)!write(q.out, "2", 1);
  tried("a datagram", [&] { return splice(q.in, nullptr, s, nullptr, 10, 0); });
  tried("its answer", [&] { return splice(s, nullptr, q.out, nullptr, 100, 0); });
  note("is", q.text());
  tried("and in part", [&] { return splice(s, nullptr, q.out, nullptr, 3, 0); });
  note("is", q.text());
  tried("no more", [&] { return recv(s, b, sizeof b, MSG_DONTWAIT); });
  close(s);
}

void files() {
  int s = asked("echo\n");
  char name[] = "/tmp/vireo-semantics-XXXXXX";
  const int f = mkstemp(name);
  unlink(name);
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + i % 26);
  (void)!write(f, text.data(), text.size());
  char b[4000];
  off_t at = 2990;
  tried("behind the end", [&] { return sendfile(s, f, &at, 100); });
  say("offset", at);
  tried("its echo", [&] { return recv(s, b, 10, MSG_WAITALL); });
  note("text", std::string(b, 10));
  tried("at the end", [&] { return sendfile(s, f, &at, 100); });
  at = 5000;
  tried("beyond", [&] { return sendfile(s, f, &at, 100); });
  say("offset", at);
  at = -1;
  tried("before the beginning", [&] { return sendfile(s, f, &at, 100); });
  at = 0;
  tried("nothing", [&] { return sendfile(s, f, &at, 0); });
  lseek(f, 1000, SEEK_SET);
  tried("by its position", [&] { return sendfile(s, f, nullptr, 26); });
  say("position", lseek(f, 0, SEEK_CUR));
  tried("its echo", [&] { return recv(s, b, 26, MSG_WAITALL); });
  note("text", std::string(b, 26));
  at = 5;
  tried("by an offset", [&] { return sendfile(s, f, &at, 3); });
  say("position stays", lseek(f, 0, SEEK_CUR));
  tried("its echo", [&] { return recv(s, b, 3, MSG_WAITALL); });
  tried("a closed file", [&] { return sendfile(s, 999, &at, 3); });
  const int d = open("/tmp", O_RDONLY | O_DIRECTORY);
  tried("a folder", [&] { return sendfile(s, d, nullptr, 3); });
  close(d);
  const int w = open("/dev/null", O_WRONLY);
  tried("one to write", [&] { return sendfile(s, w, nullptr, 3); });
  close(w);
  const int z = open("/dev/zero", O_RDONLY);
  tried("zeros", [&] { return sendfile(s, z, nullptr, 30); });
  tried("its echo", [&] { return recv(s, b, 30, MSG_WAITALL); });
  close(z);
  tried("a socket to a file", [&] { return sendfile(f, s, nullptr, 30); });
  tried("copy_file_range", [&] { return copy_file_range(f, nullptr, s, nullptr, 10, 0); });
  tried("shut", [&] { return shutdown(s, SHUT_WR); });
  g_signals = 0;
  at = 0;
  tried("sendfile", [&] { return sendfile(s, f, &at, 3); });
  say("SIGPIPE", g_signals);
  say("offset", at);
  close(s);

  s = asked("hold\n");
  fcntl(s, F_SETFL, O_NONBLOCK);
  const int zero = open("/dev/zero", O_RDONLY);
  tried("fills", [&] { return sendfile(s, zero, nullptr, 1 << 30) > 0 ? 0 : -1; });
  ssize_t n = 0;
  for (int i = 0; i < 100 && n >= 0; ++i) {
    errno = 0;
    n = sendfile(s, zero, nullptr, 1 << 20);
    nap(5);
  }
  say("is full", n);
  close(zero);
  close(f);
  close(s);
}

void nothing_to_read_to() {
  int s = asked("send 20\n");
  char b[100];
  polled_until(s, POLLIN);
  nap(50);
  tried("recv of nothing", [&] { return recv(s, nullptr, 0, 0); });
  tried("read of nothing", [&] { return read(s, nullptr, 0); });
  tried("recv to nowhere", [&] { return recv(s, nullptr, 4, 0); });
  tried("read to nowhere", [&] { return read(s, nullptr, 4); });
  tried("write from nowhere", [&] { return write(s, nullptr, 4); });
  tried("send of nothing", [&] { return send(s, nullptr, 0, 0); });
  tried("readv of no pieces", [&] { return readv(s, nullptr, 0); });
  tried("writev of no pieces", [&] { return writev(s, nullptr, 0); });
  tried("readv of -1", [&] { return readv(s, nullptr, -1); });
  tried("writev of -1", [&] { return writev(s, nullptr, -1); });
  tried("readv from nowhere", [&] { return readv(s, nullptr, 2); });
  tried("writev from nowhere", [&] { return writev(s, nullptr, 2); });
  iovec bad[2] = {{b, 2}, {b, static_cast<size_t>(-1)}};
  tried("readv of a negative length", [&] { return readv(s, bad, 2); });
  tried("writev of a negative length", [&] { return writev(s, bad, 2); });
  msghdr m{};
  tried("recvmsg of no message", [&] { return recvmsg(s, nullptr, 0); });
  tried("sendmsg of no message", [&] { return sendmsg(s, nullptr, 0); });
  tried("recvmsg of no pieces", [&] { return recvmsg(s, &m, 0); });
  tried("sendmsg of no pieces", [&] { return sendmsg(s, &m, 0); });
  m.msg_iov = bad;
  m.msg_iovlen = 2;
  tried("recvmsg of a negative length", [&] { return recvmsg(s, &m, 0); });
  tried("sendmsg of a negative length", [&] { return sendmsg(s, &m, 0); });
  m.msg_iov = nullptr;
  tried("recvmsg from nowhere", [&] { return recvmsg(s, &m, 0); });
  tried("sendmsg from nowhere", [&] { return sendmsg(s, &m, MSG_NOSIGNAL); });
  iovec one{b, 1};
  m.msg_iov = &one;
  m.msg_iovlen = 1;
  m.msg_name = b;
  m.msg_namelen = static_cast<socklen_t>(-1);
  tried("a negative name", [&] { return recvmsg(s, &m, MSG_PEEK); });
  tried("a negative name", [&] { return sendmsg(s, &m, 0); });
  tried("recvmmsg of none", [&] { return recvmmsg(s, nullptr, 0, 0, nullptr); });
  tried("sendmmsg of none", [&] { return sendmmsg(s, nullptr, 0, 0); });
  tried("PEEK TRUNC", [&] { return recv(s, b, 4, MSG_PEEK | MSG_TRUNC); });
  tried("PEEK TRUNC of more", [&] { return recv(s, b, 90, MSG_PEEK | MSG_TRUNC); });
  tried("WAITALL DONTWAIT", [&] { return recv(s, b, 90, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT); });
  tried("an unknown flag", [&] { return recv(s, b, 1, 0x8000000); });
  tried("CMSG_CLOEXEC", [&] { return recv(s, b, 1, MSG_CMSG_CLOEXEC); });
  tried("CONFIRM", [&] { return send(s, "x", 1, MSG_CONFIRM | MSG_DONTROUTE | MSG_EOR); });
  tried("an unknown flag to send", [&] { return send(s, "x", 1, 0x8000000); });
  note("events", polled_until(s, POLLIN));
  // Not on the stack, which may end too near the end of the address space for it: EFAULT then.
  static char room[100];
  tried("a huge room", [&] { return recv(s, room, static_cast<size_t>(-1) >> 1, MSG_PEEK) > 0; });
  socklen_t length = static_cast<socklen_t>(-1);
  sockaddr_in a{};
  auto* const name = reinterpret_cast<sockaddr*>(&a);
  tried("recvfrom, a negative room", [&] { return recvfrom(s, b, 1, 0, name, &length); });
  tried("getsockname, a negative room", [&] { return getsockname(s, name, &length); });
  tried("getpeername, a negative room", [&] { return getpeername(s, name, &length); });
  length = 3;
  tried("getpeername, little room", [&] { return getpeername(s, name, &length); });
  say("length", length);
  length = 0;
  tried("getsockname, no room", [&] { return getsockname(s, name, &length); });
  say("length", length);
  tried("sendto elsewhere", [&] {
    sockaddr_in other{};
    other.sin_family = AF_INET;
    other.sin_port = htons(1);
    return sendto(s, "x", 1, 0, reinterpret_cast<sockaddr*>(&other), sizeof other);
  });
  int value = 1;
  tried("setsockopt of nothing",
        [&] { return setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, nullptr, 4); });
  tried("setsockopt of -1", [&] {
    return setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &value, static_cast<socklen_t>(-1));
  });
  tried("getsockopt without length",
        [&] { return getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &value, nullptr); });
  length = static_cast<socklen_t>(-1);
  tried("getsockopt of -1", [&] { return getsockopt(s, SOL_SOCKET, SO_ERROR, &value, &length); });
  length = 4;
  tried("getsockopt to nowhere",
        [&] { return getsockopt(s, SOL_SOCKET, SO_ERROR, nullptr, &length); });
  tried("getsockopt to nowhere",
        [&] { return getsockopt(s, IPPROTO_TCP, TCP_NODELAY, nullptr, &length); });
  tried("an unknown ioctl", [&] { return ioctl(s, 0x1234, &value); });
  tried("FIONREAD", [&] { return ioctl(s, FIONREAD, &value) == 0 ? value : -1; });
  tried("SIOCOUTQ to nowhere", [&] { return ioctl(s, SIOCOUTQ, nullptr); });
  tried("FIONREAD to nowhere", [&] { return ioctl(s, FIONREAD, nullptr); });
  tried("FIONBIO to nowhere", [&] { return ioctl(s, FIONBIO, nullptr); });
  close(s);
  const int u = socket(AF_INET, SOCK_DGRAM, 0);
  tried("connect of 3 bytes", [&] { return connect(u, to(), 3); });
  connect(u, to(), sizeof g_to);
  send(u, "2", 1, 0);
  polled_until(u, POLLIN);
  tried("recv to nowhere", [&] { return recv(u, nullptr, 4, 0); });
  tried("recv of nothing", [&] { return recv(u, nullptr, 0, MSG_PEEK | MSG_TRUNC); });
  tried("read of nothing", [&] { return read(u, nullptr, 0); });
  nap(50);
  tried("readv of a negative length", [&] { return readv(u, bad, 2); });
  tried("recvmsg of no message", [&] { return recvmsg(u, nullptr, MSG_DONTWAIT); });
  tried("sendmsg of no message", [&] { return sendmsg(u, nullptr, 0); });
  tried("write from nowhere", [&] { return write(u, nullptr, 4); });
  tried("OOB", [&] { return send(u, "1", 1, MSG_OOB); });
  tried("recv OOB", [&] { return recv(u, b, 1, MSG_OOB | MSG_DONTWAIT); });
  tried("an unknown flag", [&] { return send(u, "1", 1, 0x8000000); });
  m = {};
  m.msg_iov = &one;
  m.msg_iovlen = 1;
  m.msg_name = b;
  m.msg_namelen = static_cast<socklen_t>(-1);
  tried("a negative name", [&] { return recvmsg(u, &m, MSG_DONTWAIT | MSG_PEEK); });
  m.msg_name = &g_to;
  m.msg_namelen = 3;
  tried("a short name", [&] { return sendmsg(u, &m, 0); });
  close(u);
}

void low_water() {
  int s = asked("slow 4 150\n");
  int least = 3;
  tried("SO_RCVLOWAT", [&] { return setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &least, 4); });
  long since = now_ms();
  note("readable", polled(s, 3000, POLLIN));
  took("waited", since, 400);
  char b[100];
  tried("DONTWAIT of 2", [&] { return recv(s, b, 2, MSG_DONTWAIT); });
  note("below it", polled(s, 0, POLLIN));
  tried("DONTWAIT below it", [&] { return recv(s, b, 100, MSG_DONTWAIT); });
  set_timeout(s, SO_RCVTIMEO, 400);
  since = now_ms();
  tried("a timeout below it", [&] { return recv(s, b, 100, 0); });
  took("waited", since, 300);
  least = -1;
  tried("negative", [&] { return setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &least, 4); });
  socklen_t n = sizeof least;
  tried("reads as", [&] { return getsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &least, &n); });
  say("value", least);
  least = 0;
  setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &least, 4);
  getsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &least, &n);
  say("of none", least);
  close(s);
  s = asked("sendclose 5\n");
  least = 50;
  setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &least, 4);
  note("closed before it", polled_until(s, POLLIN | POLLRDHUP));
  tried("recv", [&] { return recv(s, b, 100, 0); });
  close(s);
}

void patience() {
  int s = asked("send 5\n");
  linger l{};
  socklen_t n = sizeof l;
  getsockopt(s, SOL_SOCKET, SO_LINGER, &l, &n);
  say("l_onoff", l.l_onoff);
  l = {5, 7};
  tried("SO_LINGER", [&] { return setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l); });
  getsockopt(s, SOL_SOCKET, SO_LINGER, &l, &n);
  say("l_onoff", l.l_onoff);
  say("l_linger", l.l_linger);
  tried("in few bytes", [&] { return setsockopt(s, SOL_SOCKET, SO_LINGER, &l, 4); });
  l = {1, -1};
  tried("negative", [&] { return setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l); });
  getsockopt(s, SOL_SOCKET, SO_LINGER, &l, &n);
  say("l_linger", l.l_linger);
  l = {0, 0};
  setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l);
  close(s);

  // A peer that never reads: what is sent stays unacknowledged in part.
  const std::string much(1 << 20, 'm');
  for (const bool nonblock : {false, true}) {
    s = asked("hold\n");
    fcntl(s, F_SETFL, O_NONBLOCK);
    while (send(s, much.data(), much.size(), 0) > 0) nap(20);
    fcntl(s, F_SETFL, nonblock ? O_NONBLOCK : 0);
    l = {1, 1};
    setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    const long since = now_ms();
    tried("close that lingers", [&] { return close(s); });
    took("waited", since, 900);
  }
  s = asked("sink\n");
  send(s, "done", 4, 0);
  l = {1, 5};
  setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l);
  const long since = now_ms();
  tried("close of who has nothing to wait for", [&] { return close(s); });
  took("waited", since, 2000);

  s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in nobody = g_to;
  reinterpret_cast<unsigned char*>(&nobody.sin_addr)[3] = 77;
  set_timeout(s, SO_SNDTIMEO, 300);
  const long begin = now_ms();
  tried("connect to nobody",
        [&] { return connect(s, reinterpret_cast<sockaddr*>(&nobody), sizeof nobody); });
  took("waited", begin, 300);
  tried("again", [&] { return connect(s, reinterpret_cast<sockaddr*>(&nobody), sizeof nobody); });
  note("events", polled(s, 0));
  char c = 0;
  tried("send", [&] { return send(s, "x", 1, MSG_DONTWAIT); });
  tried("recv", [&] { return recv(s, &c, 1, MSG_DONTWAIT); });
  tried("listen", [&] { return listen(s, 1); });
  tried("shutdown", [&] { return shutdown(s, SHUT_WR); });
  close(s);
}

std::string control_of(const msghdr& m) {
  std::string s;
  for (const cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&m), const_cast<cmsghdr*>(c)))
    s += std::to_string(c->cmsg_level) + "/" + std::to_string(c->cmsg_type) + "/" +
         std::to_string(c->cmsg_len) + " ";
  return s + "of " + std::to_string(m.msg_controllen);
}

void ancillary() {
  const int s = socket(AF_INET, SOCK_DGRAM, 0);
  connect(s, to(), sizeof g_to);
  set_timeout(s, SO_RCVTIMEO, 1000);
  alignas(cmsghdr) char control[512];
  char b[100];
  iovec v{b, sizeof b};
  const auto receive = [&](const char* what, size_t room, int flags = 0) {
    msghdr m{};
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    m.msg_control = room == 0 ? nullptr : control;
    m.msg_controllen = room;
    std::memset(control, 0, sizeof control);
    tried(what, [&] { return recvmsg(s, &m, flags); });
    note("control", control_of(m));
    say("flags", m.msg_flags);
    return m;
  };
  const auto set = [&](int level, int name, int value) {
    return setsockopt(s, level, name, &value, sizeof value);
  };
  const auto ask = [&] { send(s, "1", 1, 0); };
  ask();
  receive("nothing asked for", sizeof control);
  set(IPPROTO_IP, IP_PKTINFO, 1);
  ask();
  msghdr m = receive("IP_PKTINFO", sizeof control);
  if (const cmsghdr* c = CMSG_FIRSTHDR(&m)) {
    in_pktinfo info;
    std::memcpy(&info, CMSG_DATA(c), sizeof info);
    note("interface", info.ipi_ifindex > 0 ? "named" : "none");
    note("addresses", info.ipi_addr.s_addr == info.ipi_spec_dst.s_addr ? "the same" : "two");
  }
  for (const size_t room : {0UL, 1UL, sizeof(cmsghdr) - 1, sizeof(cmsghdr), sizeof(cmsghdr) + 1,
                            CMSG_LEN(sizeof(in_pktinfo)) - 1, CMSG_LEN(sizeof(in_pktinfo)),
                            CMSG_SPACE(sizeof(in_pktinfo))}) {
    ask();
    receive(("IP_PKTINFO, room " + std::to_string(room)).c_str(), room);
  }
  set(IPPROTO_IP, IP_RECVTTL, 1);
  set(IPPROTO_IP, IP_RECVTOS, 1);
  set(SOL_SOCKET, SO_TIMESTAMPNS, 1);
  ask();
  receive("in their order", sizeof control);
  ask();
  receive("PEEK", sizeof control, MSG_PEEK);
  receive("that one", CMSG_SPACE(sizeof(timespec)) + CMSG_SPACE(sizeof(in_pktinfo)));
  set(SOL_SOCKET, SO_TIMESTAMP, 1);
  ask();
  receive("SO_TIMESTAMP", sizeof control);
  set(SOL_SOCKET, SO_TIMESTAMP, 0);
  ask();
  receive("none", sizeof control);
#ifdef SO_RXQ_OVFL
  set(SOL_SOCKET, SO_RXQ_OVFL, 1);
  ask();
  receive("SO_RXQ_OVFL", sizeof control);
#endif
  // A TTL for one datagram.
  msghdr out{};
  iovec one{const_cast<char*>("1"), 1};
  out.msg_iov = &one;
  out.msg_iovlen = 1;
  out.msg_control = control;
  const auto say_ttl = [&](int ttl) {
    out.msg_controllen = CMSG_SPACE(sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&out);
    *c = {CMSG_LEN(sizeof(int)), IPPROTO_IP, IP_TTL};
    std::memcpy(CMSG_DATA(c), &ttl, sizeof ttl);
    tried("sendmsg with a TTL", [&] { return sendmsg(s, &out, 0); });
  };
  say_ttl(12);
  receive("its answer", sizeof control);
  say_ttl(0);
  say_ttl(999);
  out.msg_controllen = 3;
  tried("a short control", [&] { return sendmsg(s, &out, 0); });
  out.msg_controllen = CMSG_SPACE(sizeof(int));
  CMSG_FIRSTHDR(&out)->cmsg_len = 1000;
  tried("a control of a wrong length", [&] { return sendmsg(s, &out, 0); });
  *CMSG_FIRSTHDR(&out) = {CMSG_LEN(sizeof(int)), IPPROTO_IP, 77};
  tried("an unknown control", [&] { return sendmsg(s, &out, 0); });
  *CMSG_FIRSTHDR(&out) = {CMSG_LEN(sizeof(int)), 77, 77};
  tried("of an unknown level", [&] { return sendmsg(s, &out, 0); });
  nap(100);
  while (recv(s, b, sizeof b, MSG_DONTWAIT) >= 0) {
  }

  const int t = asked("send 8\n");
  const auto receive_tcp = [&](const char* what, size_t room) {
    msghdr in{};
    iovec few{b, 2};
    in.msg_iov = &few;
    in.msg_iovlen = 1;
    in.msg_control = control;
    in.msg_controllen = room;
    tried(what, [&] { return recvmsg(t, &in, 0); });
    note("control", control_of(in));
    say("flags", in.msg_flags);
    return in;
  };
  const int on = 1;
  polled_until(t, POLLIN);
  nap(50);
  tried("TCP_INQ", [&] { return setsockopt(t, IPPROTO_TCP, TCP_INQ, &on, sizeof on); });
  msghdr in = receive_tcp("TCP_INQ", sizeof control);
  if (const cmsghdr* c = CMSG_FIRSTHDR(&in)) {
    int left = -1;
    std::memcpy(&left, CMSG_DATA(c), sizeof left);
    say("left", left);
  }
  receive_tcp("TCP_INQ without room", 0);
  tried("SO_TIMESTAMPNS",
        [&] { return setsockopt(t, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on); });
  (void)receive_tcp("both", sizeof control);
  close(t);
  close(s);  // which has kept stamps on, or what came before the option would have none
}

void refused() {
  const int u = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in nobody = g_to;
  nobody.sin_port = htons(9);
  connect(u, reinterpret_cast<sockaddr*>(&nobody), sizeof nobody);
  const int e = epoll_create1(0), edge = epoll_create1(0);
  added(e, u, EPOLLIN);
  added(edge, u, EPOLLIN | EPOLLOUT | EPOLLET);
  waited(edge, 100);
  const auto provoke = [&] {
    tried("to a closed port", [&] { return send(u, "x", 1, 0); });
    for (int i = 0; i < 100 && polled(u, 0, 0) == "-"; ++i) nap(10);
  };
  provoke();
  note("all events", polled(u, 0));
  note("none asked for", polled(u, 0, 0));
  note("to read", polled(u, 0, POLLIN));
  note("epoll", waited(e, 50));
  note("an edge", waited(edge, 50));
  fd_set in, out, except;
  for (fd_set* set : {&in, &out, &except}) {
    FD_ZERO(set);
    FD_SET(u, set);
  }
  timeval none{};
  tried("select", [&] { return select(u + 1, &in, &out, &except, &none); });
  note("sets", std::string(FD_ISSET(u, &in) ? "in " : "") + (FD_ISSET(u, &out) ? "out " : "") +
                   (FD_ISSET(u, &except) ? "except" : ""));
  int error = -1;
  socklen_t n = sizeof error;
  tried("SO_ERROR", [&] { return getsockopt(u, SOL_SOCKET, SO_ERROR, &error, &n); });
  say("it is", error);
  note("events then", polled(u, 0));
  getsockopt(u, SOL_SOCKET, SO_ERROR, &error, &n);
  say("it is", error);
  provoke();
  tried("send", [&] { return send(u, "x", 1, 0); });
  nap(100);
  char b[10];
  tried("recv", [&] { return recv(u, b, 10, MSG_DONTWAIT); });
  tried("recv", [&] { return recv(u, b, 10, MSG_DONTWAIT); });
  tried("PEEK", [&] { return (provoke(), recv(u, b, 10, MSG_DONTWAIT | MSG_PEEK)); });
  tried("recv", [&] { return recv(u, b, 10, MSG_DONTWAIT); });
  tried("read that waits", [&] { return (provoke(), read(u, b, 10)); });
  mmsghdr many[2]{};
  iovec v{b, 10};
  for (mmsghdr& one : many) {
    one.msg_hdr.msg_iov = &v;
    one.msg_hdr.msg_iovlen = 1;
  }
  tried("recvmmsg", [&] { return (provoke(), recvmmsg(u, many, 2, MSG_DONTWAIT, nullptr)); });
  tried("recvmmsg", [&] { return recvmmsg(u, many, 2, MSG_DONTWAIT, nullptr); });
  tried("connect clears", [&] { return (provoke(), connect(u, to(), sizeof g_to)); });
  note("events", polled(u, 0));
  tried("recv", [&] { return recv(u, b, 10, MSG_DONTWAIT); });
  close(e);
  close(edge);
  close(u);
}

}  // namespace

int main(int argc, char** argv) {
  const Part all[] = {{"splicing in", splicing_in},
                      {"splicing out", splicing_out},
                      {"files", files},
                      {"nothing to read to", nothing_to_read_to},
                      {"low water", low_water},
                      {"patience", patience},
                      {"ancillary", ancillary},
                      {"refused", refused}};
  return run_script(argc, argv, all);
}
