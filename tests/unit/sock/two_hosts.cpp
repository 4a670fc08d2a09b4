#include "tests/unit/sock/two_hosts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#include <cstdlib>

#include "core/log.h"
#include "core/user_memory.h"
#include "stack/sock/blocking.h"

namespace vireo::test {
namespace {

std::string name(const char* part) { return "vr-sock-" + std::to_string(::getpid()) + part; }

void run(const std::string& command) {
  if (std::system(command.c_str()) != 0)  // NOLINT: a test's own constant commands
    fmt::print(stderr, "failed: {}\n", command);
}

/// The namespaces and the pair between them, for the life of the program.
class Network {
 public:
  Network() {
#define X(call) g_libc.call = ::call;
    VIREO_LIBC_CALLS(X)
#undef X
    const std::string a = name("-a"), b = name("-b");
    run("ip netns add " + a + " && ip netns add " + b);
    run("ip -n " + a + " link add eth0 type veth peer name eth0 netns " + b);
    int n = 1;
    for (const std::string& ns : {a, b}) {
      const std::string i = std::to_string(n++);
      run("ip netns exec " + ns +
          " sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0"
          " net.ipv4.tcp_fastopen=3");
      run("ip -n " + ns + " link set lo up && ip -n " + ns + " link set eth0 up");
      run("ip -n " + ns + " addr add 10.77.0." + i + "/24 dev eth0");
      run("ip -n " + ns + " addr add fd77::" + i + "/64 dev eth0 nodad");
    }
  }
  ~Network() {
    run("ip netns del " + name("-a"));
    run("ip netns del " + name("-b"));
  }
};

/// Whoever links the calls makes EFAULT of a fault of theirs (core/user_memory.h).
void on_fault(int signo, siginfo_t* /*info*/, void* context) {
  if (!resume_after_probe(context)) ::signal(signo, SIG_DFL);  // it faults again, to the end
}

class Environment : public testing::Environment {
 public:
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "needs root";
    struct sigaction faults{};
    faults.sa_sigaction = on_fault;
    faults.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &faults, nullptr);
    network_ = std::make_unique<Network>();
    hosts_ = std::make_unique<Hosts>();
  }
  void TearDown() override {
    hosts_.reset();
    network_.reset();
  }
  static inline std::unique_ptr<Network> network_;
  static inline std::unique_ptr<Hosts> hosts_;
};
const auto* const g_environment = testing::AddGlobalTestEnvironment(new Environment);

template <class T>
T plain(const Result<T>& r) {
  return r ? *r : static_cast<T>(-r.error().code);
}
int plain(const Result<void>& r) { return r ? 0 : -r.error().code; }
template <class T>
T plain(T r) {
  return r < 0 ? static_cast<T>(-errno) : r;
}
Handle handle(int fd) { return fd_table().find(fd); }

}  // namespace

Hosts& hosts() { return *Environment::hosts_; }

void settle_before_fork() {
  for (int tries = 0; tries < 2000; ++tries) {
    bool is_any = false;
    for (Host* const h : {&hosts().a, &hosts().b})
      h->stack().for_each_engine([&](Engine& e) {
        const EngineGuard guard(e);
        is_any |= e.tcp().has_orphans();
      });
    if (!is_any) return;
    ::usleep(1000);
  }
}

Host::Host(int which)
    : netns_(name(which == 1 ? "-a" : "-b")),
      ns_(::open(("/var/run/netns/" + netns_).c_str(), O_RDONLY | O_CLOEXEC)) {
  enter();  // the Stack reads this host's sysctls
  stack_ = std::make_unique<Stack>(parts_of_host(which));
}

Host::~Host() {
  enter();
  stack_.reset();
  ::close(ns_);
}
void Host::enter() const {
  if (::setns(ns_, CLONE_NEWNET) != 0) std::abort();
}
in_addr Host::address() const { return {htonl(0x0a4d0000 | (netns_.back() == 'a' ? 1 : 2))}; }
in6_addr Host::address6() const {
  in6_addr a{};
  ::inet_pton(AF_INET6, netns_.back() == 'a' ? "fd77::1" : "fd77::2", &a);
  return a;
}

sockaddr_storage address(const Host& h, uint16_t port) {
  sockaddr_storage sa{};
  auto& in = reinterpret_cast<sockaddr_in&>(sa);
  in.sin_family = AF_INET;
  in.sin_addr = h.address();
  in.sin_port = htons(port);
  return sa;
}
sockaddr_storage address6(const Host& h, uint16_t port) {
  sockaddr_storage sa{};
  auto& in = reinterpret_cast<sockaddr_in6&>(sa);
  in.sin6_family = AF_INET6;
  in.sin6_addr = h.address6();
  in.sin6_port = htons(port);
  return sa;
}
uint16_t port_of(const sockaddr_storage& sa) {
  return ntohs(reinterpret_cast<const sockaddr_in&>(sa).sin_port);
}

