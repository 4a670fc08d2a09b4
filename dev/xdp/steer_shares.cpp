#include "dev/xdp/steer_shares.h"

#include <algorithm>
#include <array>
#include <bit>

#include "dev/xdp/steer_arrays.h"

namespace vireo::xdp {
namespace {

static_assert(STEER_MEMBERS <= STEER_BUCKETS, "each sharer has a bucket at least");

uint64_t member_bit(unsigned slot) { return uint64_t{1} << slot; }

unsigned end_of(uint64_t value) { return static_cast<uint32_t>(value) % STEER_SHARED_ENDS; }

uint64_t value_of(unsigned first, unsigned end) { return STEER_SHARED | STEER_VALUE(first, end); }

/// The buckets of a shared end, which the program reads meanwhile.
class Buckets {
 public:
  explicit Buckets(uint8_t* at) : at_(at) {
    for (unsigned b = 0; b < STEER_BUCKETS; ++b) {
      const uint8_t sharer = std::atomic_ref(at_[b]).load(std::memory_order_relaxed);
      owner_[b] = sharer == 0 ? kNobody : sharer - 1U;
      if (owner_[b] < STEER_MEMBERS) ++count_[owner_[b]];
    }
  }
  /// Buckets of others are nobody's from now on.
  void keep_only(uint64_t members) {
    for (unsigned& o : owner_)
      if (o >= STEER_MEMBERS || (members & member_bit(o)) == 0) o = kNobody;
  }
  /// Deals them out so that no member has two more than another.
  void deal(uint64_t members) {
    for (unsigned& o : owner_)
      if (o == kNobody) ++count_[o = fewest(members)];
    for (;;) {
      const unsigned from = most(members), to = fewest(members);
      if (count_[from] - count_[to] < 2) return;
      *std::ranges::find(owner_, from) = to;
      --count_[from];
      ++count_[to];
    }
  }
  void write() const {
    for (unsigned b = 0; b < STEER_BUCKETS; ++b) {
      const auto sharer = static_cast<uint8_t>(owner_[b] == kNobody ? 0 : owner_[b] + 1);
      if (at_[b] != sharer) std::atomic_ref(at_[b]).store(sharer, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr unsigned kNobody = STEER_MEMBERS;

  template <class Better>
  unsigned best(uint64_t members, Better&& is_better) const {
    auto best = static_cast<unsigned>(std::countr_zero(members));
    for (; members != 0; members &= members - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(members));
      if (is_better(count_[slot], count_[best])) best = slot;
    }
    return best;
  }
  unsigned fewest(uint64_t members) const { return best(members, std::less<>()); }
  unsigned most(uint64_t members) const { return best(members, std::greater<>()); }

  uint8_t* const at_;
  std::array<unsigned, STEER_BUCKETS> owner_{};  ///< slot, or kNobody
  std::array<unsigned, STEER_MEMBERS> count_{};
};

}  // namespace

std::atomic<uint64_t>& SteerShares::members_of(unsigned end) const noexcept {
  return ports_.counts().sharers[end];
}

/// A bucket changes hands only if it must: a SYN that is sent again finds who had the first.
void SteerShares::spread(unsigned end, uint64_t members) noexcept {
  Buckets buckets(ports_.arrays().sharers[end]);
  buckets.keep_only(members);
  if (members != 0) buckets.deal(members);
  buckets.write();
  steer_copies& copies = ports_.arrays().copies[end];
  std::atomic_ref(copies.members).store(members, std::memory_order_release);
  std::atomic_ref(copies.with_kernel).fetch_and(members, std::memory_order_release);
}

void SteerShares::want_kernel(unsigned end, unsigned slot) noexcept {
  std::atomic_ref(ports_.arrays().copies[end].with_kernel)
      .fetch_or(member_bit(slot), std::memory_order_release);
}

/// Makes a sharer the first, if the one named in the rule has left.
void SteerShares::appoint(const SteerRule& rule, uint64_t value) noexcept {
  const uint64_t members = members_of(end_of(value)).load(std::memory_order_relaxed);
  if (members == 0 || has(value, slot_of(value))) return;
  const auto first = static_cast<unsigned>(std::countr_zero(members));
  tables_.replace(rule, value_of(first, end_of(value)));
}

bool SteerShares::has(uint64_t value, unsigned slot) const noexcept {
  return (members_of(end_of(value)).load(std::memory_order_relaxed) & member_bit(slot)) != 0;
}

Result<void> SteerShares::add(const SteerRule& rule, unsigned slot, How how) {
  const auto value = tables_.find(rule);
  if (!value) return start(rule, slot, how);
  if (!STEER_IS_SHARED(*value)) {
    const bool is_ours = slot_of(*value) == slot;
    if (is_ours || how == kSpread || !tables_.erase(rule))
      return fail(is_ours ? EEXIST : EBUSY, "flow is steered already");
    ports_.removed(rule);
    return start(rule, slot, how);
  }
  if (has(*value, slot)) return fail(EEXIST, "flow is shared already");
  if (how == kCopies) want_kernel(end_of(*value), slot);
  const uint64_t others =
      members_of(end_of(*value)).fetch_or(member_bit(slot), std::memory_order_relaxed);
  spread(end_of(*value), others | member_bit(slot));
  return {};
}

/// The members' bits are the first to be written, and in forget() the last: while there is a rule,
/// its number is not free.
Result<void> SteerShares::start(const SteerRule& rule, unsigned slot, How how) {
  unsigned end = 0;
  while (end < STEER_SHARED_ENDS && members_of(end).load(std::memory_order_relaxed) != 0) ++end;
  if (end == STEER_SHARED_ENDS || ports_.is_full(rule))
    return fail(ENOSPC, "steering table is full");
  const uint64_t value = value_of(slot, end);
  members_of(end).store(member_bit(slot), std::memory_order_relaxed);
  spread(end, member_bit(slot));
  if (how == kCopies) want_kernel(end, slot);
  if (auto ok = tables_.insert(rule, value); !ok) {
    forget(value);
    return ok;
  }
  ports_.added(rule, value);
  return {};
}

bool SteerShares::leave(const SteerRule& rule, uint64_t value, unsigned slot) noexcept {
  std::atomic<uint64_t>& members = members_of(end_of(value));
  if (members.load(std::memory_order_relaxed) == member_bit(slot)) return false;
  const uint64_t others =
      members.fetch_and(~member_bit(slot), std::memory_order_relaxed) & ~member_bit(slot);
  spread(end_of(value), others);
  appoint(rule, value);
  return true;
}

void SteerShares::forget(uint64_t value) noexcept {
  spread(end_of(value), 0);
  members_of(end_of(value)).store(0, std::memory_order_relaxed);
}

void SteerShares::rebuild(std::span<const SharedRule> rules) noexcept {
  std::array<bool, STEER_SHARED_ENDS> has_rule{};
  for (const auto& [rule, value] : rules) {
    has_rule[end_of(value)] = true;
    spread(end_of(value), members_of(end_of(value)).load(std::memory_order_relaxed));
    appoint(rule, value);
  }
  for (unsigned end = 0; end < STEER_SHARED_ENDS; ++end)
    if (!has_rule[end] && members_of(end).load(std::memory_order_relaxed) != 0)
      forget(value_of(0, end));
}

}  // namespace vireo::xdp
