#include "stack/engine/syn_table.h"

namespace vireo {

using tcp::SynRecord;

SynRecord* SynTable::insert(const SynTuple& t) noexcept {
  if (free_ == 0 && !grow()) return nullptr;
  const uint32_t i = free_;
  SynRecord& r = at(i);
  const auto after = static_cast<uint32_t>(r.next);
  r = SynRecord{};
  set_tuple(r, t);
  const auto hash_of = [this](uint32_t index) { return hash(tuple_of(at(index))); };
  if (!table_.insert(hash(t), i, hash_of)) {
    r.next = after & kLink;
    return nullptr;
  }
  free_ = after;
  last_ = {&r, i, nullptr};
  return &r;
}

void SynTable::erase(SynRecord& r) noexcept {
  uint32_t* entry = &r == last_.record ? last_.entry : nullptr;
  if (entry == nullptr) {
    const SynTuple t = tuple_of(r);
    entry = lookup(hash(t), t);
  }
  last_ = {};
  const uint32_t i = *entry;
  unlink(r, i);
  table_.erase(entry);
  r.next = free_ & kLink;
  free_ = i;
  if (table_.size() != 0) return;
  next_deadline_ = Instant::never();
  if (chunks_.size() == 1) return;
  // A flood is over: keep what single connections need.
  table_ = {};
  chunks_.resize(1);
  free_ = 0;
  for (uint32_t n = kChunkRecords; n > 0; --n) {
    at(n).next = free_ & kLink;
    free_ = n;
  }
}

void SynTable::schedule(SynRecord& r, Instant now) noexcept {
  const uint32_t i = index_of(r);
  unlink(r, i);
  r.sent_at = SynRecord::stamp(now);
  Queue& q = heads_[class_of(r)];
  r.prev = q.last & kLink;
  r.next = 0;
  if (q.last != 0)
    at(q.last).next = i & kLink;
  else
    q.first = i;
  q.last = i;
  next_deadline_ = std::min(next_deadline_, due(r, now));
}

SynRecord* SynTable::pop_due(Instant now) noexcept {
  Instant next = Instant::never();
  for (Queue& q : heads_) {
    if (q.first == 0) continue;
    SynRecord& r = at(q.first);
    if (const Instant d = due(r, now); d > now) {
      next = std::min(next, d);
      continue;
    }
    unlink(r, q.first);
    return &r;
  }
  next_deadline_ = next;
  return nullptr;
}

void SynTable::unlink(SynRecord& r, uint32_t i) noexcept {
  Queue& q = heads_[class_of(r)];
  if (r.prev != 0)
    at(static_cast<uint32_t>(r.prev)).next = r.next;
  else if (q.first == i)
    q.first = static_cast<uint32_t>(r.next);
  else
    return;  // in no queue
  if (r.next != 0)
    at(static_cast<uint32_t>(r.next)).prev = r.prev;
  else
    q.last = static_cast<uint32_t>(r.prev);
  r.prev = r.next = 0;
}

bool SynTable::grow() noexcept {
  if ((chunks_.size() + 1) * kChunkRecords > kLink) return false;
  auto chunk = std::unique_ptr<Chunk>(new (std::nothrow) Chunk);
  if (chunk == nullptr) return false;
  chunks_.push_back(std::move(chunk));
  const auto base = static_cast<uint32_t>((chunks_.size() - 1) * kChunkRecords);
  for (uint32_t n = kChunkRecords; n > 0; --n) {  // low indices go first
    at(base + n).next = free_ & kLink;
    free_ = base + n;
  }
  return true;
}

}  // namespace vireo
