// UDP without I/O: what of a parsed frame is a datagram, whom it is for, what it costs, and how one
// is sent. The socket's queue, the demux and the device are the engine's. Owner: none (values), the
// filter and the account are the flow's. Thread: holder of the engine's lock. Source: RFC 768, RFC
// 8200 §8.1, RFC 1122 §4.1.3; udp(7), ip(7), behaviour as Linux's net/ipv4/udp.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "core/address.h"
#include "core/result.h"
#include "core/types.h"
#include "stack/udp/membership.h"
#include "stack/wire/parse.h"
#include "stack/wire/template.h"

namespace vireo::udp {

/// Why a datagram did not reach a socket; each is a counter.
enum class Drop : uint8_t {
  kNotUdp,
  kBadChecksum,  ///< wrong, or absent over IPv6
  kBadSource,    ///< a multicast, broadcast or (unless we are broadcast to) unspecified source
  kNoPort,       ///< destination port 0
  kNotForUs,     ///< the socket's addresses, ports, family or interface say no
  kNotMember,    ///< multicast that the socket has not joined
  kSourceFiltered,
  kQueueFull,
};
const char* drop_name(Drop d) noexcept;

/// One datagram as it arrived. Scopes: of a link-local source, the interface.
struct Datagram {
  Endpoint src;
  Endpoint dst;             ///< for IP_PKTINFO and the connected filter
  IfIndex ifindex{};        ///< where it arrived (the logical interface)
  uint16_t payload_at = 0;  ///< offset in the frame
  uint16_t payload_bytes = 0;
  uint8_t ttl = 0;
  uint8_t tos = 0;
  bool is_v6 = false;
};

enum class ChecksumState : uint8_t {
  kUnknown,   ///< verify here: the datagram lies in one buffer
  kVerified,  ///< the device or the caller did, or the wire cannot corrupt
};

/// Reads a datagram out of an accepted frame.
std::expected<Datagram, Drop> input(const wire::ParsedFrame& f, IfIndex ifindex,
                                    ChecksumState checksum) noexcept;

/// What a socket is bound and connected to. Unspecified addresses and zeros are wildcards.
struct Filter {
  Endpoint local;
  Endpoint remote;         ///< connected to, if port or address is set
  IfIndex bound_device{};  ///< SO_BINDTODEVICE, or the scope it is bound to
  bool v6 = false;         ///< an AF_INET6 socket
  bool v6only = false;
  const Membership* groups = nullptr;  ///< nullptr: none joined
  bool multicast_all = true;           ///< IP_MULTICAST_ALL, IPV6_MULTICAST_ALL
};

/// Whether the socket takes the datagram; for multicast, group membership and source filters decide
/// too.
std::expected<void, Drop> accepts(const Filter& s, const Datagram& d) noexcept;

/// The receive buffer's account, in bytes of true size, as Linux keeps it: a datagram is taken
/// while what is queued does not exceed the limit, so an empty queue takes any, and the last may
/// run over.
class ReceiveAccount {
 public:
  /// `limit`: as getsockopt(SO_RCVBUF) tells it, that is twice what was asked for.
  explicit ReceiveAccount(uint32_t limit = 212992) noexcept : limit_(limit) {}
  bool charge(uint32_t truesize) noexcept {
    if (used_ > limit_) return false;
    used_ += truesize;
    return true;
  }
  void release(uint32_t truesize) noexcept { used_ -= truesize < used_ ? truesize : used_; }
  void set_limit(uint32_t limit) noexcept { limit_ = limit; }
  uint64_t used() const noexcept { return used_; }
  uint32_t limit() const noexcept { return limit_; }

 private:
  uint64_t used_ = 0;
  uint32_t limit_;
};

/// What setsockopt(SO_RCVBUF, `asked`) makes of the buffer: at most `rmem_max`, doubled, at least
/// 2304 (socket(7)).
uint32_t receive_limit(uint32_t asked, uint32_t rmem_max) noexcept;

/// The largest payload that fits one packet of `mtu` bytes without options.
constexpr uint32_t max_payload(uint32_t mtu, bool v6) noexcept {
  const uint32_t headers = (v6 ? 40U : 20U) + 8U;
  return mtu > headers ? mtu - headers : 0;
}
/// The largest payload of any datagram: the 16-bit lengths of UDP and IPv4.
constexpr uint32_t longest_payload(bool v6) noexcept { return v6 ? 65527 : 65507; }

enum class SendAs : uint8_t { kOnePacket, kFragments };
/// How a datagram of `bytes` leaves. kFragments is the kernel's business: we do not fragment.
/// Errors: EMSGSIZE longer than any datagram, or than the path carries and `dont_fragment`
/// (IP_PMTUDISC_DO) forbids.
Result<SendAs> plan_output(uint32_t bytes, uint32_t path_mtu, bool v6, bool dont_fragment) noexcept;

/// Writes the headers of one datagram in front of a payload of `bytes`, whose folded sum the copy
/// gave. `no_checksum`: SO_NO_CHECK, IPv4 only. @return header bytes.
inline size_t emit(std::byte* out, const wire::HeaderTemplate& header, uint32_t bytes,
                   checksum::Sum payload_sum, wire::L4Sum mode = wire::L4Sum::kFull,
                   uint16_t ip_id = 0, bool no_checksum = false) noexcept {
  if (no_checksum && !header.is_v6()) mode = wire::L4Sum::kZero;
  return header.emit_udp(out, {.payload_bytes = bytes, .payload_sum = payload_sum, .ip_id = ip_id},
                         mode);
}

}  // namespace vireo::udp
