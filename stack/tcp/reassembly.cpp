#include "stack/tcp/reassembly.h"

#include <algorithm>
#include <cstring>

namespace vireo::tcp {

PacketChain split_front(PacketChain& from, uint32_t n) {
  PacketChain head;
  while (n > 0) {
    PacketRef p = from.pop_front();
    if (p->length > n) {
      const uint32_t rest = p->length - n;
      PacketRef copy(p->pool->take());
      if (copy) {
        // The rest is as long as it was in a frame of this size; it may need the headroom.
        if (copy->data_at + rest > p->pool->frame_bytes()) copy->data_at = 0;
        std::memcpy(copy->data(), p->data() + n, rest);
        copy->length = static_cast<uint16_t>(rest);
        PacketChain tail(std::move(copy));
        tail.append(std::move(from));
        from = std::move(tail);
      } else {
        from.clear();
      }
      p->length = static_cast<uint16_t>(n);
    }
    n -= p->length;
    head.push_back(std::move(p));
  }
  return head;
}

void append_chain(PacketChain& to, PacketChain&& from, bool compact) {
  if (!compact) {
    to.append(std::move(from));
    return;
  }
  while (!from.empty()) {
    PacketRef p = from.pop_front();
    if (!to.extend_back(p->bytes())) to.push_back(std::move(p));
  }
}

uint64_t Reassembly::bytes() const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count_; ++i) sum += ranges_[i].end - ranges_[i].begin;
  return sum;
}

uint32_t Reassembly::lower(StreamOffset at) const {
  // Arrivals mostly continue the last range.
  if (count_ > 0 && ranges_[count_ - 1].end <= at) return count_;
  uint32_t low = 0;
  uint32_t high = count_;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (ranges_[middle].end > at) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

void Reassembly::erase(uint32_t i) {
  for (uint32_t k = i; k + 1 < count_; ++k) ranges_[k] = std::move(ranges_[k + 1]);
  --count_;
}

bool Reassembly::open_slot(uint32_t i) {
  if (count_ == kMaxRanges) return false;
  for (uint32_t k = count_; k > i; --k) ranges_[k] = std::move(ranges_[k - 1]);
  ++count_;
  return true;
}

Reassembly::Inserted Reassembly::insert(StreamOffset at, PacketChain data, bool compact) {
  Inserted result;
  while (!data.empty()) {
    const uint32_t i = lower(at);
    if (i < count_ && ranges_[i].begin <= at) {  // held already: the first copy wins
      const auto held =
          static_cast<uint32_t>(std::min<uint64_t>(data.bytes(), ranges_[i].end - at));
      if (!result.duplicate) {
        result.duplicate = true;
        result.dup_begin = at;
        result.dup_end = at + held;
      }
      ranges_[i].stamp = ++clock_;
      data.trim_front(held);
      at += held;
      continue;
    }
    PacketChain piece;
    if (i < count_ && ranges_[i].begin < at + data.bytes()) {
      piece = split_front(data, static_cast<uint32_t>(ranges_[i].begin - at));
      if (data.empty()) result.dropped = true;
    } else {
      piece = std::move(data);
    }
    const StreamOffset end = at + piece.bytes();
    uint32_t into = i;
    if (i > 0 && ranges_[i - 1].end == at) {
      into = i - 1;
    } else if (open_slot(i)) {
      ranges_[i].begin = at;
      ranges_[i].data.clear();
    } else {
      result.dropped = true;
      return result;
    }
    Range& r = ranges_[into];
    const uint32_t before = r.data.buffers();
    append_chain(r.data, std::move(piece), compact);
    buffers_ += r.data.buffers() - before;
    r.end = end;
    r.stamp = ++clock_;
    if (into + 1 < count_ && ranges_[into + 1].begin == end) {
      r.end = ranges_[into + 1].end;
      r.data.append(std::move(ranges_[into + 1].data));
      erase(into + 1);
    }
    at = end;
  }
  return result;
}

PacketChain Reassembly::pop_first() {
  PacketChain data = std::move(ranges_[0].data);
  buffers_ -= data.buffers();
  erase(0);
  return data;
}

unsigned Reassembly::recent(std::span<const Range*> out) const {
  unsigned n = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    const Range* r = &ranges_[i];
    unsigned place = n;
    while (place > 0 && out[place - 1]->stamp < r->stamp) --place;
    if (place == out.size()) continue;
    if (n < out.size()) ++n;
    for (unsigned k = n - 1; k > place; --k) out[k] = out[k - 1];
    out[place] = r;
  }
  return n;
}

}  // namespace vireo::tcp
