// The state kept for 2MSL, and replies to segments for it.
#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// Segments of a connection that another TCP has were under way at the hand-over. A SYN is of the
/// next connection: if that TCP still had the old one, the device would have brought the SYN there.
tcp::TimeWaitVerdict elsewhere_input(const tcp::Segment& s) noexcept {
  using tcp::SegFlags;
  const bool is_syn = has(s.flags, SegFlags::kSyn) && !has(s.flags, SegFlags::kAck);
  return is_syn ? tcp::TimeWaitVerdict::kNewConnection : tcp::TimeWaitVerdict::kDrop;
}

}  // namespace

/// Replaces the connection by an entry of its key for 2MSL. @return null: no memory, the connection
/// is freed.
TimeWaitEntry* TimeWaits::make_entry(TcpFlow& f, FlowRule rule, Instant now) {
  const tcp::TimeWait wait = tcp::make_time_wait(f.tcb);
  const DemuxKey key = demux_key(f.key);
  TimeWaitEntry* e = entries_.alloc();
  if (e == nullptr) [[unlikely]] {
    hub().tcp.free(f);
    return nullptr;
  }
  e->key = key;
  e->wait = wait;
  e->rule = std::move(rule);
  e->until = now + hub().config.time_wait;
  e->is_elsewhere = false;
  e->reuse_addr = f.reuse_addr;
  e->reuse_port = f.reuse_port;
  hub().demux.replace(key, ref(*e));
  hub().tcp.end(f);
  queue_.push_back(*e);
  hub().wakeups.count_flow();
  return e;
}

void TimeWaits::enter(TcpFlow& f, Instant now) {
  // A connection's own rule stays with the entry. Not if the port is kept as a lease, whose rule
  // covers it; and the rule of a leased port that is not kept would take frames that are now the
  // kernel's.
  FlowRule rule;
  const bool is_kept = hub().tcp.keep_port(f, now);
  const bool has_own = f.egress.port != nullptr && f.egress.port->device->caps().tags;
  if (has_own || (!is_kept && f.port_origin != PortOrigin::kLeased)) rule = std::move(f.rule);
  if (make_entry(f, std::move(rule), now) != nullptr) hub().stats.time_waits.add();
}

void TimeWaits::leave_to_kernel(TcpFlow& f, Instant now) {
  if (TimeWaitEntry* const e = make_entry(f, FlowRule(), now)) e->is_elsewhere = true;
}

void TimeWaits::drop(TimeWaitEntry& e) noexcept {
  hub().demux.erase(e.key, ref(e));
  hub().wakeups.uncount_flow();
  entries_.free(e);
}

void TimeWaits::segment_arrived(TimeWaitEntry& e, const Incoming& in, tcp::Segment& s,
                                Instant now) noexcept {
  tcp::Plan plan;
  switch (e.is_elsewhere ? elsewhere_input(s) : tcp::time_wait_input(e.wait, s, now, plan)) {
    case tcp::TimeWaitVerdict::kDrop:
      if (e.is_elsewhere) (void)hub().steering.take_stray(in.port, in.frame, s.payload, now);
      return;
    case tcp::TimeWaitVerdict::kRestart:
      e.until = now + hub().config.time_wait;
      e.hook.unlink();
      queue_.push_back(e);
      [[fallthrough]];
    case tcp::TimeWaitVerdict::kAck:
      hub().replies.reply(in, plan);
      return;
    case tcp::TimeWaitVerdict::kNewConnection: {
      if (hub().keys.find(IpProto::kTcp, in.frame.dst(), in.frame.dst_port) == 0) {
        hub().replies.refuse(in, s, now);  // no listener: the entry stays
        return;
      }
      // The numbers are unknown if another TCP had the connection.
      const bool is_ours = !e.is_elsewhere;
      const tcp::TimeWait before = e.wait;
      drop(e);
      if (!hub().passive.segment_arrived(in, s, is_ours ? &before : nullptr, now))
        hub().replies.refuse(in, s, now);
      return;
    }
  }
}

void TimeWaits::expire(Instant now) noexcept {
  for (unsigned i = 0; i < kExpiriesPerTurn && !queue_.empty(); ++i) {
    TimeWaitEntry& e = queue_.front();
    if (e.until > now) return;
    drop(e);
  }
}

}  // namespace vireo
