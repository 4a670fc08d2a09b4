#include "stack/ip/fragmentation.h"

#include <algorithm>

#include "core/checksum.h"
#include "stack/wire/fragment.h"

namespace vireo::ip {
namespace {

using Bytes = std::vector<std::byte>;

void write_ipv4(std::byte* at, uint32_t offset, uint32_t bytes, bool more, uint32_t id) {
  auto& ip = *reinterpret_cast<wire::Ipv4Header*>(at);
  ip.total_length = be16(static_cast<uint16_t>(ip.header_bytes() + bytes));
  ip.id = be16(static_cast<uint16_t>(id));
  ip.fragment = be16(
      static_cast<uint16_t>(offset / 8 | (more ? unsigned{wire::Ipv4Header::kMoreFragments} : 0)));
  ip.checksum = be16(uint16_t{0});
  ip.checksum = checksum::finish(checksum::sum(&ip, ip.header_bytes()));
}

void write_ipv6(std::byte* at, uint32_t offset, uint32_t bytes, bool more, uint32_t id) {
  auto& ip = *reinterpret_cast<wire::Ipv6Header*>(at);
  wire::Ipv6FragmentHeader h{};
  h.next_header = ip.next_header;
  h.fragment = be16(static_cast<uint16_t>(offset | (more ? h.kMoreFragments : 0)));
  h.id = be32(id);
  *reinterpret_cast<wire::Ipv6FragmentHeader*>(at + sizeof ip) = h;
  ip.next_header = static_cast<uint8_t>(wire::Ipv6Extension::kFragment);
  ip.payload_length = be16(static_cast<uint16_t>(sizeof h + bytes));
}

}  // namespace

std::vector<Bytes> cut_packet(const wire::ParsedFrame& f, uint32_t id, uint32_t data_bytes) {
  std::vector<Bytes> all;
  if (f.is_v6 && f.l4_at != f.l3_at + sizeof(wire::Ipv6Header)) return all;
  const size_t head = f.l4_at + (f.is_v6 ? sizeof(wire::Ipv6FragmentHeader) : 0);
  for (uint32_t at = 0; at < f.l4_bytes; at += data_bytes) {
    const uint32_t n = std::min<uint32_t>(data_bytes, f.l4_bytes - at);
    Bytes& frame = all.emplace_back(f.frame, f.frame + f.l4_at);
    frame.resize(head);
    frame.insert(frame.end(), f.frame + f.l4_at + at, f.frame + f.l4_at + at + n);
    (f.is_v6 ? write_ipv6 : write_ipv4)(frame.data() + f.l3_at, at, n, at + n < f.l4_bytes, id);
  }
  return all;
}

}  // namespace vireo::ip
