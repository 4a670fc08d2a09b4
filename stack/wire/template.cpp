#include "stack/wire/template.h"

#include "core/assert.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/ipv6.h"
#include "stack/wire/udp.h"

namespace vireo::wire {
namespace {

/// Writes headers one after the other.
class Builder {
 public:
  explicit Builder(std::byte* out) : out_(out) {}
  template <class H>
  void put(const H& h) {
    std::memcpy(out_ + at_, &h, sizeof h);
    at_ += sizeof h;
  }
  uint8_t at() const { return static_cast<uint8_t>(at_); }

 private:
  std::byte* out_;
  size_t at_ = 0;
};

}  // namespace

HeaderTemplate HeaderTemplate::build(const Params& p) noexcept {
  VIREO_ASSERT(p.src.is_v4() == p.dst.is_v4());
  VIREO_ASSERT(p.proto == IpProto::kTcp || p.proto == IpProto::kUdp);
  HeaderTemplate t;
  Builder b(t.bytes_.data());
  t.v6_ = !p.dst.is_v4();
  const auto ip_type = static_cast<uint16_t>(t.v6_ ? EtherType::kIpv6 : EtherType::kIpv4);
  if (p.vlan.value() == 0 && p.vlan_priority == 0) {
    b.put(EthernetHeader{p.dst_mac, p.src_mac, ip_type});
  } else {
    b.put(EthernetHeader{p.dst_mac, p.src_mac, static_cast<uint16_t>(EtherType::kVlan)});
    b.put(
        VlanTag{static_cast<uint16_t>(p.vlan_priority << 13 | (p.vlan.value() & 0x0fff)), ip_type});
  }
  t.l3_at_ = b.at();
  const auto proto = static_cast<uint8_t>(p.proto);
  const auto tos = static_cast<uint8_t>(p.proto == IpProto::kTcp ? p.tos & ~3 : p.tos);
  if (t.v6_) {
    b.put(Ipv6Header{6U << 28 | uint32_t{tos} << 20 | (p.flow_label & 0xfffff), uint16_t{0}, proto,
                     p.ttl, p.src.bytes(), p.dst.bytes()});
  } else {
    const Ipv4Header ip{0x45,
                        tos,
                        uint16_t{0},
                        uint16_t{0},
                        p.dont_fragment ? Ipv4Header::kDontFragment : uint16_t{0},
                        p.ttl,
                        proto,
                        uint16_t{0},
                        p.src.as_v4(),
                        p.dst.as_v4()};
    b.put(ip);
    t.ip_sum_ = static_cast<uint16_t>(checksum::sum(&ip, sizeof ip));
  }
  t.l4_at_ = b.at();
  t.l4_sum_ = checksum::pseudo(p.src, p.dst, p.proto, 0);
  t.ports_ = be32(uint32_t{p.src_port} << 16 | p.dst_port).raw();
  if (p.proto == IpProto::kTcp) {
    TcpHeader h{};
    h.src_port = p.src_port;
    h.dst_port = p.dst_port;
    b.put(h);
  } else {
    b.put(UdpHeader{p.src_port, p.dst_port, uint16_t{0}, uint16_t{0}});
  }
  t.size_ = b.at();
  return t;
}

size_t HeaderTemplate::emit_tcp(std::byte* out, const TcpFields& f, L4Sum mode) const noexcept {
  copy_fixed(out);
  const size_t options = f.options.size();
  const auto l4_bytes = static_cast<uint32_t>(sizeof(TcpHeader) + options + f.payload_bytes);
  const be32 words[3] = {
      f.seq, f.ack,
      static_cast<uint32_t>(5 + options / 4) << 28 | uint32_t{f.flags} << 16 | f.window};
  std::byte* const tcp = out + l4_at_;
  // Written separately: a wider load of bytes just written would wait for the store buffer.
  std::memcpy(tcp + offsetof(TcpHeader, seq_raw), &words[0], 4);
  std::memcpy(tcp + offsetof(TcpHeader, seq_raw) + 4, &words[1], 4);
  std::memcpy(tcp + offsetof(TcpHeader, seq_raw) + 8, &words[2], 4);
  checksum::Sum options_sum = 0;
  if (options == kTimestampBytes) [[likely]]  // constant length: three loads
    options_sum =
        checksum::copy_and_sum(tcp + sizeof(TcpHeader), f.options.data(), kTimestampBytes);
  else if (options != 0)
    options_sum = checksum::copy_and_sum(tcp + sizeof(TcpHeader), f.options.data(), options);
  const uint16_t urgent = std::byteswap(f.urgent);
  std::memcpy(tcp + offsetof(TcpHeader, urgent), &urgent, 2);
  uint64_t sum = uint64_t{l4_sum_} + checksum::word(static_cast<uint16_t>(l4_bytes));
  if (mode == L4Sum::kFull) {
    sum += uint64_t{words[0].raw()} + words[1].raw() + words[2].raw() + ports_ + urgent +
           f.payload_sum + options_sum;
  }
  put_sum(tcp + offsetof(TcpHeader, checksum), sum, mode, false);
  patch_ip(out, l4_bytes, f.ip_id, static_cast<uint8_t>(f.ecn));
  return size_ + options;
}

}  // namespace vireo::wire
