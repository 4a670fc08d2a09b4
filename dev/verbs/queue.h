// A raw-packet QP as the contract's Queue.
// Owner: the engine that opened it. Thread: holder of that engine's lock.
//
// Receiving: a slot is a posted request and the frames it scatters to, as many as the MTU needs.
// Sending: a slot is a posted request, its own registered bytes and the packets it reads. A frame
// up to the inline limit is copied into those bytes and from there into the request; it needs no
// completion. A longer frame has its head in those bytes and its body is read in place. Every
// signal_every-th request asks for a completion, and so does the last of a doorbell that holds
// packets: what the program freed must not wait for a send that may never come.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <vector>

#include "core/arena.h"
#include "dev/device.h"
#include "dev/verbs/device.h"
#include "dev/verbs/pair.h"
#include "dev/verbs/receive_cq.h"
#include "dev/verbs/shape.h"

namespace vireo::verbs {

/// A QueueMaker.
Result<OpenedQueue> make_verbs_queue(VerbsDevice& device, const std::shared_ptr<Context>& context,
                                     std::span<std::byte> arena, PacketPool& pool, DeviceCaps& caps,
                                     const VerbsOptions& options);

class VerbsQueue final : public Queue {
 public:
  static Result<std::unique_ptr<VerbsQueue>> create(VerbsDevice& device,
                                                    const std::shared_ptr<Context>& context,
                                                    std::span<std::byte> arena, PacketPool& pool,
                                                    const DeviceCaps& caps,
                                                    const VerbsOptions& options);
  ~VerbsQueue() override;

  unsigned rx_burst(std::span<RxDesc> out) noexcept override;
  void stamp() noexcept override { received_.stamp(); }
  void rx_refill() noexcept override;
  bool tx(const TxFrame& frame, Doorbell bell) noexcept override;
  void tx_flush() noexcept override;
  unsigned tx_reap() noexcept override;
  Result<bool> arm() noexcept override;
  int wait_fd() const noexcept override { return pair_.channel()->fd; }
  void wake_ack() noexcept override;
  bool alive() noexcept override;
  QueueLosses losses() const noexcept override { return losses_; }

  ibv_qp* pair() const { return pair_.get(); }
  uint32_t inline_bytes() const { return inline_bytes_; }
  bool tells_tags() const { return received_.tells_tags(); }
  bool segments() const { return pair_.segments(); }
  bool tells_time() const { return received_.tells_time(); }

 private:
  static constexpr uint32_t kMaxSegments = QueueShape::kMaxSegments;
  static constexpr uint32_t kOwnBytes = 256;  ///< per send slot
  static constexpr uint32_t kBatch = 64;      ///< requests per doorbell, completions per poll

  struct SendSlot {
    PacketBuf* held[kMaxSegments];
    uint32_t held_count;
  };

  VerbsQueue(VerbsDevice& device, const std::shared_ptr<Context>& context, Pair pair,
             Arena own_memory, Region own_region, std::span<std::byte> arena, PacketPool& pool,
             const QueueShape& setup, uint32_t inline_bytes,
             const std::optional<StampClock>& clock);
  unsigned deliver(const Receipt& r, std::span<RxDesc> out) noexcept;
  void drop_receive(const Receipt& r) noexcept;
  std::byte* own_bytes(uint32_t slot) const {
    return own_memory_.bytes().data() + size_t{slot} * kOwnBytes;
  }
  bool can_lie(const TxFrame& frame) const noexcept;
  void put_inline(const TxFrame& frame, uint32_t slot, uint32_t total) noexcept;
  void put_in_place(const TxFrame& frame, uint32_t slot) noexcept;
  bool put_gathered(const TxFrame& frame, uint32_t slot, uint32_t total) noexcept;
  ibv_sge& add_segment(const void* at, uint32_t bytes, uint32_t lkey) noexcept;
  void hold(uint32_t slot, PacketBuf* p) noexcept;
  void release(uint32_t slot) noexcept;
  [[gnu::cold]] void begin_anew() noexcept;
  void drop_receives() noexcept;

  VerbsDevice& device_;
  std::shared_ptr<Context> context_;
  std::span<std::byte> arena_;
  PacketPool& pool_;
  const QueueShape setup_;
  uint32_t inline_bytes_;

  std::vector<PacketBuf*> rx_frames_;  ///< rx_segments per slot
  ReceiveFill fill_;
  std::vector<uint32_t> rx_free_;  ///< slots, a stack
  ReceiveCq received_;
  bool ever_armed_ = false;   ///< true: the channel may hold events
  bool has_carried_ = false;  ///< since the QP was last started
  QueueLosses losses_;

  std::vector<SendSlot> tx_slots_;
  uint64_t tx_head_ = 0;  ///< oldest not known to be complete
  uint64_t tx_tail_ = 0;  ///< next; those from tx_tail_ - staged_ on are not posted yet
  uint32_t since_signal_ = 0;
  bool holds_unsignaled_ = false;  ///< packets would have to wait for a later request's completion
  uint32_t staged_ = 0;
  ibv_send_wr wr_[kBatch];
  ibv_sge sge_[kBatch][kMaxSegments];

  // Last: destroyed first, so that the device releases the memory before it is freed.
  Arena own_memory_;
  Region own_region_;
  Pair pair_;
};

}  // namespace vireo::verbs
