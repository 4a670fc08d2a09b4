// Measures the delivery rate of the path: the bytes acknowledged in a round trip, divided by its
// duration. A round in which the program had no more to send gives only a lower bound.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: TCP_INFO's tcpi_delivery_rate.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"
#include "core/seq.h"

namespace vireo::tcp {

/// One round of measurement, about a round trip.
struct DeliveryRound {
  StreamOffset begun = 0;
  StreamOffset end = 0;  ///< the round ends when this is acknowledged; 0: none yet
  Instant begun_at;
  bool limited = false;
};

class DeliveryRate {
 public:
  /// `app_limited`: no data is waiting to be sent.
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
  /// on_ack() for a small segment that was alone in flight: it cannot change a known rate.
  void on_single_ack(DeliveryRound& r, StreamOffset snd_una, Instant now) {
    if (rate_ != 0) [[likely]]
      r.limited = true;
    else
      on_ack(r, snd_una, snd_una, true, now);
  }
  /// 0: unknown.
  uint64_t bytes_per_second() const { return static_cast<uint64_t>(double{rate_} * 1e9 + 0.5); }
  bool is_app_limited() const { return limited_; }

 private:
  float rate_ = 0;  ///< bytes a nanosecond; float division is a tenth of the cost of an integer one
  bool limited_ = false;
};

}  // namespace vireo::tcp
