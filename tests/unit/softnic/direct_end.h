// One end of the lock-step wire whose rings are driven by hand, as mlx5dv.h lays them out: nothing
// here is Vireo's. The device looks when pump() is called, unless its doorbells are watched.
// Owner: the test. Thread: one.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstring>
#include <span>

#include "end.h"

namespace softnic_test {

struct Completion {
  uint8_t opcode, format;
  mlx5_cqe64 cqe;
  uint16_t counter() const { return be16toh(cqe.wqe_counter); }
  uint32_t bytes() const { return be32toh(cqe.byte_cnt); }
  uint8_t syndrome() const { return reinterpret_cast<const mlx5_err_cqe&>(cqe).syndrome; }
};

/// Consumes a completion queue by its owner bits.
struct DirectCq {
  mlx5dv_cq cq{};
  uint32_t consumed = 0;
  uint32_t events = 0;

  mlx5_cqe64* next() const {
    return reinterpret_cast<mlx5_cqe64*>(static_cast<std::byte*>(cq.buf) +
                                         size_t{consumed & (cq.cqe_cnt - 1)} * cq.cqe_size);
  }
  bool has() const;
  /// All that are there, with the consumer index written back.
  std::vector<Completion> poll();
  void consume(uint32_t n);
  void arm(unsigned serial);
};

class DirectEnd : public End {
 public:
  explicit DirectEnd(int number, const EndOptions& o = {});

  mlx5dv_qp qp{};
  DirectCq sends, receives;
  uint16_t produced = 0;  ///< blocks
  uint16_t posted = 0;    ///< receives

  /// A send element of a header inline and one pointer, if `data.length` > 0. @return its index.
  uint16_t put(std::span<const std::byte> header, ibv_sge data,
               uint8_t flags = MLX5_WQE_CTRL_CQ_UPDATE, uint16_t mss = 0);
  uint16_t put_nop(unsigned octowords = 1, uint8_t flags = 0);
  std::byte* block(uint16_t at) const {
    return static_cast<std::byte*>(qp.sq.buf) + size_t{at & (qp.sq.wqe_cnt - 1U)} * 64;
  }
  void write_record() const { qp.dbrec[MLX5_SND_DBR] = htobe32(produced); }
  /// The eight bytes of the element at `index`, into one of the two buffers.
  void ring(uint16_t index, int buffer = 0) const;
  /// Record and doorbell.
  void send(uint16_t index) {
    write_record();
    ring(index);
  }
  /// `bytes` of slot `i` are posted; the record is written.
  void receive(size_t i, uint32_t bytes = kSlot) { receive(segment(i, bytes)); }
  void receive(ibv_sge s);

 private:
  void write(uint64_t at, const void* from, size_t bytes);
};

inline bool pump() { return softnic_pump(); }

}  // namespace softnic_test
