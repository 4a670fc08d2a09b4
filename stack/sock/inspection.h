// Receive callbacks of UDP sockets: each datagram is shown to the program before anything else may
// see it, and the program drops it, has it queued, or keeps it.
//
// The engine knows nothing of it: it queues the datagrams. A socket with a callback always has an
// error pending, kInspected, which no one is told: so every call leaves its fast path, and comes to
// what has not been shown. That is shown by a thread of the program that polls, waits or receives,
// with no lock held, so that the callback may call anything; it may close the socket. What it
// accepts goes to `ready`, from where the socket's calls take it.
//
// Owner: ExtraState. Guard: the engine's lock; for the list of those with something to show, a leaf
// lock. While `is_busy`, one thread shows the datagrams in their order, and others leave it to it.
#pragma once

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstdint>

#include "core/address.h"
#include "core/packet.h"
#include "stack/sock/datagram_ends.h"
#include "stack/sock/fd_table.h"

namespace vireo {

class Engine;
class EngineGuard;
struct LentBuffer;

enum class Verdict : uint8_t { kDrop, kQueue, kKeep };

/// A datagram that is shown.
struct Arrival {
  int fd;
  const LentBuffer* first;
  size_t buffers;
  size_t bytes;
  DatagramEnds ends;
  uint32_t ready_packets;  ///< what a receive would find
  uint32_t ready_bytes;
  int64_t hw_time;  ///< ns, 0: none
};

/// How a program is shown a datagram.
struct Callback {
  Verdict (*show)(const Arrival&, const Callback&) noexcept = nullptr;
  void (*function)() = nullptr;  ///< the program's, for `show` to cast and call
  void* context = nullptr;
};

struct Inspector {
  Callback callback;
  Handle socket;      ///< by the number with which the callback was registered
  PacketChain ready;  ///< shown and to be received
  uint32_t ready_packets = 0;
  bool is_busy = false;
  boost::intrusive::list_member_hook<> hook;  ///< of those with something to show
};

namespace inspection {
/// UdpFlow::soft_error of a socket with a callback, while no other is pending.
inline constexpr int kInspected = -1;

/// Registers a callback, or none (`show` is null). Errors: EINVAL the socket is the kernel's;
/// EOPNOTSUPP not UDP; ENOMEM.
Result<void> set(Handle h, const Callback& callback);

// ---- for the calls of the socket. Engine's lock held.
/// Whether it has a callback. `f`: a UDP socket's.
bool has_inspector(const File& f) noexcept;
/// Something is to be shown, or was shown and may be received.
bool has_news(const File& f) noexcept;
/// What a receive finds: the flow's queue, or what was shown.
PacketChain& receivable(const File& f) noexcept;
/// Whether a receive finds something. If not, but there is something to show, the thread's wait is
/// to show it (Interrupts::has_unshown).
bool is_readable_now(const File& f) noexcept;
/// Around a receive of a socket with a callback: what was shown is the flow's queue meanwhile.
/// `is_taken`: it took a datagram.
void begin_receive(const File& f) noexcept;
void end_receive(const File& f, bool is_taken) noexcept;
/// How many buffers the first datagram of a queue has, which is not empty.
uint32_t buffers_of_first(const PacketChain& queue) noexcept;
/// The first datagram of receivable() was taken.
void took_one(const File& f) noexcept;
/// Up-call of the engine: the flow's queue has grown.
void note(File& f) noexcept;
/// The flow ends, and another socket gets its queue: what was shown, first.
void give_queue_back(File& f) noexcept;

// ---- no lock held
extern constinit std::atomic<bool> g_is_due;
/// Some socket has something to show.
inline bool is_due() noexcept { return g_is_due.load(std::memory_order_relaxed); }
/// Shows it. @return false: this thread is in a callback, which is shown nothing else.
bool show_all() noexcept;
void show(Handle h) noexcept;
/// The same, with `e` locked, but for the callbacks. A UDP socket, whose File is pinned.
void show(Handle h, Engine& e, EngineGuard& guard) noexcept;

/// The socket is closed.
void forget(Inspector& i) noexcept;
// Around fork(2).
void fork_prepare() noexcept;
void fork_parent() noexcept;
void fork_child() noexcept;
}  // namespace inspection

}  // namespace vireo