int Api::socket(int domain, int type) {
  host_.enter();
  return side_ == Side::kKernel ? plain(::socket(domain, type, 0))
                                : plain(sock::socket(host_.stack(), domain, type, 0));
}
int Api::bind(int fd, uint16_t port, bool any) {
  sockaddr_storage sa = address(host_, port);
  if (any) reinterpret_cast<sockaddr_in&>(sa).sin_addr.s_addr = 0;
  return side_ == Side::kKernel ? plain(::bind(fd, sockaddr_of(sa), length(sa)))
                                : plain(sock::bind(handle(fd), sockaddr_of(sa), length(sa)));
}
int Api::bind6(int fd, uint16_t port) {
  sockaddr_storage sa = address6(host_, port);
  reinterpret_cast<sockaddr_in6&>(sa).sin6_addr = in6addr_any;
  return side_ == Side::kKernel ? plain(::bind(fd, sockaddr_of(sa), length(sa)))
                                : plain(sock::bind(handle(fd), sockaddr_of(sa), length(sa)));
}
int Api::listen(int fd, int backlog) {
  return side_ == Side::kKernel ? plain(::listen(fd, backlog))
                                : plain(sock::listen(handle(fd), backlog));
}
int Api::connect(int fd, const sockaddr* sa, socklen_t len) {
  return side_ == Side::kKernel ? plain(::connect(fd, sa, len))
                                : plain(sock::connect(handle(fd), sa, len));
}
int Api::accept(int fd, int flags, sockaddr_storage* peer) {
  socklen_t len = sizeof(sockaddr_storage);
  auto* sa = reinterpret_cast<sockaddr*>(peer);
  socklen_t* l = peer == nullptr ? nullptr : &len;
  return side_ == Side::kKernel ? plain(::accept4(fd, sa, l, flags))
                                : plain(sock::accept(handle(fd), sa, l, flags));
}
ssize_t Api::send(int fd, const void* data, size_t n, int flags) {
  const iovec v{const_cast<void*>(data), n};
  return side_ == Side::kKernel ? plain(::send(fd, data, n, flags | MSG_NOSIGNAL))
                                : plain(sock::send(handle(fd), {&v, 1}, flags));
}
ssize_t Api::send(int fd, const std::string& bytes, int flags) {
  return send(fd, bytes.data(), bytes.size(), flags);
}
ssize_t Api::recv(int fd, void* data, size_t n, int flags) {
  const iovec v{data, n};
  return side_ == Side::kKernel ? plain(::recv(fd, data, n, flags))
                                : plain(sock::recv(handle(fd), {&v, 1}, flags));
}
std::string Api::recv(int fd, size_t n, int flags) {
  std::string s(n, '\0');
  const ssize_t r = recv(fd, s.data(), n, flags);
  if (r < 0) return std::string("!") + strerrorname_np(static_cast<int>(-r));
  s.resize(std::min(static_cast<size_t>(r), n));
  return s;
}
ssize_t Api::sendto(int fd, const std::string& bytes, const sockaddr_storage& to, int flags) {
  const iovec v{const_cast<char*>(bytes.data()), bytes.size()};
  return side_ == Side::kKernel
             ? plain(::sendto(fd, bytes.data(), bytes.size(), flags, sockaddr_of(to), length(to)))
             : plain(sock::sendto(handle(fd), {&v, 1}, flags, sockaddr_of(to), length(to)));
}
ssize_t Api::recvmsg(int fd, msghdr& msg, int flags) {
  return side_ == Side::kKernel ? plain(::recvmsg(fd, &msg, flags))
                                : plain(sock::recvmsg(handle(fd), msg, flags));
}
ssize_t Api::sendmsg(int fd, const msghdr& msg, int flags) {
  return side_ == Side::kKernel ? plain(::sendmsg(fd, &msg, flags))
                                : plain(sock::sendmsg(handle(fd), msg, flags));
}
int Api::shutdown(int fd, int how) {
  return side_ == Side::kKernel ? plain(::shutdown(fd, how))
                                : plain(sock::shutdown(handle(fd), how));
}
int Api::close(int fd) {
  return side_ == Side::kKernel ? plain(static_cast<int>(::syscall(
                                      SYS_close, fd)))  // not the sanitizer's: it forbids the race
                                : plain(sock::close(handle(fd)));
}
int Api::dup(int fd) {
  return side_ == Side::kKernel ? plain(::dup(fd)) : plain(sock::dup(handle(fd)));
}
int Api::setsockopt(int fd, int level, int option, const void* value, socklen_t len) {
  return side_ == Side::kKernel ? plain(::setsockopt(fd, level, option, value, len))
                                : plain(sock::setsockopt(handle(fd), level, option, value, len));
}
int Api::setsockopt(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value);
}
int Api::getsockopt(int fd, int level, int option, void* value, socklen_t* len) {
  return side_ == Side::kKernel ? plain(::getsockopt(fd, level, option, value, len))
                                : plain(sock::getsockopt(handle(fd), level, option, value, len));
}
int Api::getsockopt(int fd, int level, int option) {
  int v = 0;
  socklen_t len = sizeof v;
  const int r = getsockopt(fd, level, option, &v, &len);
  return r < 0 ? r : v;
}
sockaddr_storage Api::getsockname(int fd) {
  sockaddr_storage sa{};
  socklen_t len = sizeof sa;
  auto* p = reinterpret_cast<sockaddr*>(&sa);
  if (side_ == Side::kKernel)
    EXPECT_EQ(::getsockname(fd, p, &len), 0);
  else
    EXPECT_TRUE(sock::getsockname(handle(fd), p, &len).has_value());
  return sa;
}
int Api::getpeername(int fd, sockaddr_storage& out) {
  socklen_t len = sizeof out;
  auto* p = reinterpret_cast<sockaddr*>(&out);
  return side_ == Side::kKernel ? plain(::getpeername(fd, p, &len))
                                : plain(sock::getpeername(handle(fd), p, &len));
}
int Api::fcntl(int fd, int command, int argument) {
  return side_ == Side::kKernel
             ? plain(::fcntl(fd, command, argument))
             : plain(sock::fcntl(handle(fd), command, static_cast<uintptr_t>(argument)));
}
int Api::ioctl(int fd, unsigned long request) {
  int v = 0;
  const int r = side_ == Side::kKernel ? plain(::ioctl(fd, request, &v))
                                       : plain(sock::ioctl(handle(fd), request, &v));
  return r < 0 ? r : v;
}
ssize_t Api::sendfile(int out, int in, off_t* offset, size_t count) {
  return side_ == Side::kKernel ? plain(::sendfile(out, in, offset, count))
                                : plain(sock::sendfile(handle(out), in, offset, count));
}

