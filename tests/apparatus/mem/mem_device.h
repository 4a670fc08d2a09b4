// One end of a MemLink as a Device, and its queues. Private to tests/apparatus/mem.
// Owner: MemLink or who released it. Thread: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "dev/device.h"
#include "tests/apparatus/mem/mem_link.h"
#include "tests/apparatus/mem/steering.h"

namespace vireo {

class MemQueue final : public Queue {
 public:
  MemQueue(MemDevice& device, QueueId id, PacketPool& pool);
  ~MemQueue() override;

  unsigned rx_burst(std::span<RxDesc> out) noexcept override;
  RxLevel rx_level() const noexcept override;
  void rx_refill() noexcept override;
  bool tx(const TxFrame& frame, Doorbell bell) noexcept override;
  void tx_flush() noexcept override;
  unsigned tx_reap() noexcept override;
  Result<bool> arm() noexcept override;
  int wait_fd() const noexcept override { return -1; }
  bool alive() noexcept override;
  QueueLosses losses() const noexcept override { return losses_; }

  /// When the next frame leaves; never() if none was rung for.
  Instant next_departure() const;
  /// The frame whose time has come leaves, cut if it is a burst: its bytes are read now, not
  /// earlier.
  std::vector<std::vector<std::byte>> depart();
  /// A frame from the wire. @return false: no room, dropped.
  bool deliver(std::span<const std::byte> frame, RxFlags flags, FlowTag tag);

 private:
  struct TxEntry {
    std::vector<std::byte> head;      ///< inline part, sent first
    std::vector<PacketSlice> slices;  ///< one reference held on each
    uint16_t mss = 0;
    Instant leaves = Instant::never();
  };
  void check_burst(const TxFrame& frame) const;
  bool write_head_before(const TxFrame& frame, TxEntry& entry);
  bool gather(const TxFrame& frame, TxEntry& entry);
  void hold(TxEntry& entry, const PacketSlice& slice);

  MemDevice& device_;
  QueueId id_;
  PacketPool& pool_;
  std::vector<PacketBuf*> rx_empty_;  ///< stack of posted buffers
  std::deque<RxDesc> rx_ready_;
  std::deque<TxEntry>
      tx_;  ///< [0, departed_) may be reaped, then rung, then waiting for the doorbell
  QueueLosses losses_;
  size_t departed_ = 0;
  size_t rung_ = 0;
};

class MemDevice final : public Device {
 public:
  MemDevice(MemLink& link, MemEnd end, const MemDeviceOptions& options);
  ~MemDevice() override;

  Result<std::unique_ptr<Queue>> open_queue(QueueId id, PacketPool& pool) override;
  Result<FlowRule> steer(const FlowKey& key, FlowTag tag, Queue& to) override;
  Result<void> give_to_kernel(std::span<const std::byte> frame) override;
  Result<void> give_to_listener(std::span<Opening> openings) override;
  Result<void> prepare_listener() override { return {}; }

  Instant next_departure() const;
  /// Sends the frame that is due first.
  void depart(Instant now);
  void receive(std::vector<std::byte> frame);

 private:
  friend class MemLink;
  friend class MemQueue;
  void unsteer(uint64_t rule_id) noexcept override { steering_.remove(rule_id); }
  MemQueue* first_to_depart() const;
  /// Lets virtual time catch up before a queue looks at the world.
  void catch_up() { link_.run_to(link_.now()); }

  MemLink& link_;
  MemEnd end_;
  MemDeviceOptions options_;
  std::vector<MemQueue*> queues_;  ///< by id, nullptr = not open
  SteeringTable steering_;
  std::vector<std::vector<std::byte>> kernel_frames_;
  std::vector<MemOpening> openings_;
  int openings_error_ = 0;
  MemDeviceStats stats_;
  bool plugged_ = true;
};

}  // namespace vireo
