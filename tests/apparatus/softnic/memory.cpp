#include "tests/apparatus/softnic/memory.h"

#include <algorithm>

#include "tests/apparatus/softnic/strict.h"

namespace vireo::softnic {
namespace {
/// 0x100 is no region's: it ends a list of segments (mlx5dv.h MLX5_INVALID_LKEY).
constexpr uint32_t kFirstKey = 2;
constexpr size_t kGranule = 64;  // receives shorter than this are not looked at twice
}  // namespace

Mr* MemoryTable::add(Pd& pd, void* address, size_t length, unsigned access) {
  size_t at = 0;
  while (at < rows_.size() && rows_[at].mr != nullptr) ++at;
  if (at == rows_.size()) rows_.emplace_back();
  Row& row = rows_[at];
  row.mr = std::make_unique<Mr>();
  ++row.generation;
  Mr& mr = *row.mr;
  mr.context = pd.context;
  mr.pd = &pd;
  mr.addr = address;
  mr.length = length;
  mr.handle = static_cast<uint32_t>(at);
  mr.lkey = mr.rkey = (mr.handle + kFirstKey) << 8 | row.generation;
  mr.access = access;
  ++pd.users;
  return &mr;
}

void MemoryTable::remove(Mr& mr) {
  --static_cast<Pd*>(mr.pd)->users;
  rows_[mr.handle].mr.reset();
}

unsigned MemoryTable::count() const {
  return static_cast<unsigned>(
      std::count_if(rows_.begin(), rows_.end(), [](const Row& r) { return r.mr != nullptr; }));
}

Mr* MemoryTable::find(uint32_t lkey) {
  const size_t row = (lkey >> 8) - size_t{kFirstKey};
  Mr* mr = row < rows_.size() ? rows_[row].mr.get() : nullptr;
  return mr != nullptr && mr->lkey == lkey ? mr : nullptr;
}

Mr* MemoryTable::region_of(const ibv_sge& s, const ibv_pd* pd, bool writes, const char* who) {
  Mr* mr = find(s.lkey);
  if (mr == nullptr) {
    broken_rule("%s: lkey 0x%x is no memory region (deregistered, or never was)", who, s.lkey);
    return nullptr;
  }
  if (mr->pd != pd) {
    broken_rule("%s: lkey 0x%x belongs to another protection domain", who, s.lkey);
    return nullptr;
  }
  const auto base = reinterpret_cast<uintptr_t>(mr->addr);
  if (s.addr < base || s.addr - base > mr->length || s.length > mr->length - (s.addr - base)) {
    broken_rule("%s: %u bytes at 0x%lx are outside region 0x%x: %zu bytes at %p", who, s.length,
                static_cast<unsigned long>(s.addr), s.lkey, mr->length, mr->addr);
    return nullptr;
  }
  if (writes && (mr->access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    broken_rule("%s: region 0x%x was registered without IBV_ACCESS_LOCAL_WRITE", who, s.lkey);
    return nullptr;
  }
  return mr;
}

bool MemoryTable::note_posted(Mr& mr, const ibv_sge& s, bool posted) {
  if (s.length < kGranule) return true;
  const size_t granule = (s.addr - reinterpret_cast<uintptr_t>(mr.addr)) / kGranule;
  if (mr.posted.size() <= granule / 64) mr.posted.resize(mr.length / kGranule / 64 + 1);
  uint64_t& word = mr.posted[granule / 64];
  const uint64_t bit = uint64_t{1} << (granule % 64);
  if (posted && (word & bit) != 0) {
    broken_rule("ibv_post_recv: the buffer at 0x%lx is posted already",
                static_cast<unsigned long>(s.addr));
    return false;
  }
  word = posted ? word | bit : word & ~bit;
  return true;
}

}  // namespace vireo::softnic
