// The ring is an epoll of its sockets, for edges: an event says that a socket has something new,
// and a socket from which one packet was taken may have more.
#include "stack/extra/completions.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <vector>

#include "core/user_memory.h"
#include "stack/extra/layout.h"
#include "stack/extra/socket_rings.h"
#include "stack/extra/zero_copy.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/epoll.h"
#include "stack/sock/extra_state.h"
#include "stack/sock/multiplex.h"

namespace vireo::extra {
namespace {

// The program reads a LentBuffer as its vma_buff_t.
static_assert(offsetof(LentBuffer, next) == offsetof(vma_buff_t, next) &&
              offsetof(LentBuffer, data) == offsetof(vma_buff_t, payload) &&
              offsetof(LentBuffer, length) == offsetof(vma_buff_t, len));

vma_buff_t* shown(LentBuffer* b) { return reinterpret_cast<vma_buff_t*>(b); }
LentBuffer* lent(vma_buff_t* b) { return reinterpret_cast<LentBuffer*>(b); }

/// A socket that may have more, and what it last reported.
struct Open {
  Handle socket;
  uint32_t events;
};

/// Of a ring, by its engine.
struct Poller {
  std::atomic<bool> is_busy{false};  ///< guards the rest
  std::vector<Open> more, turn;      ///< those to ask; of which this call has asked some
  Instant next_look;
};
std::array<Poller, Rings::kMax> g_pollers;  // of a process

/// One packet a completion: of a stream one buffer, as programs expect that.
constexpr size_t kPieces = 1;
constexpr size_t kMaxEvents = 64;
constexpr uint32_t kEnds = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

/// SO_VMA_USER_DATA.
uint64_t user_data(Handle h) {
  const LockGuard control(h->control);
  const auto own = static_cast<uint64_t>(h.fd);
  return h.is_alive() && h->extra != nullptr ? h->extra->values.user_data.value_or(own) : own;
}

/// Accepts one connection. @return false: there is none.
bool accept_one(Handle listener, const Ring& ring, vma_completion_t& c) {
  sockaddr_in from{};
  socklen_t len = sizeof from;
  // Who polls a ring never waits.
  const bool nonblock = listener->nonblock.exchange(true, std::memory_order_relaxed);
  const auto fd = sock::accept(listener, reinterpret_cast<sockaddr*>(&from), &len, 0);
  listener->nonblock.store(nonblock, std::memory_order_relaxed);
  if (!fd) return false;
  const Handle h = fd_table().find(*fd);
  if (h) join_accepted(h, ring);
  c = {};
  c.events = VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED;
  c.user_data = static_cast<uint64_t>(*fd);
  c.src = from;
  c.listen_fd = listener.fd;
  return true;
}

/// For recv(2): it came by an interface that is not carried.
bool kernel_has_datagram(Handle h) {
  pollfd p{h.fd, POLLIN, 0};
  return h->is_udp() && kernel::poll_now(&p, 1) > 0;
}

/// What has happened on a socket. @return whether there is a completion; `has_more`: the socket is
/// to be asked again.
bool complete(Open& o, const Ring& ring, vma_completion_t& c, bool& has_more) {
  const Handle& h = o.socket;
  has_more = false;
  const Mode mode = h->mode.load(std::memory_order_acquire);
  if (mode == Mode::kListening) return has_more = accept_one(h, ring, c);
  uint64_t events = o.events;
  Look found;
  if ((o.events & EPOLLIN) != 0) {
    if (!look(h, kPieces, true, found)) return false;  // closed
    // It has lent as much as it may, and gets no more before some is given back.
    has_more = found.what != Look::kNothing;
    if (found.what == Look::kMustCopy) return false;
    if (found.what == Look::kUrgent) has_more = false;  // EPOLLIN: only recv(2) goes on
  }
  if (found.what == Look::kLent) {
    // The end comes after the data, once.
    events = VMA_SOCKETXTREME_PACKET | (o.events & EPOLLOUT);
    o.events &= ~static_cast<uint32_t>(EPOLLOUT);
  } else if (found.what != Look::kUrgent && (o.events & kEnds) == 0 && mode == Mode::kCarried &&
             !kernel_has_datagram(h)) {
    events &= ~static_cast<uint64_t>(EPOLLIN);  // all was taken
  }
  if (events == 0) return false;
  c = {};
  c.events = events;
  c.user_data = found.what == Look::kLent ? found.user_data : user_data(h);
  c.listen_fd = -1;
  if (found.what != Look::kLent) return true;
  c.packet.num_bufs = found.packet.buffers;
  c.packet.total_len = static_cast<uint16_t>(found.packet.bytes);
  c.packet.buff_lst = shown(found.packet.first);
  c.packet.hw_timestamp = time_of(found.hw_time);
  c.src = address_of(found.source);
  return true;
}

/// An event is merged with what the socket still has to report.
void note_event(Poller& p, const epoll_event& e) {
  const Handle h = fd_table().find(static_cast<int>(e.data.u64));
  if (!h) return;
  for (Open& o : p.more)
    if (o.socket.file == h.file && o.socket.generation == h.generation) {
      o.events |= e.events;
      return;
    }
  p.more.push_back({h, e.events});
}

/// Asks the ring for events.
void look_at_ring(Poller& p, const Ring& ring) {
  constexpr timespec kNone{};
  FilePin pin;  // the program may close the ring meanwhile
  {
    const LockGuard control(ring.epoll->control);
    if (!ring.epoll.is_alive()) return;
    pin.pin(*ring.epoll.file);
  }
  const Instant now = Clock::now();
  epoll_event events[kMaxEvents];
  size_t n = 0;
  (void)ring.epoll->epoll->poll_and_take(*ring.engine, events, now, n);
  // The kernel's side of the sockets costs a system call.
  if (n == 0 && (ring.epoll->epoll->pending() || now >= p.next_look)) {
    p.next_look = now + sock::kBetweenLooks;
    const auto waited = sock::epoll_wait(ring.epoll, events, &kNone, nullptr);
    n = waited ? static_cast<size_t>(*waited) : 0;
  }
  for (const epoll_event& e : std::span(events, n)) note_event(p, e);
}

/// Whether the stack still has the engine of a buffer: in the child of a fork, those of the parent
/// are not to be touched.
bool is_ours(Stack& stack, const LentBuffer& b) {
  bool found = false;
  stack.for_each_engine([&](Engine& e) { found |= &e == b.engine; });
  return found;
}

/// Runs `f` on a buffer of the program's, under its engine's lock.
template <class F>
Result<int> with_buffer(Stack& stack, vma_buff_t* buffer, F&& f) VIREO_NO_THREAD_ANALYSIS {
  LentBuffer* const b = lent(buffer);
  if (b == nullptr || !is_readable(b, sizeof *b) || b->packet == nullptr || !is_ours(stack, *b))
    return fail(EINVAL, "buffer");
  const EngineGuard guard(*b->engine);
  if (b->packet == nullptr) return fail(EINVAL, "buffer");
  return f(*b);
}

}  // namespace

void forget_completions() noexcept {
  for (Poller& p : g_pollers) std::construct_at(&p);  // another thread may have held it
}

Result<int> poll_completions(int ring_fd, std::span<vma_completion_t> out) {
  const Ring ring = find_ring(ring_fd);
  if (!ring.epoll) return fail(EBADFD, "ring");
  if (out.empty() || !is_writable(out.data(), out.size_bytes())) return fail(EINVAL, "ring");
  join_noted();
  Poller& p = g_pollers[ring.engine->id().value()];
  if (p.is_busy.exchange(true, std::memory_order_acquire)) return 0;
  look_at_ring(p, ring);
  size_t done = 0;
  // Each in turn, so that none waits for another's stream to end.
  p.turn.swap(p.more);
  size_t i = 0;
  for (; i < p.turn.size() && done < out.size(); ++i) {
    Open& o = p.turn[i];
    if (!o.socket.is_alive()) continue;
    bool has_more = false;
    if (complete(o, ring, out[done], has_more)) ++done;
    if (has_more) p.more.push_back(o);
  }
  p.more.insert(p.more.begin(), p.turn.begin() + static_cast<ptrdiff_t>(i), p.turn.end());
  p.turn.clear();
  p.is_busy.store(false, std::memory_order_release);
  return static_cast<int>(done);
}

Result<int> free_completed(Stack& stack, std::span<const vma_packet_desc_t> packets) {
  if (!is_readable(packets.data(), std::max<size_t>(packets.size_bytes(), 1)))
    return fail(EINVAL, "packets");
  for (const vma_packet_desc_t& p : packets) {
    const auto done = with_buffer(stack, p.buff_lst, [](LentBuffer& b) -> Result<int> {
      lending::give_back_packet(b);
      return 0;
    });
    if (!done) return done;
  }
  return 0;
}

Result<int> hold_buffer(Stack& stack, vma_buff_t* buffer) {
  return with_buffer(stack, buffer, [](LentBuffer& b) -> Result<int> {
    return static_cast<int>(lending::hold(b));
  });
}

Result<int> free_buffer(Stack& stack, vma_buff_t* buffer) {
  return with_buffer(stack, buffer, [](LentBuffer& b) -> Result<int> {
    return static_cast<int>(lending::give_back(b));
  });
}

}  // namespace vireo::extra
