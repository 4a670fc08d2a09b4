// The table of calls that packetdrill loads: each goes to the socket layer of the Host that is its
// userdata, or to the kernel where the descriptor is none of the layer's, as in the preload layer.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <optional>
#include <string_view>

#include "stack/sock/multiplex.h"
#include "tests/packetdrill/host.h"
#include "tests/packetdrill/interface.h"
#include "tests/packetdrill/network.h"

namespace vireo::packetdrill {
namespace {

Host* g_host = nullptr;  ///< of the script that runs: packetdrill plays one

Host& at(void* u) { return *static_cast<Host*>(u); }

/// read(2) and readv(2), write(2) and writev(2).
ssize_t receive(void* u, int fd, std::span<const iovec> to) {
  const bool nothing = std::ranges::all_of(to, [](const iovec& v) { return v.iov_len == 0; });
  return at(u).call(
      fd, [&](Handle h) { return nothing ? Result<ssize_t>(0) : sock::recv(h, to, 0); },
      [&] { return ::readv(fd, to.data(), static_cast<int>(to.size())); });
}
ssize_t transmit(void* u, int fd, std::span<const iovec> from) {
  return at(u).call(
      fd, [&](Handle h) { return sock::send(h, from, 0); },
      [&] { return ::writev(fd, from.data(), static_cast<int>(from.size())); });
}

int fcntl(void* u, int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  const auto argument = va_arg(list, uintptr_t);
  va_end(list);
  return at(u).call(
      fd, [&](Handle h) { return sock::fcntl(h, command, argument); },
      [&] { return ::fcntl(fd, command, argument); });
}
int ioctl(void* u, int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* const value = va_arg(list, void*);
  va_end(list);
  return at(u).call(
      fd, [&](Handle h) { return sock::ioctl(h, request, value); },
      [&] { return ::ioctl(fd, request, value); });
}

int close(void* u, int fd) {
  at(u).closed(fd);
  return at(u).call(fd, [&](Handle h) { return sock::close(h); }, [&] { return ::close(fd); });
}

/// A timeout in milliseconds; negative waits for ever.
class Timeout {
 public:
  explicit Timeout(int ms) {
    if (ms >= 0) value_ = timespec{ms / 1000, (ms % 1000) * 1'000'000L};
  }
  const timespec* get() const { return value_ ? &*value_ : nullptr; }

