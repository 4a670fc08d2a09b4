#include "stack/tcp/hand_over.h"

#include <algorithm>

#include "stack/tcp/tcb.h"

namespace vireo::tcp {

Result<HandOver> hand_over(Tcb& t, Instant now) {
  if (t.state == State::kSynSent || t.state == State::kSynReceived)
    return vireo::fail(EOPNOTSUPP, "it is being opened");
  if ((t.state != State::kEstablished && t.state != State::kCloseWait &&
       t.state != State::kFinWait1 && t.state != State::kFinWait2) ||
      t.reset_due)
    return vireo::fail(EOPNOTSUPP, "it is about to end");
  if (t.urgent != Urgent::kNone || t.urgent_mode)
    return vireo::fail(EOPNOTSUPP, "urgent data is under way");
  HandOver o;
  using Fin = HandOver::Fin;
  const StreamOffset sent = std::max(t.snd_max, t.snd_nxt);
  if (t.fin_queued)
    o.fin = t.snd_una > t.snd_end ? Fin::kAcked : sent > t.snd_end ? Fin::kSent : Fin::kQueued;
  o.peer_fin = t.peer_fin;
  o.snd_una = t.snd_seq(std::min(t.snd_una, t.snd_end));
  const StreamOffset rcv_nxt = t.rcv_nxt - (t.peer_fin ? 1 : 0);
  o.rcv_nxt = t.rcv_seq(rcv_nxt);
  for (uint32_t i = 0; i < t.queue.count(); ++i) {
    const SendDesc& d = t.queue.at(i);
    if (d.packet == nullptr) break;  // the FIN
    const auto over = static_cast<size_t>(t.snd_una > d.offset ? t.snd_una - d.offset : 0);
    if (over >= d.length) continue;
    o.to_send.insert(o.to_send.end(), d.packet->data() + over, d.packet->data() + d.length);
  }
  o.sent = static_cast<uint32_t>(
      std::min<uint64_t>(sent > t.snd_una ? sent - t.snd_una : 0, o.to_send.size()));
  for (const PacketBuf* p = t.recv_queue.front(); p != nullptr; p = p->next)
    o.unread.insert(o.unread.end(), p->bytes().begin(), p->bytes().end());
  o.peer_mss = t.peer_mss;
  o.wscale = t.wscale_on;
  o.snd_wscale = t.snd_wscale;
  o.rcv_wscale = t.rcv_wscale;
  o.sack = t.sack_on;
  o.timestamps = t.ts_on;
  o.timestamp = timestamp(t, now);
  o.taken = now;
  o.snd_wl1 = t.snd_wl1;
  o.snd_wnd = static_cast<uint32_t>(t.snd_edge > t.snd_una ? t.snd_edge - t.snd_una : 0);
  o.max_wnd = std::max(t.max_wnd, o.snd_wnd);
  o.rcv_wnd = static_cast<uint32_t>(t.rcv_adv > rcv_nxt ? t.rcv_adv - rcv_nxt : 0);
  return o;
}

bool is_untouched(Tcb& t) {
  const uint64_t said = t.rcv_nxt - 1 - (t.peer_fin ? 1 : 0);
  return (t.state == State::kEstablished || t.state == State::kCloseWait) && t.snd_end <= 1 &&
         said == t.recv_queue.bytes();
}

}  // namespace vireo::tcp
