#include "stack/tcp/reassembly.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace vireo::tcp {

PacketChain split_front(PacketChain& from, uint32_t n) {
  PacketChain head;
  while (n > 0) {
    PacketRef p = from.pop_front();
    if (p->length > n) {
      const uint32_t rest = p->length - n;
      PacketRef copy(p->pool->home().take());
      if (copy) {
        // The rest fits in a frame of this size, but may need the headroom.
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
    if (to.extend_back(p->bytes()))
      to.back()->take_times(*p);  // those of the last byte
    else
      to.push_back(std::move(p));
  }
}

uint64_t Reassembly::bytes() const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count_; ++i) sum += at(i).end - at(i).begin;
  return sum;
}

uint32_t Reassembly::lower(StreamOffset offset) const {
  // Arrivals mostly continue the last range.
  if (count_ > 0 && at(count_ - 1).end <= offset) return count_;
  uint32_t low = 0;
  uint32_t high = count_;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (at(middle).end > offset) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

bool Reassembly::add_chunk() {
  if (capacity_ == kMaxRanges) return false;
  std::unique_ptr<Id[]> order(new (std::nothrow) Id[capacity_ + kChunk]);
  std::unique_ptr<Chunk> chunk(new (std::nothrow) Chunk);
  if (order == nullptr || chunk == nullptr) return false;
  std::copy_n(order_.get(), capacity_, order.get());
  for (uint32_t i = capacity_; i < capacity_ + kChunk; ++i) order[i] = static_cast<Id>(i);
  order_ = std::move(order);
  chunks_[capacity_ / kChunk] = std::move(chunk);
  capacity_ += kChunk;
  return true;
}

bool Reassembly::open_slot(uint32_t i) {
  if (count_ == capacity_ && !add_chunk()) return false;
  const Id id = order_[count_];
  std::copy_backward(&order_[i], &order_[count_], &order_[count_] + 1);
  order_[i] = id;
  ++count_;
  link_newest(id);
  return true;
}

void Reassembly::erase(uint32_t i) {
  const Id id = order_[i];
  unlink(id);
  std::copy(&order_[i] + 1, &order_[0] + count_, &order_[i]);
  order_[--count_] = id;
}

void Reassembly::unlink(Id id) {
  const Range& r = range(id);
  (r.newer == kNone ? newest_ : range(r.newer).older) = r.older;
  if (r.older != kNone) range(r.older).newer = r.newer;
}

void Reassembly::link_newest(Id id) {
  range(id).newer = kNone;
  range(id).older = newest_;
  if (newest_ != kNone) range(newest_).newer = id;
  newest_ = id;
}

void Reassembly::touch(Id id) {
  if (newest_ == id) return;
  unlink(id);
  link_newest(id);
}

Reassembly::Inserted Reassembly::insert(StreamOffset offset, PacketChain data, bool compact) {
  Inserted result;
  while (!data.empty()) {
    const uint32_t i = lower(offset);
    if (i < count_ && at(i).begin <= offset) {  // received before: the first copy wins
      const auto held = static_cast<uint32_t>(std::min<uint64_t>(data.bytes(), at(i).end - offset));
      if (!result.duplicate) {
        result.duplicate = true;
        result.dup_begin = offset;
        result.dup_end = offset + held;
      }
      touch(order_[i]);
      data.trim_front(held);
      offset += held;
      continue;
    }
    PacketChain piece;
    if (i < count_ && at(i).begin < offset + data.bytes()) {
      piece = split_front(data, static_cast<uint32_t>(at(i).begin - offset));
      if (data.empty()) result.dropped = true;
    } else {
      piece = std::move(data);
    }
    const StreamOffset end = offset + piece.bytes();
    uint32_t into = i;
    if (i > 0 && at(i - 1).end == offset) {
      into = i - 1;
      touch(order_[into]);
    } else if (open_slot(i)) {
      range(order_[i]).begin = offset;
    } else {
      result.dropped = true;
      return result;
    }
    Range& r = range(order_[into]);
    const uint32_t before = r.data.buffers();
    append_chain(r.data, std::move(piece), compact);
    buffers_ += r.data.buffers() - before;
    r.end = end;
    if (into + 1 < count_ && at(into + 1).begin == end) {
      Range& next = range(order_[into + 1]);
      r.end = next.end;
      r.data.append(std::move(next.data));
      erase(into + 1);
    }
    offset = end;
  }
  return result;
}

PacketChain Reassembly::pop_first() {
  PacketChain data = std::move(range(order_[0]).data);
  buffers_ -= data.buffers();
  erase(0);
  return data;
}

unsigned Reassembly::recent(std::span<const Range*> out, unsigned skip) const {
  unsigned n = 0;
  for (Id id = newest_; id != kNone && n < out.size(); id = range(id).older)
    if (skip > 0)
      --skip;
    else
      out[n++] = &range(id);
  return n;
}

}  // namespace vireo::tcp
