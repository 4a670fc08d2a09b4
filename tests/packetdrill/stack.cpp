#include "tests/packetdrill/stack.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <tuple>

#include "stack/tcp/linux_info.h"
#include "tests/packetdrill/settings.h"

namespace vireo::packetdrill {
namespace {

int result(int64_t r) {
  if (r >= 0) return static_cast<int>(r);
  errno = static_cast<int>(-r);
  return -1;
}

/// EFAULT of what points nowhere.
bool is_fault(std::span<const iovec> all) {
  return std::ranges::any_of(all,
                             [](const iovec& v) { return v.iov_base == nullptr && v.iov_len > 0; });
}

std::string gather(std::span<const iovec> from) {
  std::string all;
  for (const iovec& v : from) all.append(static_cast<const char*>(v.iov_base), v.iov_len);
  return all;
}

void put_address(const Place& p, sockaddr* sa, socklen_t* n) {
  if (!p.v6 && *n >= sizeof(sockaddr_in)) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(p.port);
    std::memcpy(&in.sin_addr, p.address.data(), 4);
    std::memcpy(sa, &in, sizeof in);
    *n = sizeof in;
  } else if (*n >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(p.port);
    std::memcpy(&in.sin6_addr, p.address.data(), 16);
    std::memcpy(sa, &in, sizeof in);
    *n = sizeof in;
  }
}

}  // namespace

Stack::Socket* Stack::at(int fd) {
  const auto i = sockets_.find(fd);
  return i == sockets_.end() ? nullptr : &i->second;
}

/// packetdrill gives the kernel back what its script left open, so they must be the kernel's, too.
int Stack::new_fd() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

/// With a socket in it, of the settings of now.
std::shared_ptr<Stack::Conn> Stack::make_conn() {
  auto c = std::make_shared<Conn>();
  c->host = make_host(Seq32(next_iss_));
  next_iss_ += 0x01000193;
  if (start_ == Instant()) start_ = now_ = c->host->now();
  c->host->step(now_);
  c->fd = c->host->socket(true);
  return c;
}

int64_t Stack::wait_for(std::unique_lock<std::mutex>& lock, bool wait,
                        const std::function<int64_t()>& call) {
  bool waited = false;
  while (true) {
    const int64_t r = call();
    if (!wait || (r != -EAGAIN && r != -EINPROGRESS && r != -EALREADY)) {
      returning_ = waited;
      settle();
      return r;
    }
    ++blocked_;
    settle();
    moved_.wait(lock);
    --blocked_;
    waited = true;
  }
}

/// A call that waited has an answer: packetdrill's other thread must have told it before time goes
/// on. There is nothing to ask it by, so it gets a moment of real time.
void Stack::let_return(std::unique_lock<std::mutex>& lock) {
  if (blocked_ > 0 || returning_) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    lock.lock();
  }
  returning_ = false;
}

int Stack::socket(int type) {
  const std::lock_guard lock(mutex_);
  Socket s;
  s.conn = make_conn();
  s.nonblocking = (type & SOCK_NONBLOCK) != 0;
  const int fd = new_fd();
  sockets_[fd] = std::move(s);
  return fd;
}

int Stack::bind(int fd, const sockaddr* sa, socklen_t n) {
  const std::lock_guard lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  if (const auto p = Place::of(sa, n)) local_ = s->conn->local = *p;
  return result(host(*s).bind(s->conn->fd));
}

int Stack::listen(int fd, int backlog) {
  const std::lock_guard lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  const int r = host(*s).listen(s->conn->fd, backlog);
  if (r == 0) s->listens = true;
  s->backlog = backlog;
  return result(r);
}

int Stack::accept(int fd, sockaddr* sa, socklen_t* n) {
  std::unique_lock lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  if (!s->listens) return result(-EINVAL);
  std::shared_ptr<Conn> made;
  const int64_t r = wait_for(lock, !s->nonblocking, [&]() -> int64_t {
    for (const auto& c : conns_) {
      if (c->listener != fd) continue;
      const int inner = c->host->accept(c->inner_listener);
      if (inner == -EAGAIN) continue;
      if (inner >= 0) c->fd = inner;
      made = c;
      return inner;
    }
    return -EAGAIN;
  });
  if (r < 0) return result(r);
  const int child = new_fd();
  sockets_[child].conn = made;
  if (sa != nullptr && n != nullptr) put_address(made->remote, sa, n);
  return child;
}

