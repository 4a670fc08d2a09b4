// The locks of the steering tables for a scope, among this process's threads and among members.
// What a member that died in it left is put right first. For .cpp files of Steering.
#pragma once

#include <mutex>

#include "dev/xdp/steer.h"
#include "dev/xdp/steer_shares.h"

namespace vireo::xdp {

class Steering::Hold {
 public:
  explicit Hold(Steering& s)
      : steering_(s),
        guard_(s.lock_),
        took_(counts().lock.lock(s.slot(), s.wait_, kPatience, s.member_.is_alive)) {
    if (took_ == SharedLock::Took::kFromDead || (is_complete() && s.ports_.is_stale()))
      s.shares().rebuild(s.ports_.rebuild(s.fd(kSteerCounts), s.tables()));
  }
  ~Hold() {
    if (is_complete()) counts().lock.unlock();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  /// False if a stopped member keeps the lock: this process alone is held off.
  bool is_complete() const { return took_ != SharedLock::Took::kNo; }

 private:
  /// Most time to wait for a member that is stopped in its hold. It is waited for once.
  static constexpr Duration kPatience = Duration::ms(200);

  SteerCounts& counts() const { return steering_.ports_.counts(); }
  Steering& steering_;
  const std::lock_guard<std::mutex> guard_;
  const SharedLock::Took took_;
};

}  // namespace vireo::xdp
