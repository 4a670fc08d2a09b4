// What a listener has not accepted when the kernel's listener of its address goes on without it:
// the kernel's gets it. A connection in the accept queue goes there at once. One that is half-open
// does so once its handshake is complete; until then the listener lives on, found by nobody else.
#include <algorithm>

#include "core/checksum.h"
#include "stack/engine/hub.h"
#include "stack/tcp/hand_over.h"
#include "stack/wire/tcp_options.h"

namespace vireo {
namespace {

using tcp::SynRecord;

/// The peer has sent its SYN again by then, and both have tried a second time.
constexpr Duration kLeaving = Duration::s(3);
/// More half-open ones are a flood.
constexpr uint32_t kMostHalfOpen = 256;
/// What fits the receive buffer of a new kernel socket, in frames of a page each. The peer knows
/// that it has arrived, and would not send it again.
constexpr size_t kMostUnread = 40 * 1024;
/// A multiple of 8; with any headers less than a page.
constexpr size_t kPieceBytes = 2048;

/// Segments as the peer of a connection sends them.
class PeerSegments {
 public:
  PeerSegments(const Hub& hub, const TcpFlow& f, const tcp::HandOver& state)
      : flow_(f),
        next_(state.rcv_nxt - static_cast<uint32_t>(state.unread.size())),
        ack_(state.snd_una) {
    const auto& links = *hub.reader.snapshot().links;
    const net::Link* const link = links.find(f.egress.ifindex);
    if (link == nullptr) return;
    header_ = wire::HeaderTemplate::build(
        {.dst_mac = link->mac,
         .vlan = link->kind == net::LinkKind::kVlan ? link->vlan : VlanId(),
         .proto = IpProto::kTcp,
         .src = f.key.remote.addr,
         .dst = f.key.local.addr,
         .src_port = f.key.remote.port,
         .dst_port = f.key.local.port});
    window_ = static_cast<uint16_t>(
        std::min<uint32_t>(state.snd_wnd >> (state.wscale ? state.snd_wscale : 0), 0xffff));
    our_time_ = state.timestamp;
  }
  explicit operator bool() const { return static_cast<bool>(header_); }

  std::vector<std::byte> next(std::span<const std::byte> payload, bool fin) {
    using tcp::SegFlags;
    uint8_t options[40];
    wire::TcpOptionWriter writer(options);
    if (flow_.tcb.ts_on) writer.timestamps(flow_.tcb.ts_recent, our_time_);
    std::vector<std::byte> frame(wire::HeaderTemplate::kMaxBytes);
    const size_t n = header_.emit_tcp(
        frame.data(),
        {.seq = next_.value(),
         .ack = ack_.value(),
         .flags = static_cast<uint8_t>(fin ? SegFlags::kAck | SegFlags::kFin : SegFlags::kAck),
         .window = window_,
         .options = {options, writer.size()},
         .payload_bytes = static_cast<uint32_t>(payload.size()),
         .payload_sum = checksum::sum(payload)});
    frame.resize(n);
    frame.insert(frame.end(), payload.begin(), payload.end());
    next_ += static_cast<uint32_t>(payload.size());
    return frame;
  }

