// Neighbour requests from engines to the helper: a bounded ring, several writers, one reader. Each
// cell has a turn number: even laps free, odd laps full; a writer claims a cell by advancing
// `tail_`.
// Owner: the mirror. Thread: push() any, pop() the helper. Neither waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "core/address.h"
#include "core/types.h"

namespace vireo::net {

struct Kick {
  IfIndex ifindex;
  IpAddr addr;
  bool operator==(const Kick&) const = default;
};

class KickQueue {
 public:
  KickQueue() {
    for (uint32_t i = 0; i < kCells; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }
  /// @return false: full.
  bool push(const Kick& k) noexcept {
    uint32_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& c = cells_[at % kCells];
      const auto ahead = static_cast<int32_t>(c.turn.load(std::memory_order_acquire) -
                                              at);  // pairs with pop()'s release
      if (ahead < 0) return false;
      if (ahead == 0 && tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        c.kick = k;
        c.turn.store(at + 1, std::memory_order_release);  // pairs with pop()'s acquire
        return true;
      }
      if (ahead > 0) at = tail_.load(std::memory_order_relaxed);
    }
  }
  std::optional<Kick> pop() noexcept {
    Cell& c = cells_[head_ % kCells];
    if (c.turn.load(std::memory_order_acquire) != head_ + 1)
      return std::nullopt;  // pairs with push()'s release
    const Kick k = c.kick;
    c.turn.store(head_ + kCells, std::memory_order_release);  // pairs with push()'s acquire
    ++head_;
    return k;
  }

 private:
  static constexpr uint32_t kCells = 256;
  struct Cell {
    std::atomic<uint32_t> turn;
    Kick kick;
  };
  std::array<Cell, kCells> cells_;
  alignas(64) std::atomic<uint32_t> tail_{0};
  alignas(64) uint32_t head_ = 0;
};

}  // namespace vireo::net
