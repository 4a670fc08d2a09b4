// An open file description that is ours: a TCP or UDP socket, or an epoll. All descriptors made
// from it by dup share it. Under each descriptor lies a kernel descriptor of the same number: the
// shadow (a kernel socket), or for an accepted connection a dup of a placeholder.
//
// Life: Files lie in a type-stable array (fd_table.h) and are never returned to the heap. A Handle
// found by number is checked by its generation under the engine's lock or the File's control lock;
// who lets go of the lock to sleep holds a reference. The last reference (descriptors and sleepers)
// closes it.
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
class Epoll;  // stack/sock/epoll.h

enum class FileKind : uint8_t { kNone, kTcp, kUdp, kEpoll };

/// Who serves the socket.
enum class Mode : uint8_t {
  kUndecided,  ///< a new socket: the kernel's until connect, listen, bind or the first send
  kKernel,     ///< the kernel's, for good (or until the next connect of a UDP socket)
  kCarried,    ///< ours: `flow` is a TcpFlow or UdpFlow
  kListening,  ///< ours and the kernel's: `flow` is a Listener, the shadow listens too
  kVoid,       ///< a carried connection in the child of a fork: every use answers ENOTCONN
};

/// A pointer that a thread with a dead Handle may still read while the File starts its next life.
/// It is never stale memory: what it points at is reused, not freed.
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

/// Linux's enum socket_state: what connect(2) answers depends on it.
enum class Link : uint8_t { kUnconnected, kConnecting, kConnected };

inline constexpr uint8_t kShutRead = 1;
inline constexpr uint8_t kShutWrite = 2;

/// What a TCP socket is beyond its File and its flow.
struct TcpSocket {
  SharedOptions options;
  // ---- guarded by the engine's lock while carried
  Link link = Link::kUnconnected;
  uint8_t shut = 0;               ///< what the program shut down
  bool error_taken : 1 = false;   ///< SO_ERROR is reported once
  bool has_accepted : 1 = false;  ///< of a listener: the program has asked for a connection here
  /// As Linux's tcp_disconnect() leaves it: a new socket with perhaps an error to tell, though its
  /// flow, which is over, is still here.
  bool undone : 1 = false;
  // ---- guarded by the control lock; a byte of its own parts these bits from those above
  uint8_t : 0;
  PortOrigin port : 2 = PortOrigin::kProgram;  ///< of a connection that was asked for
  bool has_drawn_source : 1 = false;           ///< the program has named no address of its own
  // ---- changed under both, read without: a hint
  /// The options ask for more than bytes of recvmsg(2).
  std::atomic<bool> wants_control{false};

  /// As new.
  void reset() noexcept {
    options = SharedOptions();
    link = Link::kUnconnected;
    shut = 0;
    error_taken = has_accepted = undone = has_drawn_source = false;
    port = PortOrigin::kProgram;
    wants_control.store(false, std::memory_order_relaxed);
  }
};

/// Why a socket stays on the kernel, whatever comes. None: it need not.
struct Forced {
  Carriage why = Carriage::kUndecided;
  OptionId option = kNoOption;  ///< of kOption
};

