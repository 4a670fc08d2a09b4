// What a UDP socket is beyond its File, and what the files of stack/sock tell each other.
// Owner: the File, freed with it. Guards: named at each member.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/address.h"
#include "core/copy.h"
#include "core/user_memory.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/file.h"
#include "stack/sock/options/options.h"
#include "stack/sock/packet_filter.h"

namespace vireo {

struct Membership {
  IpAddr group;
  IfIndex ifindex{};
  IpAddr address;  ///< of the interface, where the program named it so
};

struct UdpSocket {
  // ---- guarded by the control lock; read under the engine's too
  bool bound = false;
  bool connected = false;
  Engine* home = nullptr;  ///< chosen for its flow, which it may not have yet
  Endpoint local;
  Endpoint remote;  ///< valid if connected
  SocketOptions options;
  DatagramControl control = DatagramControl::kNever;  ///< of them
  std::vector<Membership> groups;
  // ---- guarded by the engine's lock
  uint8_t shut = 0;
  uint32_t cut_at = 0;         ///< the kernel is to cut the datagram at hand to this; 0 = none
  uint32_t kernel_look = 1;    ///< receives until the kernel's queue is looked at, ...
  Instant kernel_due;          ///< ... if it is not time before
  Endpoint kernel_dst;         ///< the last destination that is the kernel's to serve ...
  Instant kernel_dst_until{};  ///< ... and until when that is believed
  Verdicts verdicts;           ///< of destinations, while it is not connected
};

/// Bytes of an I/O vector.
inline size_t iov_bytes(std::span<const iovec> iov) noexcept {
  size_t n = 0;
  for (const iovec& v : iov) n += v.iov_len;
  return n;
}

/// Are all pieces there?
inline bool is_readable(std::span<const iovec> iov) noexcept {
  for (const iovec& v : iov)
    if (v.iov_len != 0 && !is_readable(v.iov_base, v.iov_len)) return false;
  return true;
}

/// A walk through an I/O vector.
class IovCursor {
 public:
  explicit IovCursor(std::span<const iovec> iov) noexcept : iov_(iov) { skip_empty(); }
  bool done() const noexcept { return at_ == iov_.size(); }
  /// The contiguous room from here.
  std::span<std::byte> piece() const noexcept {
    return {static_cast<std::byte*>(iov_[at_].iov_base) + offset_, iov_[at_].iov_len - offset_};
  }
  /// Goes on by `n` bytes, which lie within the vector.
  void advance(size_t n) noexcept {
    while (n != 0) {
      const size_t step = std::min(n, iov_[at_].iov_len - offset_);
      offset_ += step;
      n -= step;
      skip_empty();
    }
  }
  /// The rest from here, cut into `out`. @return how many pieces.
  size_t rest(std::span<iovec> out) const noexcept {
    size_t n = 0;
    size_t offset = offset_;
    for (size_t i = at_; i < iov_.size() && n < out.size(); ++i, offset = 0)
      out[n++] = {static_cast<std::byte*>(iov_[i].iov_base) + offset, iov_[i].iov_len - offset};
    return n;
  }

