// Fuzzes the frame parser: what it accepts lies within the frame, and every accessor may be used.
// What the short way takes, both read alike.
// Input: first byte, how much of the packet lies in further buffers (in 64-byte steps); then the
// frame.
#include <cstdlib>

#include "core/assert.h"
#include "stack/wire/parse.h"
#include "tests/unit/wire/plain_agrees.h"

using namespace vireo;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t beyond = size_t{data[0]} * 64;
  const std::span<const std::byte> frame(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  bool is_plain = false;
  VIREO_ASSERT(wire::plain_disagrees(frame, is_plain) == nullptr);
  const wire::ParsedFrame f = wire::parse_frame(frame, beyond);
  if (!f) {
    VIREO_ASSERT(wire::parse_error_name(f.error)[0] != '?');
    return 0;
  }
  VIREO_ASSERT(f.l3_at < f.l4_at && f.l4_at <= f.payload_at && f.payload_at <= frame.size());
  VIREO_ASSERT(size_t{f.l4_at} + f.l4_bytes <= frame.size() + beyond);
  VIREO_ASSERT(f.payload_at + f.payload_bytes == f.l4_at + f.l4_bytes);
  VIREO_ASSERT(f.tags <= 2);
  VIREO_ASSERT(f.src().is_v4() == f.dst().is_v4() || f.is_v6);
  VIREO_ASSERT(f.flow().proto == f.proto);
  const auto payload = f.payload();
  VIREO_ASSERT(payload.data() + payload.size() <= frame.data() + frame.size());
  if (f.proto == IpProto::kTcp) {
    const auto options = f.tcp().options();
    VIREO_ASSERT(options.size() <= 40U);
    VIREO_ASSERT(f.l4_at + sizeof(wire::TcpHeader) + options.size() == f.payload_at);
  }
  // Read everything that an accepted frame says may be read.
  const int ok = int{wire::ipv4_header_ok(f)} + int{wire::l4_checksum_ok(f)};
  uint32_t sum = wire::pseudo_header_sum(f) + static_cast<uint32_t>(ok);
  for (const std::byte b : payload) sum += static_cast<uint32_t>(b);
  volatile uint32_t sink = sum;
  (void)sink;
  return 0;
}
