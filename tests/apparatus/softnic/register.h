// A doorbell register: what the program stores there, the device sees when it looks.
// Owner: the ring whose register it is. Thread: the program stores; all else is the holder's of the
// port's lock.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>

#include "tests/apparatus/softnic/doorbell_page.h"

namespace vireo::softnic {

class Register {
 public:
  /// `at` is the device's side of a page.
  explicit Register(std::byte* at) : at_(reinterpret_cast<uint64_t*>(at)) {}

  /// @return true: it was written; `v` is what, in host order.
  bool take(uint64_t& v) {
    if (__atomic_load_n(at_, __ATOMIC_RELAXED) == kSilent) return false;
    v = be64toh(__atomic_exchange_n(at_, kSilent, __ATOMIC_ACQUIRE));
    return true;
  }
  /// What was written is forgotten.
  void clear() { __atomic_store_n(at_, kSilent, __ATOMIC_RELEASE); }
  std::byte* data() const { return reinterpret_cast<std::byte*>(at_); }

 private:
  static constexpr uint64_t kSilent = ~uint64_t{0};
  uint64_t* at_;
};

}  // namespace vireo::softnic
