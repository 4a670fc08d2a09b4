// An open file description served by Vireo: a TCP or UDP socket, or an epoll. Descriptors made by
// dup share it. Under each descriptor lies a kernel descriptor of the same number: the shadow (a
// kernel socket), or, for an accepted connection, a dup of a placeholder.
//
// Lifetime: Files lie in a type-stable array (fd_table.h) and never return to the heap. A Handle
// found by number is checked by its generation under the engine's lock or the File's control lock.
// A call that releases the lock to sleep holds a reference. The last reference (descriptors and
// sleeping calls) closes the File.
// Owner: FdTable. Guards: named at each member. Lock order: control (5), then engine (6).
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cstdint>

#include "core/carriage.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/stats_layout.h"
#include "stack/engine/engine.h"
#include "stack/sock/options/shared.h"
#include "stack/sock/options/table.h"
#include "stack/sock/readiness.h"

namespace vireo {

class Stack;
struct UdpSocket;
class Epoll;        // stack/sock/epoll.h
struct ExtraState;  // stack/sock/extra_state.h

enum class FileKind : uint8_t { kNone, kTcp, kUdp, kEpoll };

/// Who serves the socket.
enum class Mode : uint8_t {
  kUndecided,  ///< a new socket: the kernel serves it until connect, listen, bind or the first send
  kKernel,     ///< the kernel serves it for good (or until a UDP socket's next connect)
  kCarried,    ///< Vireo serves it: `flow` is a TcpFlow or UdpFlow
  kListening,  ///< both serve it: `flow` is a Listener, the shadow listens too
  kVoid,       ///< in the child of a fork: the parent serves it, until the child uses it
};

/// Which processes have the socket beneath a TCP connection.
enum class Holders : uint8_t {
  kUs,       ///< this one alone
  kChild,    ///< one child, too, and this one will tell it of its close (heirs.h)
  kParent,   ///< the parent had it when it forked this process, and tells of its close
  kUnknown,  ///< perhaps others, in ways that nobody keeps count of
};

/// A pointer that a thread with a dead Handle may still read while the File is opened again. It
/// never dangles: its target is reused, not freed.
template <class T>
class LastingPtr {
 public:
  LastingPtr& operator=(T* p) noexcept {
    p_.store(p, std::memory_order_relaxed);  // published with the File, by FdTable::install()
    return *this;
  }
  operator T*() const noexcept { return p_.load(std::memory_order_relaxed); }
  T* operator->() const noexcept { return *this; }

 private:
  std::atomic<T*> p_{nullptr};
};

/// Linux's enum socket_state, which decides the result of connect(2).
enum class Link : uint8_t { kUnconnected, kConnecting, kConnected };

inline constexpr uint8_t kShutRead = 1;
inline constexpr uint8_t kShutWrite = 2;
/// Beside them: the error queue is not empty.
inline constexpr uint8_t kHasReports = 4;

/// The state of a TCP socket beyond its File and its flow.
struct TcpSocket {
  SharedOptions options;
  // ---- guarded by the engine's lock while carried
  Link link = Link::kUnconnected;
  uint8_t shut = 0;               ///< kShutRead, kShutWrite; kHasReports
  bool error_taken : 1 = false;   ///< SO_ERROR has been reported (once only)
  bool has_accepted : 1 = false;  ///< a listener's: the program has called accept
  /// State after Linux's tcp_disconnect(): a new socket, perhaps with a pending error. The old flow
  /// is closed but still attached.
  bool undone : 1 = false;
  /// A send is more than the bytes: it is reported, or polls (VMA_RX_POLL_ON_TX_TCP).
  bool sends_apart : 1 = false;
  // ---- guarded by the control lock; in a separate byte from the bits above
  uint8_t : 0;
  PortOrigin port : 2 = PortOrigin::kProgram;  ///< of an active open
  bool has_drawn_source : 1 = false;           ///< the program has chosen no local address
  bool is_workers : 1 = false;                 ///< Worker counts it
  // ---- written under both locks, read without as a hint
  /// The options ask recvmsg(2) for ancillary data.
  std::atomic<bool> wants_control{false};

  /// Back to the state of a new socket.
  void reset() noexcept {
    options = SharedOptions();
    link = Link::kUnconnected;
    shut = 0;
    error_taken = has_accepted = undone = has_drawn_source = is_workers = false;
    sends_apart = false;
    port = PortOrigin::kProgram;
    wants_control.store(false, std::memory_order_relaxed);
  }
};

/// Why a socket must stay on the kernel in any case. kUndecided: it need not; kCarried: nor does it
/// because of VMA_OFFLOADED_SOCKETS=0.
struct Forced {
  Carriage why = Carriage::kUndecided;
  OptionId option = kNoOption;  ///< if `why` is kOption

