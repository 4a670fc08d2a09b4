// Fuzzes the TCP option parser: bounded values, fast path equal to the slow one, and what can be
// said again parses back. Input: first byte, bit 0 = SYN; then the options.
#include "stack/wire/tcp_options.h"
#include "core/assert.h"

using namespace vireo;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool syn = (data[0] & 1) != 0;
  const std::span<const uint8_t> in(data + 1, size - 1);
  const wire::TcpOptions o = wire::parse_tcp_options(in, syn);
  const wire::TcpOptions slow = wire::parse_tcp_options_slow(in, syn);
  VIREO_ASSERT(o.has_timestamps == slow.has_timestamps && o.ts_val == slow.ts_val &&
               o.ts_ecr == slow.ts_ecr && o.mss == slow.mss && o.sack == slow.sack);
  VIREO_ASSERT(o.has_mss == slow.has_mss && o.sack_permitted == slow.sack_permitted &&
               o.has_window_scale == slow.has_window_scale && o.window_scale == slow.window_scale);
  VIREO_ASSERT(o.window_scale <= wire::kMaxWindowScale);
  VIREO_ASSERT(o.sack_count <= o.sack.size());
  VIREO_ASSERT(o.has_mss == (o.mss != 0));
  VIREO_ASSERT(syn || !(o.has_mss || o.has_window_scale || o.sack_permitted));

  uint8_t out[40];
  if (syn) {
    wire::SynOptions s;
    s.mss = o.has_mss ? o.mss : 536;
    if (o.has_window_scale) s.window_scale = o.window_scale;
    s.sack_permitted = o.sack_permitted;
    s.timestamps = o.has_timestamps;
    s.ts_val = o.ts_val;
    s.ts_ecr = o.ts_ecr;
    const uint8_t n = wire::emit_syn_options(out, s);
    const auto again = wire::parse_tcp_options({out, n}, true);
    VIREO_ASSERT(again.mss == s.mss && again.has_window_scale == o.has_window_scale &&
                 again.window_scale == o.window_scale && again.sack_permitted == o.sack_permitted &&
                 again.has_timestamps == o.has_timestamps && again.ts_val == o.ts_val &&
                 again.ts_ecr == o.ts_ecr);
  } else {
    wire::TcpOptionWriter w(out);
    if (o.has_timestamps) w.timestamps(o.ts_val, o.ts_ecr);
    const unsigned put = w.sack({o.sack.data(), o.sack_count});
    VIREO_ASSERT(put == o.sack_count || (o.has_timestamps && put == 3));
    const auto again = wire::parse_tcp_options({out, w.size()}, false);
    VIREO_ASSERT(again.sack_count == put && again.has_timestamps == o.has_timestamps);
    for (unsigned i = 0; i < put; ++i) VIREO_ASSERT(again.sack[i] == o.sack[i]);
  }
  return 0;
}
