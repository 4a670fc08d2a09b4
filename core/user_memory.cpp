#include "core/user_memory.h"

#include <ucontext.h>

#include <type_traits>

namespace vireo {
namespace {

/// Offsets relative to their own addresses.
struct Probe {
  int32_t at;
  int32_t go_on;
};

}  // namespace

// Defined by the linker: bounds of the section of all probes.
extern "C" {
[[gnu::visibility("hidden")]] extern const Probe __start_vireo_probes[];
[[gnu::visibility("hidden")]] extern const Probe __stop_vireo_probes[];
}

bool resume_after_probe(void* ucontext) noexcept {
  mcontext_t& m = static_cast<ucontext_t*>(ucontext)->uc_mcontext;
#if defined(__x86_64__)
  auto& pc = m.gregs[REG_RIP];
#else
  auto& pc = m.pc;
#endif
  const auto to = [](const int32_t& distance) {
    return reinterpret_cast<uintptr_t>(&distance) + static_cast<uintptr_t>(intptr_t{distance});
  };
  for (const Probe* p = __start_vireo_probes; p != __stop_vireo_probes; ++p) {
    if (to(p->at) != static_cast<uintptr_t>(pc)) continue;
    pc = static_cast<std::remove_reference_t<decltype(pc)>>(to(p->go_on));
    return true;
  }
  return false;
}

namespace detail {
namespace {

template <class Byte, class Can>
bool can_pages(Byte* p, size_t n, Can&& can) noexcept {
  for (size_t at = 0; at < n; at += kProbedPage)
    if (!can(p + at)) return false;
  return can(p + n - 1);
}

}  // namespace

bool can_read_pages(const void* p, size_t n) noexcept {
  return can_pages(static_cast<const std::byte*>(p), n, [](auto* b) { return can_read_byte(b); });
}

bool can_write_pages(void* p, size_t n) noexcept {
  return can_pages(static_cast<std::byte*>(p), n, [](auto* b) { return can_write_byte(b); });
}

bool can_write_shared_pages(void* p, size_t n) noexcept {
  return can_pages(static_cast<std::byte*>(p), n, [](auto* b) { return can_write_shared_byte(b); });
}

}  // namespace detail
}  // namespace vireo
