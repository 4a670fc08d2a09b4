// fcntl(2) and ioctl(2) of a socket.
#include <fcntl.h>
#include <linux/sockios.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "stack/sock/async_io.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/inspection.h"
#include "stack/sock/options/options.h"
#include "stack/sock/options/values.h"
#include "stack/sock/served_by.h"
#include "stack/sock/tcp_socket.h"
#include "stack/sock/udp_socket.h"
#include "stack/sock/urgent.h"

namespace vireo::sock {

namespace {

void set_async_locked(Handle h, bool on) {
  const LockGuard control(h->control);
  if (h.is_alive()) set_async(h, on);
}

/// The result of FIONREAD and similar requests for a carried socket. nullopt: the kernel answers.
Result<std::optional<uint64_t>> look_at_queue(Handle h, unsigned long request) {
  File& f = *h.file;
  Engine* const engine = f.engine.load(std::memory_order_acquire);
  if (engine == nullptr) [[unlikely]]
    return fail(EBADF, "ioctl");  // closed by another thread
  Engine& e = *engine;
  EngineGuard guard(e);
  if (!h.is_alive()) return fail(EBADF, "ioctl");
  if (f.flow == nullptr) return std::nullopt;
  if (kind(h) == FileKind::kTcp) {
    tcp::Tcb& t = f.tcp_flow().tcb;
    if (request == FIONREAD) {
      if (tcp::recv_queue(t).empty()) e.poll_to_return(Clock::now());
      // At most to the urgent mark, where a read stops.
      uint64_t bytes = tcp::recv_queue(t).bytes();
      if (tcp::urgent(t) != tcp::Urgent::kNone && f.tcp.options->socket.oobinline == 0)
        bytes = std::min(bytes, tcp::bytes_to_mark(t));
      return bytes;
    }
    const tcp::State state = tcp::state(t);
    const bool opening = state == tcp::State::kSynSent || state == tcp::State::kSynReceived;
    if (request == SIOCOUTQ) return opening ? 0 : tcp::unacked_bytes(t);
    if (request == SIOCOUTQNSD) return opening ? 0 : tcp::unsent_bytes(t);
    return tcp::urgent(t) != tcp::Urgent::kNone && tcp::bytes_to_mark(t) == 0 ? 1 : 0;
  }
  if (request != FIONREAD) return std::nullopt;
  UdpFlow& u = f.udp_flow();
  if (u.queue.empty()) e.poll_to_return(Clock::now());
  // The first datagram only (udp(7)).
  uint64_t bytes = 0;
  for (const PacketBuf* p = inspection::receivable(f).front(); p != nullptr; p = p->next) {
    bytes += p->length;
    if (p->offset == 0) break;
  }
  if (bytes == 0) return std::nullopt;
  return bytes;
}

// ---- SIOCGSTAMP (socket(7)), whose newer forms are the same on 64-bit machines

bool is_stamp_request(unsigned long request) {
  return request == SIOCGSTAMP_OLD || request == SIOCGSTAMPNS_OLD || request == SIOCGSTAMP_NEW ||
         request == SIOCGSTAMPNS_NEW;
}
bool is_in_micros(unsigned long request) {
  return request == SIOCGSTAMP_OLD || request == SIOCGSTAMP_NEW;
}

/// When the last datagram came that the program has read, ns of CLOCK_REALTIME; it is kept from now
/// on. nullopt: it has read none of Vireo's. As net/core/sock.c sock_gettstamp().
Result<std::optional<int64_t>> last_stamp(Handle h) {
  File& f = *h.file;
  const LockGuard control(f.control);
  if (!h.is_alive()) return fail(EBADF, "ioctl");
  UdpSocket& s = *f.udp;
  const bool is_first = s.options.socket.keeps_stamp == 0;
  if (is_first) {
    SocketOptions o = s.options;
    o.socket.keeps_stamp = 1;
    if (auto ok = replace_options(f, o); !ok) return std::unexpected(ok.error());
  }
  Engine& e = *f.engine.load(std::memory_order_relaxed);
  const EngineGuard guard(e);
  if (f.flow == nullptr) return std::nullopt;
  UdpFlow& u = f.udp_flow();
  e.ports().ask_arrivals(u, true);
  uint64_t unread = 0;
  for (const PacketBuf* p = u.queue.front(); p != nullptr; p = p->next) unread += p->offset == 0;
  if (is_first && s.last_stamp < 0 && f.stats->rx_packets.get() > unread) s.last_stamp = 0;
  if (s.last_stamp < 0) return std::nullopt;
  if (s.last_stamp == 0) s.last_stamp = Clock::wall_ns();
  return s.last_stamp;
}

Result<int> give_stamp(int64_t ns, bool micros, void* to) {
  const int64_t pair[2] = {ns / 1'000'000'000, ns % 1'000'000'000 / (micros ? 1000 : 1)};
  if (!is_writable(static_cast<std::byte*>(to), sizeof pair)) return fail(EFAULT, "ioctl");
  std::memcpy(to, pair, sizeof pair);
  return 0;
}

}  // namespace

Result<int> fcntl(Handle h, int command, uintptr_t argument) {
  File& f = *h.file;
  switch (command) {
    case F_DUPFD:
      return dup_from(h, static_cast<int>(argument), false);
    case F_DUPFD_CLOEXEC:
      return dup_from(h, static_cast<int>(argument), true);
    case F_GETFL: {
      const int flags = libc().fcntl(h.fd, F_GETFL);
      if (flags < 0) return fail_errno("fcntl");
      // The kernel's flag is used by Vireo (listeners), or shared by many sockets (placeholders).
      // Once the socket is the kernel's, another process may have set it.
      const bool is_kernels = f.is_tcp() && mode(h) == Mode::kKernel;
      const bool nonblock =
          is_kernels ? (flags & O_NONBLOCK) != 0 : f.nonblock.load(std::memory_order_relaxed);
      return (flags & ~(O_NONBLOCK | O_ASYNC)) | (nonblock ? O_NONBLOCK : 0) |
             (is_async(f) ? O_ASYNC : 0);
    }
    case F_SETFL: {
      if (is_void_connection(h)) (void)use(h, "fcntl");
      const auto flags = static_cast<int>(argument);
      const bool nonblock = (flags & O_NONBLOCK) != 0;
      if ((flags & ~(O_NONBLOCK | O_ACCMODE)) != 0) f.touch();
      if (!f.placeholder && f.stack->is_owner()) {
        const int kernel = mode(h) == Mode::kListening ? flags | O_NONBLOCK : flags;
        if (libc().fcntl(h.fd, F_SETFL, kernel) != 0) return fail_errno("fcntl");
      }
      f.nonblock.store(nonblock, std::memory_order_relaxed);
      set_async_locked(h, (flags & O_ASYNC) != 0);
      return 0;
    }
    default:
      // Without FD_CLOEXEC it is meant for another program.
      if (command == F_SETFD ? (argument & FD_CLOEXEC) == 0 : command != F_GETFD)
        (void)use(h, "fcntl");
      if (command != F_GETFD && command != F_SETFD) f.touch();
      if (kind(h) == FileKind::kTcp && f.stack->is_owner())
        if (auto done = tcp_socket::owner_call(h, command, argument)) return *done;
      return from_libc(libc().fcntl(h.fd, command, argument), "fcntl");
  }
}

Result<int> ioctl(Handle h, unsigned long request, void* argument) {
  File& f = *h.file;
  const auto give = [&](uint64_t v) -> Result<int> {
    auto* const to = static_cast<int*>(argument);
    if (!is_writable(to)) return fail(EFAULT, "ioctl");
    *to = static_cast<int>(v);
    return 0;
  };
  if (request == FIONCLEX || (is_void_connection(h) && request != FIOCLEX)) (void)use(h, "ioctl");
  const bool reads =
      request == FIONBIO || request == FIOASYNC || request == FIOSETOWN || request == SIOCSPGRP;
  if (reads && !is_readable(static_cast<const int*>(argument))) return fail(EFAULT, "ioctl");
  if (request == FIONBIO) {
    const bool on = *static_cast<const int*>(argument) != 0;
    if (!f.placeholder && mode(h) != Mode::kListening && libc().ioctl(h.fd, FIONBIO, argument) != 0)
      return fail_errno("ioctl");
    f.nonblock.store(on, std::memory_order_relaxed);
    return 0;
  }
  if (request == FIOASYNC) {
    const int on = *static_cast<const int*>(argument);
    f.touch();
    if (!f.placeholder && libc().ioctl(h.fd, FIOASYNC, argument) != 0) return fail_errno("ioctl");
    set_async_locked(h, on != 0);
    return 0;
  }
  if ((request == FIOSETOWN || request == SIOCSPGRP || request == FIOGETOWN ||
       request == SIOCGPGRP) &&
      argument != nullptr && kind(h) == FileKind::kTcp && f.stack->is_owner()) {
    const bool sets = request == FIOSETOWN || request == SIOCSPGRP;
    f.touch();
    auto owner = tcp_socket::owner_call(
        h, sets ? F_SETOWN : F_GETOWN,
        sets ? static_cast<uintptr_t>(*static_cast<const int*>(argument)) : 0);
    if (sets || !*owner) return *owner;
    return give(static_cast<uint64_t>(**owner));
  }
  const bool asks_queue =
      request == FIONREAD || request == SIOCOUTQ || request == SIOCOUTQNSD || request == SIOCATMARK;
  if (argument != nullptr && asks_queue && f.is_carried()) {
    const auto n = look_at_queue(h, request);
    if (!n) return std::unexpected(n.error());
    if (*n) return give(**n);
  }
  if (f.is_udp() && f.is_carried() && is_stamp_request(request)) {
    const auto ns = last_stamp(h);
    if (!ns) return std::unexpected(ns.error());
    if (*ns) return give_stamp(**ns, is_in_micros(request), argument);
  }
  if (is_void(h) && asks_queue) return fail(ENOTCONN, "ioctl");
  f.touch();
  return from_libc(libc().ioctl(h.fd, request, argument), "ioctl");
}

}  // namespace vireo::sock
