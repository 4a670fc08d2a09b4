// One end of a shared wire as Device and Queue. Private to dev/shm.
// Owner: the engine. Thread: holder of its lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/clock.h"
#include "core/flow_rules.h"
#include "dev/device.h"
#include "dev/shm/bell.h"
#include "dev/shm/host_registry.h"
#include "dev/shm/ring.h"

namespace vireo {

class ShmDevice;

class ShmQueue final : public Queue {
 public:
  ShmQueue(ShmDevice& device, PacketPool& pool);
  ~ShmQueue() override;
  unsigned rx_burst(std::span<RxDesc> out) noexcept override;
  void rx_refill() noexcept override {}  // rx_burst() takes frames from the pool
  bool tx(const TxFrame& frame, Doorbell bell) noexcept override;
  void tx_flush() noexcept override;
  unsigned tx_reap() noexcept override { return 0; }  // tx() has copied everything
  Result<bool> arm() noexcept override;
  int wait_fd() const noexcept override;
  void wake_ack() noexcept override;
  bool alive() noexcept override;

 private:
  unsigned copy_out(WireSlot& slot, uint32_t length, std::span<RxDesc> out) noexcept;
  ShmDevice& device_;
  PacketPool& pool_;
  RingSender& sender_;
  RingReceiver& receiver_;
  bool unrung_ = false;  ///< frames were published without a check whether the peer sleeps
};

class ShmDevice final : public Device {
 public:
  ShmDevice(WireSeat seat, ShmBell bell);
  ~ShmDevice() override;
  Result<std::unique_ptr<Queue>> open_queue(QueueId id, PacketPool& pool) override;
  Result<FlowRule> steer(const FlowKey& key, FlowTag tag, Queue& to) override;

 private:
  friend class ShmQueue;
  void unsteer(uint64_t rule_id) noexcept override;
  /// `clears_bell`: for a caller that afterwards looks for frames and arms.
  bool peer_is_there(bool clears_bell) noexcept;
  WireHeader& header() const { return *reinterpret_cast<WireHeader*>(seat_.wire.data()); }

  WireSeat seat_;
  ShmBell bell_;
  RingSender sender_;
  RingReceiver receiver_;
  FlowRules<> rules_;
  bool open_ = false;       ///< the queue is open
  bool peer_gone_ = false;  ///< closed or died
  bool broken_ = false;     ///< the peer violated the layout; it is ignored from then on
  Instant next_look_;       ///< when the kernel is next asked about the peer
};

}  // namespace vireo
