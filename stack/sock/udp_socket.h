// The state of a UDP socket beyond its File, and its calls: udp_socket.cpp, udp_recv.cpp,
// udp_send.cpp. Owner: the File, freed with it. Guards: named at each member.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/address.h"
#include "core/clock.h"
#include "core/result.h"
#include "stack/engine/engine.h"
#include "stack/sock/file.h"
#include "stack/sock/options/values.h"
#include "stack/sock/packet_filter.h"

namespace vireo {

/// As the kernel socket beneath has it.
struct Membership {
  IpAddr group;
  IfIndex ifindex{};
  SourceFilter sources;

  bool operator==(const Membership&) const = default;
};

struct UdpSocket {
  // ---- guarded by the control lock; read under the engine's too
  bool bound = false;
  bool connected = false;
  Engine* home = nullptr;  ///< engine chosen for its flow, which may not exist yet
  Endpoint local;
  Endpoint remote;  ///< valid if connected
  SocketOptions options;
  DatagramControl control = DatagramControl::kNever;  ///< derived from `options`
  bool reports_sends = false;                         ///< the same: see SendReports
  std::vector<Membership> groups;
  uint64_t cookie = 0;        ///< as UdpFlow::cookie
  uint16_t watched_port = 0;  ///< that SharerWatch watches for it; 0: none
  bool hears_once = false;    ///< the kernel's socket has HostSockets::filter_of_copied()
  // ---- guarded by the engine's lock
  uint8_t shut = 0;  ///< kShutRead, kShutWrite; kHasReports
  /// The kernel's socket holds the beginning of a datagram (MSG_MORE): it gets the rest, too. Read
  /// without the lock by a send, before which another's MSG_MORE ended.
  bool is_corked = false;
  int64_t last_stamp = -1;   ///< SIOCGSTAMP: of the last datagram; 0: not known; -1: there is none
  uint32_t cut_at = 0;       ///< the kernel must cut the current datagram to this size; 0 = none
  uint32_t kernel_look = 1;  ///< receives until the kernel's queue is checked, ...
  Instant kernel_due;        ///< ... or at this time, if earlier
  Endpoint kernel_dst;       ///< the last destination served by the kernel ...
  Instant kernel_dst_until{};  ///< ... and until when this result is valid
  Verdicts verdicts;           ///< packet filter verdicts by destination, while not connected
};

namespace udp_socket {
/// Before the kernel binds the shadow to `local`: opens the devices that will carry it, which takes
/// milliseconds, so that the kernel alone receives on the port only for a moment. Control lock
/// held.
void prepare(File& f, const Endpoint& local);
/// After the kernel bound the shadow: opens the flow. Control lock held.
void bound(File& f, int fd);
Result<void> connect(Handle h, const sockaddr* addr, socklen_t len);
Result<ssize_t> recv(Handle h, msghdr& msg, int flags);
/// As above without ancillary data, for a carried socket.
Result<ssize_t> recv(Handle h, std::span<const iovec> iov, int flags);
/// Messages that lie in the queue after one poll, at least one, which may be waited for. Those
/// behind the first are taken until `end`. `is_all`: no more lies there. Errors: of the first
/// message; that of a later one stays with the socket.
/// Carried sockets only, without MSG_ERRQUEUE.
Result<int> recv_many(Handle h, std::span<mmsghdr> all, int flags, Instant end, bool& is_all);
/// `to` is null for the connected peer.
Result<ssize_t> send(Handle h, const msghdr& msg, int flags, Doorbell bell);
/// To the connected peer; a carried socket only.
Result<ssize_t> send(Handle h, std::span<const iovec> iov, int flags);
Result<void> shutdown(Handle h, int how);
/// sendmmsg(2): one doorbell for all messages that leave in one go. Errors: of the first message.
Result<int> send_many(Handle h, std::span<mmsghdr> all, int flags);
/// Moves the socket to the kernel for good. Control lock held.
void give_up(File& f, const Refusal& why, Forced forced);
/// An option changed. Control lock held.
void apply_options(File& f, int fd);
/// The memberships of `group` are now `now`, the newest last. Control lock held.
void set_group(File& f, const IpAddr& group, std::vector<Membership> now);
/// Before a change of what sockets hear: handles what has arrived, which is judged as it was then.
/// Holder of the engine's lock.
void catch_up(Engine& e) noexcept;
/// Nobody needs to know any more who else has its port. No engine's lock held.
void end_watch(File& f);
/// Returns the pending error and clears it. Holder of the engine's lock.
int take_error(File& f) noexcept;
/// Up-call of the engine.
void on_datagram(UdpFlow& flow);
/// Takes Vireo's filter from the kernel's socket: the program sets one, or the kernel delivers.
/// @return whether there was one.
bool hear_unfiltered(File& f, int fd);
ReadyBits readiness(const File& f) noexcept;
}  // namespace udp_socket

}  // namespace vireo