 private:
  void skip_empty() noexcept {
    while (at_ < iov_.size() && offset_ == iov_[at_].iov_len) {
      ++at_;
      offset_ = 0;
    }
  }
  std::span<const iovec> iov_;
  size_t at_ = 0;
  size_t offset_ = 0;
};

/// copy_out() of what goes to several pieces, or to none.
inline std::optional<size_t> copy_out_in_parts(IovCursor& to,
                                               std::span<const std::byte> data) noexcept {
  IovCursor at = to;
  size_t done = 0;
  while (done < data.size() && !at.done()) {
    const auto room = at.piece();
    const size_t n = std::min(room.size(), data.size() - done);
    if (!is_writable(room.data(), n)) [[unlikely]]
      return std::nullopt;
    std::memcpy(room.data(), data.data() + done, n);
    at.advance(n);
    done += n;
  }
  to = at;
  return done;
}
/// Copies `data` to the cursor, as far as there is room. @return bytes copied; nullopt: EFAULT, and
/// the cursor is where it was, as Linux counts a piece that it has copied in part for none.
[[gnu::always_inline]] inline std::optional<size_t> copy_out(
    IovCursor& to, std::span<const std::byte> data) noexcept {
  const size_t n = data.size();
  if (to.done()) return 0;
  const auto room = to.piece();
  if (n - 1 >= room.size()) [[unlikely]]  // or there are none
    return copy_out_in_parts(to, data);
  if (!is_writable(room.data(), n)) [[unlikely]]
    return std::nullopt;
  std::memcpy(room.data(), data.data(), n);
  to.advance(n);
  return n;
}

// ---- carriage.cpp
/// The part of the decision that needs no device: settings, options, rules, own addresses.
Carried<void> may_carry(Stack& stack, Role role, Forced forced, const Endpoint& local,
                        const Endpoint& remote);
/// What that says. `by`: where it is no option's.
Refusal refusal_of(Forced forced, const char* by) noexcept;
/// Records what was decided in the socket's slot and in the process's counters.
void record_carried(File& f, const Endpoint& local, const Endpoint& remote);
void record_kernel(File& f, const Refusal& why);
void record_address(SocketStats& s, const Endpoint& local, const Endpoint& remote);

// ---- shadow.cpp
Result<Endpoint> kernel_name(int fd);
Result<Endpoint> kernel_peer(int fd);
/// The kernel refused for want of a local port (0: of any) or a descriptor: those that the engine
/// keeps go back. @return whether there were any. The engine's lock not held.
bool give_up_leases(Stack& stack, uint16_t port);
/// Gives a sockaddr to the caller as the kernel does: cut to *len, *len = the full length. Nothing
/// to a null `addr`. @return errno, 0: none (net/socket.c move_addr_to_user).
int give_address(const Endpoint& e, int family, sockaddr* addr, socklen_t* len);
/// One that the program gives. @return errno, 0: none (move_addr_to_kernel).
inline int address_error(const sockaddr* addr, socklen_t len) noexcept {
  if (len > sizeof(sockaddr_storage)) return EINVAL;
  return len != 0 && !is_readable(addr, len) ? EFAULT : 0;
}
/// A private dup of the shadow, which keeps its port; empty if there is none to be had.
UniqueFd dup_shadow(int fd) noexcept;

// ---- hand_over.cpp
/// A carried connection goes on in the kernel. Control lock held, the engine's not. Errors: it is
/// carried on.
Result<void> hand_over_connection(File& f, const Refusal& why);

// ---- kernel's side of the calls, with the counters
Result<ssize_t> kernel_recvmsg(Handle h, msghdr& msg, int flags);
Result<ssize_t> kernel_sendmsg(Handle h, const msghdr& msg, int flags);

// ---- files.cpp
/// A File for descriptor `fd` of a kernel socket, installed. Errors: ENOMEM, ENFILE, EMFILE.
Result<File*> open_file(Stack& stack, FileKind kind, int domain, int fd);
/// One reference less; the last one closes. No lock held. `port_holder`: see Engine::tcp_close.
void release_file(File& f, UniqueFd port_holder);
void free_sockets(File& f);

// ---- tcp_socket.cpp
namespace tcp_socket {
/// Why a connection begins, and whether its end is waited for.
struct Opening {
  bool for_data = false;  ///< sendmsg(MSG_FASTOPEN): the SYN goes with what send() is given next; a
                          ///< socket of the kernel's is left as it is
  bool nonblock = false;
};
Result<void> connect(Handle h, const Endpoint& to, const sockaddr* addr, socklen_t len,
                     Opening how);
/// The end of what connect() began, by Linux's socket states. `first`: by this call. The engine's
/// lock is held on entry and return.
Result<void> finish_connect(Handle h, Engine& e, const SignalMark& signals, bool first,
                            bool nonblock, FilePin& pin);
// fast_open.cpp
/// sendmsg(2) with MSG_FASTOPEN.
Result<ssize_t> send_fast_open(Handle h, const msghdr& msg, int flags);
/// What the socket asks of Fast Open.
FastConnect fast_connect(const File& f, bool data_follows) noexcept;
/// TCP_FASTOPEN_KEY of a listener, by its kernel's socket, else net.ipv4.tcp_fastopen_key as it is
/// now. None: neither was set, or the latter is not ours to read.
tcp::FastOpenKeys fast_open_keys(int fd) noexcept;
Result<void> disconnect(Handle h, const sockaddr* addr, socklen_t len);
/// A socket whose connection is undone begins anew, as what the kernel's beneath is. Control lock
/// held, the engine's not.
void renew(Handle h);
Result<ssize_t> recv(Handle h, std::span<const iovec> iov, int flags);
Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags);
Result<void> shutdown(Handle h, int how);
/// Sends what MSG_MORE held back. No lock held.
void push(Handle h);
/// The pending error, once. Holder of the engine's lock.
int take_error(File& f) noexcept;
/// Waits as SO_LINGER asks, before the last close. No lock held.
void linger(Handle h);
// urgent.cpp. Holder of the engine's lock, but for owner_call().
/// recv(MSG_OOB).
Result<ssize_t> recv_urgent(File& f, std::span<const iovec> iov, int flags) noexcept;
/// What the urgent mark allows a read that has `done` bytes.
struct MarkStop {
  uint64_t most = UINT64_MAX;  ///< bytes from here
  uint32_t skip = 0;           ///< bytes to leave out first: the one that is out of band
  bool ends = false;           ///< the read ends here
};
/// Requires tcp::urgent() other than kNone.
MarkStop stop_at_mark(File& f, size_t done) noexcept;
void send_sigurg(const File& f) noexcept;
/// fcntl(2) F_SETOWN and its kin of a TCP socket; nullopt: another command.
std::optional<Result<int>> owner_call(Handle h, int command, uintptr_t argument) noexcept;

/// Up-call.
void on_effects(TcpFlow& flow, tcp::Effects e);
ReadyBits readiness(const File& f, ReadyBits asked) noexcept;
}  // namespace tcp_socket

