// An AF_XDP queue as the contract's Queue.
// Owner: the engine that opened it. Thread: holder of that engine's lock.
//
// Pool frames that the kernel holds are tracked: by their owner while in FILL, the driver or RX; by
// their count in flight from TX until they return in COMPLETION. The destructor returns what is
// still held to the pool. At most tx.size() descriptors are in flight, so neither TX nor COMPLETION
// can overflow.
//
// Where processes share the queue (shared_rings.h), these records are in memory that all see. A
// frame that one member posts may be received by another, whose it then is. Each member posts as
// many frames as it receives: its part of what the FILL ring should hold remains. As long as a
// process is alone, it works as if the queue were its own.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/frame_owners.h"
#include "dev/device.h"
#include "dev/xdp/group/shared_rings.h"
#include "dev/xdp/steer.h"
#include "dev/xdp/umem.h"
#include "dev/xdp/xdp.h"
#include "dev/xdp/xsk.h"

namespace vireo::xdp {

class Sharing;

struct QueueSetup {
  QueueId id;
  bool tags = false;
  bool multi_frame = false;
  bool is_virtual = false;  ///< checksums may be unfinished
  bool need_wakeup = true;
  bool busy_poll = false;
  std::string interface;  ///< its name, for the log
};

class XdpQueue final : public Queue {
 public:
  XdpQueue(const QueueSetup& setup, Xsk xsk, std::shared_ptr<Umem> umem,
           std::shared_ptr<Steering> steering, PacketPool& pool,
           std::unique_ptr<SharedRings> rings = nullptr,
           std::shared_ptr<Sharing> sharing = nullptr);
  ~XdpQueue() override;

  unsigned rx_burst(std::span<RxDesc> out) noexcept override;
  RxLevel rx_level() const noexcept override {
    return {xsk_.rx.waiting(), std::min(xsk_.rx.size(), fill_most_)};
  }
  void rx_refill() noexcept override;
  bool tx(const TxFrame& frame, Doorbell bell) noexcept override;
  void tx_flush() noexcept override;
  unsigned tx_reap() noexcept override;
  Result<bool> arm() noexcept override;
  int wait_fd() const noexcept override { return xsk_.fd(); }
  bool alive() noexcept override;
  QueueLosses losses() const noexcept override;

  void share() noexcept override;
  bool is_zero_copy() const { return xsk_.is_zero_copy(); }

 private:
  /// What a queue has that processes can share.
  struct Shared {
    bool is_on = false;       ///< other processes use the queue, too
    uint32_t fill_ahead = 0;  ///< FILL's index of the next frame to be received, less that of RX
    uint32_t reaps = 0;       ///< each so many look into COMPLETION in any case
    uint32_t refills = 0;     ///< each so many look at FILL's level
    Instant topped_up{};      ///< when the pool was last given frames that nobody has
    std::unique_ptr<SharedRings> rings;
    std::shared_ptr<Sharing> sharing;  ///< null: it cannot be shared
  };

  PacketBuf& packet_at(uint64_t umem_address) const {
    return pool_.at_frame_offset(umem_address - pool_at_);
  }
  uint64_t address_of(const PacketBuf& p, uint32_t at) const {
    return pool_at_ + (uint64_t{p.index} << frame_shift_) + at;
  }
  unsigned idle() noexcept;
  void busy_poll() noexcept;
  void fit_fill(uint32_t waiting) noexcept;
  void take_over(std::span<RxDesc> got) noexcept;
  void refill_shared() noexcept;
  uint32_t post_frames(uint32_t want) noexcept;
  unsigned reap_shared() noexcept;
  void complete(PacketBuf& p) noexcept {
    --own_in_flight_[p.index];
    --frames_.in_flight[p.index];
    --p.device_refs;
    PacketPool::drop(&p);
  }
  unsigned claim(unsigned n) noexcept;
  bool try_sending() noexcept;
  void end_sending() noexcept;
  int32_t follow_level(uint32_t target, int32_t part) noexcept;
  void give_back(uint32_t part) noexcept;
  void settle_shared() noexcept;
  PacketBuf* take_empty() noexcept;
  void wake_fill() noexcept;
  void return_frames() noexcept;
  void leave_shared() noexcept;
  uint32_t whole_packets(uint32_t ready) const noexcept;
  FlowTag take_tag(RxDesc& d, std::byte* data) const noexcept;
  bool takes_head(const TxFrame& frame) const noexcept;
  bool tx_in_place(const TxFrame& frame) noexcept;
  bool tx_gathered(const TxFrame& frame, uint32_t total) noexcept;
  bool tx_chained(const TxFrame& frame, uint32_t total) noexcept;
  bool gather(const TxFrame& frame, uint32_t total) noexcept;
  void post_with_head(const TxFrame& frame, bool more) noexcept;
  void post(uint32_t ahead, PacketBuf& p, uint32_t at, uint32_t length, bool more) noexcept;
  uint32_t tx_room() const { return tx_most_ - in_flight_; }
  void ring_bell(Doorbell bell) noexcept;
  bool kick() noexcept;
  bool kernel_wants_kick() const noexcept;

  // Used for every burst and send.
  PacketPool& pool_;
  const uint64_t pool_at_;  ///< offset of the pool's memory in the arena
  const uint32_t frame_shift_;
  const QueueSetup setup_;
  uint32_t in_flight_ = 0;   ///< descriptors from TX to COMPLETION
  bool kick_due_ = false;    ///< published frames not yet announced to the kernel
  uint32_t stuck_with_ = 0;  ///< frames left when the last kick gave up; 0: it did not
  mutable bool dead_ = false;
  bool busy_poll_;
  bool is_busy_poll_proved_;
  Xsk xsk_;

  Shared shared_;
  FrameOwners frames_;         ///< by frame index
  const uint8_t in_queue_;     ///< as owner: posted for receiving
  const uint32_t tx_most_;     ///< most descriptors in flight
  const uint32_t fill_most_;   ///< most frames posted for receiving
  uint32_t fill_target_;       ///< frames to have posted now
  int32_t rx_held_count_ = 0;  ///< frames posted, less those received
  uint32_t calm_frames_ = 0;   ///< frames received since fill_target_ was last too low
  std::unique_ptr<uint16_t[]> own_in_flight_;  ///< by frame index, of this queue alone
  /// What frames_ is without other processes.
  std::unique_ptr<uint8_t[]> private_owner_;
  std::unique_ptr<uint16_t[]> private_in_flight_;

  const pid_t process_;
  std::shared_ptr<Umem> umem_;
  std::shared_ptr<Steering> steering_;
};

}  // namespace vireo::xdp
