#include "core/packet.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace vireo {

PacketPool::PacketPool(std::span<std::byte> memory, uint32_t frame_bytes)
    : PacketPool(memory, frame_bytes, FrameOwners()) {}

PacketPool::PacketPool(std::span<std::byte> memory, uint32_t frame_bytes, const FrameOwners& owners)
    : memory_(memory),
      frame_shift_(static_cast<uint32_t>(std::countr_zero(frame_bytes))),
      meta_(memory.size() >> frame_shift_) {
  VIREO_ASSERT(std::has_single_bit(frame_bytes));
  // Filled from the end, so that the first frames taken are the first of the memory and few pages
  // are ever touched.
  for (uint32_t i = frames(); i-- > 0;) {
    PacketBuf& p = meta_[i];
    p.frame = memory_.data() + (static_cast<size_t>(i) << frame_shift_);
    p.index = i;
    if (!owners || owners.owner[i] == owners.me) adopt(i);
  }
  size_ = free_count_;
  kept_from_all_ = size() / 64;
  kept_from_busy_ = size() / 8;
}

void PacketPool::adopt(uint32_t index) noexcept {
  PacketBuf& p = meta_[index];
  p.pool = this;
  p.refs = p.device_refs = 0;
  put(&p);
}

PacketPool::PacketPool(PacketPool* lender) : frame_shift_(lender->frame_shift_), home_(lender) {}

PacketPool::~PacketPool() = default;

uint32_t PacketPool::lend(uint32_t n, std::span<uint32_t> firsts, PacketPool& to) {
  VIREO_ASSERT(std::has_single_bit(n));
  const auto most = std::min(static_cast<uint32_t>(firsts.size()), rx_count() / n);
  const auto is_here = [&](const PacketBuf& p) { return p.refs == 0 && p.pool == this; };
  uint32_t found = 0;
  // From the end: frames at the beginning are in use.
  for (uint32_t first = frames() / n * n; first > 0 && found < most;) {
    first -= n;
    const auto run = std::span(meta_).subspan(first, n);
    if (!std::ranges::all_of(run, is_here)) continue;
    for (PacketBuf& p : run) p.pool = &to;
    firsts[found++] = first;
  }
  if (found == 0) return 0;
  for (PacketBuf** at = &free_; *at != nullptr;) {
    PacketBuf* const p = *at;
    if (p->pool == this) {
      at = &p->next;
      continue;
    }
    *at = p->next;
    p->next = nullptr;
    p->hw_time = 0;
  }
  free_count_ -= found * n;
  return found;
}

void PacketPool::take_back(uint32_t n, uint32_t first) {
  for (PacketBuf& p : std::span(meta_).subspan(first, n)) {
    p.pool = this;
    if (p.refs == 0) put(&p);
  }
}

void PacketPool::leave(Spares& s) {
  VIREO_ASSERT(s.firsts.empty());
  for (Spares** at = &spares_; *at != nullptr; at = &(*at)->next)
    if (*at == &s) {
      *at = s.next;
      return;
    }
}

/// Takes a spare run back.
void PacketPool::reclaim() noexcept {
  for (Spares* s = spares_; s != nullptr; s = s->next) {
    if (s->firsts.empty()) continue;
    const uint32_t first = s->firsts.back();
    s->firsts.pop_back();
    note_used(*s);
    return take_back(s->frames, first);
  }
}

bool PacketChain::extend_back(std::span<const std::byte> bytes) {
  PacketBuf* p = tail_;
  if (p == nullptr || p->refs != 1) return false;
  const size_t end = size_t{p->data_at} + p->length;
  if (end + bytes.size() > p->pool->frame_bytes()) return false;
  std::memcpy(p->frame + end, bytes.data(), bytes.size());
  p->length = static_cast<uint16_t>(p->length + bytes.size());
  bytes_ += static_cast<uint32_t>(bytes.size());
  return true;
}

void PacketChain::trim_front(uint32_t n) {
  while (n > 0) {
    PacketBuf* p = head_;
    const uint32_t cut = std::min<uint32_t>(n, p->length);
    if (cut == p->length) {
      pop_front();
    } else {
      p->data_at = static_cast<uint16_t>(p->data_at + cut);
      p->length = static_cast<uint16_t>(p->length - cut);
      p->offset += cut;
      bytes_ -= cut;
    }
    n -= cut;
  }
}

void PacketChain::trim_back(uint32_t n) {
  if (n == 0) return;
  const uint32_t keep = bytes_ - n;
  PacketChain kept;
  while (kept.bytes_ < keep) {
    PacketRef p = pop_front();
    const uint32_t room = keep - kept.bytes_;
    if (p->length > room) p->length = static_cast<uint16_t>(room);
    kept.push_back(std::move(p));
  }
  *this = std::move(kept);
}

}  // namespace vireo
