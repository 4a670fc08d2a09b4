// A raw-packet QP whose rings are driven directly, as the contract's Queue.
// Owner: the engine that opened it. Thread: holder of that engine's lock.
//
// Sending: a frame up to the inline limit is copied whole into its WQE; a lone one is sent by
// BlueFlame and needs no completion. A longer frame has its head inline and pointers to its body.
// Completions as in dev/verbs: every signal_every-th WQE requests one, and so does the last WQE of
// a doorbell that holds packets. A mark for each tells what it frees.
// Receiving: request i is the i-th ever posted and has rx_segments frames; CQEs come in that order.
// With striding, request i is a run of adjacent frames that packets fill one after the other
// (striding.h), and the counters count strides.
// A CQE carries the device's clock, unless it is compressed.
#pragma once

#include <memory>
#include <optional>

#include "dev/device.h"
#include "dev/mlx5/cq.h"
#include "dev/mlx5/in_flight.h"
#include "dev/mlx5/lro_rules.h"
#include "dev/mlx5/requests.h"
#include "dev/mlx5/rings.h"
#include "dev/mlx5/rq.h"
#include "dev/mlx5/sq.h"
#include "dev/mlx5/striding.h"
#include "dev/verbs/device.h"
#include "dev/verbs/shape.h"
#include "dev/verbs/stamp_clock.h"

namespace vireo::mlx5 {

/// A QueueMaker: makes a verbs queue, and logs why, if the rings cannot be driven.
Result<verbs::OpenedQueue> make_mlx5_queue(verbs::VerbsDevice& device,
                                           const std::shared_ptr<verbs::Context>& context,
                                           std::span<std::byte> arena, PacketPool& pool,
                                           DeviceCaps& caps, const VerbsOptions& options);

class Mlx5Queue final : public Queue {
 public:
  Mlx5Queue(verbs::VerbsDevice& device, const std::shared_ptr<verbs::Context>& context,
            verbs::Pair pair, const Rings& rings, std::span<std::byte> arena, PacketPool& pool,
            const verbs::QueueShape& shape, uint32_t inline_bytes,
            const std::optional<verbs::StampClock>& clock, std::unique_ptr<Striding> striding,
            std::unique_ptr<LroRules> lro);
  ~Mlx5Queue() override;
  /// Only with LRO.
  LroRules& lro() { return *lro_; }

  unsigned rx_burst(std::span<RxDesc> out) noexcept override;
  void stamp() noexcept override {
    stamps_ = clock_.has_value();
    is_plain_ &= !stamps_;
  }
  void rx_refill() noexcept override;
  bool tx(const TxFrame& frame, Doorbell bell) noexcept override;
  void tx_flush() noexcept override;
  unsigned tx_reap() noexcept override;
  Result<bool> arm() noexcept override;
  int wait_fd() const noexcept override { return pair_.channel()->fd; }
  void wake_ack() noexcept override;
  bool alive() noexcept override;
  QueueLosses losses() const noexcept override { return losses_; }

 private:
  /// Compressed CQEs that are being delivered.
  struct Session {
    uint32_t title = 0;  ///< index of the title CQE
    uint32_t count = 0;
    uint32_t next = 0;
    RxFlags flags = RxFlags::kNone;
    FlowTag tag{};
  };
  struct Delivered {
    uint32_t bytes;
    RxFlags flags;
    FlowTag tag;
    const mlx5_cqe64* whole;  ///< its CQE; null if it was compressed
  };

  template <bool kPlain>
  [[gnu::always_inline]] unsigned receive(std::span<RxDesc> out) noexcept;
  [[gnu::noinline]] unsigned receive_oddly(std::span<RxDesc> out) noexcept;
  template <bool kPlain>
  unsigned deliver(Delivered d, RxDesc* out, RxDesc* end) noexcept;
  unsigned deliver_parts(Delivered d, RxDesc* out, RxDesc* end) noexcept;
  unsigned deliver_session(std::span<RxDesc> out) noexcept;
  void post_frames(uint32_t target) noexcept;
  /// Handles a CQE that is not a single, uncompressed, good one. @return false: not taken yet.
  bool take_rare(const mlx5_cqe64& cqe, uint8_t op_own) noexcept;
  // striding.cpp
  unsigned receive_strides(std::span<RxDesc> out) noexcept;
  uint32_t place_of(const mlx5_cqe64& cqe) noexcept;
  unsigned deliver_strides(Delivered d, uint32_t at, std::span<RxDesc> out) noexcept;
  [[gnu::cold]] PacketBuf* copy_of(PacketBuf* p) noexcept;
  void give_back_strides(uint32_t at, uint32_t n) noexcept;
  void give_back_element() noexcept;
  void post_runs() noexcept;

  bool find_credit() noexcept;
  void put_inline(const TxFrame& frame, uint32_t total) noexcept;
  [[gnu::always_inline]] void put_pointers(const TxFrame& frame) noexcept;
  [[gnu::noinline]] bool put_gathered(const TxFrame& frame, uint32_t total) noexcept;
  [[gnu::always_inline]] bool can_lie(const TxFrame& frame) const noexcept;
  void note_put(bool is_whole) noexcept;
  void signal() noexcept;
  [[gnu::cold]] void take_send_errors() noexcept;
  [[gnu::cold]] void begin_anew() noexcept;
  void drop_receives() noexcept;

  verbs::VerbsDevice& device_;
  std::shared_ptr<verbs::Context> context_;
  std::span<std::byte> arena_;
  PacketPool& pool_;
  const verbs::QueueShape shape_;
  const uint32_t arena_lkey_;
  const uint32_t inline_lengths_;  ///< lengths sent inline, counted from Sq::kMinInline
  const uint32_t rx_room_;         ///< bytes of a frame that a packet may fill
  const uint8_t checksums_;

  Cq received_;
  Rq rq_;
  Requests rx_;
  bool is_plain_;  ///< one frame per request, and no timestamps
  verbs::ReceiveFill fill_;
  Session session_;
  bool stamps_ = false;
  std::optional<verbs::StampClock> clock_;
  bool ever_armed_ = false;  ///< true: the channel may hold events
  QueueLosses losses_;

  Sq sq_;
  Cq sent_;
  InFlight in_flight_;
  uint32_t until_signal_;  ///< WQEs
  uint32_t credit_ = 0;    ///< WQEs for which there is room
  uint32_t unrung_ = 0;    ///< WQEs
  bool last_is_whole_ = false;

  // Last: destroyed first, so that the device releases the memory before it is freed.
  verbs::Pair pair_;
  std::unique_ptr<Striding> striding_;  ///< if set, receives are posted there
  std::unique_ptr<LroRules> lro_;  ///< null: no LRO; destroyed before the queue that it leads to
};

}  // namespace vireo::mlx5
