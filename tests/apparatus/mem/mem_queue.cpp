#include <algorithm>
#include <cstring>

#include "tests/apparatus/mem/cut.h"
#include "tests/apparatus/mem/mem_device.h"

namespace vireo {

MemQueue::MemQueue(MemDevice& device, QueueId id, PacketPool& pool)
    : device_(device), id_(id), pool_(pool) {
  device_.queues_[id_.value()] = this;
  rx_refill();
}

MemQueue::~MemQueue() {
  device_.queues_[id_.value()] = nullptr;
  device_.steering_.remove_all_of(*this);
  departed_ = tx_.size();
  tx_reap();
  for (PacketBuf* p : rx_empty_) PacketPool::drop(p);
}

bool MemQueue::alive() noexcept { return device_.plugged_; }

unsigned MemQueue::rx_burst(std::span<RxDesc> out) noexcept {
  device_.catch_up();
  const size_t n = std::min(out.size(), rx_ready_.size());
  for (size_t i = 0; i < n; ++i) {
    out[i] = std::move(rx_ready_.front());
    rx_ready_.pop_front();
  }
  return static_cast<unsigned>(n);
}

RxLevel MemQueue::rx_level() const noexcept {
  return {static_cast<uint32_t>(rx_ready_.size()), device_.options_.rx_ring};
}

void MemQueue::rx_refill() noexcept {
  device_.catch_up();
  while (rx_empty_.size() + rx_ready_.size() < device_.options_.rx_ring) {
    PacketBuf* p = pool_.take_for_rx();
    if (p == nullptr) return;
    rx_empty_.push_back(p);
  }
}

bool MemQueue::deliver(std::span<const std::byte> frame, RxFlags flags, FlowTag tag) {
  const size_t room = pool_.frame_bytes() - PacketPool::kHeadroom;
  const size_t buffers = std::max<size_t>(1, (frame.size() + room - 1) / room);
  if (buffers > rx_empty_.size() || (buffers > 1 && !device_.caps().multi_frame)) {
    ++losses_.rx_no_frame;
    return false;
  }
  for (size_t i = 0; i < buffers; ++i) {
    PacketBuf* p = rx_empty_.back();
    rx_empty_.pop_back();
    const auto part = frame.subspan(i * room, std::min(room, frame.size() - i * room));
    p->data_at = PacketPool::kHeadroom;
    p->length = static_cast<uint16_t>(part.size());
    std::memcpy(p->data(), part.data(), part.size());
    const RxFlags more = i + 1 < buffers ? RxFlags::kMore : RxFlags::kNone;
    rx_ready_.push_back({PacketRef(p), flags | more, tag});
  }
  return true;
}

void MemQueue::hold(TxEntry& entry, const PacketSlice& slice) {
  ++slice.packet->refs;
  ++slice.packet->device_refs;
  entry.slices.push_back(slice);
}

/// The way of a UMEM: the head goes right before the one body slice, which must have nothing of
/// value there.
bool MemQueue::write_head_before(const TxFrame& frame, TxEntry& entry) {
  if (frame.body.size() != 1) return false;
  PacketSlice s = frame.body[0];
  const bool is_headroom = s.at == s.packet->data_at && s.at >= frame.head.size();
  if (!is_headroom || s.packet->device_refs > 0) return false;
  s.at = static_cast<uint16_t>(s.at - frame.head.size());
  s.length = static_cast<uint16_t>(s.length + frame.head.size());
  std::memcpy(s.packet->frame + s.at, frame.head.data(), frame.head.size());
  hold(entry, s);
  return true;
}

/// Copies everything not inline into frames of the pool. @return false: the pool is empty, nothing
/// was taken.
bool MemQueue::gather(const TxFrame& frame, TxEntry& entry) {
  std::vector<std::byte> bytes;
  if (!device_.options_.inline_head) bytes.assign(frame.head.begin(), frame.head.end());
  for (const PacketSlice& s : frame.body)
    bytes.insert(bytes.end(), s.packet->frame + s.at, s.packet->frame + s.at + s.length);
  const size_t room = pool_.frame_bytes();
  if ((bytes.size() + room - 1) / room > pool_.ready_count()) return false;
  for (size_t at = 0; at < bytes.size(); at += room) {
    PacketBuf* p = pool_.take();
    p->data_at = 0;
    p->length = static_cast<uint16_t>(std::min(room, bytes.size() - at));
    std::memcpy(p->frame, bytes.data() + at, p->length);
    p->device_refs = 1;
    entry.slices.push_back({p, 0, p->length});
  }
  ++device_.stats_.tx_gathered;
  return true;
}

/// The sender keeps to caps().
void MemQueue::check_burst(const TxFrame& frame) const {
  size_t bytes = 0;
  for (const PacketSlice& s : frame.body) bytes += s.length;
  VIREO_ASSERT(bytes > 0 && bytes <= device_.caps().tso_max_bytes);
  VIREO_ASSERT(frame.body.size() <= device_.caps().max_body_slices);
  VIREO_ASSERT(frame.head.size() + bytes <= UINT16_MAX);  // IP's length field
}

bool MemQueue::tx(const TxFrame& frame, Doorbell bell) noexcept {
  if (frame.mss > 0) check_burst(frame);
  device_.catch_up();
  if (!device_.plugged_ || tx_.size() >= device_.options_.tx_ring)
    return ++device_.stats_.tx_refused, false;
  TxEntry entry;
  entry.mss = frame.mss;
  if (device_.options_.inline_head) {
    entry.head.assign(frame.head.begin(), frame.head.end());
    if (frame.body.size() <= device_.options_.max_body_slices) {
      for (const PacketSlice& s : frame.body) hold(entry, s);
    } else if (!gather(frame, entry)) {
      return ++device_.stats_.tx_refused, false;
    }
  } else if (!write_head_before(frame, entry) && !gather(frame, entry)) {
    return ++device_.stats_.tx_refused, false;
  }
  tx_.push_back(std::move(entry));
  if (bell == Doorbell::kNow) tx_flush();
  return true;
}

void MemQueue::tx_flush() noexcept {
  if (rung_ < tx_.size()) ++device_.stats_.doorbells;
  const Instant leaves = device_.link_.now() + device_.options_.tx_time;
  for (; rung_ < tx_.size(); ++rung_) tx_[rung_].leaves = leaves;
  device_.catch_up();
}

Instant MemQueue::next_departure() const {
  return departed_ < rung_ ? tx_[departed_].leaves : Instant::never();
}

std::vector<std::vector<std::byte>> MemQueue::depart() {
  const TxEntry& entry = tx_[departed_++];
  std::vector<std::byte> frame;
  if (entry.mss == 0) frame = entry.head;
  for (const PacketSlice& s : entry.slices)
    frame.insert(frame.end(), s.packet->frame + s.at, s.packet->frame + s.at + s.length);
  std::vector<std::vector<std::byte>> frames;
  if (entry.mss == 0) {
    frames.push_back(std::move(frame));
  } else {
    frames = cut(entry.head, frame, entry.mss);
    ++device_.stats_.tx_bursts;
  }
  device_.stats_.tx_frames += frames.size();
  return frames;
}

unsigned MemQueue::tx_reap() noexcept {
  if (device_.plugged_) device_.catch_up();
  const auto n = static_cast<unsigned>(departed_);
  for (; departed_ > 0; --departed_) {
    for (const PacketSlice& s : tx_.front().slices) {
      --s.packet->device_refs;
      PacketPool::drop(s.packet);
    }
    tx_.pop_front();
  }
  rung_ -= std::min<size_t>(rung_, n);
  return n;
}

Result<bool> MemQueue::arm() noexcept {
  if (!device_.plugged_) return fail(ENODEV, "mem unplugged");
  device_.catch_up();
  return rx_ready_.empty();
}

}  // namespace vireo
