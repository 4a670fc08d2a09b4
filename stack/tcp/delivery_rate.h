// Measures how fast the path delivers: the bytes acknowledged over a round trip, divided by its
// time. A round in which the program had nothing more to send only shows that the path does at
// least as much.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: TCP_INFO's tcpi_delivery_rate.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"
#include "core/seq.h"

namespace vireo::tcp {

/// Between a round's first byte acknowledged and its last.
struct DeliveryRound {
  StreamOffset begun = 0;
  StreamOffset end = 0;  ///< the round is over when it is acknowledged; 0: none yet
  Instant begun_at;
  bool limited = false;
};

class DeliveryRate {
 public:
  /// `app_limited`: nothing waits to be sent.
  void on_ack(DeliveryRound& r, StreamOffset snd_una, StreamOffset snd_nxt, bool app_limited,
              Instant now) {
    r.limited |= app_limited;
    if (snd_una < r.end) return;
    const int64_t ns = (now - r.begun_at).ns();
    if (r.end != 0 && ns > 0) {
      const float sample = static_cast<float>(snd_una - r.begun) / static_cast<float>(ns);
      if (!r.limited || sample > rate_) {
        rate_ = sample;
        limited_ = r.limited;
      }
    }
    r = {snd_una, snd_nxt, now, app_limited};
  }
  /// on_ack() of a segment that was alone in flight, and small: where a rate is known it tells
  /// nothing of it.
  void on_single_ack(DeliveryRound& r, StreamOffset snd_una, Instant now) {
    if (rate_ != 0) [[likely]]
      r.limited = true;
    else
      on_ack(r, snd_una, snd_una, true, now);
  }
  /// 0: not known.
  uint64_t bytes_per_second() const { return static_cast<uint64_t>(double{rate_} * 1e9 + 0.5); }
  bool is_app_limited() const { return limited_; }

 private:
  float rate_ = 0;  ///< bytes a nanosecond: an integer division costs ten of these
  bool limited_ = false;
};

}  // namespace vireo::tcp
