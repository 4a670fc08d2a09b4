// UDP flows: datagrams in by key, datagrams out by the egress of the last destination.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "core/carriage.h"
#include "core/slab.h"
#include "stack/engine/flow.h"
#include "stack/engine/next_hops.h"
#include "stack/engine/part.h"
#include "stack/engine/port_sharers.h"

namespace vireo {

struct Hub;

class UdpFlows : Part {
 public:
  // ---- life (udp_flows.cpp)
  /// Receives datagrams for `local` (wildcards allowed), from `remote` only if its port is set.
  /// `cookie`: as UdpFlow::cookie.
  Carried<UdpFlow*> open(const Endpoint& local, const Endpoint& remote, bool v6only, void* owner,
                         SocketStats& stats, IfIndex device = {}, uint64_t cookie = 0);
  void close(UdpFlow& f);
  /// The kernel's socket beneath gets what it has received, and what is still to come. Follow it by
  /// Steering::give_strays().
  /// `hear_copied()`: from then on the kernel's socket hears what the process gets a copy of, too.
  void leave_to_kernel(UdpFlow& f, Instant now, const std::function<void()>& hear_copied = {});
  void close_all() {
    flows_.for_each([&](UdpFlow& u) { close(u); });
  }
  /// SO_BINDTODEVICE: as PassiveOpen::hear_by().
  Carried<void> hear_by(UdpFlow& u, IfIndex device);
  /// IP_MULTICAST_ALL and IPV6_MULTICAST_ALL.
  void hear_all(UdpFlow& u, bool all4, bool all6);

  // ---- other sockets of the host at our ports (port_sharers.h)
  /// What the kernel has at `port`. `opening`: the cookie of one of ours whose flow is about to be
  /// opened; 0: none.
  void heed_sharers(uint16_t port, std::vector<net::DiagSocket> there, uint64_t opening = 0);
  void forget_sharers(uint16_t port);
  bool is_shared(const UdpBinding& b) const noexcept { return sharers_.has(b, bound_); }

  // ---- groups (udp_membership.cpp)
  /// Opens the interface by which a join would receive: milliseconds.
  void open_for_join(const IpAddr& group, IfIndex ifindex);
  /// Adds a membership, or changes its sources. Refused: the kernel's socket receives the group.
  Carried<void> join(UdpFlow& f, const IpAddr& group, IfIndex ifindex, SourceFilter sources = {});
  /// `ifindex`: as given to join(). Other memberships of the same group remain.
  void leave(UdpFlow& f, const IpAddr& group, IfIndex ifindex);

  // ---- send (udp_send.cpp; with plain headers: fast_path/send_plain.h)
  /// Sends one message from `src` by `route`: all of its datagrams, or none. Errors: EMSGSIZE above
  /// the path MTU, EAGAIN ring full, ENOBUFS pool empty, EHOSTUNREACH no carried route, or the
  /// neighbour is not resolved: the caller then sends by the kernel's socket. The kernel queues
  /// datagrams until the neighbour answers (arp(7)), up to unres_qlen_bytes per neighbour, even if
  /// their socket is closed.
  Result<void> send(UdpFlow& f, const Route& route, const Endpoint& src, const Endpoint& dst,
                    const UdpMessage& m, Doorbell bell, Instant now) noexcept;
  /// send() by the egress kept in the flow, if `dst` and what is asked for are the same; ENOENT:
  /// call NextHops::route() first.
  Result<void> send_cached(UdpFlow& f, const Endpoint& dst, const UdpMessage& m, Doorbell bell,
                           Instant now) noexcept;
  /// One piece that fits a frame, to f.egress_to. @return false: nothing was done, call
  /// send_cached().
  bool send_datagram(UdpFlow& f, const iovec& data, Doorbell bell) noexcept;
  /// The same inlined into the caller, for plain headers: fast_path/send_plain.h.
  bool send_datagram_here(UdpFlow& f, const iovec& data, Doorbell bell) noexcept;

  // ---- receive (udp_flows.cpp)
  /// Charges the receive buffer. As Linux: an empty queue takes any one datagram. @return false: no
  /// room, the datagram is dropped.
  bool take_room(UdpFlow& u, uint32_t cost) const noexcept {
    if (!has_room(u, cost)) [[unlikely]] {
      u.stats->rx_drops.add();
      return false;
    }
    u.queue_truesize += cost;
    return true;
  }
  void deliver(UdpFlow& u, PacketChain packet) noexcept;
  /// Of the sockets that may hear a group, each that hears what `source` sent and came by `link`
  /// gets a copy, and the last one the frame itself.
  void deliver_multicast(const UdpBinding& b, const Endpoint& source, IfIndex link,
                         PacketChain packet) noexcept;
  /// A datagram was taken from f.queue.
  static void received(UdpFlow& f, const PacketBuf& p) noexcept {
    f.queue_truesize -= std::min(f.queue_truesize, truesize(p));
  }

  const Slab<UdpFlow>& slab() const noexcept { return flows_; }
  Slab<UdpFlow>& slab() noexcept { return flows_; }
  std::span<UdpFlow* const> bound() const noexcept { return bound_; }
  uint32_t size() const noexcept { return flows_.size(); }
  template <class F>
  void for_each(F&& fn) {
    flows_.for_each(fn);
  }

 private:
  Result<net::NextHop> way_to(const IpAddr& group, IfIndex ifindex) const;
  struct Datagram;
  class Payload;

  Carried<void> bind(UdpFlow& u);
  bool has_room(const UdpFlow& u, uint32_t cost) const noexcept;
  bool keep(UdpFlow& u, PacketChain packet) noexcept;
  void deliver_copy(UdpFlow& u, const PacketChain& packet) noexcept;
  Result<void> refresh_egress(UdpFlow& u, Instant now) noexcept;
  Result<void> make_datagram(std::span<const iovec> data, Datagram& d) noexcept;
  Result<void> fill(Payload& from, size_t bytes, Datagram& d) noexcept;
  Result<void> send_segments(UdpFlow& u, Payload from, size_t segment, Doorbell bell) noexcept;
  /// `is_told`: if the flow is watched.
  Result<void> emit(UdpFlow& u, const Datagram& d, Doorbell bell, bool is_told = true) noexcept;
  void count_sent(UdpFlow& u, size_t head, size_t payload) noexcept;

  Hub& hub() const noexcept;
  Slab<UdpFlow> flows_;
  std::vector<UdpFlow*> bound_;
  PortSharers sharers_;
};

}  // namespace vireo