  bool to_kernel() const { return why != Carriage::kUndecided && why != Carriage::kCarried; }
};

/// Two cache lines: first what a call on a carried connection reads, then waiters and the rest.
struct alignas(64) File {
  /// Changes when the File is freed: a Handle of an older generation is dead. Written under both
  /// locks; acquire/release with fd_table.cpp.
  std::atomic<uint32_t> generation{0};
  /// Free File: index of the next free one (FdTable). Open File: place of its kernel socket in
  /// ShadowReserve, if that socket is on loan and has a second number there; else 0.
  std::atomic<uint32_t> place{0};
  /// Descriptors and sleeping calls. Changed by any thread that holds a reference.
  std::atomic<uint32_t> refs{0};
  std::atomic<FileKind> kind{FileKind::kNone};
  /// Written under the control lock and, once there is an engine, the engine's lock. Read without a
  /// lock as a hint; a decision reads it again under a lock.
  std::atomic<Mode> mode{Mode::kUndecided};
  std::atomic<bool> nonblock{false};  ///< O_NONBLOCK, as the program set it
  /// The fd number is a dup of a placeholder: the kernel socket's state says nothing about this
  /// one.
  bool placeholder = false;
  /// The kernel socket beneath is not bound to the connection's local address.
  bool has_own_name() const { return placeholder || tcp.port == PortOrigin::kLeased; }
  std::atomic<Engine*> engine{nullptr};  ///< set once, with mode kCarried or kListening
  LastingPtr<Stack> stack;               ///< constant from open to free
  Flow* flow = nullptr;                  ///< guarded by the engine's lock
  LastingPtr<SocketStats> stats;         ///< never null for sockets; constant while open
  [[no_unique_address]] TcpSocket tcp;   ///< kind kTcp
  /// Set by a multiplexer that saw the kernel's descriptor readable: the next receive reads from
  /// the kernel first. Cleared by the receive that finds nothing there.
  std::atomic<bool> kernel_hint{false};
  std::atomic<uint8_t> domain{0};  ///< AF_INET, AF_INET6
  /// Not 0: the kernel socket beneath is as socket(2) made it, except O_NONBLOCK and, with
  /// kNoDelay, TCP_NODELAY, and the program has no other descriptor of it. The value is the
  /// ShadowReserve::age() in which it was made. Call touch() before changing any state that the
  /// kernel keeps.
  std::atomic<uint8_t> made_in{0};
  static constexpr uint8_t kNoDelay = 0x80;
  LastingPtr<UdpSocket> udp;  ///< kind kUdp; made once, kept for reuse
  union {
    Epoll* epoll = nullptr;  ///< kind kEpoll; constant while open
    /// Sockets: what only the extra API sets. Null: nothing. Written under both locks.
    ExtraState* extra;
  };
  std::atomic<int64_t> rcv_timeout_ns{0};  ///< SO_RCVTIMEO, 0 = none
  std::atomic<int64_t> snd_timeout_ns{0};  ///< SO_SNDTIMEO
  [[no_unique_address]] ReadySource ready;
  // ---- of an accepted connection of the kernel's (promotion.h)
  /// How many more times it must bring data before Vireo may carry it. 0: never.
  std::atomic<uint8_t> receives_left{0};
  std::atomic<uint8_t> looked_at{0};  ///< Promotion's clock, at its start or the last look at it
  std::atomic<Holders> holders{Holders::kUs};
  Lock control;   ///< bind, connect, listen, options
  Forced forced;  ///< guarded by the control lock; for a listener on the kernel, the reason

  void touch() noexcept {
    made_in.store(0, std::memory_order_relaxed);
    if (place.load(std::memory_order_relaxed) != 0) [[unlikely]]
      end_loan();
  }
  bool is_pristine() const noexcept {
    return (made_in.load(std::memory_order_relaxed) & ~kNoDelay) != 0;
  }
  bool is_carried() const noexcept {
    return mode.load(std::memory_order_acquire) == Mode::kCarried;
  }
  /// Neither carried nor void.
  bool is_kernels() const noexcept {
    const Mode m = mode.load(std::memory_order_acquire);
    return m != Mode::kCarried && m != Mode::kVoid;
  }
  bool is_tcp() const noexcept { return kind.load(std::memory_order_relaxed) == FileKind::kTcp; }
  bool is_epoll() const noexcept {
    return kind.load(std::memory_order_relaxed) == FileKind::kEpoll;
  }
  bool is_udp() const noexcept { return kind.load(std::memory_order_relaxed) == FileKind::kUdp; }
  TcpFlow& tcp_flow() const { return *static_cast<TcpFlow*>(flow); }
  UdpFlow& udp_flow() const { return *static_cast<UdpFlow*>(flow); }
  Listener& listener() const { return *static_cast<Listener*>(flow); }

 private:
  void end_loan() noexcept;  // shadow_reserve.cpp
};

static_assert(sizeof(File) == 128);  // part of the 1 KiB budget of an idle connection

/// A File as found by a descriptor: valid while `file->generation == generation`.
struct Handle {
  File* file = nullptr;
  uint32_t generation = 0;
  int fd = -1;  ///< the number it was found by, also of the kernel socket beneath

  explicit operator bool() const noexcept { return file != nullptr; }
  File* operator->() const noexcept { return file; }
  /// Still the same open file description. Reliable only under the engine's or the control lock.
  bool is_alive() const noexcept {
    return file->generation.load(std::memory_order_acquire) == generation;
  }
};

/// Whether readiness includes the kernel's poll(2)/epoll(7) result for the descriptor: always for
/// UDP, listeners and kernel sockets; never for a carried connection, whose shadow is unused.
inline bool watches_kernel(const File& f) noexcept {
  const Mode m = f.mode.load(std::memory_order_acquire);
  return m == Mode::kUndecided || m == Mode::kKernel || m == Mode::kListening ||
         (m == Mode::kCarried && f.kind.load(std::memory_order_relaxed) == FileKind::kUdp);
}

/// The events (EPOLL*) pending on Vireo's side of the socket. If watches_kernel(), the caller polls
/// the kernel's side itself. kVoid: HUP and ERR. Events not in `asked` may be left out, except HUP
/// and ERR. Thread: holder of the engine's lock if carried or listening.
ReadyBits readiness(const File& f, ReadyBits asked = ~ReadyBits{0}) noexcept;

}  // namespace vireo
