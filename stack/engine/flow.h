// What the demux finds: a TCP connection, a listener, a UDP flow. A flow belongs to one engine for
// its whole life. Owner: Engine (type-stable slabs). Thread: holder of the engine's lock.
#pragma once

#include <boost/intrusive/list.hpp>

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/address.h"
#include "core/fd.h"
#include "core/packet.h"
#include "core/prefetch.h"
#include "core/stats_layout.h"
#include "core/types.h"
#include "core/wheel.h"
#include "dev/device.h"
#include "stack/engine/cached_route.h"
#include "stack/engine/demux.h"
#include "stack/engine/source_filter.h"
#include "stack/tcp/fast_open_keys.h"
#include "stack/tcp/tcb.h"
#include "stack/tcp/tcp.h"
#include "stack/wire/expected.h"

namespace vireo {

namespace bi = boost::intrusive;
using ListHook = bi::list_member_hook<bi::link_mode<bi::auto_unlink>>;
/// Members remove themselves from the list when their life ends.
template <class T, ListHook T::* Hook>
using FlowList = bi::list<T, bi::member_hook<T, ListHook, Hook>, bi::constant_time_size<false>>;

enum class FlowKind : uint8_t { kTcp = 1, kListener, kUdp, kTimeWait };

constexpr uint16_t kNoListener = UINT16_MAX;

/// Common part. `owner` is the socket layer's object, null once the program has closed it.
struct Flow {
  FlowKind kind{};  ///< none: not in use
  bool v6only : 1 = false;
  bool asks_arrivals : 1 = false;  ///< Ports::ask_arrivals()
  /// Index in PassiveOpen::all(): a listener's own; of a connection that is not yet accepted,
  /// the index of its listener, whose `ready` holds it.
  uint16_t listener = kNoListener;
  FlowTag tag{};
  FlowKey key;
  UniqueFd port_holder;  ///< keeps the port in the kernel after close; if promoted: the old socket
  void* owner = nullptr;
  SocketStats* stats = nullptr;  ///< slot in shared memory or a spare one, never null while in use
  FlowRule rule;                 ///< empty where a listener's rule covers its frames
};

struct Listener;
struct UdpBinding;

/// IP settings of a flow (ip(7), ipv6(7), socket(7)).
struct IpSettings {
  uint8_t ttl = 64;
  uint8_t tos = 0;
  uint8_t mtu_discover = 1;  ///< IP_PMTUDISC_*, the same numbers in IPv6
  uint8_t priority = 0;      ///< SO_PRIORITY, at most 255: mapped by a VLAN's egress-qos-map
  uint32_t mark = 0;         ///< SO_MARK: selects the route

  bool operator==(const IpSettings&) const = default;
};

/// What a datagram's ancillary data asks for, in place of its socket's options.
struct UdpAsked {
  IpAddr source;  ///< unspecified: of the route
  IfIndex by{};   ///< the interface; 0: of the route
  IpSettings ip;

  bool operator==(const UdpAsked&) const = default;
};

/// A message to send as a datagram, or as several.
struct UdpMessage {
  std::span<const iovec> data;
  uint16_t segment = 0;             ///< UDP_SEGMENT: bytes of each datagram; 0: one datagram
  const UdpAsked* asked = nullptr;  ///< null: as the socket's options say
};

/// Where a connection's local port comes from.
enum class PortOrigin : uint8_t {
  kProgram,  ///< bound by the program, or the listener's
  kDrawn,    ///< the kernel chose it for this connection
  kLeased,   ///< kept from an earlier connection: `port_holder` and `rule` are a PortLease's
};

/// A connection. Cache lines: 0 identity; 1 socket and timer wheel node; from 2 the Tcb; then
/// pending work, the header of its frames, and rarely used fields.
struct TcpFlow : Flow, WheelNode {
  static constexpr FlowKind kKind = FlowKind::kTcp;
  tcp::Tcb tcb;
  ListHook notify_hook;   ///< of Notifications: `gathered` is to be delivered
  ListHook pending_hook;  ///< of TcpOutput: has something to send, or is stalled, if is_stalled
  CachedRoute egress;
  tcp::Effects gathered = tcp::Effects::kNone;  ///< of the current burst
  uint16_t next_ip_id = 0;      ///< of packets that may be fragmented (RFC 6864 §4.2)
  uint16_t mss_limit = 65'535;  ///< TCP_MAXSEG and other limits, whatever the path MTU
  bool is_stalled : 1 = false;  ///< waits for a neighbour
  bool is_watched : 1 = false;  ///< its frames and ACKs are told: EngineEvents; tcp::set_watched()
  bool is_ack_delayed : 1 = false;  ///< if `pending_hook` is linked: for an ACK only
  PortOrigin port_origin : 2 = PortOrigin::kProgram;
  bool reuse_addr : 1 = false;  ///< SO_REUSEADDR: sockets with it may bind the port too
  bool reuse_port : 1 = false;  ///< the same for SO_REUSEPORT
  /// The kernel accepted it, and has the listener: the tuple's next SYN is for the kernel.
  bool taken_over : 1 = false;
  uint8_t ack_delayed_at = 0;  ///< is_ack_delayed: since when, in ticks of TcpOutput's ACK clock
  IpSettings ip;
  Instant stalled_since{};  ///< since when no next hop is known; default: one is known
  ListHook unowned_hook;    ///< Listener::ready, later TcpFlows' orphans

