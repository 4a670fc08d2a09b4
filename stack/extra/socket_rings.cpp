// Rings: an epoll for each engine, made when a program first asks for it.
#include "stack/extra/socket_rings.h"

#include <array>
#include <atomic>
#include <vector>

#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/multiplex.h"
#include "stack/sock/options/values.h"
#include "stack/sock/udp_socket.h"

namespace vireo::extra {
namespace {

Lock g_lock;
std::array<Ring, Rings::kMax> g_rings VIREO_GUARDED_BY(g_lock);
std::vector<Handle>* g_noted VIREO_GUARDED_BY(g_lock) =
    nullptr;  ///< never freed, as exit handlers may run
std::atomic<bool> g_has_noted{false};

bool is_open(const Handle& epoll) noexcept {
  const Handle now = epoll ? fd_table().find(epoll.fd) : Handle{};
  return now && now.file == epoll.file && now.generation == epoll.generation;
}

/// The ring of an engine, made if there is none. Errors: those of epoll_create1(2).
Result<Handle> ring_of(Stack& stack, Engine& e) {
  const LockGuard guard(g_lock);
  Ring& r = g_rings[e.id().value()];
  if (r.engine == &e && is_open(r.epoll)) return r.epoll;
  const auto fd = sock::epoll_create(stack, EPOLL_CLOEXEC);
  if (!fd) return std::unexpected(fd.error());
  r = {&e, fd_table().find(*fd)};
  if (!r.epoll) return fail(ENOMEM, "ring");
  return r.epoll;
}

Result<void> add(Handle h, const Handle& epoll, uint32_t events) {
  epoll_event wanted{};
  wanted.events = events;
  wanted.data.u64 = static_cast<uint64_t>(h.fd);
  auto added = sock::epoll_ctl(epoll, EPOLL_CTL_ADD, h.fd, &wanted);
  if (!added && added.error().code == EEXIST) return {};
  return added;
}

/// Datagrams can always be sent: EPOLLOUT would be of no use.
uint32_t edges_of(Handle h) {
  return static_cast<uint32_t>(EPOLLIN) | EPOLLRDHUP | EPOLLET |
         (h->is_udp() ? 0U : static_cast<uint32_t>(EPOLLOUT));
}

/// Adds a socket to its ring. @return the ring's descriptor.
Result<int> join_ring(Handle h, Engine& e) {
  const auto ring = ring_of(*h->stack, e);
  if (!ring) return std::unexpected(ring.error());
  const bool by_edges = h->stack->settings().socketxtreme;
  if (auto added = add(h, *ring, by_edges ? edges_of(h) : EPOLLIN | EPOLLRDHUP); !added)
    return std::unexpected(added.error());
  return ring->fd;
}

/// Of a socket that Vireo serves; null: it has none yet, or the kernel serves it.
Engine* engine_of(Handle h) noexcept {
  const Mode m = h->mode.load(std::memory_order_acquire);
  if (m != Mode::kCarried && m != Mode::kListening) return nullptr;
  return h->engine.load(std::memory_order_acquire);
}

/// Whether a carried interface leads to `to`.
bool is_reachable(Handle h, Engine& e, const Endpoint& to) {
  const LockGuard control(h->control);
  if (!h.is_alive() || !h->is_udp()) return false;
  const SocketOptions& o = h->udp->options;
  const EngineGuard guard(e);
  return e.next_hops()
      .route({.dst = to.addr,
              .src = h->udp->local.addr,
              .oif = bound_interface(o),
              .tos = static_cast<uint8_t>(o.ip.tos),
              .proto = IpProto::kUdp,
              .mark = static_cast<uint32_t>(o.socket.mark)})
      .has_value();
}

}  // namespace

int count_rings(Handle h) noexcept { return engine_of(h) != nullptr ? 1 : 0; }

Result<int> socket_rings(Handle h, std::span<int> out) {
  Engine* const e = engine_of(h);
  if (e == nullptr) return 0;
  const auto fd = join_ring(h, *e);
  if (!fd) return fd;
  out[0] = *fd;
  return 1;
}

Result<int> sending_ring(Handle h, const sockaddr* to, socklen_t len) {
  const auto end = to == nullptr ? std::nullopt : Endpoint::from_sockaddr(to, len);
  if (!end || !h->is_udp()) return fail(EINVAL, "ring");
  Engine* const e = engine_of(h);
  if (e == nullptr || !is_reachable(h, *e, *end)) return fail(ENODATA, "ring");
  return join_ring(h, *e);
}

Ring find_ring(int fd) noexcept {
  const LockGuard guard(g_lock);
  for (const Ring& r : g_rings)
    if (r.epoll && r.epoll.fd == fd && is_open(r.epoll)) return r;
  return {};
}

void note_socket(int fd) noexcept {
  const Handle h = fd_table().find(fd);
  if (!h) return;
  const LockGuard guard(g_lock);
  if (g_noted == nullptr) g_noted = new std::vector<Handle>;
  g_noted->push_back(h);
  g_has_noted.store(true, std::memory_order_relaxed);
}

void join_noted() noexcept {
  if (!g_has_noted.load(std::memory_order_relaxed)) return;
  std::vector<Handle> due;
  {
    const LockGuard guard(g_lock);
    std::erase_if(*g_noted, [&](const Handle& h) {
      const bool is_decided = engine_of(h) != nullptr;
      if (is_decided && is_open(h)) due.push_back(h);
      return is_decided || !is_open(h) || h->mode.load(std::memory_order_relaxed) == Mode::kKernel;
    });
    g_has_noted.store(!g_noted->empty(), std::memory_order_relaxed);
  }
  for (const Handle& h : due)
    if (Engine* const e = engine_of(h); e != nullptr) (void)join_ring(h, *e);
}

void join_accepted(Handle h, const Ring& ring) noexcept { (void)add(h, ring.epoll, edges_of(h)); }

void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { g_lock.lock(); }
void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { g_lock.unlock(); }
void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS {
  g_lock.reset_after_fork();
  g_rings = {};  // of the parent's engines
}

}  // namespace vireo::extra
