// Reports delivered at the end of a turn.
#include <utility>

#include "stack/engine/hub.h"

namespace vireo {

using tcp::Effects;

void Notifications::note(TcpFlow& f, Effects e) noexcept {
  if (has(e, Effects::kTransmit)) hub().output.want(f);
  e &= ~Effects::kTransmit;
  if (e == Effects::kNone) return;
  f.gathered |= e;
  hub().turn.note_work();
  if (!f.notify_hook.is_linked()) tcp_.push_back(f);
}

void Notifications::note(UdpFlow& u) noexcept {
  hub().turn.note_work();
  if (!u.notify_hook.is_linked()) udp_.push_back(u);
}

void Notifications::deliver(Instant now) noexcept {
  while (!tcp_.empty()) {
    TcpFlow& f = tcp_.front();
    tcp_.pop_front();
    const Effects e = std::exchange(f.gathered, Effects::kNone);
    if (f.listener != kNoListener) {
      // Not accepted yet: accept() and later calls will show everything else.
      Listener& l = hub().passive.of(f);
      if (has(e, Effects::kConnected) && hub().events.accept != nullptr && !l.is_leaving())
        hub().events.accept(l);
    } else if (f.owner != nullptr) {
      hub().events.tcp(f, e);
    } else {
      hub().tcp.orphan_effects(f, now);
    }
  }
  while (!udp_.empty()) {
    UdpFlow& u = udp_.front();
    udp_.pop_front();
    if (u.owner != nullptr) hub().events.udp(u);
  }
}

}  // namespace vireo
