#include "stack/udp/udp.h"

#include <algorithm>

namespace vireo::udp {

std::expected<Datagram, Drop> input(const wire::ParsedFrame& f, IfIndex ifindex,
                                    ChecksumState checksum) noexcept {
  if (!f || f.proto != IpProto::kUdp) return std::unexpected(Drop::kNotUdp);
  // No device verifies what is absent: over IPv6 that is an error whatever it reports (RFC 8200
  // §8.1).
  const bool absent_v6 = f.is_v6 && f.udp().checksum.raw() == 0;
  if (absent_v6 || (checksum == ChecksumState::kUnknown && !wire::l4_checksum_ok(f)))
    return std::unexpected(Drop::kBadChecksum);
  if (f.dst_port == 0) return std::unexpected(Drop::kNoPort);
  Datagram d;
  d.src = {f.src(), f.src_port, 0};
  d.dst = {f.dst(), f.dst_port, 0};
  const IpAddr& src = d.src.addr;
  // Linux drops these where it routes them, before UDP (RFC 1122 §3.2.1.3). 0.0.0.0 may ask
  // everyone, as DHCP does.
  if (src.is_multicast() || src.is_limited_broadcast() ||
      (src.is_unspecified() && !d.dst.addr.is_limited_broadcast()))
    return std::unexpected(Drop::kBadSource);
  if (f.is_v6) {
    if (src.is_link_local()) d.src.scope = ifindex.value();
    if (d.dst.addr.is_link_local()) d.dst.scope = ifindex.value();
  }
  d.ifindex = ifindex;
  d.payload_at = f.payload_at;
  d.payload_bytes = f.payload_bytes;
  d.ttl = f.ttl;
  d.tos = f.tos;
  d.is_v6 = f.is_v6;
  return d;
}

std::expected<void, Drop> accepts(const Filter& s, const Datagram& d) noexcept {
  const bool family_ok = d.is_v6 ? s.v6 : !s.v6only;
  const bool local_ok =
      s.local.port == d.dst.port && (s.local.addr.is_unspecified() || s.local.addr == d.dst.addr);
  const bool remote_ok = (s.remote.port == 0 || s.remote.port == d.src.port) &&
                         (s.remote.addr.is_unspecified() || s.remote.addr == d.src.addr) &&
                         (s.remote.scope == 0 || d.src.scope == 0 || s.remote.scope == d.src.scope);
  const bool device_ok = s.bound_device.value() == 0 || s.bound_device == d.ifindex;
  if (!(family_ok && local_ok && remote_ok && device_ok)) return std::unexpected(Drop::kNotForUs);
  if (!d.dst.addr.is_multicast()) [[likely]]
    return {};
  if (s.groups == nullptr) {
    if (s.multicast_all) return {};
    return std::unexpected(Drop::kNotMember);
  }
  switch (s.groups->hears(d.dst.addr, d.src.addr, d.ifindex, s.multicast_all)) {
    case Heard::kYes:
      return {};
    case Heard::kNotMember:
      return std::unexpected(Drop::kNotMember);
    case Heard::kSourceFiltered:
      return std::unexpected(Drop::kSourceFiltered);
  }
  return std::unexpected(Drop::kNotMember);
}

uint32_t receive_limit(uint32_t asked, uint32_t rmem_max) noexcept {
  constexpr uint32_t kMin = 2304;  // Linux SOCK_MIN_RCVBUF on 64-bit machines
  const uint32_t capped = std::min({asked, rmem_max, uint32_t{0x7fffffff} / 2});
  return std::max(capped * 2, kMin);
}

Result<SendAs> plan_output(uint32_t bytes, uint32_t path_mtu, bool v6,
                           bool dont_fragment) noexcept {
  if (bytes > longest_payload(v6)) return fail(EMSGSIZE, "datagram longer than UDP can say");
  if (bytes <= max_payload(path_mtu, v6)) return SendAs::kOnePacket;
  if (dont_fragment) return fail(EMSGSIZE, "datagram longer than the path MTU");
  return SendAs::kFragments;
}

const char* drop_name(Drop d) noexcept {
  switch (d) {
    case Drop::kNotUdp:
      return "not UDP";
    case Drop::kBadChecksum:
      return "bad checksum";
    case Drop::kBadSource:
      return "bad source address";
    case Drop::kNoPort:
      return "no destination port";
    case Drop::kNotForUs:
      return "not for this socket";
    case Drop::kNotMember:
      return "group not joined";
    case Drop::kSourceFiltered:
      return "source filtered";
    case Drop::kQueueFull:
      return "receive buffer full";
  }
  return "?";
}

}  // namespace vireo::udp
