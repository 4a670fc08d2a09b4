// An AF_XDP socket bound to a queue of an interface, with its four rings mapped; in copy mode a
// second socket sends. Owner: an XdpQueue. Thread: as the queue. Source: af_xdp.rst; errors as in
// net/xdp/xsk.c and xdp_umem.c of Linux 6.1 to 6.18.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "core/fd.h"
#include "core/result.h"
#include "core/types.h"
#include "dev/xdp/ring.h"

namespace vireo::xdp {

struct RingSizes {
  uint32_t rx = 2048;    ///< RX entries
  uint32_t tx = 2048;    ///< TX and COMPLETION entries
  uint32_t fill = 2048;  ///< FILL entries
};

/// An mmap(2) that unmaps itself. Not inherited by fork: a mapped ring keeps its socket bound, so a
/// child would keep the parent's queue busy.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* base, size_t length);
  Mapping(Mapping&& o) noexcept { *this = std::move(o); }
  Mapping& operator=(Mapping&& o) noexcept {
    std::swap(base_, o.base_);
    std::swap(length_, o.length_);
    std::swap(owner_, o.owner_);
    return *this;
  }
  ~Mapping();
  void* base() const { return base_; }
  size_t length() const { return length_; }

 private:
  void* base_ = nullptr;
  size_t length_ = 0;
  pid_t owner_ = 0;
};

/// Whether the kernel supports AF_XDP packets of several frames (Linux 6.6). Errors: those of
/// socket(2).
Result<bool> kernel_has_multi_buffer();

/// The rings of a bound socket, mapped. While one is mapped the socket stays bound.
class XskView {
 public:
  /// RX of `rx_fd`, TX of `tx_fd`, of `own` entries; FILL and COMPLETION of their queue, of `queue`
  /// entries.
  static Result<XskView> map(int rx_fd, int tx_fd, const RingSizes& own, const RingSizes& queue);

  ConsumerRing<xdp_desc> rx;
  ProducerRing<uint64_t> fill;
  ProducerRing<xdp_desc> tx;
  ConsumerRing<uint64_t> completion;

 private:
  Mapping maps_[4];
};

class Xsk {
 public:
  /// Registers `memory` as a new UMEM and binds. @param bind_flags XDP_COPY, XDP_ZEROCOPY and
  /// others of linux/if_xdp.h.
  static Result<Xsk> open_registering(std::span<std::byte> memory, uint32_t chunk_bytes,
                                      uint16_t bind_flags, IfIndex ifindex, QueueId queue,
                                      const RingSizes& sizes);
  /// Binds to the UMEM of the bound socket `other`, with its flags.
  static Result<Xsk> open_shared(int other, IfIndex ifindex, QueueId queue, const RingSizes& sizes);

  /// Binds to the same queue as the bound socket `other`, with whose FILL and COMPLETION rings of
  /// `other_sizes` entries it works; RX and TX rings are its own.
  static Result<Xsk> open_beside(int other, IfIndex ifindex, QueueId queue, const RingSizes& sizes,
                                 const RingSizes& other_sizes);

  int fd() const { return fd_.get(); }
  /// The socket of the TX ring, to be called for its frames: fd() or the second one.
  int tx_fd() const { return tx_fd_ ? tx_fd_.get() : fd(); }
  bool is_zero_copy() const { return zero_copy_; }

  ConsumerRing<xdp_desc> rx;
  ProducerRing<uint64_t> fill;
  ProducerRing<xdp_desc> tx;
  ConsumerRing<uint64_t> completion;

 private:
  enum : size_t { kRxMap, kFillMap, kTxMap, kCompletionMap };
  static Result<Xsk> make();
  Result<void> start(IfIndex ifindex, QueueId queue, uint16_t flags, int other,
                     const RingSizes& sizes);
  Result<void> make_ring(int option, uint32_t entries);
  Result<void> map_own_rings(const RingSizes& sizes);
  Result<void> map_queue_rings(const RingSizes& sizes);
  Result<void> bind(IfIndex ifindex, QueueId queue, uint16_t flags, int other);
  void finish(IfIndex ifindex, QueueId queue, uint32_t tx_entries);
  Result<void> part_sending(IfIndex ifindex, QueueId queue, uint32_t entries);

  UniqueFd fd_;
  UniqueFd tx_fd_;  ///< empty: fd_ sends, too
  Mapping maps_[4];
  bool zero_copy_ = false;
};

}  // namespace vireo::xdp
