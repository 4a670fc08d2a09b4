// How fast the path delivers: what was acknowledged over a round trip, by the time it took. A round
// in which the program had nothing more to send says only that the path does at least as much.
// Owner: a Tcb. Thread: holder of its engine's lock. Source: TCP_INFO's tcpi_delivery_rate.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"
#include "core/seq.h"

namespace vireo::tcp {

class DeliveryRate {
 public:
  /// `app_limited`: nothing waits to be sent.
  void on_ack(StreamOffset snd_una, StreamOffset snd_nxt, bool app_limited, Instant now) {
    limited_ |= app_limited;
    if (snd_una < end_) return;
    const int64_t ns = (now - begun_at_).ns();
    if (end_ != 0 && ns > 0) {
      const double sample = static_cast<double>(snd_una - begun_) / static_cast<double>(ns);
      if (!limited_ || sample > rate_) {
        rate_ = sample;
        rate_limited_ = limited_;
      }
    }
    begun_ = snd_una;
    begun_at_ = now;
    end_ = snd_nxt;
    limited_ = app_limited;
  }
  /// 0: not known.
  uint64_t bytes_per_second() const { return static_cast<uint64_t>(rate_ * 1e9 + 0.5); }
  bool is_app_limited() const { return rate_limited_; }

 private:
  StreamOffset begun_ = 0;
  StreamOffset end_ = 0;  ///< the round is over when it is acknowledged; 0: none yet
  Instant begun_at_;
  double rate_ = 0;  ///< bytes a nanosecond: an integer division costs ten of these
  bool limited_ = false;
  bool rate_limited_ = false;
};

}  // namespace vireo::tcp