/// `c` is about to connect there: its two ends, and the cookie that is known.
void Stack::aim(Conn& c, const Place& remote) {
  if (c.has_peer) return;
  c.has_peer = true;
  c.remote = remote;
  c.host->step(now_);
  if (c.local.port == 0) {
    c.local = Place{.v6 = remote.v6, .address = {192, 168, 0, 1}, .port = next_port_++};
    if (remote.v6)
      c.local.address = {0xfd, 0x3d, 0xfa, 0x7b, 0xd1, 0x7d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  }
  if (const auto known = cookies_.find(remote.address); known != cookies_.end())
    std::tie(c.host->fast_open().cookie, c.host->fast_open().cookie_mss) = known->second;
}

int Stack::connect(int fd, const sockaddr* sa, socklen_t n) {
  std::unique_lock lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  const auto p = Place::of(sa, n);
  if (!p) return result(-EINVAL);
  const auto c = s->conn;
  if (!c->has_peer) conns_.push_back(c);
  aim(*c, *p);
  bool begun = false;
  return result(wait_for(lock, !s->nonblocking, [&] {
    const int r = c->host->connect(c->fd);
    if (r == -EINPROGRESS || r == -EALREADY) begun = true;
    return int64_t{begun && r == -EISCONN ? 0 : r};
  }));
}

ssize_t Stack::receive(int fd, std::span<const iovec> to, int flags) {
  std::unique_lock lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  if (is_fault(to)) return result(-EFAULT);
  const auto c = s->conn;
  size_t room = 0;
  for (const iovec& v : to) room += v.iov_len;
  std::string got;
  const bool wait = !s->nonblocking && (flags & MSG_DONTWAIT) == 0;
  const int64_t r = wait_for(lock, wait, [&] { return c->host->read(c->fd, room, flags, got); });
  size_t at = 0;
  for (const iovec& v : to) {
    const size_t n = std::min(v.iov_len, got.size() - at);
    std::memcpy(v.iov_base, got.data() + at, n);
    at += n;
  }
  return result(r);
}

ssize_t Stack::send(int fd, std::span<const iovec> from, int flags, const sockaddr* sa,
                    socklen_t n) {
  std::unique_lock lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  const auto c = s->conn;
  read_fast_open(*c->host);
  if ((flags & MSG_FASTOPEN) != 0 && !c->has_peer) {
    if (!c->host->fast_open().as_client) return result(-EOPNOTSUPP);
    const auto p = sa != nullptr ? Place::of(sa, n) : std::nullopt;
    if (!p) return result(sa != nullptr && sa->sa_family == AF_UNSPEC ? -EOPNOTSUPP : -EINVAL);
    conns_.push_back(c);
    aim(*c, *p);
  }
  if (is_fault(from)) return result(-EFAULT);
  const std::string all = gather(from);
  size_t done = 0;
  const bool wait = !s->nonblocking && (flags & MSG_DONTWAIT) == 0;
  const int64_t r = wait_for(lock, wait, [&]() -> int64_t {
    const int64_t taken = c->host->write(c->fd, all.substr(done), flags);
    if (taken == -EINPROGRESS || taken >= 0) flags &= ~MSG_FASTOPEN;  // the connection has begun
    if (taken < 0) return taken;
    done += static_cast<size_t>(taken);
    return done < all.size() ? -EAGAIN : taken;
  });
  return done > 0 ? static_cast<ssize_t>(done) : result(r);
}

int Stack::shutdown(int fd, int how) {
  const std::lock_guard lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  const int r = host(*s).shutdown(s->conn->fd, how);
  settle();
  return result(r);
}

int Stack::close(int fd) {
  const std::lock_guard lock(mutex_);
  if (epolls_.erase(fd) != 0) return ::close(fd);
  const auto i = sockets_.find(fd);
  if (i == sockets_.end()) return result(-EBADF);
  ::close(fd);
  const Socket s = std::move(i->second);
  sockets_.erase(i);
  for (auto& [epfd, watches] : epolls_) watches.erase(fd);
  int r = 0;
  if (s.listens) {
    for (const auto& c : conns_)
      if (c->listener == fd) {
        c->host->close(c->inner_listener);
        c->listener = -1;
      }
  } else {
    r = s.conn->host->close(s.conn->fd);
  }
  settle();
  return result(r);
}

int Stack::fcntl(int fd, int command, long argument) {
  const std::lock_guard lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  if (command == F_GETFL) return O_RDWR | (s->nonblocking ? O_NONBLOCK : 0);
  if (command != F_SETFL) return result(-EINVAL);
  s->nonblocking = (argument & O_NONBLOCK) != 0;
  return 0;
}

int Stack::ioctl(int fd, unsigned long request, int* value) {
  const std::lock_guard lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  const int64_t v = host(*s).ioctl(s->conn->fd, request);
  if (v <= script::Host::kErrorBase) return result(v - script::Host::kErrorBase);
  *value = static_cast<int>(v);
  return 0;
}

int Stack::getsockopt(int fd, int level, int name, void* value, socklen_t* n) {
  const std::lock_guard lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    const tcp::Tcb* const t = host(*s).connection();
    tcp_info out{};
    out.tcpi_state = s->listens ? 10 : 7;
    if (t != nullptr) out = tcp::linux_info(*t, now_);
    *n = std::min<socklen_t>(*n, sizeof out);
    std::memcpy(value, &out, *n);
    return 0;
  }
  if (level == IPPROTO_TCP && name == TCP_FASTOPEN_KEY) {
    if (s->fast_open_keys.empty()) return result(-ENOPROTOOPT);
    *n = std::min<socklen_t>(*n, static_cast<socklen_t>(s->fast_open_keys.size()));
    std::memcpy(value, s->fast_open_keys.data(), *n);
    return 0;
  }
  const int64_t v = host(*s).getsockopt(s->conn->fd, level, name);
  if (v <= script::Host::kErrorBase) return result(v - script::Host::kErrorBase);
  const auto i = static_cast<int>(v);
  *n = std::min<socklen_t>(*n, sizeof i);
  std::memcpy(value, &i, *n);
  return 0;
}

