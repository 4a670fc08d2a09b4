// What the demux finds: a TCP connection, a listener, a UDP flow. Each belongs to one engine for
// life. Owner: Engine (type-stable slabs). Thread: holder of the engine's lock.
#pragma once

#include <boost/intrusive/list.hpp>

#include <cstdint>
#include <vector>

#include "core/address.h"
#include "core/fd.h"
#include "core/packet.h"
#include "core/prefetch.h"
#include "core/stats_layout.h"
#include "core/types.h"
#include "core/wheel.h"
#include "dev/device.h"
#include "stack/engine/demux.h"
#include "stack/engine/egress.h"
#include "stack/tcp/fast_open_keys.h"
#include "stack/tcp/tcb.h"
#include "stack/tcp/tcp.h"
#include "stack/wire/expected.h"

namespace vireo {

namespace bi = boost::intrusive;
using ListHook = bi::list_member_hook<bi::link_mode<bi::auto_unlink>>;
/// A list that its members leave by themselves when their life ends.
template <class T, ListHook T::* Hook>
using FlowList = bi::list<T, bi::member_hook<T, ListHook, Hook>, bi::constant_time_size<false>>;

enum class FlowKind : uint8_t { kTcp = 1, kListener, kUdp, kTimeWait };

constexpr uint16_t kNoListener = UINT16_MAX;

/// Common part. `owner` is the socket layer's object, null once the program has closed it.
struct Flow {
  FlowKind kind{};  ///< none: its life has not begun, or is over
  bool v6only = false;
  /// In PassiveOpen::all(): a listener's own place; of a connection its listener's, in whose
  /// `ready` it stands until it is accepted.
  uint16_t listener = kNoListener;
  FlowTag tag{};
  FlowKey key;
  UniqueFd port_holder;  ///< keeps the local port in the kernel after the program closed the socket
  void* owner = nullptr;
  SocketStats* stats = nullptr;  ///< slot in shared memory or a spare one, never null while in use
  FlowRule rule;                 ///< empty where a listener's rule brings our frames
};

struct Listener;
struct UdpBinding;

/// What a flow asks of IP (ip(7), ipv6(7), socket(7)).
struct IpSettings {
  uint8_t ttl = 64;
  uint8_t tos = 0;
  uint8_t mtu_discover = 1;  ///< IP_PMTUDISC_*, the same numbers in IPv6
  uint8_t priority = 0;      ///< SO_PRIORITY, at most 255: a VLAN's egress-qos-map has it
  uint32_t mark = 0;         ///< SO_MARK: chooses the route
};

/// Whose a connection's local port is.
enum class PortOrigin : uint8_t {
  kProgram,  ///< a program's, which named it, or a listener's
  kDrawn,    ///< the kernel chose it for this connection
  kLeased,   ///< another connection's before: `port_holder` and `rule` are a PortLease's
};

/// A connection. Cache lines: 0 who it is; 1 its socket and its place in the wheel; the Tcb's, from
/// 2; then what is to be done with it, the header of its frames, and what is seldom needed.
struct TcpFlow : Flow, WheelNode {
  static constexpr FlowKind kKind = FlowKind::kTcp;
  tcp::Tcb tcb;
  ListHook notify_hook;   ///< of Notifications: `gathered` is to be told
  ListHook pending_hook;  ///< of TcpOutput: has something to send; or stalled, if is_stalled
  Egress egress;
  tcp::Effects gathered = tcp::Effects::kNone;  ///< over the present burst
  uint16_t next_ip_id = 0;          ///< of packets that may be fragmented (RFC 6864 §4.2)
  uint16_t mss_limit = 65'535;      ///< TCP_MAXSEG and the like: no path lifts the MSS above it
  bool is_stalled : 1 = false;      ///< waits for a neighbour
  bool is_ack_delayed : 1 = false;  ///< if `pending_hook` is linked: it has no more than an ACK to
                                    ///< send, and data may carry that
  PortOrigin port_origin : 2 = PortOrigin::kProgram;
  bool reuse_addr : 1 = false;  ///< SO_REUSEADDR, SO_REUSEPORT: of others that bind its port, those
  bool reuse_port : 1 = false;  ///< that have it, too, may
  uint8_t ack_delayed_at = 0;   ///< is_ack_delayed: since when, by the clock of TcpOutput
  IpSettings ip;
  Instant stalled_since{};  ///< first time the way was not known; default: it is known
  ListHook unowned_hook;    ///< Listener::ready, later perhaps of TcpFlows' orphans

