// What the short way reads of a frame, the full parser must read alike.
#pragma once

#include <cstddef>
#include <span>

#include "stack/wire/parse.h"
#include "stack/wire/plain.h"

namespace vireo::wire {

/// As plain_disagrees(), of one version of IP.
template <bool kV6>
const char* plain_disagrees_as(std::span<const std::byte> frame, bool& taken) {
  taken = false;
  PlainIp<kV6> ip;
  const unsigned proto = ip.read(frame.data(), frame.size());
  if (proto != 6 && proto != 17) return nullptr;
  const PlainUdp<kV6> u(ip);
  PlainTcp<kV6> t(ip);
  taken = proto == 6 ? t.read_tcp() : u.read_udp();
  if (!taken) return nullptr;
  const ParsedFrame f = parse_frame(frame);
  if (!f) return parse_error_name(f.error);
  if (static_cast<unsigned>(f.proto) != proto) return "protocol";
  if (f.is_v6 != kV6) return "version";
  if (f.src() != ip.src() || f.dst() != ip.dst()) return "address";
  if (f.src_port != ip.src_port() || f.dst_port != ip.dst_port()) return "port";
  const Endpoint local{f.dst(), f.dst_port, 0};
  const Endpoint remote{f.src(), f.src_port, 0};
  const Endpoint other{f.dst(), static_cast<uint16_t>(f.dst_port ^ 1), 0};
  if (!ip.is_on(PlainPath<kV6>(local, remote))) return "path";
  if (ip.is_on(PlainPath<kV6>(other, remote)) || ip.is_on(PlainPath<kV6>(remote, other)))
    return "path of others";
  if (f.src() != f.dst() && ip.is_on(PlainPath<kV6>({f.src(), f.dst_port, 0}, remote)))
    return "path of another address";
  if ((f.ecn() == Ecn::kCe) != ip.is_marked()) return "mark";
  if (ipv4_header_ok(f) != ip.is_ip_sum_good()) return "header checksum";
  if (proto == 17) {
    if (u.payload_at() != f.payload_at || u.payload_bytes() != f.payload_bytes) return "datagram";
    return l4_checksum_ok(f) != u.is_l4_sum_good() ? "UDP checksum" : nullptr;
  }
  if (t.payload_at() != f.payload_at || t.payload_bytes() != f.payload_bytes) return "text";
  if (l4_checksum_ok(f) != t.is_l4_sum_good()) return "TCP checksum";
  const TcpHeader& h = f.tcp();
  if (t.numbers() != segment_numbers(h.seq(), h.ack())) return "numbers";
  if (h.seq() != t.seq() || h.ack() != t.ack() || uint16_t{h.window} != t.window()) return "header";
  if ((h.flags() & ~TcpFlags::kPsh) != TcpFlags::kAck) return "flags";
  uint32_t val = 0;
  uint32_t echo = 0;
  if (parse_aligned_timestamps(h.options(), val, echo) != t.has_timestamps()) return "timestamps";
  if (!t.has_timestamps()) return h.options().empty() ? nullptr : "options";
  return val == t.ts_val() && echo == t.ts_echo() ? nullptr : "timestamp";
}

/// @return what differs, null: nothing. `taken` says whether the short way takes the frame.
inline const char* plain_disagrees(std::span<const std::byte> frame, bool& taken) {
  const char* const differs = plain_disagrees_as<false>(frame, taken);
  if (taken) return differs;
  return plain_disagrees_as<true>(frame, taken);
}

}  // namespace vireo::wire
