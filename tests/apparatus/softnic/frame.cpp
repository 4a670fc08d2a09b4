#include "tests/apparatus/softnic/frame.h"

#include <netinet/in.h>

#include <cstring>

#include "core/byteorder.h"
#include "core/checksum.h"

namespace vireo::softnic {
namespace {

constexpr uint16_t kEtherIpv4 = 0x0800, kEtherIpv6 = 0x86dd;
constexpr size_t kMacs = 12, kIpv4 = 20, kIpv6 = 40;

uint16_t host16(const std::byte* p) {
  be16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

bool is_vlan(uint16_t type) { return type == 0x8100 || type == 0x88a8; }

void parse_l4(std::span<const std::byte> frame, Headers& h) {
  const std::byte* l4 = frame.data() + h.l4_at;
  const size_t least = h.proto == IPPROTO_TCP ? 20 : 8;
  if ((h.proto != IPPROTO_TCP && h.proto != IPPROTO_UDP) || h.l4_bytes < least) {
    h.l4_bytes = 0;
    return;
  }
  std::memcpy(&h.src_port, l4, 2);
  std::memcpy(&h.dst_port, l4 + 2, 2);
}

void parse_ipv4(std::span<const std::byte> frame, Headers& h) {
  const std::byte* ip = frame.data() + h.l3_at;
  const size_t room = frame.size() - h.l3_at;
  if (room < kIpv4 || std::to_integer<unsigned>(ip[0]) >> 4 != 4) return;
  const size_t header = (std::to_integer<size_t>(ip[0]) & 15) * 4;
  const size_t total = host16(ip + 2);
  if (header < kIpv4 || total < header || total > room) return;
  h.ip = Ip::k4;
  h.tos = std::to_integer<uint8_t>(ip[1]);
  h.ttl = std::to_integer<uint8_t>(ip[8]);
  std::memcpy(h.src.data(), ip + 12, 4);
  std::memcpy(h.dst.data(), ip + 16, 4);
  h.l4_at = h.l3_at + header;
  if ((host16(ip + 6) & 0x3fff) != 0) return;  // MF or an offset
  h.proto = std::to_integer<uint8_t>(ip[9]);
  h.l4_bytes = total - header;
  parse_l4(frame, h);
}

void parse_ipv6(std::span<const std::byte> frame, Headers& h) {
  const std::byte* ip = frame.data() + h.l3_at;
  const size_t room = frame.size() - h.l3_at;
  if (room < kIpv6 || std::to_integer<unsigned>(ip[0]) >> 4 != 6) return;
  const size_t payload = host16(ip + 4);
  if (payload > room - kIpv6) return;
  h.ip = Ip::k6;
  h.tos = static_cast<uint8_t>(host16(ip) >> 4);
  std::memcpy(&h.flow_label, ip, 4);
  h.flow_label &= htonl(0xfffff);
  h.proto = std::to_integer<uint8_t>(ip[6]);
  h.ttl = std::to_integer<uint8_t>(ip[7]);
  std::memcpy(h.src.data(), ip + 8, 16);
  std::memcpy(h.dst.data(), ip + 24, 16);
  h.l4_at = h.l3_at + kIpv6;
  h.l4_bytes = payload;
  parse_l4(frame, h);
}

/// Of addresses, protocol and length (RFC 9293 §3.1, RFC 8200 §8.1), and the segment itself.
uint64_t l4_sum(std::span<const std::byte> frame, const Headers& h) {
  const size_t address = h.ip == Ip::k4 ? 4 : 16;
  return uint64_t{checksum::sum(h.src.data(), address)} + checksum::sum(h.dst.data(), address) +
         checksum::word(h.proto) + checksum::word(static_cast<uint16_t>(h.l4_bytes)) +
         checksum::sum(frame.subspan(h.l4_at, h.l4_bytes));
}

size_t checksum_at(const Headers& h) { return h.l4_at + (h.proto == IPPROTO_TCP ? 16 : 6); }

}  // namespace

Headers parse(std::span<const std::byte> frame) noexcept {
  Headers h;
  size_t at = kMacs;
  if (frame.size() < at + 2) return h;
  std::memcpy(h.dst_mac.data(), frame.data(), 6);
  std::memcpy(h.src_mac.data(), frame.data() + 6, 6);
  for (int tags = 0; tags < 2 && is_vlan(host16(frame.data() + at)); ++tags) {
    if (frame.size() < at + 6) return h;
    if (tags == 0) h.vlan_tag = host16(frame.data() + at + 2);
    at += 4;
  }
  h.ether_type = host16(frame.data() + at);
  h.l3_at = at + 2;
  if (h.ether_type == kEtherIpv4) parse_ipv4(frame, h);
  if (h.ether_type == kEtherIpv6) parse_ipv6(frame, h);
  return h;
}

bool ip_checksum_holds(std::span<const std::byte> frame, const Headers& h) noexcept {
  if (h.ip == Ip::kNone) return false;
  return h.ip == Ip::k6 ||
         checksum::is_good(checksum::sum(frame.subspan(h.l3_at, h.l4_at - h.l3_at)));
}

bool checksums_hold(std::span<const std::byte> frame, const Headers& h) noexcept {
  if (h.l4_bytes == 0) return false;
  if (!ip_checksum_holds(frame, h)) return false;
  if (h.ip == Ip::k4) {
    if (h.proto == IPPROTO_UDP && host16(frame.data() + checksum_at(h)) == 0) return true;
  }
  return checksum::is_good(l4_sum(frame, h));
}

void fill_checksums(std::span<std::byte> frame) noexcept {
  const Headers h = parse(frame);
  const auto put = [&](size_t at, be16 v) { std::memcpy(frame.data() + at, &v, sizeof v); };
  if (h.ip == Ip::k4) {
    put(h.l3_at + 10, be16(0));
    put(h.l3_at + 10, checksum::finish(checksum::sum(frame.subspan(h.l3_at, h.l4_at - h.l3_at))));
  }
  if (h.l4_bytes == 0) return;
  put(checksum_at(h), be16(0));
  const uint64_t sum = l4_sum(frame, h);
  put(checksum_at(h), h.proto == IPPROTO_UDP ? checksum::finish_udp(sum) : checksum::finish(sum));
}

}  // namespace vireo::softnic
