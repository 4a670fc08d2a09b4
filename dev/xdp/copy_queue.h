// The copies of frames that a process gets of the UDP ends which it shares with others: a ring that
// the steering program fills, as a queue for receiving alone.
// Owner: the engine. Thread: holder of its lock; wait_fd() any. Source: the kernel's
// Documentation/bpf/ringbuf.rst.
#pragma once

#include <atomic>
#include <memory>

#include "dev/device.h"
#include "dev/xdp/steer.h"
#include "dev/xdp/xsk.h"

namespace vireo::xdp {

class CopyQueue final : public Queue {
 public:
  /// `is_virtual`: as Interface::is_virtual. Errors: ENOMEM, EPERM, EMFILE.
  static Result<std::unique_ptr<CopyQueue>> open(PacketPool& pool,
                                                 std::shared_ptr<Steering> steering,
                                                 bool is_virtual);
  ~CopyQueue() override;

  unsigned rx_burst(std::span<RxDesc> out) noexcept override;
  void rx_refill() noexcept override {}
  bool tx(const TxFrame&, Doorbell) noexcept override { return false; }
  void tx_flush() noexcept override {}
  unsigned tx_reap() noexcept override { return 0; }
  Result<bool> arm() noexcept override;
  int wait_fd() const noexcept override { return ring_.get(); }
  void wake_ack() noexcept override;
  bool comes_in_bulk() noexcept override;
  QueueLosses losses() const noexcept override;

 private:
  CopyQueue(PacketPool& pool, std::shared_ptr<Steering> steering, bool is_virtual)
      : pool_(pool), steering_(std::move(steering)), is_virtual_(is_virtual) {}
  Result<void> map();
  bool take(const std::byte* record, RxDesc& out) noexcept;

  PacketPool& pool_;
  std::shared_ptr<Steering> steering_;
  const bool is_virtual_;
  UniqueFd ring_;
  Mapping consumer_page_, producer_pages_;
  std::atomic<uint64_t>* consumer_ = nullptr;        ///< bytes taken, of the whole life
  const std::atomic<uint64_t>* producer_ = nullptr;  ///< bytes written or being written
  const std::byte* records_ = nullptr;               ///< the ring, twice in a row
  uint64_t taken_ = 0;                               ///< as *consumer_
  unsigned since_sleep_ = 0;                         ///< frames taken
};

}  // namespace vireo::xdp