  /// Closed by the program: it is in the list of orphans of TcpFlows.
  bool is_orphan() const {
    return owner == nullptr && listener == kNoListener && unowned_hook.is_linked();
  }
};
static_assert(sizeof(Flow) + sizeof(WheelNode) == 128 && alignof(tcp::Tcb) <= 16);
/// With the slab's words 13 cache lines; with its demux entry, an idle connection takes less than 1
/// KiB (tests/scale/idle_test.cpp). What is needed only while there is data is in tcp::Scoreboard.
static_assert(sizeof(TcpFlow) <= 824);

/// How a listener treats incoming connections.
struct ListenOptions {
  bool reuse_addr = false;   ///< SO_REUSEADDR, for its connections
  bool reuse_port = false;   ///< SO_REUSEPORT: shares its address with listeners that set it too
  bool joins = false;        ///< shares the kernel's listener with other processes
  uint8_t defer_accept = 0;  ///< SYN-ACK timeouts before a bare ACK is accepted (tcp(7))
  uint8_t syncookies = 1;    ///< sysctl tcp_syncookies: 0 never, 1 when the queue is full, 2 always
  bool abort_on_overflow = false;  ///< sysctl tcp_abort_on_overflow
  /// TCP_FASTOPEN: most connections that may be open by data on their SYN alone; 0: none, and no
  /// cookies.
  uint32_t fast_open = 0;
  bool fast_open_without_cookie =
      false;                           ///< sysctl tcp_fastopen, bit 0x200; TCP_FASTOPEN_NO_COOKIE
  tcp::FastOpenKeys fast_open_keys{};  ///< none: derived from the engine's secret
  IpSettings ip{};                     ///< for its connections
  IfIndex device{};                    ///< SO_BINDTODEVICE: receives by no other; 0: by all
  /// Perhaps with listeners of other processes.
  bool is_shared() const { return reuse_port || joins; }
};

struct Listener : Flow {
  tcp::Config config;  ///< for its connections
  ListenOptions options;
  uint32_t backlog = 0;      ///< of listen(2), limited by somaxconn; for each queue
  uint32_t syn_count = 0;    ///< SYN records
  uint32_t young_count = 0;  ///< of them, without a timeout so far
  uint32_t ready_count = 0;
  Instant cookies_at = Instant::from_ns(INT64_MIN / 2);  ///< when a SYN cookie was last sent
  std::vector<FlowRule> rules;                           ///< one per interface and family
  FlowList<TcpFlow, &TcpFlow::unowned_hook> ready;
  Instant leaves_at = Instant::never();  ///< closed: its half-open connections are over by then

