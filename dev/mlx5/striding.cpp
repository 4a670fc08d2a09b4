// The receive half of Mlx5Queue with striding.
#include "dev/mlx5/striding.h"

#include <algorithm>
#include <cstring>

#include "dev/mlx5/queue.h"

namespace vireo::mlx5 {

unsigned Mlx5Queue::receive_strides(std::span<RxDesc> out) noexcept {
  Striding& s = *striding_;
  unsigned n = 0;
  const uint32_t before = received_.consumed();
  // Checked per burst, not only at refill: whatever frames are kept, the last posted run is always
  // copied, comes back whole and is posted again. Otherwise packets that wait for a lost one could
  // use up all runs.
  s.copies = rx_.count() < s.few + out.size() || s.runs.stuck() > s.most_stuck;
  const bool is_simple = !stamps_ & !s.copies & (lro_ == nullptr);
  while (n < out.size()) {
    const mlx5_cqe64& cqe = *received_.front();
    const uint8_t op_own = Cq::look(&cqe);
    if (op_own != received_.expected(Cq::kReceived)) [[unlikely]] {
      if (!received_.is_ours(op_own) || !take_rare(cqe, op_own)) break;
      continue;
    }
    const uint32_t at = place_of(cqe);
    const uint32_t length = be32toh(cqe.byte_cnt);
    const FlowTag tag = tag_of(cqe);
    const RxFlags flags = with_tag(flags_of(cqe.hds_ip_ext), tag);
    if (length >> StridesUsed::kAt != 1 || !is_simple) [[unlikely]] {
      const StridesUsed used(length);
      if (used.is_filler) {
        give_back_strides(at, used.strides);
      } else {
        const unsigned parts = deliver_strides({length, flags, tag, &cqe}, at, out.subspan(n));
        if (parts == 0) break;
        n += parts;
      }
      if (lro_ != nullptr) s.use(at, used.strides);
      rx_.taken += used.strides;
    } else {
      PacketBuf* const p = s.packet_of(rx_.taken++);
      p->refs = 1;
      p->data_at = 0;
      p->length = static_cast<uint16_t>(length);
      __builtin_prefetch(p->frame);
      out[n].packet.reset(p);
      out[n].flags = flags;
      out[n].tag = tag;
      ++n;
    }
    received_.pop();
  }
  if (received_.consumed() != before) received_.release();
  return n;
}

/// The stride at which the packet, or the filler, begins.
inline uint32_t Mlx5Queue::place_of(const mlx5_cqe64& cqe) noexcept {
  const uint32_t ahead = striding_->place_of(be16toh(cqe.wqe_counter) - rx_.taken);
  if (ahead == 0) [[likely]]
    return rx_.taken;
  // LRO sessions may end in another order than they began: a WQE is done when as many strides as it
  // has are completed.
  if (lro_ != nullptr) return rx_.taken - striding_->place_of(rx_.taken) + be16toh(cqe.wqe_counter);
  // As far as known, no stride is ever skipped; if one were, its frame would leak.
  give_back_strides(rx_.taken, ahead);
  rx_.taken += ahead;
  return rx_.taken;
}

/// Like deliver_parts(), for the packet at stride `at`. @return descriptors written; 0: `out` has
/// too few.
unsigned Mlx5Queue::deliver_strides(Delivered d, uint32_t at, std::span<RxDesc> out) noexcept {
  const StridesUsed used(d.bytes);
  const uint32_t room = pool_.frame_bytes();
  const uint32_t parts = std::max(1U, (used.bytes + room - 1) / room);
  if (parts > out.size()) return 0;
  const uint32_t segments = lro_ != nullptr ? lro_segments(*d.whole) : 1;
  if (segments > 1) {
    complete_headers({striding_->packet_of(at)->frame, std::min(room, used.bytes)}, used.bytes,
                     *d.whole);
    d.flags = with_segments(d.flags, segments);
  }
  for (uint32_t i = 0; i < parts; ++i) {
    PacketBuf* p = striding_->packet_of(at + i);
    p->refs = 1;
    p->data_at = 0;
    p->length = static_cast<uint16_t>(std::min(room, used.bytes - i * room));
    if (stamps_ && i == 0 && segments <= 1)
      p->hw_time = clock_->ns(be64toh(d.whole->timestamp), Clock::now());
    if (striding_->copies) p = copy_of(p);
    __builtin_prefetch(p->data());
    out[i] = {PacketRef(p), i + 1 < parts ? d.flags | RxFlags::kMore : d.flags, d.tag};
  }
  give_back_strides(at + parts, std::max(used.strides, parts) - parts);
  return parts;
}

/// Copies the packet into a pool frame, so that its own is free again. Returns `p` if the pool has
/// none.
PacketBuf* Mlx5Queue::copy_of(PacketBuf* p) noexcept {
  PacketBuf* const c = pool_.take_for_rx();
  if (c == nullptr) return p;
  if (uint32_t{c->data_at} + p->length > pool_.frame_bytes()) c->data_at = 0;
  std::memcpy(c->data(), p->data(), p->length);
  c->length = p->length;
  c->hw_time = p->hw_time;
  p->refs = 0;
  p->hw_time = 0;
  striding_->runs.give_back(p->index);
  return c;
}

/// Gives back `n` strides from `at` on that hold no packet.
void Mlx5Queue::give_back_strides(uint32_t at, uint32_t n) noexcept {
  for (; n > 0; --n) striding_->runs.give_back(striding_->packet_of(at++)->index);
}

/// Gives back the rest of the WQE, which will receive nothing more.
void Mlx5Queue::give_back_element() noexcept {
  Striding& s = *striding_;
  const uint32_t done = s.place_of(rx_.taken), first = rx_.taken - done;
  for (uint32_t place = 0; place < s.runs.frames(); ++place)
    if (lro_ != nullptr ? !s.is_used(place) : place >= done) give_back_strides(first + place, 1);
  s.end_element();
  rx_.taken = first + s.runs.frames();
}

void Mlx5Queue::post_runs() noexcept {
  Striding& s = *striding_;
  s.runs.collect();  // always: tells the pool what is free
  const uint32_t run = s.runs.frames();
  const uint32_t target = fill_.target(rx_.count());
  uint32_t unpublished = 0;
  for (uint32_t posted; (posted = rx_.count()) + run <= target && device_.is_usable();) {
    const uint32_t first = s.runs.take((target - posted) / run);
    if (first == Runs::kNone) break;
    s.write(rx_.posted, pool_.at(first));
    rx_.posted += run;
    if ((unpublished += run) < shape_.refill) continue;
    s.publish(rx_.posted);
    unpublished = 0;
  }
  if (unpublished > 0) s.publish(rx_.posted);
  s.few = std::max(target / 2, run);
  pool_.keep_ready();
  if (rx_.posted == rx_.taken && device_.is_usable()) ++losses_.rx_starved;
}

}  // namespace vireo::mlx5
