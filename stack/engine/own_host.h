// Which frames are for this host. The devices are told, and what a device brings nevertheless is
// checked here as Linux does before its socket look-up: the interface by which it came, the
// destination MAC, whether the destination is an address of ours and the source is valid
// (net/ipv4/route.c ip_route_input_slow(), net/ipv4/fib_frontend.c fib_validate_source(),
// net/ipv6/ip6_input.c). What the kernel would not give to a socket it would drop, and so do we.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <array>
#include <memory>

#include "core/address.h"
#include "stack/engine/flow.h"
#include "stack/engine/incoming.h"
#include "stack/engine/part.h"
#include "stack/net/snapshot.h"

namespace vireo {

struct Hub;

class OwnHost : Part {
 public:
  /// Whether a packet may be for a socket here; valid while the snapshot has that generation.
  struct Verdict {
    IpAddr src, dst;
    IfIndex link{};
    uint64_t generation = 0;
    bool may = false;
    bool answers = false;  ///< a segment may be answered
  };

  /// Tells the port's device our links and addresses.
  void tell(Port& port);
  /// After a change of the kernel's tables: tells all devices. Until then the kernel received what
  /// came for a new address.
  void follow();
  /// on: devices bring fragments of carried flows, which are reassembled here. Off: fragments go to
  /// the kernel, whose packet filter sees each.
  void take_fragments(bool on);
  bool takes_fragments() const noexcept { return takes_fragments_; }

  /// The interface by which a frame came; null: its tag is of no VLAN here, or its destination MAC
  /// is another station's.
  const net::Link* link_of(const Port& port, const wire::ParsedFrame& frame) const noexcept;
  /// Whether a packet from `src` to `dst` may be for a socket here. Cached: a server receives from
  /// the same peers again.
  const Verdict& judge(const IpAddr& src, const IpAddr& dst, const net::Link& link) noexcept;
  /// The interface of a segment that may be answered; null: it may not. Never answered is what came
  /// to or from a group, a broadcast, the unspecified address or an own address (RFC 1122 §3.2.1.3,
  /// §4.2.3.10).
  const net::Link* link_to_answer(const Incoming& in) noexcept;
  /// Whether a program may choose it as the source of a datagram: an own address, a link-local one
  /// on `by` only. Not a loopback address, from which nothing may leave the host.
  bool may_send_from(const IpAddr& src, IfIndex by) const noexcept;
  /// The port by which a datagram came, with the same arguments; null: its interface does not exist
  /// any more.
  Port* port_of(const UdpFlow& u, const PacketBuf& first,
                const wire::ParsedFrame& f) const noexcept;
  /// The interface by which a datagram came: `first` is its first buffer, `f` its parsed headers.
  /// 0: it does not exist any more.
  IfIndex came_by(const UdpFlow& u, const PacketBuf& first,
                  const wire::ParsedFrame& f) const noexcept;

 private:
  bool looks_as_if_by(IfIndex way, const net::Link& link) const noexcept;
  bool is_source_good(const IpAddr& src, const net::Link& link) const noexcept;

  Hub& hub() const noexcept;
  bool takes_fragments_ = true;
  std::array<Verdict, 64> verdicts_;              ///< indexed by the source's last bytes
  std::shared_ptr<const net::Links> told_links_;  ///< as the devices were told
  std::shared_ptr<const net::Addrs> told_addrs_;
};

}  // namespace vireo
