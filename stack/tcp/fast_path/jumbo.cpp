#include "stack/tcp/fast_path/jumbo.h"

#include "stack/tcp/burst.h"
#include "stack/tcp/output.h"

namespace vireo::tcp {
namespace {

constexpr unsigned kMaxLost = 3;
constexpr Duration kJumboOff = Duration::s(60);

}  // namespace

uint32_t may_join(Tcb& t, Instant now) {
  if (t.searches_mtu || now < t.queue.board().joined.off_until) return 0;
  return full_mss(t);
}

void sent_jumbo(Tcb& t, const Plan& plan, const Burst& b, Instant now) {
  JumboWatch& watch = t.queue.board().joined;
  if (watch.end != 0 && t.snd_una >= watch.end) watch = {};
  if (watch.end == 0) {
    watch.begin = plan.offset;
    watch.end = plan.offset + b.bytes;
  }
  sent_burst(t, plan, b, b.segments, now);
  t.segs_out -= b.segments - 1U;
  t.data_segs_out -= b.segments - 1U;
}

void jumbo_lost(Tcb& t, StreamOffset offset, Instant now) {
  JumboWatch& watch = t.queue.board().joined;
  if (offset < watch.begin || offset >= watch.end) return;
  watch.begin = watch.end = 0;
  if (++watch.lost < kMaxLost) return;
  watch.lost = 0;
  watch.off_until = now + kJumboOff;
}

}  // namespace vireo::tcp
