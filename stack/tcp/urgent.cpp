// Urgent data, as Linux does it (net/ipv4/tcp_input.c tcp_check_urg): the pointer marks one byte,
// the last urgent one. It stays in the stream, and a copy can be read out of band. Source: RFC 9293
// §3.8.5, RFC 6093 §3 (common implementations).
#include "stack/tcp/tcb.h"

namespace vireo::tcp {

namespace {

StreamOffset marked(const Tcb& t) { return t.near_rcv_nxt(t.urgent_mark); }
/// Position of the program's next byte.
StreamOffset read_offset(const Tcb& t) {
  return t.rcv_nxt - (t.peer_fin ? 1 : 0) - t.recv_queue.bytes();
}

}  // namespace

Effects note_urgent(Tcb& t, int64_t mark) {
  // Old: before rcv_nxt, or not beyond the current mark.
  if (mark < static_cast<int64_t>(t.rcv_nxt)) return Effects::kNone;
  const auto at = static_cast<StreamOffset>(mark);
  if (t.urgent != Urgent::kNone && at <= marked(t)) return Effects::kNone;
  // The program has read up to the former mark. That byte was out of band and must not become
  // normal data because the mark moves.
  if (t.urgent != Urgent::kNone && !t.config->oob_inline && marked(t) == read_offset(t) &&
      !t.recv_queue.empty())
    t.recv_queue.trim_front(1);
  t.urgent = Urgent::kAwaited;
  t.urgent_mark = static_cast<uint32_t>(at);
  return Effects::kUrgent;
}

Effects look_for_urgent(Tcb& t, StreamOffset at, const PacketChain& text) {
  const StreamOffset mark = marked(t);
  if (mark < at || mark >= at + text.bytes()) return Effects::kNone;
  uint64_t skip = mark - at;
  for (const PacketBuf* p = text.front(); p != nullptr; p = p->next) {
    if (skip < p->length) {
      t.urgent_byte = p->data()[skip];
      t.urgent = Urgent::kThere;
      return Effects::kUrgentByte;
    }
    skip -= p->length;
  }
  return Effects::kNone;
}

void pass_mark(Tcb& t) {
  if (read_offset(t) <= marked(t)) return;
  t.urgent = Urgent::kNone;
  refresh_prediction(t);
}

void plan_urgent(const Tcb& t, StreamOffset offset, Plan& p) {
  const StreamOffset up = t.queue.board().snd_up;
  if (up <= t.snd_una || offset >= up) return;
  const uint64_t ahead = up - offset;
  if (ahead > 0xffff && offset + 0xffff <= t.snd_nxt) return;  // a later segment carries it (Linux)
  p.flags |= SegFlags::kUrg;
  p.urgent = static_cast<uint16_t>(ahead < 0xffff ? ahead : 0xffff);
}

void mark_urgent(Tcb& t) {
  if (!t.queue.has_ring()) return;  // nothing was taken
  t.queue.board().snd_up = t.snd_end;
  t.urgent_mode = true;
  t.terse = false;
  forget_single(t);
}

uint64_t bytes_to_mark(const Tcb& t) { return marked(t) - read_offset(t); }

std::byte take_urgent(Tcb& t, bool peek) {
  if (!peek) t.urgent = Urgent::kTaken;
  return t.urgent_byte;
}

void set_oob_inline(Tcb& t, bool on) {
  t.config.change([&](Config& c) { c.oob_inline = on; });
}

}  // namespace vireo::tcp
