// The table as a whole: a row by its level and name.
#include "stack/sock/options/table.h"

#include "stack/sock/options/rows.h"
#include "stack/sock/stamps.h"

namespace vireo {
namespace {

constexpr const OptionLevel* kLevels[] = {&kSocketLevel, &kIpLevel, &kIpv6Level, &kTcpLevel,
                                          &kUdpLevel};
constexpr OptionId kIdsOfLevel = kMaxOptionName + 1;

}  // namespace

std::span<const OptionLevel* const> option_levels() { return kLevels; }

const SocketOption* find_option(int level, int name) {
  if (name < 0 || name > kMaxOptionName) return nullptr;
  for (const OptionLevel* l : kLevels) {
    if (l->level != level) continue;
    const uint8_t place = l->places[static_cast<size_t>(name)];
    return place == OptionLevel::kNone ? nullptr : &l->rows[place];
  }
  return nullptr;
}

OptionId id_of(const SocketOption* option) {
  for (OptionId l = 0; l < std::size(kLevels); ++l)
    if (option != nullptr && kLevels[l]->level == option->level)
      return static_cast<OptionId>(l * kIdsOfLevel + option->name);
  return kNoOption;
}

const SocketOption* option_of(OptionId id) {
  if (id / kIdsOfLevel >= std::size(kLevels)) return nullptr;
  return find_option(kLevels[id / kIdsOfLevel]->level, id % kIdsOfLevel);
}

bool SocketOption::leaves_with(int value, socklen_t len, bool is_udp) const {
  const OptionClass its = of(is_udp);
  if (its == OptionClass::kOurs || its == OptionClass::kKernels) return false;
  switch (leaves) {
    case LeavesIf::kSet:
      return true;
    case LeavesIf::kOn:
      return value != 0;
    case LeavesIf::kNotNegative:
      return value >= 0;
    case LeavesIf::kNotEmpty:
      return len != 0;
    case LeavesIf::kUnknownStamps:
      return (static_cast<unsigned>(value) & kStampsOfKernel) != 0;
  }
  __builtin_unreachable();
}

}  // namespace vireo
