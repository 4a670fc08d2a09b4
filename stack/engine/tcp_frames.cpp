// Segments as frames: one, several one by one, several cut by the device, several joined.
#include <cstring>

#include "core/checksum.h"
#include "stack/engine/hub.h"
#include "stack/engine/left_frame.h"
#include "stack/wire/tcp_options.h"

namespace vireo {
namespace {

wire::HeaderTemplate::TcpFields fields(const TcpFlow& f, const tcp::Plan& plan) {
  return {.seq = plan.seq.value(),
          .ack = plan.ack.value(),
          .flags = static_cast<uint8_t>(plan.flags),
          .window = plan.window,
          .urgent = plan.urgent,
          .options = {plan.options, plan.options_length},
          .payload_bytes = plan.length,
          .ip_id = f.next_ip_id,
          .ecn = plan.ecn};
}

using Room = std::byte[wire::HeaderTemplate::kMaxBytes];

/// Checksum of payload; that of whole buffers is stored.
checksum::Sum sum_of(const PacketSlice& s) {
  const PacketBuf& b = *s.packet;
  return s.length == b.length ? b.sum : checksum::sum(b.frame + s.at, s.length);
}

checksum::Sum sum_of(const tcp::Burst& burst) {
  checksum::Sum sum = 0;
  uint32_t done = 0;
  for (unsigned i = 0; i < burst.slice_count; ++i) {
    const PacketSlice& s = burst.slices[i];
    sum = checksum::combine(sum, sum_of(s), (done & 1) != 0);
    done += s.length;
  }
  return sum;
}

/// The headers of a plan's segments, which differ in sequence number, flags and payload.
class Heads {
 public:
  Heads(const TcpFlow& f, const tcp::Plan& plan) noexcept
      : header_(f.egress.header),
        plan_(plan),
        id_(f.next_ip_id),
        is_plain_(header_.is_plain_tcp() && f.ip.mtu_discover != IP_PMTUDISC_DONT &&
                  plan.options_length == 12 && word(0) == wire::kTimestampsWord &&
                  plan.urgent == 0 && plan.ecn == wire::Ecn::kNotEct) {}
  size_t size() const { return header_.size() + plan_.options_length; }
  void emit(std::byte* out, const tcp::Burst::Segment& s, checksum::Sum sum) const noexcept {
    const uint32_t seq = plan_.seq.value() + s.from;
    if (is_plain_) [[likely]] {
      header_.emit_plain_tcp(out, {.seq = seq,
                                   .ack = plan_.ack.value(),
                                   .flags = static_cast<uint8_t>(s.flags),
                                   .window = plan_.window,
                                   .ts_val = word(1),
                                   .ts_echo = word(2),
                                   .payload_bytes = s.text.length,
                                   .payload_sum = sum});
      return;
    }
    header_.emit_tcp(out, {.seq = seq,
                           .ack = plan_.ack.value(),
                           .flags = static_cast<uint8_t>(s.flags),
                           .window = plan_.window,
                           .urgent = plan_.urgent,
                           .options = {plan_.options, plan_.options_length},
                           .payload_bytes = s.text.length,
                           .payload_sum = sum,
                           .ip_id = id_,
                           .ecn = plan_.ecn});
  }

 private:
  /// A word of the options, read in the size in which it was just written.
  uint32_t word(unsigned i) const {
    be32 w;
    std::memcpy(static_cast<void*>(&w), plan_.options + size_t{4} * i, 4);
    return w;
  }
  const wire::HeaderTemplate& header_;
  const tcp::Plan& plan_;
  uint16_t id_;
  bool is_plain_;
};

/// Where to write a header: where the device would copy it to, or right in front of the payload,
/// where the device may leave it, unless the device still reads that buffer.
std::byte* place(const PacketSlice& text, size_t head_bytes, Room& room, const Queue& queue) {
  if (std::byte* const there = queue.head_place(); there != nullptr) return there;
  if (text.length == 0) return room;
  PacketBuf& b = *text.packet;
  if (text.at == b.data_at && b.device_refs == 0 && b.data_at >= sizeof room) [[likely]]
    return b.data() - head_bytes;
  return room;
}

/// @return false: the ring is full.
bool send_segment(Queue& queue, const Heads& heads, const tcp::Burst::Segment& s, Doorbell bell) {
  alignas(16) Room room;
  const size_t n = heads.size();
  std::byte* const head = place(s.text, n, room, queue);
  const bool has_text = s.text.length != 0;
  heads.emit(head, s, has_text ? sum_of(s.text) : 0);
  return queue.tx({{head, n}, {&s.text, has_text ? size_t{1} : size_t{0}}, 0}, bell);
}

}  // namespace

bool TcpOutput::emit(TcpFlow& f, const tcp::Plan& plan, Doorbell bell) noexcept {
  const Heads heads(f, plan);
  const tcp::Burst::Segment all{{plan.packet, plan.at, plan.length}, 0, plan.flags};
  if (!send_segment(f.egress.port->queue(), heads, all, bell)) return false;
  if (f.ip.mtu_discover == IP_PMTUDISC_DONT) [[unlikely]]
    ++f.next_ip_id;
  count_sent(f, 1, heads.size(), plan.length);
  if (plan.retransmission) [[unlikely]] {
    f.stats->retransmits.add();
    hub().stats.retransmits.add();
  }
  return true;
}

/// Sends several segments and updates the Tcb. @return segments that left; fewer: the ring is full.
unsigned TcpOutput::send_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                               Doorbell bell, Instant now) noexcept {
  if (!f.egress.port->segments) return emit_run(f, plan, burst, bell, now);
  if (!emit_burst(f, plan, burst, bell)) return 0;
  tcp::sent_burst(f.tcb, plan, burst, burst.segments, now);
  return burst.segments;
}