int Api::ready(int fd) {
  constexpr short kAll = POLLIN | POLLOUT | POLLRDHUP | POLLPRI;
  int bits = 0;
  const Handle h = side_ == Side::kVireo ? handle(fd) : Handle{};
  if (h) {
    if (h->engine.load() != nullptr) sock::poll_engine(*h->engine.load());
    bits = static_cast<int>(sock::ready_now(h));
  }
  if (!h || watches_kernel(*h.file)) {
    pollfd p{fd, kAll, 0};
    if (::poll(&p, 1, 0) > 0) bits |= p.revents;
  }
  return bits & (kAll | POLLERR | POLLHUP);
}
bool Api::await(int fd, int bits) {
  const auto end = Clock::now() + Duration::s(5);
  while ((ready(fd) & bits) != bits) {
    if (Clock::now() > end) return false;
    ::usleep(100);
  }
  return true;
}
bool Api::is_carried(int fd) const {
  const Handle h = handle(fd);
  return h && h->is_carried();
}

bool Api::is_listening_carried(int fd) const {
  const Handle h = handle(fd);
  return h && h->mode.load() == Mode::kListening;
}

std::pair<int, int> BothSides::connection(int domain) {
  const int l = b.socket(domain, SOCK_STREAM);
  EXPECT_EQ(domain == AF_INET ? b.bind(l, 0) : b.bind6(l, 0), 0);
  EXPECT_EQ(b.listen(l), 0);
  const uint16_t port = port_of(b.getsockname(l));
  const int c = a.socket(domain, SOCK_STREAM);
  const auto to = domain == AF_INET ? address(b.host(), port) : address6(b.host(), port);
  EXPECT_EQ(a.connect(c, sockaddr_of(to), length(to)), 0);
  const int s = b.accept(l);
  EXPECT_GE(s, 0);
  EXPECT_EQ(b.close(l), 0);
  if (ours()) {
    EXPECT_TRUE(a.is_carried(c));
    EXPECT_TRUE(b.is_carried(s));
  }
  return {c, s};
}

}  // namespace vireo::test
