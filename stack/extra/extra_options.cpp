// The values of SO_VMA_* lie in ExtraState; what they mean is read where it is used.
#include "stack/extra/extra_options.h"

#include <cstring>
#include <optional>

#include "core/user_memory.h"
#include "stack/sock/blocking.h"
#include "stack/sock/calls.h"
#include "stack/sock/extra_state.h"

namespace vireo::extra {
namespace {

constexpr uint32_t kNoFlowTag = (1U << 20) - 1;  ///< libvma's mark of none
constexpr uint64_t kBytesOfKbit = 125;

/// Changes the socket's ExtraState, under both of its locks.
template <class F>
Result<void> change(Handle h, F&& edit) {
  const LockGuard control(h->control);
  if (!h.is_alive()) return fail(EBADF, "setsockopt");
  ExtraState* const x = extra_of(*h.file);
  if (x == nullptr) return fail(ENOMEM, "setsockopt");
  Engine* const e = h->engine.load(std::memory_order_acquire);
  std::optional<EngineGuard> guard;
  if (e != nullptr) guard.emplace(*e);
  edit(*x);
  return {};
}
/// What it is now, a new one's if there is none.
Result<ExtraValues> values(Handle h) {
  const LockGuard control(h->control);
  if (!h.is_alive()) return fail(EBADF, "getsockopt");
  return h->extra == nullptr ? ExtraValues{} : h->extra->values;
}

/// nullopt: another length. Errors: EFAULT.
template <class T>
Result<T> read_value(const void* value, socklen_t len) {
  if (len != sizeof(T)) return fail(EINVAL, "setsockopt");
  if (!is_readable(value, sizeof(T))) return fail(EFAULT, "setsockopt");
  T v;
  std::memcpy(&v, value, sizeof v);
  return v;
}

Result<void> set_ring_logic(const vma_ring_alloc_logic_attr& a) {
  constexpr uint32_t kKnown = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY |
                              VMA_RING_ALLOC_MASK_RING_USER_ID | VMA_RING_ALLOC_MASK_RING_INGRESS |
                              VMA_RING_ALLOC_MASK_RING_ENGRESS;
  if ((a.comp_mask & kKnown) == 0) return fail(EINVAL, "ring logic");
  // No profile was ever added.
  if ((a.comp_mask & VMA_RING_ALLOC_MASK_RING_PROFILE_KEY) != 0) return fail(EINVAL, "ring logic");
  switch (a.ring_alloc_logic) {
    case RING_LOGIC_PER_INTERFACE:
    case RING_LOGIC_PER_IP:
    case RING_LOGIC_PER_SOCKET:
    case RING_LOGIC_PER_USER_ID:
    case RING_LOGIC_PER_THREAD:
    case RING_LOGIC_PER_CORE:
    case RING_LOGIC_PER_CORE_ATTACH_THREADS:
      return {};
    case RING_LOGIC_LAST:
      break;
  }
  return fail(EINVAL, "ring logic");
}

Result<void> set_rate(Handle h, const vma_rate_limit_t& limit) {
  const uint64_t rate = limit.rate == 0 ? UINT64_MAX : limit.rate * kBytesOfKbit;
  if (auto ok = sock::setsockopt(h, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate); !ok)
    return ok;
  return change(h, [&](ExtraState& x) {
    x.values.max_burst = limit.max_burst_sz;
    x.values.typical_packet = limit.typical_pkt_sz;
  });
}

Result<void> get_rate(Handle h, void* value) {
  uint64_t rate = 0;
  socklen_t n = sizeof rate;
  if (auto ok = sock::getsockopt(h, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &n); !ok) return ok;
  const auto v = values(h);
  if (!v) return std::unexpected(v.error());
  vma_rate_limit_t limit{};
  if (rate != UINT64_MAX) limit.rate = static_cast<uint32_t>(rate / kBytesOfKbit);
  limit.max_burst_sz = v->max_burst;
  limit.typical_pkt_sz = v->typical_packet;
  std::memcpy(value, &limit, sizeof limit);
  return {};
}

/// A UDP socket without a peer is shut, too (ENOTCONN).
Result<void> shut_receiving(Handle h) {
  auto done = sock::shutdown(h, SHUT_RD);
  if (!done && done.error().code == ENOTCONN && h->is_udp()) return {};
  return done;
}

}  // namespace

Result<void> set_option(Handle h, int name, const void* value, socklen_t len) {
  switch (name) {
    case SO_VMA_USER_DATA: {
      const auto v = read_value<uint64_t>(value, len);
      if (!v) return std::unexpected(v.error());
      return change(h, [&](ExtraState& x) { x.values.user_data = *v; });
    }
    case SO_VMA_FLOW_TAG: {
      const auto v = read_value<uint32_t>(value, len);
      if (!v) return std::unexpected(v.error());
      if (*v == 0 || *v == kNoFlowTag) return fail(EINVAL, "flow tag");
      return change(h, [&](ExtraState& x) { x.values.flow_tag = *v; });
    }
    case SO_VMA_RING_ALLOC_LOGIC: {
      const auto v = read_value<vma_ring_alloc_logic_attr>(value, len);
      if (!v) return std::unexpected(v.error());
      return set_ring_logic(*v);
    }
    case SO_VMA_SHUTDOWN_RX:
      return shut_receiving(h);
    case SO_MAX_PACING_RATE: {
      const auto v = read_value<vma_rate_limit_t>(value, len);
      if (!v) return std::unexpected(v.error());
      return set_rate(h, *v);
    }
    case SO_VMA_RING_USER_MEMORY:
      return fail(EOPNOTSUPP, "ring memory");
    default:
      return fail(ENOPROTOOPT, "setsockopt");
  }
}

Result<void> get_option(Handle h, int name, void* value, socklen_t* len) {
  const auto v = values(h);
  if (!v) return std::unexpected(v.error());
  const auto give = [&](const auto& what, bool must_fit_exactly) -> Result<void> {
    if (must_fit_exactly ? *len != sizeof what : *len < sizeof what)
      return fail(EINVAL, "getsockopt");
    std::memcpy(value, &what, sizeof what);
    *len = sizeof what;
    return {};
  };
  if (!is_writable(len)) return fail(EFAULT, "getsockopt");
  if (!is_writable(value, *len)) return fail(EFAULT, "getsockopt");
  switch (name) {
    case SO_VMA_USER_DATA:
      return give(v->user_data.value_or(static_cast<uint64_t>(h.fd)), true);
    case SO_VMA_FLOW_TAG:
      return give(v->flow_tag, false);
    case SO_MAX_PACING_RATE:
      return get_rate(h, value);
    default:
      return fail(ENOPROTOOPT, "getsockopt");
  }
}

}  // namespace vireo::extra
