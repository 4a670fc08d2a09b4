// A doorbell register of a page that a driver would map from the device: what the program stores
// there, the device sees. A page of memory cannot tell of a store; either a watchpoint does, or the
// device looks. Owner: the ring whose register it is. Thread: the program stores; all else is the
// holder's of the port's lock.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "dev/softnic/watchpoint.h"

namespace vireo::softnic {

class Register {
 public:
  static constexpr int kFill = 0xff;  ///< of the page: no doorbell is all ones
  explicit Register(std::byte* at) : at_(reinterpret_cast<uint64_t*>(at)) {}
  Register(const Register&) = delete;

  /// From now on `call(of)` follows a store at once, in the thread that stores.
  /// @return false: it is refused.
  bool watch(void (*call)(void* of), void* of) {
    call_ = call;
    of_ = of;
    watchpoint_ = Watchpoint(data(), &Register::stored, this);
    return is_watched();
  }
  bool is_watched() const { return static_cast<bool>(watchpoint_); }
  /// @return true: it was written; `v` is what, in host order.
  bool take(uint64_t& v) {
    const uint64_t word = __atomic_load_n(at_, __ATOMIC_ACQUIRE);
    if (word == seen_) return false;
    v = be64toh(word);
    if (is_watched())
      seen_ = word;  // to write would be a store to be told of, and no doorbell repeats the last
    else
      v = be64toh(__atomic_exchange_n(at_, kSilent, __ATOMIC_ACQUIRE));
    return true;
  }
  /// What was written is forgotten; the next may be the same.
  void clear() {
    seen_ = kSilent;
    __atomic_store_n(at_, kSilent, __ATOMIC_RELEASE);
  }
  std::byte* data() const { return reinterpret_cast<std::byte*>(at_); }

 private:
  static void stored(void* self) {
    auto& r = *static_cast<Register*>(self);
    if (__atomic_load_n(r.at_, __ATOMIC_RELAXED) != kSilent) r.call_(r.of_);  // else it was clear()
  }
  static constexpr uint64_t kSilent = ~uint64_t{0};
  uint64_t* at_;
  uint64_t seen_ = kSilent;  ///< of a watched one, what was taken last
  void (*call_)(void*) = nullptr;
  void* of_ = nullptr;
  Watchpoint watchpoint_;
};

}  // namespace vireo::softnic