int Stack::setsockopt(int fd, int level, int name, const void* value, socklen_t n) {
  const std::lock_guard lock(mutex_);
  Socket* const s = at(fd);
  if (s == nullptr) return result(-EBADF);
  if (level == IPPROTO_TCP && name == TCP_FASTOPEN_KEY) {
    if (n != 16 && n != 32) return result(-EINVAL);
    const auto* const bytes = static_cast<const uint8_t*>(value);
    s->fast_open_keys.assign(bytes, bytes + n);
    return 0;
  }
  Option o{.level = level, .name = name, .value = std::vector<int64_t>(n / sizeof(int))};
  for (size_t i = 0; i < o.value.size(); ++i) {
    int v = 0;
    std::memcpy(&v, static_cast<const char*>(value) + i * sizeof v, sizeof v);
    o.value[i] = v;
  }
  read_fast_open(host(*s));
  const int r = host(*s).setsockopt(s->conn->fd, level, name, o.value);
  if (r == 0) s->options.push_back(std::move(o));
  settle();
  return result(r);
}

short Stack::ready(int fd) {
  Socket* const s = at(fd);
  if (s == nullptr) return POLLNVAL;
  if (!s->listens) return host(*s).poll(s->conn->fd);
  for (const auto& c : conns_)
    if (c->listener == fd && (c->host->poll(c->inner_listener) & POLLIN) != 0) return POLLIN;
  return 0;
}

int Stack::poll(std::span<pollfd> fds, int timeout) {
  std::unique_lock lock(mutex_);
  const Instant end = now_ + Duration::ms(timeout);
  return result(wait_for(lock, timeout != 0, [&]() -> int64_t {
    int64_t found = 0;
    for (pollfd& p : fds) {
      constexpr int kAlways = POLLERR | POLLHUP | POLLNVAL;
      p.revents = static_cast<short>(ready(p.fd) & (p.events | kAlways));
      found += p.revents != 0 ? 1 : 0;
    }
    return found > 0 || (timeout > 0 && now_ >= end) || timeout == 0 ? found : -EAGAIN;
  }));
}

}  // namespace vireo::packetdrill
