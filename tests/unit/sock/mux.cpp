#include "tests/unit/sock/mux.h"

#include <sys/ioctl.h>

#include <algorithm>

#include "stack/sock/multiplex_wait.h"

namespace vireo::test {
namespace {

template <class T>
T plain(const Result<T>& r) {
  return r ? *r : static_cast<T>(-r.error().code);
}
int plain(const Result<void>& r) { return r ? 0 : -r.error().code; }
int plain(int r) { return r < 0 ? -errno : r; }

timespec to_timespec(int ms) { return {ms / 1000, (ms % 1000) * 1'000'000L}; }

std::string text(epoll_event* events, int n) {
  if (n < 0) return std::string("!") + strerrorname_np(-n);
  std::sort(events, events + n, [](const epoll_event& x, const epoll_event& y) {
    return uint64_t{x.data.u64} < uint64_t{y.data.u64};
  });
  std::string s;
  for (int i = 0; i < n; ++i)
    s += (i == 0 ? "" : " ") + std::to_string(events[i].data.u64) + ":" +
         bits_text(events[i].events);
  return s;
}

/// Who asks without waiting, and has something of ours, is told of the kernel's no more often than
/// each sock::kBetweenLooks.
void await_look(int timeout_ms) {
  if (timeout_ms != 0) return;
  const auto end = Clock::now() + sock::kBetweenLooks;
  while (Clock::now() <= end) continue;
}

}  // namespace

std::string bits_text(uint32_t events) {
  static constexpr std::pair<uint32_t, const char*> kNames[] = {
      {EPOLLIN, "IN"},      {EPOLLPRI, "PRI"},     {EPOLLOUT, "OUT"},    {EPOLLERR, "ERR"},
      {EPOLLHUP, "HUP"},    {EPOLLRDHUP, "RDHUP"}, {EPOLLRDNORM, "RDN"}, {EPOLLWRNORM, "WRN"},
      {EPOLLRDBAND, "RDB"}, {EPOLLWRBAND, "WRB"}};
  std::string s;
  for (const auto& [bit, name] : kNames)
    if ((events & bit) != 0) {
      s += (s.empty() ? "" : "|");
      s += name;
      events &= ~bit;
    }
  if (events != 0) s += "|?" + std::to_string(events);
  return s;
}

int Mux::create() {
  if (api_.side() == Side::kKernel) return plain(::epoll_create1(EPOLL_CLOEXEC));
  return plain(sock::epoll_create(api_.host().stack(), EPOLL_CLOEXEC));
}

int Mux::ctl(int epoll, int op, int fd, uint32_t events, uint64_t data) {
  epoll_event e{};
  e.events = events;
  e.data.u64 = data;
  const Handle h = fd_table().find(epoll);
  if (api_.side() == Side::kKernel || !h) return plain(::epoll_ctl(epoll, op, fd, &e));
  return plain(sock::epoll_ctl(h, op, fd, op == EPOLL_CTL_DEL ? nullptr : &e));
}

int Mux::wait(int epoll, epoll_event* out, int most, int timeout_ms, const sigset_t* mask) {
  const Handle h = fd_table().find(epoll);
  if (api_.side() == Side::kKernel || !h)
    return plain(::epoll_pwait(epoll, out, most, timeout_ms, mask));
  const timespec t = to_timespec(timeout_ms);
  return plain(
      sock::epoll_wait(h, {out, static_cast<size_t>(most)}, timeout_ms < 0 ? nullptr : &t, mask));
}

std::string Mux::now(int epoll, int most) {
  epoll_event events[64];
  await_look(0);
  return text(events, wait(epoll, events, most, 0));
}

std::string Mux::next(int epoll, int most) {
  epoll_event events[64];
  return text(events, wait(epoll, events, most, 5000));
}

int Mux::poll(std::vector<pollfd>& fds, int timeout_ms, const sigset_t* mask) {
  const timespec t = to_timespec(timeout_ms);
  const timespec* timeout = timeout_ms < 0 ? nullptr : &t;
  await_look(timeout_ms);
  if (api_.side() == Side::kKernel) return plain(::ppoll(fds.data(), fds.size(), timeout, mask));
  return plain(sock::poll(fds, timeout, mask));
}

int Mux::select(int nfds, fd_set* in, fd_set* out, fd_set* pri, int timeout_ms) {
  const timespec t = to_timespec(timeout_ms);
  const timespec* timeout = timeout_ms < 0 ? nullptr : &t;
  await_look(timeout_ms);
  if (api_.side() == Side::kKernel) return plain(::pselect(nfds, in, out, pri, timeout, nullptr));
  return plain(sock::select(nfds, in, out, pri, timeout, nullptr));
}

int Mux::close(int fd) {
  const Handle h = fd_table().find(fd);
  return api_.side() == Side::kKernel || !h ? plain(::close(fd)) : plain(sock::close(h));
}

void deliver(Api& a, int from, Api& b, int to, const std::string& text) {
  const int want = b.ioctl(to, FIONREAD) + static_cast<int>(text.size());
  EXPECT_EQ(a.send(from, text), static_cast<ssize_t>(text.size()));
  const auto end = Clock::now() + Duration::s(5);
  // The call polls only where the queue is empty.
  while (b.ioctl(to, FIONREAD) < want && Clock::now() < end) (void)b.ready(to);
  EXPECT_EQ(b.ioctl(to, FIONREAD), want);
}

}  // namespace vireo::test
