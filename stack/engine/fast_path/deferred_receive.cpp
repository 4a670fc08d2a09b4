// Finishes the work that a receiving call left.
#include "stack/engine/hub.h"
#include "stack/tcp/fast_path/predicted.h"

namespace vireo {

void DeferredReceive::finish_answered(TcpFlow& f) noexcept {
  flow_ = nullptr;
  const tcp::AwaitedAnswer& a = answer_;
  hub().stats.rx_packets.add();
  hub().stats.rx_bytes.add(a.bytes + wire::HeaderTemplate::kPlainTcp);
  f.stats->rx_packets.add();
  f.stats->rx_bytes.add(a.bytes);
  tcp::book_answer(f.tcb, a);
}

void DeferredReceive::finish() noexcept {
  TcpFlow& f = *flow_;
  finish_answered(f);
  tcp::schedule_ack(f.tcb, answer_.at);
  if (f.tcb.acks_due != 0) [[unlikely]]
    hub().output.want(f);
  hub().timers.arm_by(f, f.tcb.delack_at);
}

}  // namespace vireo