/// Two cache lines: what a call on a carried connection looks at; who waits, and the rest.
struct alignas(64) File {
  /// Changes when the File is freed: a Handle of an older generation is dead. Written under both
  /// locks; acquire/release with fd_table.cpp.
  std::atomic<uint32_t> generation{0};
  /// Of a free File: the next one's (FdTable). Of an open one: that of the kernel's socket beneath
  /// in ShadowReserve, which has lent it and has a second number for it; 0: it has not.
  std::atomic<uint32_t> place{0};
  /// Descriptors and sleeping calls. Changed by any thread while it holds one.
  std::atomic<uint32_t> refs{0};
  std::atomic<FileKind> kind{FileKind::kNone};
  /// Changed under control lock and, once there is an engine, the engine's lock. Read anywhere as a
  /// hint; a decision reads it again under a lock.
  std::atomic<Mode> mode{Mode::kUndecided};
  std::atomic<bool> nonblock{false};  ///< O_NONBLOCK, as the program set it
  /// The fd number is a dup of a placeholder: the kernel's socket beneath means nothing.
  bool placeholder = false;
  /// The kernel's socket beneath has not the connection's local name.
  bool has_own_name() const { return placeholder || tcp.port == PortOrigin::kLeased; }
  std::atomic<Engine*> engine{nullptr};  ///< set once with mode kCarried or kListening
  LastingPtr<Stack> stack;               ///< constant from open to free
  Flow* flow = nullptr;                  ///< guarded by the engine's lock
  LastingPtr<SocketStats> stats;         ///< its slot, never null for sockets; constant while open
  [[no_unique_address]] TcpSocket tcp;   ///< kind kTcp
  /// Set by a multiplexer that saw the kernel's descriptor readable: the next receive looks there
  /// first. Cleared by the receive that finds it empty.
  std::atomic<bool> kernel_hint{false};
  std::atomic<uint8_t> domain{0};  ///< AF_INET, AF_INET6
  /// The kernel's socket beneath is as socket(2) made it, but for O_NONBLOCK and, with kNoDelay,
  /// TCP_NODELAY, and has this number alone in the program: the ShadowReserve::age() it was made
  /// in, else 0. Whoever does to it what the kernel remembers says so (touch()).
  std::atomic<uint8_t> made_in{0};
  static constexpr uint8_t kNoDelay = 0x80;
  LastingPtr<UdpSocket> udp;               ///< kind kUdp; made once, reused by the next life
  Epoll* epoll = nullptr;                  ///< kind kEpoll; constant while open
  std::atomic<int64_t> rcv_timeout_ns{0};  ///< SO_RCVTIMEO, 0 = none
  std::atomic<int64_t> snd_timeout_ns{0};  ///< SO_SNDTIMEO
  [[no_unique_address]] ReadySource ready;
  Lock control;   ///< bind, connect, listen, options
  Forced forced;  ///< guarded by the control lock; of a listener that the kernel has, why

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
  bool is_tcp() const noexcept { return kind.load(std::memory_order_relaxed) == FileKind::kTcp; }
  bool is_udp() const noexcept { return kind.load(std::memory_order_relaxed) == FileKind::kUdp; }
  TcpFlow& tcp_flow() const { return *static_cast<TcpFlow*>(flow); }
  UdpFlow& udp_flow() const { return *static_cast<UdpFlow*>(flow); }
  Listener& listener() const { return *static_cast<Listener*>(flow); }

 private:
  void end_loan() noexcept;  // shadow_reserve.cpp
};

static_assert(sizeof(File) == 128);  // of the 1 KiB that an idle connection may take

/// A File as found by a descriptor: valid while `file->generation == generation`.
struct Handle {
  File* file = nullptr;
  uint32_t generation = 0;
  int fd = -1;  ///< the number it was found by: the kernel's socket beneath

  explicit operator bool() const noexcept { return file != nullptr; }
  File* operator->() const noexcept { return file; }
  /// Still the same open description. Certain only under the engine's or the control lock.
  bool is_alive() const noexcept {
    return file->generation.load(std::memory_order_acquire) == generation;
  }
};

/// What the kernel's poll(2)/epoll(7) on the descriptor itself has to say counts too: always for
/// UDP, listeners and sockets of the kernel; never for a carried connection, whose shadow is dead.
inline bool watches_kernel(const File& f) noexcept {
  const Mode m = f.mode.load(std::memory_order_acquire);
  return m == Mode::kUndecided || m == Mode::kKernel || m == Mode::kListening ||
         (m == Mode::kCarried && f.kind.load(std::memory_order_relaxed) == FileKind::kUdp);
}

/// The events that our side of the socket has now (EPOLL*); the kernel's side is the caller's to
/// ask if watches_kernel(). kVoid: HUP and ERR. Those that are not `asked` for may be left out, but
/// for HUP and ERR. Thread: holder of the engine's lock if carried or listening.
ReadyBits readiness(const File& f, ReadyBits asked = ~ReadyBits{0}) noexcept;

}  // namespace vireo
