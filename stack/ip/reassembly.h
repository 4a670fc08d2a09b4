// Reassembles packets from fragments (RFC 791 §3.2, RFC 8200 §4.5). A packet with overlapping
// fragments is dropped (RFC 5722 §4; for IPv4 as in Linux since 4.20); an exact duplicate of a
// fragment is ignored. An incomplete packet is dropped after 30 s for IPv4 and 60 s for IPv6, as in
// Linux, but without an ICMP error to the sender. Fixed size: a flood of fragments only evicts the
// oldest packets. Owner: one engine. Thread: holder of its lock. The caller passes the time.
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
  static constexpr unsigned kPackets = 64;      ///< incomplete at once
  static constexpr unsigned kOfOneSource = 32;  ///< of them, of one source; then its oldest is
                                                ///< dropped
  static constexpr uint32_t kMaxBuffers = 256;  ///< of one packet: 64 KiB in 296-byte packets
  /// A packet still incomplete after so many others have begun is dropped, as its id may have been
  /// reused (Linux: ipfrag_max_dist, per peer).
  static constexpr uint64_t kMaxBetween = 1024;

  /// `most_buffers`: of all packets together.
  explicit Reassembly(uint32_t most_buffers) noexcept : most_buffers_(most_buffers) {}

  /// Takes a fragment: `frame` holds its frame, `f` the parsed headers. `wire` distinguishes
  /// networks on which a link-local address may belong to different hosts. @return the whole packet
  /// if this fragment completes it: its first buffer has the headers of an unfragmented frame,
  /// without an IPv4 header checksum; else empty.
  PacketChain add(const wire::ParsedFrame& f, uint32_t wire, PacketChain frame,
                  Instant now) noexcept;

  /// Refuses a fragment for lack of room; drops the oldest packet to make some.
  void refuse() noexcept;

  /// When a packet may expire; Instant::never() if there is none.
  Instant first_expiry() const noexcept { return first_expiry_; }
  void expire(Instant now) noexcept;
  void clear() noexcept { expire(Instant::never()); }

  uint32_t buffers() const noexcept { return buffers_; }  ///< held at present
  uint64_t fails() const noexcept { return fails_; }      ///< packets and fragments dropped

 private:
  struct Key {
    IpAddr src, dst;
    uint32_t id = 0;
    uint32_t wire = 0;
    uint8_t proto = 0;  ///< for IPv4; IPv6 identifies a packet by its id alone
    bool operator==(const Key&) const = default;
  };
  /// An incomplete packet. Its buffers are in the order of their data; PacketBuf::offset is the
  /// place of the data in the packet.
  struct Packet {
    Key key;
    Instant expires;
    uint64_t number = 0;   ///< sequence number of the packet
    PacketChain data;      ///< empty: unused
    uint32_t end = 0;      ///< of the packet's data; 0: not known
    uint16_t l3_at = 0;    ///< of the first fragment, in its frame
    uint16_t headers = 0;  ///< of the first fragment: bytes in front of the data; 0: not received
    uint8_t proto = 0;     ///< of the first fragment
    int64_t hw_time = 0;   ///< of the fragment received last
    uint8_t ecn_seen = 0;  ///< one bit per code point
  };

  Packet& place_of(const Key& key, Instant now) noexcept;
  Packet* oldest(const IpAddr* source) noexcept;
  enum class Put : uint8_t { kTaken, kRepeated, kOverlaps };
  static Put put(Packet& p, const wire::Fragment& what, PacketChain data) noexcept;
  void drop(Packet& p) noexcept;
  PacketChain take_whole(Packet& p) noexcept;

  std::array<Packet, kPackets> packets_;
  uint64_t begun_ = 0;
  unsigned last_ = 0;  ///< index of the packet that received the last fragment
  uint32_t most_buffers_;
  uint32_t buffers_ = 0;
  uint64_t fails_ = 0;
  Instant first_expiry_ = Instant::never();  ///< or earlier: a packet may have been completed
};

}  // namespace vireo::ip
