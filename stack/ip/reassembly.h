// Reassembles packets from fragments (RFC 791 §3.2, RFC 8200 §4.5). A packet whose fragments
// overlap is dropped whole (RFC 5722 §4, and of IPv4 as Linux does it since 4.20); an exact
// duplicate of a fragment is ignored. An incomplete packet is dropped after 30 s for IPv4 and 60 s
// for IPv6, as Linux has it; ICMP does not tell the sender of that. Fixed size: a flood of
// fragments evicts the oldest packets and costs nothing else. Owner: one engine. Thread: holder of
// its lock. Time is passed in.
#pragma once

#include <array>
#include <cstdint>

#include "core/address.h"
#include "core/clock.h"
#include "core/packet.h"
#include "stack/wire/fragment.h"
#include "stack/wire/parse.h"

namespace vireo::ip {

class Reassembly {
 public:
  static constexpr Duration kExpiryV4 = Duration::s(30);
  static constexpr Duration kExpiryV6 = Duration::s(60);
  static constexpr unsigned kPackets = 64;      ///< that may be incomplete at once
  static constexpr unsigned kOfOneSource = 32;  ///< of them; with more, its own oldest ends
  static constexpr uint32_t kMaxBuffers = 256;  ///< of one: 64 KiB in 296-byte packets
  /// What is not complete when so many others have begun is of a packet whose id came round
  /// (Linux: ipfrag_max_dist, by peer).
  static constexpr uint64_t kMaxBetween = 1024;

  /// `most_buffers`: of all together.
  explicit Reassembly(uint32_t most_buffers) noexcept : most_buffers_(most_buffers) {}

  /// Takes a fragment: `f` is its frame, which lies in `frame`. `wire` tells wires apart on which a
  /// link-local address is not the same host's. @return the whole packet, if it was the last one
  /// that lacked: its first buffer has the headers of an unfragmented frame, whose IPv4 header
  /// checksum is not made; else empty.
  PacketChain add(const wire::ParsedFrame& f, uint32_t wire, PacketChain frame,
                  Instant now) noexcept;

  /// A fragment that there is no room for; the oldest packet makes some.
  void refuse() noexcept;

  /// When something may have to be dropped; Instant::never() if nothing is kept.
  Instant first_expiry() const noexcept { return first_expiry_; }
  void expire(Instant now) noexcept;
  void clear() noexcept { expire(Instant::never()); }

  uint32_t buffers() const noexcept { return buffers_; }  ///< that are kept
  uint64_t fails() const noexcept { return fails_; }      ///< packets and fragments dropped

 private:
  struct Key {
    IpAddr src, dst;
    uint32_t id = 0;
    uint32_t wire = 0;
    uint8_t proto = 0;  ///< of IPv4; an IPv6 packet is known by its id alone
    bool operator==(const Key&) const = default;
  };
  /// One that is incomplete. Its buffers lie in the order of their data, whose place in the packet
  /// is PacketBuf::offset.
  struct Packet {
    Key key;
    Instant expires;
    uint64_t number = 0;   ///< in the order in which they began
    PacketChain data;      ///< empty: the place is free
    uint32_t end = 0;      ///< of the packet's data; 0: not known
    uint16_t l3_at = 0;    ///< of the first fragment, in its frame
    uint16_t headers = 0;  ///< of the first fragment: its frame up to the data; 0: not here yet
    uint8_t proto = 0;     ///< of the first fragment
    int64_t hw_time = 0;   ///< of the fragment that came last
    uint8_t ecn_seen = 0;  ///< a bit for each code point
  };

  Packet& place_of(const Key& key, Instant now) noexcept;
  Packet* oldest(const IpAddr* source) noexcept;
  enum class Put : uint8_t { kTaken, kRepeated, kOverlaps };
  static Put put(Packet& p, const wire::Fragment& what, PacketChain data) noexcept;
  void drop(Packet& p) noexcept;
  PacketChain take_whole(Packet& p) noexcept;

  std::array<Packet, kPackets> packets_;
  uint64_t begun_ = 0;
  unsigned last_ = 0;  ///< place of the packet that got one last
  uint32_t most_buffers_;
  uint32_t buffers_ = 0;
  uint64_t fails_ = 0;
  Instant first_expiry_ = Instant::never();  ///< or earlier: complete ones put it off
};

}  // namespace vireo::ip
