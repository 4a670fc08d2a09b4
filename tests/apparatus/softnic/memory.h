// Protection domains and memory regions, and the check of every access against them.
// Owner: Nic. Thread: holder of the port's lock. Source: ibv_alloc_pd(3), ibv_reg_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace vireo::softnic {

struct Pd : ibv_pd {
  unsigned users = 0;  ///< regions and queue pairs
};

struct Mr : ibv_mr {
  unsigned access = 0;
  std::vector<uint64_t> posted;  ///< a bit for each granule in which a posted receive starts
};

class MemoryTable {
 public:
  Mr* add(Pd& pd, void* address, size_t length, unsigned access);
  void remove(Mr& mr);
  unsigned count() const;
  /// The region with this lkey, or nullptr.
  Mr* find(uint32_t lkey);
  /// The region that a segment lies in. nullptr (only if lenient): another domain's or a stale
  /// lkey, out of bounds, or `writes` into one that was not registered for it.
  Mr* region_of(const ibv_sge& s, const ibv_pd* pd, bool writes, const char* who);
  /// A receive is posted into `s`, or is so no more. Twice at once is against the rules: two frames
  /// would lie upon each other. @return false: it is (only if lenient).
  bool note_posted(Mr& mr, const ibv_sge& s, bool posted);

 private:
  struct Row {
    std::unique_ptr<Mr> mr;
    uint8_t generation = 0;
  };
  std::vector<Row> rows_;  ///< row and generation make the lkey, so that a stale one is found out
};

}  // namespace vireo::softnic
