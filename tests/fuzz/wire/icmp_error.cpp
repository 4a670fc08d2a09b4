// Fuzzes the reading of ICMP errors. The frame around is made right (lengths, checksum, addressed
// to the quoted source), so that the fuzzer's bytes reach the inside. Input: first byte, bit 0 =
// IPv6, bit 1 = leave the checksum wrong; then the ICMP message.
#include <cstring>
#include <memory>

#include "core/assert.h"
#include "core/checksum.h"
#include "stack/ip/icmp_error.h"

using namespace vireo;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 9 || size > 1400) return 0;
  const bool v6 = (data[0] & 1) != 0;
  const size_t n = size - 1;
  const size_t ip = v6 ? 40 : 20;
  const size_t total = 14 + ip + n;
  const auto frame = std::make_unique<uint8_t[]>(total);  // its exact size
  std::memcpy(&frame[14 + ip], data + 1, n);
  frame[12] = v6 ? 0x86 : 0x08;
  frame[13] = v6 ? 0xdd : 0x00;
  uint8_t* const h = &frame[14];
  const uint8_t* const quote = &frame[14 + ip + 8];
  const auto put16 = [](uint8_t* p, size_t v) {
    p[0] = static_cast<uint8_t>(v >> 8);
    p[1] = static_cast<uint8_t>(v);
  };
  if (v6) {
    h[0] = 0x60;
    put16(h + 4, n);
    h[6] = 58;
    h[8] = 0x20;
    if (n >= 8 + 24) std::memcpy(h + 24, quote + 8, 16);
  } else {
    h[0] = 0x45;
    put16(h + 2, ip + n);
    h[9] = 1;
    h[12] = 10;
    if (n >= 8 + 16) std::memcpy(h + 16, quote + 12, 4);
  }
  uint8_t* const icmp = &frame[14 + ip];
  put16(icmp + 2, 0);
  checksum::Sum sum = checksum::sum(icmp, n);
  if (v6) sum += checksum::pseudo_v6(h + 8, h + 24, IpProto::kIcmpV6, static_cast<uint32_t>(n));
  be16 field = checksum::finish(sum);
  if ((data[0] & 2) != 0) field = static_cast<uint16_t>(field ^ 0x0101);
  std::memcpy(icmp + 2, &field, 2);

  const auto f = wire::parse_frame({reinterpret_cast<const std::byte*>(frame.get()), total});
  VIREO_ASSERT(f);
  const auto e = ip::parse_icmp_error(f);
  if (!e) return 0;
  VIREO_ASSERT((data[0] & 2) == 0);
  VIREO_ASSERT(e->proto == IpProto::kTcp || e->proto == IpProto::kUdp);
  VIREO_ASSERT(e->local.addr == f.dst() && e->reporter == f.src());
  VIREO_ASSERT(e->error != 0);
  VIREO_ASSERT((e->kind == ip::IcmpErrorKind::kTooBig) == (e->mtu != 0));
  VIREO_ASSERT(e->mtu == 0 || e->mtu >= (v6 ? ip::kMinPathMtuV6 : ip::kMinPathMtuV4));
  return 0;
}
