// Probes the program's memory: a bad pointer is to be EFAULT and not the end of the program
// (errno(3)). A probe is one instruction that touches the memory. A table says for each probe where
// to go on if it faults, as the kernel's extable does; the handler of SIGSEGV and SIGBUS, which the
// program that links this has installed, looks there. Without that handler a bad pointer is a fault
// as in any function of libc. So is memory that another thread unmaps between a probe and the copy
// behind it, which is why probes stand right before copies.
// Owner: none. Thread: any; resume_after_probe() is for signal handlers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vireo {

/// The thread of this ucontext_t faulted in a probe: when the handler returns it goes on beside it.
/// @return false: some other fault, nothing was done.
bool resume_after_probe(void* ucontext) noexcept;

namespace detail {

// clang-format off
#define VIREO_PROBE_EXIT                      \
  "\n\t.pushsection vireo_probes, \"a?\"\n\t" \
  ".balign 4\n\t"                             \
  ".long 771b - .\n\t"                        \
  ".long %l[fault] - .\n\t"                   \
  ".popsection"
// clang-format on

// An address as the processor takes it, by which compilers conclude nothing of the pointer.
#if defined(__clang__)
#define VIREO_PROBED "%0"
#define VIREO_PROBED_AT(p) "m"(*static_cast<const char*>(p))
#else
#define VIREO_PROBED "%a0"
#define VIREO_PROBED_AT(p) "p"(p)
#endif

[[gnu::always_inline]] inline bool can_read_byte(const void* p) noexcept {
#if defined(__x86_64__)
  asm goto("771: cmpb $0, " VIREO_PROBED VIREO_PROBE_EXIT : : VIREO_PROBED_AT(p) : "cc" : fault);
#else
  asm goto("771: ldrb wzr, [%0]" VIREO_PROBE_EXIT : : "r"(p) : : fault);
#endif
  return true;
fault:
  return false;
}
/// Leaves it as it is, if no other thread writes it meanwhile.
[[gnu::always_inline]] inline bool can_write_byte(void* p) noexcept {
#if defined(__x86_64__)
  asm goto("771: orb $0, " VIREO_PROBED VIREO_PROBE_EXIT : : VIREO_PROBED_AT(p) : "cc" : fault);
#else
  if (!can_read_byte(p)) return false;
  asm goto("ldrb w16, [%0]\n771: strb w16, [%0]" VIREO_PROBE_EXIT : : "r"(p) : "x16" : fault);
#endif
  return true;
fault:
  return false;
}

/// As can_write_byte(), beside other threads that write it.
[[gnu::always_inline]] inline bool can_write_shared_byte(void* p) noexcept {
#if defined(__x86_64__)
  asm goto("771: lock orb $0, " VIREO_PROBED VIREO_PROBE_EXIT
           :
           : VIREO_PROBED_AT(p)
           : "cc"
           : fault);
  return true;
fault:
  return false;
#else
  return can_write_byte(p);
#endif
}

/// The least page of any processor we run on.
inline constexpr size_t kProbedPage = 4096;

bool can_read_pages(const void* p, size_t n) noexcept;
bool can_write_pages(void* p, size_t n) noexcept;
bool can_write_shared_pages(void* p, size_t n) noexcept;

}  // namespace detail

/// May `n` bytes, not none, be read? Two instructions for what a page holds.
[[gnu::always_inline]] inline bool is_readable(const void* p, size_t n) noexcept {
  if (n > detail::kProbedPage) [[unlikely]]
    return detail::can_read_pages(p, n);
  return detail::can_read_byte(p) &&
         detail::can_read_byte(static_cast<const std::byte*>(p) + n - 1);
}
/// May they be written, which the caller is about to do?
[[gnu::always_inline]] inline bool is_writable(void* p, size_t n) noexcept {
  if (n > detail::kProbedPage) [[unlikely]]
    return detail::can_write_pages(p, n);
  return detail::can_write_byte(p) && detail::can_write_byte(static_cast<std::byte*>(p) + n - 1);
}
/// As is_writable(), of what other threads may write meanwhile, which must not be lost: at the
/// entry of calls that only change a part of it, and that later.
inline bool is_writable_shared(void* p, size_t n) noexcept {
  return detail::can_write_shared_pages(p, n);
}
/// The same of an object; null is none.
template <class T>
[[gnu::always_inline]] inline bool is_readable(const T* p) noexcept {
  return is_readable(p, sizeof *p);
}
template <class T>
[[gnu::always_inline]] inline bool is_writable(T* p) noexcept {
  return is_writable(p, sizeof *p);
}

}  // namespace vireo
