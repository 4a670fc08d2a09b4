// The table of calls that packetdrill loads: each goes to the Stack that is its userdata.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <string_view>

#include "tests/packetdrill/interface.h"
#include "tests/packetdrill/stack.h"

namespace vireo::packetdrill {
namespace {

Stack* g_stack = nullptr;  ///< of the script that runs: packetdrill plays one

Stack& at(void* u) { return *static_cast<Stack*>(u); }
int unsupported() {
  errno = ENOSYS;
  return -1;
}

int fcntl(void* u, int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  const long argument = va_arg(list, long);
  va_end(list);
  return at(u).fcntl(fd, command, argument);
}
int ioctl(void* u, int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  int* const value = va_arg(list, int*);
  va_end(list);
  return at(u).ioctl(fd, request, value);
}

void fill(PacketdrillInterface& t) {
  t.free = [](void* u) {
    g_stack = nullptr;
    delete static_cast<Stack*>(u);
  };
  t.socket = [](void* u, int, int type, int) { return at(u).socket(type); };
  t.bind = [](void* u, int fd, const sockaddr* sa, socklen_t n) { return at(u).bind(fd, sa, n); };
  t.listen = [](void* u, int fd, int backlog) { return at(u).listen(fd, backlog); };
  t.accept = [](void* u, int fd, sockaddr* sa, socklen_t* n) { return at(u).accept(fd, sa, n); };
  t.connect = [](void* u, int fd, const sockaddr* sa, socklen_t n) {
    return at(u).connect(fd, sa, n);
  };
  t.read = [](void* u, int fd, void* p, size_t n) -> ssize_t {
    const iovec v{p, n};
    return at(u).receive(fd, {&v, 1}, 0);
  };
  t.readv = [](void* u, int fd, const iovec* v, int n) -> ssize_t {
    return at(u).receive(fd, {v, static_cast<size_t>(n)}, 0);
  };
  t.recv = [](void* u, int fd, void* p, size_t n, int flags) -> ssize_t {
    const iovec v{p, n};
    return at(u).receive(fd, {&v, 1}, flags);
  };
  t.recvfrom = [](void* u, int fd, void* p, size_t n, int flags, sockaddr*, socklen_t*) -> ssize_t {
    const iovec v{p, n};
    return at(u).receive(fd, {&v, 1}, flags);
  };
  t.recvmsg = [](void* u, int fd, msghdr* m, int flags) -> ssize_t {
    m->msg_controllen = 0;
    m->msg_flags = 0;
    return at(u).receive(fd, {m->msg_iov, m->msg_iovlen}, flags);
  };
  t.write = [](void* u, int fd, const void* p, size_t n) -> ssize_t {
    const iovec v{const_cast<void*>(p), n};
    return at(u).send(fd, {&v, 1}, 0, nullptr, 0);
  };
  t.writev = [](void* u, int fd, const iovec* v, int n) -> ssize_t {
    return at(u).send(fd, {v, static_cast<size_t>(n)}, 0, nullptr, 0);
  };
  t.send = [](void* u, int fd, const void* p, size_t n, int flags) -> ssize_t {
    const iovec v{const_cast<void*>(p), n};
    return at(u).send(fd, {&v, 1}, flags, nullptr, 0);
  };
  t.sendto = [](void* u, int fd, const void* p, size_t n, int flags, const sockaddr* sa,
                socklen_t sa_bytes) -> ssize_t {
    const iovec v{const_cast<void*>(p), n};
    return at(u).send(fd, {&v, 1}, flags, sa, sa_bytes);
  };
  t.sendmsg = [](void* u, int fd, const msghdr* m, int flags) -> ssize_t {
    return at(u).send(fd, {m->msg_iov, m->msg_iovlen}, flags,
                      static_cast<const sockaddr*>(m->msg_name), m->msg_namelen);
  };
  t.fcntl = fcntl;
  t.ioctl = ioctl;
  t.close = [](void* u, int fd) { return at(u).close(fd); };
  t.shutdown = [](void* u, int fd, int how) { return at(u).shutdown(fd, how); };
  t.getsockopt = [](void* u, int fd, int level, int name, void* value, socklen_t* n) {
    return at(u).getsockopt(fd, level, name, value, n);
  };
  t.setsockopt = [](void* u, int fd, int level, int name, const void* value, socklen_t n) {
    return at(u).setsockopt(fd, level, name, value, n);
  };
  t.poll = [](void* u, pollfd* fds, nfds_t n, int timeout) {
    return at(u).poll({fds, n}, timeout);
  };
  t.netdev_send = [](void* u, const void* p, size_t n) {
    return at(u).packet_in({static_cast<const uint8_t*>(p), n});
  };
  t.netdev_receive = [](void* u, void* p, size_t* n, long long* usecs) {
    return at(u).packet_out(p, n, usecs);
  };
  t.usleep = [](void* u, useconds_t us) {
    at(u).sleep(Duration::us(us));
    return 0;
  };
  t.gettimeofday = [](void* u, timeval* tv, struct timezone*) {
    *tv = at(u).time();
    return 0;
  };
  t.epoll_create = [](void* u, int) { return at(u).epoll_create(); };
  t.epoll_ctl = [](void* u, int epfd, int op, int fd, epoll_event* e) {
    return at(u).epoll_ctl(epfd, op, fd, e);
  };
  t.epoll_wait = [](void* u, int epfd, epoll_event* e, int most, int timeout) {
    return at(u).epoll_wait(epfd, {e, static_cast<size_t>(most)}, timeout);
  };
  t.pipe = [](void*, int*) { return unsupported(); };
  t.splice = [](void*, int, loff_t*, int, loff_t*, size_t, unsigned) { return unsupported(); };
}

}  // namespace
}  // namespace vireo::packetdrill

/// packetdrill asks TCP_INFO for its `%{ }%` not through the table but of libc. With this object
/// preloaded as well, the question comes here: what is about TCP, or the socket's memory, while a
/// script runs is about our connection.
extern "C" [[gnu::visibility("default")]] int getsockopt(int fd, int level, int name, void* value,
                                                         socklen_t* n) noexcept {
  using vireo::packetdrill::g_stack;
  if (g_stack != nullptr && level == IPPROTO_TCP) {
    if (name == TCP_INFO) {  // fields newer than our headers are zero
      std::memset(value, 0, *n);
      socklen_t known = *n;
      return g_stack->getsockopt(fd, level, name, value, &known);
    }
    *n = 0;  // TCP_CC_INFO: nothing to tell, as congestion controls without any
    return 0;
  }
  if (g_stack != nullptr && level == SOL_SOCKET && name == SO_MEMINFO) {
    std::memset(value, 0, *n);
    return 0;
  }
  return static_cast<int>(syscall(SYS_getsockopt, fd, level, name, value, n));
}

/// `flags`: "no-merge" lets every segment leave by itself.
extern "C" [[gnu::visibility("default")]] void packetdrill_interface_init(
    const char* flags, PacketdrillInterface* table) {
  const bool merge = flags == nullptr || std::string_view(flags) != "no-merge";
  vireo::packetdrill::g_stack = new vireo::packetdrill::Stack(merge);
  table->userdata = vireo::packetdrill::g_stack;
  vireo::packetdrill::fill(*table);
}