  /// Closed by its program: stands among the orphans of TcpFlows.
  bool is_orphan() const {
    return owner == nullptr && listener == kNoListener && unowned_hook.is_linked();
  }
};
static_assert(sizeof(Flow) + sizeof(WheelNode) == 128 && alignof(tcp::Tcb) <= 16);
/// With the slab's words 13 lines: with its place in the demux, less than 1 KiB an idle connection
/// (tests/scale/idle_test.cpp). What it needs only while there is data goes into tcp::Scoreboard.
static_assert(sizeof(TcpFlow) <= 824);

/// How a listener treats those who knock.
struct ListenOptions {
  bool reuse_addr = false;   ///< SO_REUSEADDR, of the connections
  bool reuse_port = false;   ///< SO_REUSEPORT: shares its address with others that have it too
  uint8_t defer_accept = 0;  ///< SYN-ACK timeouts for which a bare ACK does not do (tcp(7))
  uint8_t syncookies = 1;    ///< sysctl tcp_syncookies: 0 never, 1 when the queue is full, 2 always
  bool abort_on_overflow = false;  ///< sysctl tcp_abort_on_overflow
  /// TCP_FASTOPEN: how many connections may be open by data on their SYN alone; 0: none, and no
  /// cookies.
  uint32_t fast_open = 0;
  bool fast_open_without_cookie =
      false;                           ///< sysctl tcp_fastopen, bit 0x200; TCP_FASTOPEN_NO_COOKIE
  tcp::FastOpenKeys fast_open_keys{};  ///< none: the engine's secret
  IpSettings ip{};                     ///< of the connections
  IfIndex device{};                    ///< SO_BINDTODEVICE: hears by no other; 0: by all
};

struct Listener : Flow {
  tcp::Config config;  ///< children inherit
  ListenOptions options;
  uint32_t backlog = 0;      ///< listen(2)'s, by somaxconn: of each queue
  uint32_t syn_count = 0;    ///< records
  uint32_t young_count = 0;  ///< of them, those that had no timeout yet
  uint32_t ready_count = 0;
  Instant cookies_at = Instant::from_ns(INT64_MIN / 2);  ///< when one was sent last
  std::vector<FlowRule> rules;                           ///< one an interface and family
  FlowList<TcpFlow, &TcpFlow::unowned_hook> ready;
};

/// The listeners behind one key of the demux: several with SO_REUSEPORT. Never empty.
struct ListenGroup {
  DemuxKey key;
  std::vector<Listener*> members;
};

/// From here the valid bytes of `p`, a received frame, are `bytes` of payload, the first at `at`.
/// The headers lie before them for as long as the buffer is held: PacketBuf::cookie = bytes from
/// the payload back to the Ethernet header, so that parse_frame() can be asked again.
inline void strip_headers(PacketBuf& p, unsigned at, unsigned bytes) noexcept {
  p.cookie = at;
  p.data_at = static_cast<uint16_t>(p.data_at + at);
  p.length = static_cast<uint16_t>(bytes);
}
/// Of a datagram whose addresses do not tell by which of several ports it came, the high half of
/// the cookie does: the port's place in Ports::all(), and one.
inline constexpr unsigned kPortOfCookie = 16;
inline unsigned header_bytes(const PacketBuf& p) noexcept {
  return p.cookie & ((1U << kPortOfCookie) - 1);
}

struct UdpGroup {
  IpAddr group;
  IfIndex ifindex;  ///< as it was joined by; 0: by the route to it
  IfIndex carrier;  ///< whose port brings it
  VlanId vlan;
};

/// What a buffer costs in a receive buffer: the whole frame and its metadata, as Linux's truesize.
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
  uint32_t rcv_buf = 212992;  ///< bytes of frames, as Linux's SO_RCVBUF counts truesize
  IpSettings ip;
  IfIndex device{};  ///< SO_BINDTODEVICE: sends and hears by no other; 0: by all
  uint8_t multicast_ttl = 1;
  bool reuse_port = false;  ///< SO_REUSEPORT: a unicast datagram goes to one of those with its port
  ListHook notify_hook;     ///< of Notifications
  Egress egress;            ///< of the connected peer, or of the last destination
  Endpoint egress_to;       ///< whose egress that is, see go_to()
  /// The same as the first half of a sockaddr_in, family, port and address, if that is a host over
  /// IPv4; else 0.
  uint64_t egress_name = 0;
  bool goes_to_peer = false;  ///< it is the connected peer, and such a host
  Endpoint egress_from;
  std::vector<FlowRule> rules;  ///< one an interface, family and group
  UdpBinding* exact = nullptr;  ///< what the demux has for its tuple; null: it is not connected
  wire::ExpectedUdp expected;   ///< what its peer sends; set if it is connected over IPv4
  std::vector<UdpGroup> groups;
  int soft_error = 0;           ///< from ICMP, reported once
  uint32_t fragment_bytes = 0;  ///< IPV6_MTU: over IPv6 no packet is to be longer; 0: by the path
  uint32_t path_mtu = 0;        ///< egress.mtu, but for that
  /// By `egress`, payloads of fewer bytes leave as plain datagrams, in one frame.
  uint32_t plain_room = 0;

  void go_to(const Endpoint& e) noexcept {
    egress_to = e;
    const bool is_host = e.addr.is_v4() && !e.addr.is_multicast() && !e.addr.is_limited_broadcast();
    egress_name = is_host ? uint64_t{AF_INET} | uint64_t{be16(e.port).raw()} << 16 |
                                uint64_t{e.addr.as_v4().raw()} << 32
                          : 0;
    goes_to_peer = is_host && key.is_exact() && e == key.remote;
  }
};

/// The UDP flows behind one key of the demux: several with SO_REUSEPORT or in the same group,
/// in the order of bound_keys.cpp. Never empty.
struct UdpBinding {
  DemuxKey key;
  std::vector<UdpFlow*> flows;
  bool names_device = false;  ///< one of them hears by one interface only
  bool notes_port = false;    ///< a group that comes by several: each datagram is told by which
};

/// A connection that is over, for 2MSL.
struct TimeWaitEntry {
  DemuxKey key;
  tcp::TimeWait wait;
  Instant until;
  FlowRule rule;
  bool is_elsewhere = false;  ///< another TCP has it: what comes here is dropped
  bool reuse_addr = false;    ///< as TcpFlow's
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

/// Of the rule for a membership.
inline FlowKey group_key(const UdpFlow& u, const UdpGroup& g) {
  return {IpProto::kUdp, !g.group.is_v4(), g.vlan, {g.group, u.key.local.port, 0}, {}};
}

inline DemuxKey demux_key(const FlowKey& k) {
  return DemuxKey::exact(k.proto, k.local.addr, k.local.port, k.remote.addr, k.remote.port);
}

struct FlowKeys {
  static DemuxKey key_of(uint64_t ref) {
    switch (kind_of(ref)) {
      case FlowKind::kTcp:
        // Who asks is about to compare it, and what a segment wants is spread over most of it.
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
