#include "core/stats_reading.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>

namespace vireo {
namespace {

/// A text that may lack its terminator. Another user may have written it: no escape sequences for
/// the terminal.
template <size_t N>
std::string text_of(const char (&from)[N]) {
  std::string text(from, ::strnlen(from, N));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';  // control and non-ASCII characters
  return text;
}

template <class S, size_t N, class T>
void add_counts(const std::array<CounterName<S>, N>& list, const T& from,
                std::array<uint64_t, N>& to) {
  for (size_t i = 0; i < N; ++i) to[i] += (from.*list[i].counter).get();
}

/// Bytes of the descriptive fields, read while another process may write them: the generation shows
/// torn reads.
struct RawSocket {
  int32_t fd;
  uint8_t proto, family, listening, tcp_state, closed, ring;
  uint8_t carriage;
  uint8_t local_addr[16], remote_addr[16];
  uint16_t local_port, remote_port;
  int32_t err;
  char detail[sizeof SocketStats::detail];
};

template <class T>
void peek(T& to, const T& from) {
  std::memcpy(&to, const_cast<const T*>(&from), sizeof to);
}

RawSocket peek_all(const SocketStats& s) {
  RawSocket r;
  peek(r.fd, s.fd);
  peek(r.proto, s.proto);
  peek(r.family, s.family);
  peek(r.listening, s.listening);
  peek(r.tcp_state, s.tcp_state);
  peek(r.closed, s.closed);
  peek(r.ring, s.ring);
  std::memcpy(&r.carriage, &s.carriage, sizeof r.carriage);
  std::memcpy(r.local_addr, s.local_addr, sizeof r.local_addr);
  std::memcpy(r.remote_addr, s.remote_addr, sizeof r.remote_addr);
  peek(r.local_port, s.local_port);
  peek(r.remote_port, s.remote_port);
  peek(r.err, s.err);
  std::memcpy(r.detail, s.detail, sizeof r.detail);
  return r;
}

Endpoint endpoint(const uint8_t (&addr)[16], uint16_t port) {
  return {.addr = IpAddr::v6(addr), .port = port, .scope = 0};
}

std::optional<SocketReading> read_socket(const SocketStats& s) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const uint32_t before = s.generation.load(std::memory_order_acquire);
    if (before == 0) return std::nullopt;
    if (before % 2 != 0) continue;
    const RawSocket raw = peek_all(s);
    SocketReading r;
    add_counts(kSocketCounters, s, r.counts);
    // Pairs with the writer's release fence after it made the generation odd (sock/carriage.cpp).
    std::atomic_thread_fence(std::memory_order_acquire);
    if (s.generation.load(std::memory_order_relaxed) != before) continue;
    r.fd = raw.fd;
    r.tcp = raw.proto == IPPROTO_TCP;
    r.v6 = raw.family == AF_INET6;
    r.listening = raw.listening != 0;
    r.closed = raw.closed != 0;
    r.shared = s.shared.load(std::memory_order_relaxed);
    r.tcp_state = raw.tcp_state;
    if (raw.ring < kStatsEngines) r.ring = raw.ring;
    if (raw.carriage < static_cast<uint8_t>(Carriage::kCount))
      r.carriage = static_cast<Carriage>(raw.carriage);
    r.err = raw.err;
    r.detail = text_of(raw.detail);
    r.local = endpoint(raw.local_addr, raw.local_port);
    r.remote = endpoint(raw.remote_addr, raw.remote_port);
    return r;
  }
  return std::nullopt;
}

constexpr std::string_view kStates[] = {"closed",     "syn-sent",   "syn-recv",   "established",
                                        "fin-wait-1", "fin-wait-2", "close-wait", "closing",
                                        "last-ack",   "time-wait"};

}  // namespace

std::string_view tcp_state_name(uint8_t state) {
  return state < std::size(kStates) ? kStates[state] : "?";
}

std::string_view SocketReading::state() const {
  if (closed) return "closed";
  if (listening) return "listen";
  if (shared == SharedPort::kKernel) return "shared-port:kernel";
  if (shared == SharedPort::kCopies) return "shared-port:copies";
  if (shared == SharedPort::kBoth) return "shared-port:copies,kernel";
  return tcp && is_carried() ? tcp_state_name(tcp_state) : "";
}

ProcessReading read_stats(const StatsLayout& live) {
  ProcessReading p;
  p.pid = live.pid;
  p.program = text_of(live.program);
  for (const EngineStats& e : live.engines) {
    add_counts(kEngineCounters, e, p.engine);
    if (e.pool_size.get() == 0) continue;  // not created
    p.rings.resize(static_cast<size_t>(&e - live.engines) + 1);
    add_counts(kEngineCounters, e, p.rings.back());
  }
  add_counts(kGroupCounters, live.group, p.group);
  for (const PortStats& from : live.ports) {
    const uint32_t ifindex = from.ifindex.load(std::memory_order_acquire);
    if (ifindex != 0)
      p.ports.push_back({ifindex, from.queues, text_of(from.name), text_of(from.mode)});
  }
  p.carried = live.sockets_carried.get();
  p.kernel = live.sockets_kernel.get();
  for (size_t i = 0; i < p.refused.size(); ++i) {
    p.refused[i] = live.refused[i].get();
    p.closed[i].sockets = live.closed[i].sockets.get();
    add_counts(kSocketCounters, live.closed[i], p.closed[i].counts);
  }
  for (const SocketStats& s : live.sockets)
    if (auto r = read_socket(s)) p.sockets.push_back(std::move(*r));
  std::ranges::sort(p.sockets, {}, [](const SocketReading& r) {
    return std::tuple(r.closed, r.fd, r.local, r.remote);
  });
  return p;
}

}  // namespace vireo
