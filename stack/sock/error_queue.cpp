#include "stack/sock/error_queue.h"

#include <linux/errqueue.h>

#include <utility>

namespace vireo {
namespace {

constexpr size_t kFirstRing = 8;
/// Against a program that reads none; what is charged ends before.
constexpr size_t kMaxReports = 1 << 20;

}  // namespace

bool ErrorQueue::append(ErrorReport&& report) noexcept {
  if (count_ == kMaxReports) return false;
  if (count_ == ring_.size()) {
    std::vector<ErrorReport> larger(count_ == 0 ? kFirstRing : 2 * count_);
    for (size_t i = 0; i < count_; ++i)
      larger[i] = std::move(ring_[(first_ + i) & (ring_.size() - 1)]);
    ring_.swap(larger);
    first_ = 0;
  }
  ring_[(first_ + count_) & (ring_.size() - 1)] = std::move(report);
  ++count_;
  return true;
}

bool ErrorQueue::push(ErrorReport&& report, uint64_t room) noexcept {
  const LockGuard guard(lock_);
  const uint32_t cost = report.truesize();
  if (charged_ + cost >= room || !append(std::move(report))) return false;
  charged_ += cost;
  return true;
}

bool ErrorQueue::complete_copy(uint32_t id) noexcept {
  const LockGuard guard(lock_);
  if (count_ != 0) {
    ErrorReport& last = ring_[(first_ + count_ - 1) & (ring_.size() - 1)];
    if (last.origin == SO_EE_ORIGIN_ZEROCOPY && id == last.data + 1 && id != last.info) {
      last.data = id;
      return true;
    }
  }
  return append({.origin = SO_EE_ORIGIN_ZEROCOPY,
                 .code = SO_EE_CODE_ZEROCOPY_COPIED,
                 .info = id,
                 .data = id,
                 .bytes = nullptr});
}

std::optional<ErrorReport> ErrorQueue::pop(bool& more) noexcept {
  const LockGuard guard(lock_);
  more = count_ > 1;
  if (count_ == 0) return std::nullopt;
  ErrorReport report = std::move(ring_[first_]);
  first_ = (first_ + 1) & (ring_.size() - 1);
  --count_;
  if (report.origin != SO_EE_ORIGIN_ZEROCOPY) charged_ -= report.truesize();
  return report;
}

void ErrorQueue::clear() noexcept {
  const LockGuard guard(lock_);
  ring_.clear();
  first_ = count_ = 0;
  charged_ = 0;
}

}  // namespace vireo