// ---- listener.cpp
namespace listener {
Result<void> listen(Handle h, int backlog);
Result<int> accept(Handle h, sockaddr* addr, socklen_t* len, int flags);
void on_accept(Listener& l);
/// What the socket's options ask of its listener; the keys of Fast Open are told by `fd`, its
/// kernel's socket.
ListenOptions listen_options(const File& f, int fd);
/// shutdown(SHUT_RD) and close: ends our side. Control lock held, engine's not.
void stop(File& f, Mode then = Mode::kUndecided);
/// It is the kernel's alone from now on. Control lock held, engine's not.
void give_to_kernel(File& f, int fd, const Refusal& why, Forced forced);
}  // namespace listener

// ---- udp_socket.cpp, udp_recv.cpp, udp_send.cpp
namespace udp_socket {
/// Before the kernel binds the shadow to `local`: opens the devices that will carry it, which takes
/// milliseconds, so that the kernel has the port to itself only for a moment. Control lock held.
void prepare(File& f, const Endpoint& local);
/// After the kernel bound the shadow: opens the flow. Control lock held.
void bound(File& f, int fd);
Result<void> connect(Handle h, const sockaddr* addr, socklen_t len);
Result<ssize_t> recv(Handle h, msghdr& msg, int flags);
/// The bytes alone, of a carried socket.
Result<ssize_t> recv(Handle h, std::span<const iovec> iov, int flags);
/// `to` is null for the connected peer.
Result<ssize_t> send(Handle h, const msghdr& msg, int flags, Doorbell bell);
/// To the connected peer, of a carried socket.
Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags);
Result<void> shutdown(Handle h, int how);
/// Rings for what was sent with Doorbell::kLater. No lock held.
void flush(Handle h);
/// Gives the socket to the kernel for good. Control lock held.
void give_up(File& f, const Refusal& why, Forced forced);
/// The set of groups or an option changed. Control lock held.
void apply_options(File& f);
void joined(File& f, const Membership& m);
void left(File& f, const Membership& m);
int take_error(File& f) noexcept;
void on_datagram(UdpFlow& flow);
ReadyBits readiness(const File& f) noexcept;
}  // namespace udp_socket

}  // namespace vireo