  bool is_leaving() const { return !leaves_at.is_never(); }
};

/// The listeners of one demux key: several with SO_REUSEPORT. Never empty.
struct ListenGroup {
  DemuxKey key;
  std::vector<Listener*> members;
};

/// Reduces the valid bytes of `p`, a received frame, to its payload: `bytes` from offset `at`. The
/// headers stay in front of it while the buffer is held: PacketBuf::cookie = distance from the
/// Ethernet header to the payload, so that parse_frame() can be called again.
inline void strip_headers(PacketBuf& p, unsigned at, unsigned bytes) noexcept {
  p.cookie = at;
  p.data_at = static_cast<uint16_t>(p.data_at + at);
  p.length = static_cast<uint16_t>(bytes);
}
/// High half of the cookie: index in Ports::all() of the port by which a datagram came, plus one,
/// if its addresses do not tell which of several ports it was.
inline constexpr unsigned kPortOfCookie = 16;
inline unsigned header_bytes(const PacketBuf& p) noexcept {
  return p.cookie & ((1U << kPortOfCookie) - 1);
}

/// A membership of a socket.
struct UdpGroup {
  IpAddr group;
  IfIndex ifindex;  ///< given by the join; 0: chosen by the route
  IfIndex link;     ///< the interface
  IfIndex carrier;  ///< whose port receives the group; 0: it is not carried
  VlanId vlan;
  SourceFilter sources;
};

/// Charge of a buffer to a receive buffer: the whole frame and its metadata, as Linux's truesize.
inline uint32_t truesize(const PacketBuf& p) {
  return p.pool->frame_bytes() + static_cast<uint32_t>(sizeof(PacketBuf));
}
inline uint32_t truesize(const PacketChain& packet) {
  uint32_t all = 0;
  for (const PacketBuf* p = packet.front(); p != nullptr; p = p->next) all += truesize(*p);
  return all;
}

struct UdpFlow : Flow {
  static constexpr FlowKind kKind = FlowKind::kUdp;
  PacketChain queue;  ///< received, see strip_headers()
  uint32_t queue_truesize = 0;
  uint32_t rcv_buf = 212992;  ///< limit of queue_truesize, as Linux's SO_RCVBUF
  IpSettings ip;
  IfIndex device{};  ///< SO_BINDTODEVICE: sends and receives by no other; 0: by all
  uint8_t multicast_ttl = 1;
  bool reuse_port = false;  ///< SO_REUSEPORT: one socket of the port gets a unicast datagram
  /// IP_MULTICAST_ALL, IPV6_MULTICAST_ALL: hears groups that it has not joined, too.
  bool hears_all4 = true, hears_all6 = true;
  bool is_watched = false;  ///< its frames are told: EngineEvents; set before go_to()
  ListHook notify_hook;     ///< of Notifications
  CachedRoute egress;       ///< of the connected peer, or of the last destination
  Endpoint egress_to;       ///< destination of `egress`, see go_to()
  /// The same as the first 8 bytes of a sockaddr_in (family, port, address) if that is a unicast
  /// IPv4 address, the flow is not watched, and `segment` is 0; else 0.
  uint64_t egress_name = 0;
  bool goes_to_peer = false;  ///< egress_to is the connected peer, over IPv4, and `segment` 0
  Endpoint egress_from;
  /// Destination of `egress`, and what was asked for, if that was asked for by ancillary data:
  /// `egress_to` has no port then. Without a port: it was not.
  Endpoint asked_to;
  UdpAsked asked;
  uint16_t segment = 0;         ///< UDP_SEGMENT; 0: off
  UdpBinding* exact = nullptr;  ///< binding of its exact key; null: not connected
  wire::ExpectedUdp expected;   ///< what its peer's frames look like; set if connected over IPv4
  std::vector<UdpGroup> groups;
  int soft_error = 0;           ///< from ICMP, reported once
  uint32_t fragment_bytes = 0;  ///< IPV6_MTU: limit of IPv6 packets; 0: the path MTU
  uint32_t path_mtu = 0;        ///< egress.mtu without that limit
  /// Smaller payloads leave by `egress` as plain datagrams, in one frame.
  uint32_t plain_room = 0;
  uint64_t cookie = 0;  ///< SO_COOKIE of the socket beneath; 0: no other process may have the port

  /// Its membership of the group, for a datagram that came by `link`; null: none. In IPv6 that of
  /// any interface (net/ipv6/mcast.c inet6_mc_check()).
  const UdpGroup* membership(const IpAddr& group, IfIndex link) const noexcept;
  /// Whether a datagram of the group is for it, whose local address allows that: net/ipv4/igmp.c
  /// ip_mc_sf_allow(), net/ipv6/mcast.c inet6_mc_check().
  bool hears(const IpAddr& group, const Endpoint& source, IfIndex link) const noexcept;

