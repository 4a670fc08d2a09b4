#include "stack/tcp/mtu_search.h"

#include <algorithm>
#include <new>

#include "stack/tcp/reframe.h"
#include "stack/tcp/tcb.h"

namespace vireo::tcp {

namespace {

constexpr uint32_t kMinWindow = 11;  // segments: enough to repair one loss without a timeout

/// The probe succeeded if all data up to its end is acknowledged.
void take_success(Tcb& t, MtuSearch& s) {
  if (s.probe_size == 0 || t.snd_una < s.probe_end) return;
  s.search_low = s.probe_size;
  s.probe_size = 0;
  update_mss(t);
}

/// No state in which the loss of a probe would be ambiguous.
bool is_quiet(const Tcb& t) {
  return t.is_orderly() && !t.tlp_due && !t.probe_due && !t.urgent_mode && t.snd_max == t.snd_nxt;
}

}  // namespace

void begin_mtu_search(Tcb& t, Instant now) {
  auto* s = new (std::nothrow) MtuSearch;
  if (s == nullptr) return;
  s->search_low =
      static_cast<uint16_t>(std::min<uint32_t>(t.config->mtu_base + plain_options(t), UINT16_MAX));
  s->search_high = largest_segment(t);
  s->begun = now;
  t.mtu_search.reset(s);
  t.searches_mtu = true;
  update_mss(t);
}

void stop_mtu_probing(Tcb& t) {
  t.config.change([](Config& c) { c.mtu_probing = MtuProbing::kOff; });
  if (!t.searches_mtu) return;
  t.searches_mtu = false;
  t.mtu_search.reset();
  update_mss(t);
}

uint32_t plan_mtu_probe(Tcb& t, Instant now) {
  MtuSearch& s = *t.mtu_search;
  take_success(t, s);
  if (s.probe_size != 0 || t.cc.cwnd < kMinWindow * t.mss || !is_quiet(t)) return t.mss;
  const int threshold = std::max<int>(t.config->mtu_threshold, 1);
  int high = std::min(s.search_high, largest_segment(t));
  if (high - s.search_low < threshold) {
    if (now - s.begun < Duration::s(t.config->mtu_interval_s)) return t.mss;
    // RFC 4821 §7.3: search again, the path may have changed.
    s.search_low = static_cast<uint16_t>(t.mss + plain_options(t));
    s.search_high = largest_segment(t);
    s.begun = now;
    high = s.search_high;
    if (high - s.search_low < threshold) return t.mss;
  }
  const auto size = static_cast<uint32_t>((s.search_low + high) / 2) - plain_options(t);
  if (size <= t.mss) return t.mss;
  // The data sent right after it lets its loss be detected.
  const uint64_t needed = size + (t.reordering + 1ULL) * t.mss;
  if (t.unsent() < needed || t.snd_edge < t.snd_una + needed || size > t.cc.cwnd) return t.mss;
  if (t.snd_edge < t.snd_nxt + needed || t.in_flight() + size > t.cc.cwnd) return 0;
  return join_unsent(t, size) ? size : t.mss;
}

bool is_mtu_settled(const Tcb& t) {
  const MtuSearch& s = *t.mtu_search;
  const int high = std::min(s.search_high, largest_segment(t));
  return s.probe_size != 0 || high - s.search_low < std::max<int>(t.config->mtu_threshold, 1);
}

void mtu_probe_sent(Tcb& t, const Plan& p) {
  MtuSearch& s = *t.mtu_search;
  s.probe_begin = p.offset;
  s.probe_end = p.offset + p.length;
  s.probe_size = static_cast<uint16_t>(p.length + plain_options(t));
}

bool mtu_probe_lost(Tcb& t) {
  MtuSearch& s = *t.mtu_search;
  if (s.probe_size == 0 || t.snd_una != s.probe_begin) return false;
  if (!t.queue.front().waits() || t.lost_out != s.probe_end - s.probe_begin) return false;
  s.search_high = static_cast<uint16_t>(s.probe_size - 1);
  s.probe_size = 0;
  resend_uncongested(t);
  return true;
}

void settle_mtu_probe(Tcb& t) {
  take_success(t, *t.mtu_search);
  t.mtu_search->probe_size = 0;
}

}  // namespace vireo::tcp
