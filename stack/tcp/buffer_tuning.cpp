#include "stack/tcp/buffer_tuning.h"

#include <algorithm>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

namespace {

bool has_frames(const Tcb& t) {
  return t.pool->free_count() > t.pool->size() / 2 &&
         t.pool->window_share() == PacketPool::kNoShare;
}

}  // namespace

/// A window of data takes a round trip, or longer if the sender was idle: the minimum is used.
void measure_by_window(Tcb& t, Instant now) {
  BufferTuning& b = t.tuning;
  const auto rcv_nxt = static_cast<uint32_t>(t.rcv_nxt);
  if (b.window_end != 0 && Seq32(rcv_nxt).before(Seq32(b.window_end))) return;
  if (b.window_end != 0) {
    const Duration sample = std::max(now - b.window_at, Duration::us(1));
    b.rtt = b.rtt.get() == Duration{} ? sample : std::min(b.rtt.get(), sample);
  }
  b.window_end = static_cast<uint32_t>(std::max(t.rcv_adv, t.rcv_nxt + 1));
  b.window_at = now;
}

void measure_by_echo(Tcb& t, uint32_t echo, Instant now) {
  BufferTuning& b = t.tuning;
  b.echo = echo;
  const auto ms = static_cast<int32_t>(timestamp(t, now) - echo);
  if (ms < 0 || ms > 60'000) return;
  Duration sample = Duration::ms(ms + 1);
  if (t.rtt.has_sample())
    sample = std::clamp(t.rtt.srtt, Duration::ms(std::max(ms - 1, 0)), Duration::ms(ms + 1));
  b.rtt = b.rtt.get() == Duration{} ? sample : b.rtt.get() + (sample - b.rtt) / 8;
}

void grow_receive(Tcb& t) {
  BufferTuning& b = t.tuning;
  if (b.space == 0) b.space = initial_window(t.rcv_mss);
  if (b.copied <= b.space || !has_frames(t)) return;
  uint64_t want = 2ULL * b.copied + 16ULL * t.rcv_mss;
  want += 2 * (want * (b.copied - b.space) / b.space);
  b.space = b.copied;
  t.rcv_buf = static_cast<uint32_t>(std::clamp<uint64_t>(want, t.rcv_buf, t.config->rcv_buf_max));
}

void tune_send(Tcb& t) {
  const uint32_t most = t.config->snd_buf_max;
  const uint64_t want = 2ULL * t.cc.cwnd;
  if (want <= t.snd_buf || t.snd_buf >= most || !has_frames(t)) return;
  t.snd_buf = static_cast<uint32_t>(std::min<uint64_t>(want, most));
}

}  // namespace vireo::tcp
