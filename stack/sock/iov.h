// I/O vectors of a call (readv(2), sendmsg(2)): iteration, and copies to one.
// Owner: the call. Thread: its own.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

#include "core/user_memory.h"

namespace vireo {

/// Bytes of an I/O vector.
inline size_t iov_bytes(std::span<const iovec> iov) noexcept {
  size_t n = 0;
  for (const iovec& v : iov) n += v.iov_len;
  return n;
}

/// Whether all pieces are readable memory.
inline bool is_readable(std::span<const iovec> iov) noexcept {
  for (const iovec& v : iov)
    if (v.iov_len != 0 && !is_readable(v.iov_base, v.iov_len)) return false;
  return true;
}

/// Iterates over an I/O vector.
class IovCursor {
 public:
  explicit IovCursor(std::span<const iovec> iov) noexcept : iov_(iov) { skip_empty(); }
  bool done() const noexcept { return at_ == iov_.size(); }
  /// The rest of the current piece.
  std::span<std::byte> piece() const noexcept {
    return {static_cast<std::byte*>(iov_[at_].iov_base) + offset_, iov_[at_].iov_len - offset_};
  }
  /// Advances by `n` bytes, which lie within the vector.
  void advance(size_t n) noexcept {
    while (n != 0) {
      const size_t step = std::min(n, iov_[at_].iov_len - offset_);
      offset_ += step;
      n -= step;
      skip_empty();
    }
  }
  /// Writes the remaining pieces to `out`. @return how many.
  size_t rest(std::span<iovec> out) const noexcept {
    size_t n = 0;
    size_t offset = offset_;
    for (size_t i = at_; i < iov_.size() && n < out.size(); ++i, offset = 0)
      out[n++] = {static_cast<std::byte*>(iov_[i].iov_base) + offset, iov_[i].iov_len - offset};
    return n;
  }

 private:
  void skip_empty() noexcept {
    while (at_ < iov_.size() && offset_ == iov_[at_].iov_len) {
      ++at_;
      offset_ = 0;
    }
  }
  std::span<const iovec> iov_;
  size_t at_ = 0;
  size_t offset_ = 0;
};

/// copy_out() across pieces, or with none left.
inline std::optional<size_t> copy_out_in_parts(IovCursor& to,
                                               std::span<const std::byte> data) noexcept {
  IovCursor at = to;
  size_t done = 0;
  while (done < data.size() && !at.done()) {
    const auto room = at.piece();
    const size_t n = std::min(room.size(), data.size() - done);
    if (!is_writable(room.data(), n)) [[unlikely]]
      return std::nullopt;
    std::memcpy(room.data(), data.data() + done, n);
    at.advance(n);
    done += n;
  }
  to = at;
  return done;
}
/// Copies `data` to the cursor, as far as there is room. @return bytes copied; nullopt: EFAULT, and
/// the cursor has not moved, because Linux does not count a partly copied piece.
[[gnu::always_inline]] inline std::optional<size_t> copy_out(
    IovCursor& to, std::span<const std::byte> data) noexcept {
  const size_t n = data.size();
  if (to.done()) return 0;
  const auto room = to.piece();
  if (n - 1 >= room.size()) [[unlikely]]  // or n is 0
    return copy_out_in_parts(to, data);
  if (!is_writable(room.data(), n)) [[unlikely]]
    return std::nullopt;
  std::memcpy(room.data(), data.data(), n);
  to.advance(n);
  return n;
}

}  // namespace vireo
