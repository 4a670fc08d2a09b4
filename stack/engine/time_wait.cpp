// TIME-WAIT: what is left of a connection for 2MSL (RFC 9293 §3.6.1). All wait equally long, so the
// oldest is always first: a queue serves as the timer.
#include "stack/engine/engine.h"

namespace vireo {

/// The connection goes, its key stays for 2MSL. @return null: there is no memory, it is gone.
TimeWaitEntry* Engine::leave_entry(TcpFlow& f, FlowRule rule, Instant now) {
  const tcp::TimeWait wait = tcp::make_time_wait(f.tcb);
  const DemuxKey key = demux_key(f.key);
  TimeWaitEntry* e = time_waits_.alloc();
  if (e == nullptr) [[unlikely]] {
    free_tcp(f);
    return nullptr;
  }
  e->key = key;
  e->wait = wait;
  e->rule = std::move(rule);
  e->until = now + config_.time_wait;
  e->is_elsewhere = false;
  e->reuse_addr = f.reuse_addr;
  e->reuse_port = f.reuse_port;
  demux_.replace(key, ref(*e));
  end_tcp(f);
  time_wait_queue_.push_back(*e);
  count_flow();
  return e;
}

void Engine::enter_time_wait(TcpFlow& f, Instant now) {
  // A rule of its own goes on with it. Not if the port is kept, whose rule brings its frames, too;
  // and that of a leased port that is not kept would take what is the kernel's then.
  FlowRule rule;
  const bool is_kept = keep_port(f, now);
  const bool has_own = f.egress.port != nullptr && f.egress.port->device->caps().tags;
  if (has_own || (!is_kept && f.port_origin != PortOrigin::kLeased)) rule = std::move(f.rule);
  if (leave_entry(f, std::move(rule), now) != nullptr) stats_.time_waits.add();
}

void Engine::drop_time_wait(TimeWaitEntry& e) noexcept {
  demux_.erase(e.key, ref(e));
  flow_count_.fetch_sub(1, std::memory_order_relaxed);
  time_waits_.free(e);
}

namespace {

/// What comes to us of a connection that another TCP has was on its way to us before. A SYN is of
/// the next one: had that TCP the old one still, the device would have brought it there.
tcp::TimeWaitVerdict elsewhere_input(const tcp::Segment& s) noexcept {
  using tcp::SegFlags;
  const bool is_syn = has(s.flags, SegFlags::kSyn) && !has(s.flags, SegFlags::kAck);
  return is_syn ? tcp::TimeWaitVerdict::kNewConnection : tcp::TimeWaitVerdict::kDrop;
}

}  // namespace

void Engine::time_wait_segment(TimeWaitEntry& e, const Incoming& in, tcp::Segment& s,
                               Instant now) noexcept {
  tcp::Plan plan;
  switch (e.is_elsewhere ? elsewhere_input(s) : tcp::time_wait_input(e.wait, s, now, plan)) {
    case tcp::TimeWaitVerdict::kDrop:
      return;
    case tcp::TimeWaitVerdict::kRestart:
      e.until = now + config_.time_wait;
      e.hook.unlink();
      time_wait_queue_.push_back(e);
      [[fallthrough]];
    case tcp::TimeWaitVerdict::kAck:
      reply(in, plan);
      return;
    case tcp::TimeWaitVerdict::kNewConnection: {
      if (find_bound(IpProto::kTcp, in.frame.dst(), in.frame.dst_port) == 0) {
        receive_stranger(in, s, now);  // nobody listens: the entry stays
        return;
      }
      // Its numbers tell nothing where another TCP went on with them.
      const bool is_ours = !e.is_elsewhere;
      const tcp::TimeWait before = e.wait;
      drop_time_wait(e);
      if (!listen_segment(in, s, is_ours ? &before : nullptr, now)) receive_stranger(in, s, now);
      return;
    }
  }
}

void Engine::expire_time_waits(Instant now) noexcept {
  for (unsigned i = 0; i < kTimersPerPoll && !time_wait_queue_.empty(); ++i) {
    TimeWaitEntry& e = time_wait_queue_.front();
    if (e.until > now) return;
    drop_time_wait(e);
  }
}

}  // namespace vireo