/// In one frame that the device cuts; it fills in sums and lengths.
bool TcpOutput::emit_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                           Doorbell bell) noexcept {
  alignas(16) Room head;
  wire::HeaderTemplate::TcpFields what = fields(f, plan);
  what.flags = static_cast<uint8_t>(burst.flags(plan));
  what.payload_bytes = burst.bytes;
  const size_t n = f.egress.header.emit_tcp(head, what, wire::L4Sum::kPseudo);
  const TxFrame frame{{head, n}, {burst.slices, burst.slice_count}, plan.length};
  if (!f.egress.port->queue().tx(frame, bell)) return false;
  if (f.ip.mtu_discover == IP_PMTUDISC_DONT)
    f.next_ip_id = static_cast<uint16_t>(f.next_ip_id + burst.segments);
  count_sent(f, burst.segments, n, burst.bytes);
  return true;
}

/// As one segment, whose frame the device gathers; updates the Tcb. @return 0: the ring is full.
unsigned TcpOutput::send_jumbo(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                               Doorbell bell, Instant now) noexcept {
  alignas(16) Room head;
  wire::HeaderTemplate::TcpFields what = fields(f, plan);
  what.flags = static_cast<uint8_t>(burst.flags(plan));
  what.payload_bytes = burst.bytes;
  what.payload_sum = sum_of(burst);
  const size_t n = f.egress.header.emit_tcp(head, what);
  const TxFrame frame{{head, n}, {burst.slices, burst.slice_count}, 0};
  if (!f.egress.port->queue().tx(frame, bell)) return 0;
  if (f.ip.mtu_discover == IP_PMTUDISC_DONT) ++f.next_ip_id;
  count_sent(f, 1, n, burst.bytes);
  tcp::sent_jumbo(f.tcb, plan, burst, now);
  return 1;
}

/// `bytes` of a plan, or of its burst, have left. A burst is told as the one long segment that
/// Linux would have sent.
void TcpOutput::tell_left(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst* burst,
                          uint32_t bytes, int64_t left_at) noexcept {
  alignas(16) Room head;
  wire::HeaderTemplate::TcpFields what = fields(f, plan);
  what.payload_bytes = bytes;
  const PacketSlice one{plan.packet, plan.at, plan.length};
  std::span<const PacketSlice> text{&one, 1};
  if (burst != nullptr) {
    what.flags = static_cast<uint8_t>(burst->flags(plan));
    text = {burst->slices, burst->slice_count};
  }
  const size_t n = f.egress.header.emit_tcp(head, what, wire::L4Sum::kPseudo);
  const bool is_syn = has(plan.flags, tcp::SegFlags::kSyn);
  const StreamOffset offset = f.tcb.snd_offset(plan.seq) + (is_syn ? 1 : 0);
  hub().events.tcp_left(f, {{head, n}, text, bytes, offset, f.egress.ifindex, left_at});
}

/// Segment by segment; updates the Tcb. @return segments that left.
unsigned TcpOutput::emit_run(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                             Doorbell bell, Instant now) noexcept {
  const Heads heads(f, plan);
  Queue& queue = f.egress.port->queue();
  unsigned left = 0;
  uint32_t bytes = 0;
  burst.for_each(plan, [&](const tcp::Burst::Segment& s) {
    const bool is_last = left + 1U == burst.segments;
    if (!send_segment(queue, heads, s, is_last ? bell : Doorbell::kLater)) return false;
    ++left;
    bytes += s.text.length;
    return true;
  });
  if (left == 0) [[unlikely]]
    return 0;
  count_sent(f, left, heads.size(), bytes);
  tcp::sent_burst(f.tcb, plan, burst, left, now);
  return left;
}

}  // namespace vireo
