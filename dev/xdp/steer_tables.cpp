#include "dev/xdp/steer_tables.h"

#include <bpf/bpf.h>

#include <cstring>

namespace vireo::xdp {
namespace {

/// Steps of an iteration for each entry that the table has room for. An entry that is removed while
/// it is the current one starts the iteration anew.
constexpr uint64_t kRounds = 4;

template <class Key, class Visit>
bool for_each_key(int map, const Visit& visit) {
  bpf_map_info info{};
  uint32_t length = sizeof info;
  if (bpf_obj_get_info_by_fd(map, &info, &length) != 0) return false;
  uint64_t steps = kRounds * (uint64_t{info.max_entries} + 1);
  Key key;
  const Key* last = nullptr;
  while (steps-- > 0) {
    Key next;
    if (bpf_map_get_next_key(map, last, &next) != 0) return true;
    uint64_t value = 0;
    if (bpf_map_lookup_elem(map, &next, &value) == 0) visit(next, value);
    key = next;
    last = &key;
  }
  return false;
}

struct AddressKey {
  union {
    steer_local4 v4;
    steer_local6 v6;
  };
};

AddressKey key_of(const IpAddr& a) {
  AddressKey k;
  std::memset(&k, 0, sizeof k);
  if (a.is_v4())
    k.v4.local = a.as_v4().raw();
  else
    std::memcpy(k.v6.local, a.bytes().data(), sizeof k.v6.local);
  return k;
}

}  // namespace

int SteerTables::of(steer_kind kind) const {
  switch (kind) {
    case STEER_EXACT4:
      return exact4;
    case STEER_EXACT6:
      return exact6;
    case STEER_LOCAL4:
    case STEER_WILD4:
      return local4;
    case STEER_LOCAL6:
    case STEER_WILD6:
      break;
  }
  return local6;
}

Result<void> SteerTables::insert(const SteerRule& rule, uint64_t value) const {
  if (bpf_map_update_elem(of(rule.kind), &rule.exact4, &value, BPF_NOEXIST) == 0) return {};
  const int code = errno;
  if (code == EEXIST) return fail(EEXIST, "flow is steered already");
  if (code == E2BIG || code == ENOMEM) return fail(ENOSPC, "steering table is full");
  return fail(code, "steering table");
}

void SteerTables::replace(const SteerRule& rule, uint64_t value) const noexcept {
  bpf_map_update_elem(of(rule.kind), &rule.exact4, &value, BPF_EXIST);
}

bool SteerTables::erase(const SteerRule& rule) const noexcept {
  return bpf_map_delete_elem(of(rule.kind), &rule.exact4) == 0;
}

std::optional<uint64_t> SteerTables::find(const SteerRule& rule) const noexcept {
  uint64_t value = 0;
  if (bpf_map_lookup_elem(of(rule.kind), &rule.exact4, &value) != 0) return std::nullopt;
  return value;
}

bool SteerTables::for_each(const std::function<void(const SteerRule&, uint64_t)>& visit) const {
  const auto rule = [&](const auto& key, uint64_t value) {
    if (key.local_port != 0) visit(rule_of(key), value);
  };
  return for_each_key<steer_exact4>(exact4, rule) && for_each_key<steer_exact6>(exact6, rule) &&
         for_each_key<steer_local4>(local4, rule) && for_each_key<steer_local6>(local6, rule);
}

void SteerTables::insert_address(const IpAddr& a) const noexcept {
  const AddressKey k = key_of(a);
  const uint64_t value = 0;
  bpf_map_update_elem(a.is_v4() ? local4 : local6, &k, &value, BPF_ANY);
}

void SteerTables::erase_address(const IpAddr& a) const noexcept {
  const AddressKey k = key_of(a);
  bpf_map_delete_elem(a.is_v4() ? local4 : local6, &k);
}

void SteerTables::for_each_address(bool v4, const std::function<void(const IpAddr&)>& visit) const {
  if (v4)
    for_each_key<steer_local4>(local4, [&](const steer_local4& k, uint64_t) {
      if (k.local_port == 0) visit(IpAddr::v4(std::bit_cast<be32>(k.local)));
    });
  else
    for_each_key<steer_local6>(local6, [&](const steer_local6& k, uint64_t) {
      if (k.local_port == 0) visit(IpAddr::v6(k.local));
    });
}

}  // namespace vireo::xdp
