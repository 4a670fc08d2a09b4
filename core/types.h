// Distinct integer types: an id of one kind does not convert to another.
// Owner: none (values). Thread: any.
#pragma once

#include <compare>
#include <cstdint>

namespace vireo {

/// An integer id of one kind. Tag is never defined.
template <class Tag, class Rep>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Rep v) : v_(v) {}
  constexpr Rep value() const { return v_; }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  Rep v_ = 0;
};

using EngineId = Id<struct EngineIdTag, uint16_t>;
using QueueId = Id<struct QueueIdTag, uint32_t>;
using IfIndex = Id<struct IfIndexTag, uint32_t>;  ///< kernel interface index, 0 = none
using FlowTag = Id<struct FlowTagTag, uint32_t>;  ///< index of a flow in its engine, 0 = none
using VlanId = Id<struct VlanIdTag, uint16_t>;    ///< IEEE 802.1Q VID, 0 = untagged

/// In a flow rule that distinguishes links: frames without a tag; 0 means any.
inline constexpr VlanId kUntagged{4096};

/// Bit-set operators for `enum class` flags: opt in with `template <> inline constexpr bool
/// kIsFlags<E> = true;`
template <class E>
inline constexpr bool kIsFlags = false;

template <class E>
concept Flags = kIsFlags<E>;

template <Flags E>
constexpr E operator|(E a, E b) {
  using U = __underlying_type(E);
  return static_cast<E>(static_cast<U>(a) | static_cast<U>(b));
}
template <Flags E>
constexpr E operator&(E a, E b) {
  using U = __underlying_type(E);
  return static_cast<E>(static_cast<U>(a) & static_cast<U>(b));
}
template <Flags E>
constexpr E operator~(E a) {
  using U = __underlying_type(E);
  return static_cast<E>(~static_cast<U>(a));
}
template <Flags E>
constexpr E& operator|=(E& a, E b) {
  return a = a | b;
}
template <Flags E>
constexpr E& operator&=(E& a, E b) {
  return a = a & b;
}
/// True if any bit of `bits` is set in `set`.
template <Flags E>
constexpr bool has(E set, E bits) {
  return static_cast<__underlying_type(E)>(set & bits) != 0;
}

}  // namespace vireo