 private:
  const TcpFlow& flow_;
  wire::HeaderTemplate header_;
  Seq32 next_, ack_;
  uint16_t window_ = 0;
  uint32_t our_time_ = 0;
};

Handshake agreed(const tcp::Tcb& t, const tcp::HandOver& state) {
  return {.peer_mss = state.peer_mss,
          .scales = state.wscale,
          .sack = state.sack,
          .timestamps = state.timestamps,
          .ecn = t.ecn_on,
          .our_shift = state.rcv_wscale,
          .peer_shift = state.snd_wscale,
          .our_time = state.timestamp,
          .peer_time = t.ts_recent};
}

struct Unaccepted {
  TcpFlow* flow;
  tcp::HandOver state;
  PeerSegments segments;
  std::vector<std::byte> ack;
};

/// The kernel has the connection: it gets what the program has not read.
void give_unread(Device& device, Unaccepted& u) {
  std::span<const std::byte> rest = u.state.unread;
  while (!rest.empty()) {
    const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
    (void)device.give_to_kernel(u.segments.next(piece, false));
    rest = rest.subspan(piece.size());
  }
  if (u.state.peer_fin) (void)device.give_to_kernel(u.segments.next({}, true));
}

}  // namespace

bool PassiveOpen::may_give_to_kernel() noexcept {
  return std::ranges::all_of(hub().ports.all(), [](const auto& p) {
    return p->dead || p->device->prepare_listener().has_value();
  });
}

/// Rules that remain bring frames of the connections of `l`, also of those that the kernel has.
bool PassiveOpen::keeps_frames(const Listener& l, const Port& port) const noexcept {
  if (l.options.joins) return !port.device->caps().asks_kernel;
  return std::ranges::any_of(listeners_, [&](const Listener* other) {
    return other != nullptr && other != &l && other->key.local.port == l.key.local.port &&
           !other->is_leaving();
  });
}

/// Connections in the accept queue whose frames come by `port`. What cannot be given is reset.
void PassiveOpen::give_ready(Listener& l, Port& port, Instant now) noexcept {
  std::vector<Unaccepted> all;
  for (auto it = l.ready.begin(); it != l.ready.end();) {
    TcpFlow& f = *it++;
    if (f.egress.port != &port || port.dead) continue;
    auto state = tcp::hand_over(f.tcb, now);
    if (!state || state->unread.size() > kMostUnread) continue;
    PeerSegments segments(hub(), f, *state);
    if (!segments) continue;
    auto ack = segments.next({}, false);
    all.push_back({&f, std::move(*state), segments, std::move(ack)});
  }
  if (all.empty()) return;
  std::vector<Opening> openings;
  for (const Unaccepted& u : all)
    openings.push_back({.ack = u.ack, .agreed = agreed(u.flow->tcb, u.state)});
  if (!port.device->give_to_listener(openings)) return;
  for (size_t i = 0; i < all.size(); ++i) {
    if (openings[i].error != 0) continue;
    Unaccepted& u = all[i];
    TcpFlow& f = *u.flow;
    give_unread(*port.device, u);
    f.unowned_hook.unlink();
    --l.ready_count;
    f.listener = kNoListener;
    hub().stats.unaccepted_given.add();
    hub().steering.expect_strays(f.key, Clock::now());  // what is above has taken its time
    // Its frames are the kernel's, for a rule that asks the kernel, or none that is left.
    f.rule.reset();
    if (keeps_frames(l, port)) (void)hub().steering.leave_to_kernel(f);
    hub().tcp.part_with(f, now);
  }
}

void PassiveOpen::give_ready(Listener& l, Instant now) noexcept {
  for (Port* const p : hub().ports.all()) give_ready(l, *p, now);
}

bool PassiveOpen::give_waiting(Instant now) noexcept {
  bool all = true;
  for (Listener* const l : listeners_) {
    if (l == nullptr || !l->options.joins || l->is_leaving() || l->ready.empty()) continue;
    give_ready(*l, now);
    all = all && l->ready.empty();
  }
  hub().turn.publish_deadline(now);
  return !all;
}

void PassiveOpen::give_to_kernel(Listener& l, Instant now) {
  hub().steering.expect_strays(l.key, now);
  (void)hub().turn.run(now);  // handshakes end here whose last segment is in the ring
  give_ready(l, now);
  reset_ready(l, now);
  leave(l);
  l.owner = nullptr;
  l.stats = &hub().unowned_stats;
  l.leaves_at = now + kLeaving;
  uint32_t kept = 0;
  syns_.for_each([&](SynRecord& r) {
    if (r.listener != l.listener) return;
    if (++kept > kMostHalfOpen || !keep_for_kernel(r, now)) forget_record(r);
  });
  hub().steering.expect_strays(l.key, Clock::now());  // from when its rules go, not from above
  l.rules.clear();
  leaving_until_ = now;  // soon: expire() looks further
  hub().steering.give_strays(now);
}

/// A half-open connection gets a rule of its own, for the listener's go. @return false: it cannot.
bool PassiveOpen::keep_for_kernel(SynRecord& r, Instant now) noexcept {
  CachedRoute e;
  if (const auto ok = way_back(*listeners_[r.listener], tuple_of(r), e, now);
      !ok && ok.error().code != EAGAIN)
    return false;
  if (e.port == nullptr || e.port->dead) return false;
  if (!syn_rules_.contains(&r) && make_rule(r, *e.port) != 0) return false;
  return !r.acked || repeat_syn_ack(r, now);  // the peer answers by the segment that is needed
}

void PassiveOpen::expire_leaving(Instant now) noexcept {
  leaving_until_ = Instant::never();
  for (Listener* const l : listeners_) {
    if (l == nullptr || !l->is_leaving()) continue;
    give_ready(*l, now);
    reset_ready(*l, now);
    if (l->syn_count == 0 || now >= l->leaves_at)
      end(*l, now);
    else
      leaving_until_ = std::min(leaving_until_, l->leaves_at);
  }
}

}  // namespace vireo
