// Proportional Rate Reduction: limits what is sent in fast recovery so that ssthresh bytes are in
// flight at its end.
// Owner: a Tcb's Scoreboard. Thread: holder of its engine's lock. Source: RFC 9937 §6, in bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stack/tcp/send_queue.h"

namespace vireo::tcp {

/// @return cwnd after an ACK that delivered `delivered` bytes and left `in_flight`.
/// `safe`: snd_una advanced and no further loss was found.
inline uint32_t prr_on_ack(Scoreboard& b, uint32_t delivered, uint64_t in_flight, uint32_t ssthresh,
                           uint32_t mss, bool safe) {
  b.prr_delivered += delivered;
  int64_t out = 0;
  if (in_flight > ssthresh) {
    const uint64_t share = (uint64_t{b.prr_delivered} * ssthresh + b.recover_fs - 1) / b.recover_fs;
    out = static_cast<int64_t>(share) - b.prr_out;
  } else {
    out = std::max<int64_t>(int64_t{b.prr_delivered} - b.prr_out, delivered);  // PRR-CRB
    if (safe) out += mss;                                                      // PRR-SSRB
    out = std::min<int64_t>(out, static_cast<int64_t>(ssthresh - in_flight));
  }
  if (b.prr_out == 0 && out <= 0) out = mss;  // the fast retransmit itself
  return static_cast<uint32_t>(in_flight + static_cast<uint64_t>(std::max<int64_t>(out, 0)));
}

}  // namespace vireo::tcp
