// A completion queue as the hardware has it: a ring of 64-byte entries that the device writes, each
// with an owner bit that turns with every round, two doorbell records (consumer index, arming) and
// the doorbell register by which it is armed.
//
// Compression: receives that come together and differ only in their length share one entry in
// full, the title; the lengths follow eight by eight in the place of the next entries, the first
// array right behind the title and each further one eight entries behind the title or its
// predecessor. What lies between keeps what it had, its old owner bit too.
// Owner: Cq. Thread: holder of the port's lock; the memory is the program's at the same time.
// Source: mlx5dv.h (mlx5_cqe64, mlx5_err_cqe); Linux's mlx5e_decompress_cqes_start for compression.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <vector>

#include "tests/apparatus/softnic/register.h"
#include "tests/apparatus/softnic/shared_pages.h"

namespace vireo::softnic {

struct Cqe;

/// One of eight in an array that takes the place of an entry.
struct MiniCqe {
  __be32 rx_hash_result;
  __be32 byte_cnt;
};
static_assert(sizeof(MiniCqe[8]) == sizeof(mlx5_cqe64));

class CompletionRing {
 public:
  CompletionRing(uint32_t entries, uint32_t number, bool compresses);
  void describe(mlx5dv_cq& out) const;
  /// @return false: it is full (only if lenient); the completion is lost.
  bool write(const Cqe& e);
  /// Shows the completions that were held back to be compressed.
  void flush();
  /// As DoorbellPage::watch().
  void watch(void (*call)(void*), void* of) { uar_.watch(call, of); }
  bool is_watched() const { return uar_.is_watched(); }
  /// Takes note of the doorbell. @return true: it asks for an event; `at_once`: there is one.
  bool look(bool& at_once);
  void fired() { ++events_; }

 private:
  struct Pending {
    mlx5_cqe64 cqe;
  };
  bool is_full() const;
  void put(mlx5_cqe64 cqe, uint8_t format);
  mlx5_cqe64* entry(uint64_t at) const {
    return reinterpret_cast<mlx5_cqe64*>(pages_.data()) + (at & (entries_ - 1));
  }
  uint8_t owner(uint64_t at) const { return (at & entries_) != 0 ? 1 : 0; }

  SharedPages pages_;
  SharedPages records_;
  DoorbellPage uar_;
  Register armer_;
  uint32_t entries_;
  uint32_t number_;
  bool compresses_;
  uint64_t produced_ = 0;  ///< entries; the program sees 24 bits
  uint32_t events_ = 0;    ///< told; the program counts them with two bits
  std::vector<Pending> held_;
};

}  // namespace vireo::softnic
