// Memory that the program writes and the device reads, or the reverse: rings and doorbell
// records. Owner: the ring whose memory it is. Thread: program and device at once; words
// that one side waits for are read and written by load() and store() alone.
#pragma once

#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace vireo::softnic {

/// Whole pages, as the driver maps them.
class SharedPages {
 public:
  SharedPages(size_t bytes, int fill)
      : bytes_((bytes + kPage - 1) / kPage * kPage),
        at_(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes_))) {
    std::memset(at_.get(), fill, bytes_);
  }
  std::byte* data() const { return at_.get(); }
  void clear() { std::memset(at_.get(), 0, bytes_); }

 private:
  static constexpr size_t kPage = 4096;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> at_;
};

/// A doorbell record. Acquire: pairs with the program's barrier between what it wrote into the
/// ring and the record.
inline uint32_t load(const __be32& record) {
  return be32toh(__atomic_load_n(&record, __ATOMIC_ACQUIRE));
}
inline void store(__be32& record, uint32_t v) {
  __atomic_store_n(&record, htobe32(v), __ATOMIC_RELEASE);
}

}  // namespace vireo::softnic
