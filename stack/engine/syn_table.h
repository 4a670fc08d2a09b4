// Half-open connections of an engine's listeners: records of 64 bytes, found by their tuple and
// queued for the retransmission of their SYN-ACK.
//
// All records with the same number of timeouts wait equally long: each such class is a queue whose
// first record is due first. Memory grows with the number of records (limited by the listeners'
// backlogs) in chunks, and is freed when there are none. Owner: Engine. Thread: holder of the
// engine's lock. Source: RFC 4987 §3.4; RFC 6298 §5.5 for the doubling.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "core/flow_hash.h"
#include "core/tag_table.h"
#include "core/tuple_bytes.h"
#include "stack/tcp/syn_record.h"

namespace vireo {

/// The tuple of a received SYN.
struct SynTuple {
  IpAddr local, remote;
  uint16_t local_port, remote_port;
};

inline void set_tuple(tcp::SynRecord& r, const SynTuple& t) noexcept {
  r.local = t.local;
  r.remote = t.remote;
  r.local_port = t.local_port;
  r.remote_port = t.remote_port;
}
inline SynTuple tuple_of(const tcp::SynRecord& r) noexcept {
  return {r.local, r.remote, r.local_port, r.remote_port};
}

class SynTable {
 public:
  SynTable() : key_(FlowHashKey::random()), heads_(kClasses, {0, 0}) {}

  tcp::SynRecord* find(const SynTuple& t) const noexcept {
    uint32_t* const i = lookup(hash(t), t);
    if (i == nullptr) return nullptr;
    last_ = {&at(*i), *i, i};
    return last_.record;
  }
  /// A new record with its tuple, which is not in the table; nullptr: memory is exhausted. It is in
  /// no queue before schedule().
  tcp::SynRecord* insert(const SynTuple& t) noexcept;
  void erase(tcp::SynRecord& r) noexcept;
  /// A SYN-ACK leaves now: the record is due after the time that follows from its `timeouts`.
  void schedule(tcp::SynRecord& r, Instant now) noexcept;

  size_t size() const { return table_.size(); }
  size_t bytes() const { return chunks_.size() * sizeof(Chunk) + table_.bytes(); }
  /// No record is due before this; never() if there is none. One load.
  Instant next_deadline() const noexcept { return next_deadline_; }
  /// Takes a due record out of its queue; nullptr if none is due, and then next_deadline() is
  /// exact. The caller schedules or erases the record.
  tcp::SynRecord* pop_due(Instant now) noexcept;

  /// Calls fn(SynRecord&) for every record; fn may erase the one it is given.
  template <class F>
  void for_each(F&& fn) {
    for (auto& head : heads_)
      for (uint32_t i = head.first; i != 0;) {
        tcp::SynRecord& r = at(i);
        i = static_cast<uint32_t>(r.next);
        fn(r);
      }
  }
  /// For tests: the number of table groups that a look-up reads.
  unsigned groups_searched(const SynTuple& t) const noexcept {
    return table_.groups_searched(hash(t), [&](uint32_t i) { return is_of(at(i), t); });
  }

 private:
  static constexpr uint32_t kChunkRecords = 256;
  static constexpr uint32_t kLink = (1U << 24) - 1;  ///< largest link that a record can hold
  static constexpr unsigned kClasses = 8;            ///< 1 s, 2 s, ... 64 s, then 120 s for ever
  struct alignas(64) Chunk {
    tcp::SynRecord records[kChunkRecords];
  };
  struct Queue {
    uint32_t first, last;  ///< indices, 0: empty
  };
  /// The record last found or made, its index, and its place in the table, which the next change of
  /// the table invalidates.
  struct Last {
    tcp::SynRecord* record = nullptr;
    uint32_t index = 0;
    uint32_t* entry = nullptr;
  };

  static unsigned class_of(const tcp::SynRecord& r) {
    return std::min<unsigned>(static_cast<unsigned>(r.timeouts), kClasses - 1);
  }
  static Duration wait_of(unsigned cls) {
    return std::min(Duration::s(1) * (int64_t{1} << cls), Duration::s(120));
  }
  static Instant due(const tcp::SynRecord& r, Instant now) {
    return r.sent(now) + wait_of(class_of(r));
  }
  static bool is_of(const tcp::SynRecord& r, const SynTuple& t) {
    return r.remote_port == t.remote_port && r.local_port == t.local_port && r.remote == t.remote &&
           r.local == t.local;
  }
  uint64_t hash(const SynTuple& t) const noexcept {
    const TupleBytes k(t.local, t.local_port, t.remote, t.remote_port);
    return flow_hash(key_, k.span().data(), k.span().size());
  }
  uint32_t* lookup(uint64_t h, const SynTuple& t) const noexcept {
    return table_.find(h, [&](uint32_t i) { return is_of(at(i), t); });
  }
  tcp::SynRecord& at(uint32_t i) const noexcept {  // index 0 is not used
    return chunks_[(i - 1) / kChunkRecords]->records[(i - 1) % kChunkRecords];
  }
  void unlink(tcp::SynRecord& r, uint32_t i) noexcept;
  bool grow() noexcept;

  uint32_t index_of(const tcp::SynRecord& r) const noexcept {
    if (&r == last_.record) return last_.index;
    const SynTuple t = tuple_of(r);
    return *lookup(hash(t), t);
  }

  mutable Last last_;
  FlowHashKey key_;
  TagTable<uint32_t> table_;  ///< indices of records
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<Queue> heads_;
  uint32_t free_ = 0;  ///< linked by SynRecord::next
  Instant next_deadline_ = Instant::never();
};

}  // namespace vireo
