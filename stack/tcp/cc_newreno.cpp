#include "stack/tcp/cc_kinds.h"

namespace vireo::tcp {

void reno_avoid(CongestionControl& c, uint32_t acked, uint32_t mss) {
  c.acked += acked;
  if (c.acked < c.cwnd) return;
  c.acked -= c.cwnd;
  grow(c, mss);
}

}  // namespace vireo::tcp
