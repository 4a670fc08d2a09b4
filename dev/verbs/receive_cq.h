// The CQ of receives: read in batches, handed out one by one. An extended CQ, if supported, also
// gives the rule's tag and the time.
// Owner: VerbsQueue. Thread: holder of the engine's lock.
// Source: ibv_create_cq_ex(3), ibv_poll_cq(3).
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/types.h"
#include "dev/device.h"
#include "dev/verbs/pair.h"
#include "dev/verbs/stamp_clock.h"

namespace vireo::verbs {

/// A completed receive. After a failure only the first two fields are valid.
struct Receipt {
  uint32_t slot;  ///< its wr_id
  ibv_wc_status status;
  uint32_t bytes;
  RxFlags flags;
  FlowTag tag;
  int64_t time;  ///< PacketBuf::hw_time
};

class ReceiveCq {
 public:
  /// For Pair::create(): the sets of fields to request, best first. `clock`: completion timestamps
  /// can be converted.
  static std::vector<uint64_t> wishes(StampTime stamps, bool clock) {
    std::vector<uint64_t> all;
    for (const uint64_t tag : {uint64_t{IBV_WC_EX_WITH_FLOW_TAG}, uint64_t{0}}) {
      const uint64_t least = IBV_WC_EX_WITH_BYTE_LEN | tag;
      if (stamps == StampTime::kPtp) all.push_back(least | kWall);
      if (clock) all.push_back(least | kTicks);
      all.push_back(least);
    }
    return all;
  }

  ReceiveCq(const Pair& pair, const std::optional<StampClock>& clock)
      : plain_(pair.received()),
        extended_(pair.told() != 0 ? reinterpret_cast<ibv_cq_ex*>(plain_) : nullptr),
        told_(pair.told()),
        tells_tags_((pair.told() & IBV_WC_EX_WITH_FLOW_TAG) != 0),
        clock_(clock) {}
  ReceiveCq(const ReceiveCq&) = delete;

  bool tells_tags() const { return tells_tags_; }
  bool tells_time() const { return (told_ & (kTicks | kWall)) != 0; }
  /// From now on Receipt::time is set.
  void stamp() { stamps_ = tells_time(); }
  ibv_cq* get() const { return plain_; }
  /// The oldest receipt not taken, or nullptr. Reads up to `most` at once. Call rest() before any
  /// other use of the CQ.
  const Receipt* front(size_t most) noexcept {
    if (!has_front_) has_front_ = extended_ != nullptr ? next_extended() : next_plain(most);
    return has_front_ ? &front_ : nullptr;
  }
  void take() noexcept { has_front_ = false; }
  void rest() noexcept {
    if (!is_in_batch_) return;
    is_in_batch_ = false;
    ibv_end_poll(extended_);
  }
  /// Something was read but not taken.
  bool has_left() const { return has_front_ || batch_at_ != batch_end_; }
  /// The device returned an error.
  bool is_broken() const { return is_broken_; }

 private:
  static constexpr size_t kBatch = 64;
  static constexpr uint64_t kTicks = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  static constexpr uint64_t kWall = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

  // For a raw packet the flag means: IPv4 header and TCP or UDP checksum are good.
  static RxFlags flags_of(unsigned wc_flags) {
    return (wc_flags & IBV_WC_IP_CSUM_OK) != 0 ? RxFlags::kIpOk | RxFlags::kL4Ok : RxFlags::kNone;
  }
  bool next_extended() noexcept {
    ibv_cq_ex* const cq = extended_;
    int answer;
    if (is_in_batch_) {
      answer = ibv_next_poll(cq);
    } else {
      ibv_poll_cq_attr attr{};
      answer = ibv_start_poll(cq, &attr);
      is_in_batch_ = answer == 0;  // else there is no poll to end
    }
    if (answer != 0) {
      is_broken_ |= answer != ENOENT;
      return false;
    }
    front_.slot = static_cast<uint32_t>(cq->wr_id);
    front_.status = cq->status;
    if (cq->status != IBV_WC_SUCCESS) [[unlikely]]
      return true;
    front_.bytes = ibv_wc_read_byte_len(cq);
    front_.flags = flags_of(ibv_wc_read_wc_flags(cq));
    if (stamps_) [[unlikely]]
      front_.time = read_time(cq);
    if (!tells_tags_) return true;
    front_.tag = FlowTag(ibv_wc_read_flow_tag(cq));
    if (front_.tag.value() != 0) front_.flags |= RxFlags::kHasTag;
    return true;
  }
  [[gnu::noinline]] int64_t read_time(ibv_cq_ex* cq) noexcept {
    if ((told_ & kWall) != 0) return static_cast<int64_t>(ibv_wc_read_completion_wallclock_ns(cq));
    return clock_->ns(ibv_wc_read_completion_ts(cq), Clock::now());
  }
  bool next_plain(size_t most) noexcept {
    if (batch_at_ == batch_end_) {
      batch_at_ = batch_end_ = 0;
      const int polled = ibv_poll_cq(plain_, static_cast<int>(std::min(most, kBatch)), batch_);
      if (polled <= 0) {
        is_broken_ |= polled < 0;
        return false;
      }
      batch_end_ = static_cast<uint32_t>(polled);
    }
    const ibv_wc& wc = batch_[batch_at_++];
    front_ = {static_cast<uint32_t>(wc.wr_id), wc.status, wc.byte_len,
              flags_of(wc.wc_flags),           {},        0};
    return true;
  }

  ibv_cq* plain_;
  ibv_cq_ex* extended_;  ///< the same CQ, or nullptr
  uint64_t told_;
  bool tells_tags_;
  bool stamps_ = false;
  bool is_in_batch_ = false;  ///< between ibv_start_poll() and ibv_end_poll()
  bool is_broken_ = false;
  bool has_front_ = false;
  Receipt front_{};
  std::optional<StampClock> clock_;
  uint32_t batch_at_ = 0, batch_end_ = 0;
  ibv_wc batch_[kBatch];  ///< from ibv_poll_cq()
};

}  // namespace vireo::verbs