  void go_to(const Endpoint& e) noexcept {
    egress_to = e;
    asked_to = {};
    // What is to be cut or told takes the long way.
    const bool is_host = !is_watched && segment == 0 && e.addr.is_v4() && !e.addr.is_multicast() &&
                         !e.addr.is_limited_broadcast();
    egress_name = is_host ? uint64_t{AF_INET} | uint64_t{be16(e.port).raw()} << 16 |
                                uint64_t{e.addr.as_v4().raw()} << 32
                          : 0;
    goes_to_peer = is_host && key.is_exact() && e == key.remote;
  }
  /// The same, with what is asked for by ancillary data.
  void go_to(const Endpoint& e, const UdpAsked& a) noexcept {
    go_to({});
    asked_to = e;
    asked = a;
  }
  /// Whose `egress` is.
  const Endpoint& goes_to() const noexcept { return asked_to.port != 0 ? asked_to : egress_to; }
};

/// A rule that brings the frames of a binding.
struct BoundRule {
  IfIndex carrier;  ///< of its port
  FlowKey key;
  FlowRule rule;           ///< empty: the device has that of another process
  bool is_copied = false;  ///< brings copies: others of the host get the frames, too
};

/// The UDP flows of one demux key: several with SO_REUSEPORT, or those that may hear the same
/// group, in the order of bound_keys.cpp. Never empty.
struct UdpBinding {
  DemuxKey key;
  std::vector<UdpFlow*> flows;
  bool is_plain = true;       ///< none of the next three
  bool names_device = false;  ///< one of them is bound to a device
  bool notes_port = false;  ///< a group that several ports receive: each datagram records its port
  bool asks_each = false;   ///< a group: who hears a datagram depends on its source or interface
  bool is_kernels = false;  ///< the kernel delivers, to other sockets of the host, too: no rules
  bool is_copied = false;   ///< other sockets of the host get what its rules bring, too
  bool lingers = false;     ///< is_copied, until Steering::retry(): no other has the port any more
  IfIndex link, carrier;  ///< a group: the first interface by which it is received, and its port's
  std::vector<BoundRule> rules;
};

/// A closed connection, for 2MSL.
struct TimeWaitEntry {
  DemuxKey key;
  tcp::TimeWait wait;
  Instant until;
  FlowRule rule;
  bool is_elsewhere = false;  ///< another TCP has it: segments that come here are dropped
  bool reuse_addr = false;    ///< as in TcpFlow
  bool reuse_port = false;
  ListHook hook;  ///< of TimeWaits
};

// ---- references of the demux: kind in the top byte, address below (48 bits)

template <class T>
uint64_t make_ref(FlowKind k, const T& t) {
  return static_cast<uint64_t>(k) << 56 | reinterpret_cast<uintptr_t>(&t);
}
inline uint64_t ref(const TcpFlow& f) { return make_ref(FlowKind::kTcp, f); }
inline uint64_t ref(const ListenGroup& g) { return make_ref(FlowKind::kListener, g); }
inline uint64_t ref(const UdpBinding& b) { return make_ref(FlowKind::kUdp, b); }
inline uint64_t ref(const TimeWaitEntry& e) { return make_ref(FlowKind::kTimeWait, e); }
inline FlowKind kind_of(uint64_t ref) { return static_cast<FlowKind>(ref >> 56); }
template <class T>
T& at(uint64_t ref) {
  return *reinterpret_cast<T*>(ref & ((uint64_t{1} << 56) - 1));
}

/// Key of the flow rule for a membership.
inline FlowKey group_key(const UdpFlow& u, const UdpGroup& g) {
  return {IpProto::kUdp, !g.group.is_v4(), g.vlan, {g.group, u.key.local.port, 0}, {}};
}
inline DemuxKey group_key(const IpAddr& group, uint16_t port) {
  return DemuxKey::bound(IpProto::kUdp, group, port, false);
}

inline DemuxKey demux_key(const FlowKey& k) {
  return DemuxKey::exact(k.proto, k.local.addr, k.local.port, k.remote.addr, k.remote.port);
}

struct FlowKeys {
  static DemuxKey key_of(uint64_t ref) {
    switch (kind_of(ref)) {
      case FlowKind::kTcp:
        // The caller is about to compare the key, and processing a segment uses most of the flow.
        prefetch_rest(at<TcpFlow>(ref));
        return demux_key(at<TcpFlow>(ref).key);
      case FlowKind::kListener:
        return at<ListenGroup>(ref).key;
      case FlowKind::kUdp:
        return at<UdpBinding>(ref).key;
      case FlowKind::kTimeWait:
        return at<TimeWaitEntry>(ref).key;
    }
    __builtin_unreachable();
  }
};
using Demux = DemuxTable<FlowKeys>;

}  // namespace vireo
