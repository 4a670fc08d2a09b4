// Readiness by the side that serves the socket, and notification of watchers.
#include "stack/sock/readiness.h"

#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/udp_socket.h"

namespace vireo {

ReadyBits readiness(const File& f, ReadyBits asked) noexcept {
  switch (f.mode.load(std::memory_order_acquire)) {
    case Mode::kUndecided:
    case Mode::kKernel:
      return 0;  // the kernel reports
    case Mode::kListening:
      return f.listener().ready.empty() ? 0 : kReadyIn;
    case Mode::kVoid:
      return EPOLLHUP | EPOLLERR | kReadyIn | kReadyOut | EPOLLRDHUP;
    case Mode::kCarried:
      return f.kind.load(std::memory_order_relaxed) == FileKind::kTcp
                 ? tcp_socket::readiness(f, asked)
                 : udp_socket::readiness(f);
  }
  return 0;
}

void ReadySource::tell(ReadyBits happened) noexcept {
  const LockGuard guard(lock_);
  for (Watcher& w : list_)
    if ((happened & (w.interest | kToldAlways)) != 0) w.notify(w, happened);
}

namespace sock {

bool poll_engine(Engine& e) noexcept {
  const Instant now = Clock::now();
  if (!take_to_poll(e, now)) return true;  // the holder polls
  const bool busy = e.poll(now);
  e.unlock();
  return busy;
}

bool poll_engine_to_return(Engine& e, Instant now) noexcept {
  if (!take_to_poll(e, now)) return true;
  const bool busy = e.poll_to_return(now, PollOf::kWait);
  e.unlock();
  return busy;
}

ReadyBits ready_now(Handle h) noexcept {
  Engine* e = h->engine.load(std::memory_order_acquire);
  if (e == nullptr) return h.is_alive() ? readiness(*h.file) : 0;  // no flow: no lock needed
  const EngineGuard guard(*e);
  return h.is_alive() ? readiness(*h.file) : 0;
}

}  // namespace sock
}  // namespace vireo
