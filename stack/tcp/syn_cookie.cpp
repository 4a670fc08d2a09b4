#include "stack/tcp/syn_cookie.h"

#include <array>
#include <cstring>

#include "stack/tcp/tcb.h"
#include "stack/wire/tcp_options.h"

namespace vireo::tcp {
namespace {

/// Common sizes (Linux msstab): rounding down loses little.
constexpr std::array<uint16_t, 4> kSizes4{536, 1300, 1440, 1460};
constexpr std::array<uint16_t, 4> kSizes6{1220, 1420, 1440, 8940};

/// The size is in the highest bits. The ACK of a FIN, or of a few bytes after the SYN, is the
/// cookie plus a small number; it must not be a valid cookie, or a closed connection would be
/// opened again.
constexpr unsigned kSizeShift = 30;
constexpr uint32_t kSizeMask = 3U << kSizeShift;
constexpr uint32_t kNoScale = 0xf;
constexpr uint32_t kSackBit = 1U << 4;
constexpr uint32_t kEcnBit = 1U << 5;
constexpr uint32_t kOptionsMask = 0x3f;

const std::array<uint16_t, 4>& sizes_of(const SynRecord& r) {
  return r.remote.is_v4() ? kSizes4 : kSizes6;
}

uint64_t epoch_of(Instant now) { return static_cast<uint64_t>(now.ns() / kCookieEpoch.ns()); }

uint32_t mac(const SynRecord& r, const IsnSecret& key, uint64_t epoch) {
  std::array<uint8_t, 16 + 16 + 4 + 4 + 8 + 1> in;
  uint8_t* at = in.data();
  const auto put = [&at](const void* p, size_t n) {
    std::memcpy(at, p, n);
    at += n;
  };
  const uint32_t irs = r.irs.value();
  const uint8_t ts = r.ts_on;
  put(r.local.bytes().data(), 16);
  put(r.remote.bytes().data(), 16);
  put(&r.local_port, 2);
  put(&r.remote_port, 2);
  put(&irs, 4);
  put(&epoch, 8);
  put(&ts, 1);
  return static_cast<uint32_t>(siphash(key, in)) & ~kSizeMask;
}

/// TSval with the options in its low bits, never ahead of the clock: it must not run backward (RFC
/// 7323 §5.4), and its echo gives the age.
uint32_t cookie_clock(const SynRecord& r, Instant now) {
  const uint32_t clock = timestamp_clock(now, 0);
  const uint32_t options = (r.wscale_on ? static_cast<uint32_t>(r.wscale) : kNoScale) |
                           (r.sack_on ? kSackBit : 0) | (r.ecn_on ? kEcnBit : 0);
  uint32_t v = (clock & ~kOptionsMask) | options;
  if (static_cast<int32_t>(v - clock) > 0) v -= kOptionsMask + 1;
  return v;
}

}  // namespace

void make_cookie(SynRecord& r, const IsnSecret& key, Instant now) {
  if (!r.ts_on) {
    r.sack_on = false;
    r.wscale_on = false;
    r.ecn_on = false;
    r.wscale = 0;
  }
  const auto& sizes = sizes_of(r);
  uint32_t size = 3;
  while (size > 0 && sizes[size] > r.mss) --size;
  r.iss = Seq32(mac(r, key, epoch_of(now)) | size << kSizeShift);
  r.is_cookie = true;
}

void plan_cookie_syn_ack(const SynRecord& r, const Config& c, Instant now, Plan& p) {
  plan_syn_ack(r, c, now, p);
  if (!r.ts_on) return;
  wire::SynOptions o;
  o.mss = c.mss;
  o.sack_permitted = r.sack_on;
  o.timestamps = true;
  o.ts_val = cookie_clock(r, now) + c.ts_offset;
  o.ts_ecr = r.ts_recent;
  if (r.wscale_on) o.window_scale = fitting_wscale(c);
  p.options_length = wire::emit_syn_options(p.options, o);
}

bool open_cookie(SynRecord& r, const IsnSecret& key, const Config& c, const Segment& s,
                 Instant now) {
  const wire::TcpOptions o = wire::parse_tcp_options(s.options, false);
  r.irs = s.seq - 1;
  r.iss = s.ack - 1;
  r.ts_on = c.timestamps && o.has_timestamps;
  const uint32_t given = r.iss.value();
  bool is_ours = false;
  for (unsigned age = 0; age < kCookieEpochs && !is_ours; ++age)
    is_ours = mac(r, key, epoch_of(now) - age) == (given & ~kSizeMask);
  if (!is_ours) return false;
  r.mss = sizes_of(r)[given >> kSizeShift];
  r.ts_recent = 0;
  r.sack_on = r.wscale_on = r.ecn_on = false;
  r.wscale = 0;
  // When the SYN-ACK was sent is unknown: like a retransmitted one, it gives no RTT sample.
  r.sent_at = SynRecord::stamp(now);
  r.is_retried = true;
  if (!r.ts_on) return true;
  const uint32_t echo = o.ts_ecr - c.ts_offset;
  const uint32_t age = timestamp_clock(now, 0) - echo;
  if (age > static_cast<uint32_t>(kCookieLife.ms()) + kOptionsMask) return false;
  r.ts_recent = o.ts_val;
  r.sack_on = (echo & kSackBit) != 0 && c.sack;
  r.ecn_on = (echo & kEcnBit) != 0;
  const uint32_t shift = echo & kNoScale;
  r.wscale_on = shift != kNoScale && c.window_scaling;
  r.wscale = r.wscale_on ? shift & 0xf : 0;
  return true;
}

}  // namespace vireo::tcp
