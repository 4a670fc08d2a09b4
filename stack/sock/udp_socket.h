// What a UDP socket is beyond its File, and its calls: udp_socket.cpp, udp_recv.cpp, udp_send.cpp.
// Owner: the File, freed with it. Guards: named at each member.
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
/// An option or the set of groups changed. Control lock held.
void apply_options(File& f);
void joined(File& f, const Membership& m);
void left(File& f, const Membership& m);
/// The pending error, once. Holder of the engine's lock.
int take_error(File& f) noexcept;
/// Up-call of the engine.
void on_datagram(UdpFlow& flow);
ReadyBits readiness(const File& f) noexcept;
}  // namespace udp_socket

}  // namespace vireo