 private:
  std::optional<timespec> value_;
};

int poll(void* u, pollfd* fds, nfds_t n, int timeout) {
  return at(u).call([&](Stack&) { return sock::poll({fds, n}, Timeout(timeout).get(), nullptr); });
}

int epoll_wait(void* u, int epfd, epoll_event* events, int most, int timeout) {
  return at(u).call(
      epfd,
      [&](Handle h) -> Result<int> {
        if (most <= 0) return fail(EINVAL, "epoll_wait");
        return sock::epoll_wait(h, {events, static_cast<size_t>(most)}, Timeout(timeout).get(),
                                nullptr);
      },
      [&] { return ::epoll_wait(epfd, events, most, timeout); });
}

void fill_calls(PacketdrillInterface& t) {
  t.socket = [](void* u, int domain, int type, int protocol) {
    return at(u).opened(
        at(u).call([&](Stack& s) { return sock::socket(s, domain, type, protocol); }));
  };
  t.bind = [](void* u, int fd, const sockaddr* sa, socklen_t n) {
    return at(u).call(
        fd,
        [&](Handle h) {
          own_address(sa, n);
          return sock::bind(h, sa, n);
        },
        [&] { return ::bind(fd, sa, n); });
  };
  t.listen = [](void* u, int fd, int backlog) {
    return at(u).call(
        fd, [&](Handle h) { return sock::listen(h, backlog); },
        [&] { return ::listen(fd, backlog); });
  };
  t.accept = [](void* u, int fd, sockaddr* sa, socklen_t* n) {
    return at(u).opened(at(u).call(
        fd, [&](Handle h) { return sock::accept(h, sa, n, 0); },
        [&] { return ::accept(fd, sa, n); }));
  };
  t.connect = [](void* u, int fd, const sockaddr* sa, socklen_t n) {
    return at(u).call(
        fd, [&](Handle h) { return sock::connect(h, sa, n); },
        [&] { return ::connect(fd, sa, n); });
  };
  t.shutdown = [](void* u, int fd, int how) {
    return at(u).call(
        fd, [&](Handle h) { return sock::shutdown(h, how); }, [&] { return ::shutdown(fd, how); });
  };
  t.getsockopt = [](void* u, int fd, int level, int name, void* value, socklen_t* n) {
    return at(u).call(
        fd, [&](Handle h) { return sock::getsockopt(h, level, name, value, n); },
        [&] { return g_libc.getsockopt(fd, level, name, value, n); });
  };
  t.setsockopt = [](void* u, int fd, int level, int name, const void* value, socklen_t n) {
    return at(u).call(
        fd, [&](Handle h) { return sock::setsockopt(h, level, name, value, n); },
        [&] { return ::setsockopt(fd, level, name, value, n); });
  };
  t.fcntl = fcntl;
  t.ioctl = ioctl;
  t.close = close;
  t.poll = poll;
  t.epoll_create = [](void* u, int) {
    return at(u).opened(at(u).call([&](Stack& s) { return sock::epoll_create(s, 0); }));
  };
  t.epoll_ctl = [](void* u, int epfd, int op, int fd, epoll_event* e) {
    return at(u).call(
        epfd, [&](Handle h) { return sock::epoll_ctl(h, op, fd, e); },
        [&] { return ::epoll_ctl(epfd, op, fd, e); });
  };
  t.epoll_wait = epoll_wait;
}

void fill_data(PacketdrillInterface& t) {
  t.read = [](void* u, int fd, void* p, size_t n) {
    const iovec v{p, n};
    return receive(u, fd, {&v, 1});
  };
  t.readv = [](void* u, int fd, const iovec* v, int n) {
    return receive(u, fd, {v, static_cast<size_t>(n)});
  };
  t.recv = [](void* u, int fd, void* p, size_t n, int flags) {
    const iovec v{p, n};
    return at(u).call(
        fd, [&](Handle h) { return sock::recv(h, {&v, 1}, flags); },
        [&] { return ::recv(fd, p, n, flags); });
  };
  t.recvfrom = [](void* u, int fd, void* p, size_t n, int flags, sockaddr* sa, socklen_t* sa_n) {
    const iovec v{p, n};
    return at(u).call(
        fd, [&](Handle h) { return sock::recvfrom(h, {&v, 1}, flags, sa, sa_n); },
        [&] { return ::recvfrom(fd, p, n, flags, sa, sa_n); });
  };
  t.recvmsg = [](void* u, int fd, msghdr* m, int flags) {
    return at(u).call(
        fd, [&](Handle h) { return sock::recvmsg(h, *m, flags); },
        [&] { return ::recvmsg(fd, m, flags); });
  };
  t.write = [](void* u, int fd, const void* p, size_t n) {
    const iovec v{const_cast<void*>(p), n};
    return transmit(u, fd, {&v, 1});
  };
  t.writev = [](void* u, int fd, const iovec* v, int n) {
    return transmit(u, fd, {v, static_cast<size_t>(n)});
  };
  t.send = [](void* u, int fd, const void* p, size_t n, int flags) {
    const iovec v{const_cast<void*>(p), n};
    return at(u).call(
        fd, [&](Handle h) { return sock::send(h, {&v, 1}, flags); },
        [&] { return ::send(fd, p, n, flags); });
  };
  t.sendto = [](void* u, int fd, const void* p, size_t n, int flags, const sockaddr* sa,
                socklen_t sa_n) {
    const iovec v{const_cast<void*>(p), n};
    return at(u).call(
        fd, [&](Handle h) { return sock::sendto(h, {&v, 1}, flags, sa, sa_n); },
        [&] { return ::sendto(fd, p, n, flags, sa, sa_n); });
  };
  t.sendmsg = [](void* u, int fd, const msghdr* m, int flags) {
    return at(u).call(
        fd, [&](Handle h) { return sock::sendmsg(h, *m, flags); },
        [&] { return ::sendmsg(fd, m, flags); });
  };
  t.pipe = [](void*, int* fds) { return ::pipe(fds); };
  t.splice = [](void* u, int in, loff_t* in_at, int out, loff_t* out_at, size_t n,
                unsigned flags) -> int {
    // As the preload layer: a carried socket is no kernel object.
    if (fd_table().find(in) || fd_table().find(out))
      return at(u).call([](Stack&) -> Result<int> { return fail(EINVAL, "splice"); });
    return static_cast<int>(::splice(in, in_at, out, out_at, n, flags));
  };
}

void fill_wire(PacketdrillInterface& t) {
  t.free = [](void* u) {
    g_host = nullptr;
    delete static_cast<Host*>(u);
  };
  t.netdev_send = [](void* u, const void* p, size_t n) {
    at(u).packet_in({static_cast<const uint8_t*>(p), n});
    return 0;
  };
  t.netdev_receive = [](void* u, void* p, size_t* n, long long* usecs) {
    at(u).packet_out(p, n, usecs);
    return 0;
  };
  t.usleep = [](void* u, useconds_t us) {
    at(u).sleep(Duration::us(us));
    return 0;
  };
  t.gettimeofday = [](void* u, timeval* tv, struct timezone*) {
    *tv = at(u).time();
    return 0;
  };
}

}  // namespace
}  // namespace vireo::packetdrill

/// packetdrill asks TCP_INFO for its `%{ }%` not through the table but of libc. With this object
/// preloaded as well, the question comes here: what is about TCP, or the socket's memory, while a
/// script runs is about our connection.
extern "C" [[gnu::visibility("default")]] int getsockopt(int fd, int level, int name, void* value,
                                                         socklen_t* n) noexcept {
  using namespace vireo;  // NOLINT
  using packetdrill::g_host;
  if (g_host != nullptr && level == IPPROTO_TCP && fd_table().find(fd)) {
    if (name == TCP_INFO) {  // fields newer than our headers are zero
      std::memset(value, 0, *n);
      socklen_t known = *n;
      return g_host->call(
          fd, [&](Handle h) { return sock::getsockopt(h, level, name, value, &known); },
          [] { return -1; });
    }
    *n = 0;  // TCP_CC_INFO: nothing to tell, as congestion controls without any
    return 0;
  }
  if (g_host != nullptr && level == SOL_SOCKET && name == SO_MEMINFO) {
    std::memset(value, 0, *n);
    return 0;
  }
  return static_cast<int>(syscall(SYS_getsockopt, fd, level, name, value, n));
}

/// `flags`: "no-merge" lets every segment leave by itself.
extern "C" [[gnu::visibility("default")]] void packetdrill_interface_init(
    const char* flags, PacketdrillInterface* table) {
  const bool merge = flags == nullptr || std::string_view(flags) != "no-merge";
  vireo::packetdrill::g_host = new vireo::packetdrill::Host(merge);
  table->userdata = vireo::packetdrill::g_host;
  vireo::packetdrill::fill_wire(*table);
  vireo::packetdrill::fill_calls(*table);
  vireo::packetdrill::fill_data(*table);
}
