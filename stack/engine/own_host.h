// What of a wire is this host's: the devices are told, and what a device takes all the same is
// judged here as Linux does it before it looks for a socket: by which interface it came, whether
// that is the station it was sent to, whether the destination is an address of ours and the source
// one that may be (net/ipv4/route.c ip_route_input_slow(), net/ipv4/fib_frontend.c
// fib_validate_source(), net/ipv6/ip6_input.c). What the kernel would not give to a socket, it
// would have dropped: so do we.
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
  /// Whether a packet may be for a socket here; holds while the snapshot has that generation.
  struct Verdict {
    IpAddr src, dst;
    IfIndex link{};
    uint64_t generation = 0;
    bool may = false;
    bool answers = false;  ///< a segment may have an answer
  };

  /// Tells the port's device which links and addresses are ours.
  void tell(Port& port);
  /// Behind a change of the kernel's tables: tells all. Until now the kernel had what came for an
  /// address that is new.
  void follow();
  /// Devices are to bring fragments of what is carried, too, which are put together here; or they
  /// are the kernel's, who shows each to its packet filter.
  void take_fragments(bool on);
  bool takes_fragments() const noexcept { return takes_fragments_; }

  /// The interface that a frame came in by; null: it has a tag that none here has, or is for
  /// another station.
  const net::Link* link_of(const Port& port, const wire::ParsedFrame& frame) const noexcept;
  /// Whether what goes from `src` to `dst` may be for a socket here. The answer is kept: a server
  /// hears the same ones again.
  const Verdict& judge(const IpAddr& src, const IpAddr& dst, const net::Link& link) noexcept;
  /// The interface by which a segment came that may be answered; null: it may not. Never is a
  /// group, nobody, or we ourselves (RFC 1122 §3.2.1.3, §4.2.3.10).
  const net::Link* link_to_answer(const Incoming& in) noexcept;
  /// The interface by which a datagram came: `first` is its first buffer, `f` what is in it. 0: it
  /// is not here any more.
  IfIndex came_by(const UdpFlow& u, const PacketBuf& first,
                  const wire::ParsedFrame& f) const noexcept;

 private:
  bool looks_as_if_by(IfIndex way, const net::Link& link) const noexcept;
  bool is_source_good(const IpAddr& src, const net::Link& link) const noexcept;

  Hub& hub() const noexcept;
  bool takes_fragments_ = true;
  std::array<Verdict, 64> verdicts_;              ///< by the source's last bytes
  std::shared_ptr<const net::Links> told_links_;  ///< of which the devices were told
  std::shared_ptr<const net::Addrs> told_addrs_;
};

}  // namespace vireo
