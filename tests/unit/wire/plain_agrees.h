// What the short way reads of a frame, the full parser must read alike.
#pragma once

#include <cstddef>
#include <span>

#include "stack/wire/parse.h"
#include "stack/wire/plain.h"

namespace vireo::wire {

/// @return what differs, null: nothing. `taken` says whether the short way takes the frame.
inline const char* plain_disagrees(std::span<const std::byte> frame, bool& taken) {
  taken = false;
  PlainIp ip;
  const unsigned proto = ip.read(frame.data(), frame.size());
  if (proto != 6 && proto != 17) return nullptr;
  const PlainUdp u(ip);
  PlainTcp t(ip);
  taken = proto == 6 ? t.read_tcp() : u.read_udp();
  if (!taken) return nullptr;
  const ParsedFrame f = parse_frame(frame);
  if (!f) return parse_error_name(f.error);
  if (static_cast<unsigned>(f.proto) != proto) return "protocol";
  if (f.src() != ip.src() || f.dst() != ip.dst()) return "address";
  if (f.src_port != ip.src_port() || f.dst_port != ip.dst_port()) return "port";
  if (!ip.is_between({f.dst(), f.dst_port, 0}, {f.src(), f.src_port, 0})) return "between";
  const uint16_t other = f.dst_port ^ 1;
  if (ip.is_between({f.dst(), other, 0}, {f.src(), f.src_port, 0})) return "between others";
  if ((f.ecn() == Ecn::kCe) != ip.is_marked()) return "mark";
  if (ipv4_header_ok(f) != ip.is_ip_sum_good()) return "header checksum";
  if (proto == 17) {
    if (u.payload_at() != f.payload_at || u.payload_bytes() != f.payload_bytes) return "datagram";
    if (u.has_sum() && l4_checksum_ok(f) != ip.is_l4_sum_good(IpProto::kUdp)) return "UDP checksum";
    return nullptr;
  }
  if (t.payload_at() != f.payload_at || t.payload_bytes() != f.payload_bytes) return "text";
  if (l4_checksum_ok(f) != ip.is_l4_sum_good(IpProto::kTcp)) return "TCP checksum";
  const TcpHeader& h = f.tcp();
  if (h.seq() != t.seq() || h.ack() != t.ack() || uint16_t{h.window} != t.window()) return "header";
  if ((h.flags() & ~TcpFlags::kPsh) != TcpFlags::kAck) return "flags";
  uint32_t val = 0;
  uint32_t echo = 0;
  if (parse_aligned_timestamps(h.options(), val, echo) != t.has_timestamps()) return "timestamps";
  if (!t.has_timestamps()) return h.options().empty() ? nullptr : "options";
  return val == t.ts_val() && echo == t.ts_echo() ? nullptr : "timestamp";
}

}  // namespace vireo::wire
