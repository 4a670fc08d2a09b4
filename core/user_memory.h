// Probes the program's memory, so that a bad pointer gives EFAULT instead of ending the program
// (errno(3)). A probe is one instruction that accesses the memory. A table has for each probe the
// address at which to continue if it faults, like the kernel's extable. It is used by the handler
// of SIGSEGV and SIGBUS, which the program that links this must install. Without that handler a bad
// pointer is a fault, as in any libc function. So is memory that another thread unmaps between a
// probe and the copy after it; therefore probes are placed right before copies.
// Owner: none. Thread: any; resume_after_probe() is for signal handlers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vireo {

/// If the thread of this ucontext_t faulted in a probe, makes it continue at the probe's exit when
/// the handler returns. @return false: another fault, nothing was done.
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

// An operand for the address that tells the compiler nothing about the pointer.
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
/// Does not change the byte, unless another thread writes it at the same time.
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

/// As can_write_byte(), safe while other threads write it.
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

/// Smallest page size of supported processors.
inline constexpr size_t kProbedPage = 4096;

bool can_read_pages(const void* p, size_t n) noexcept;
bool can_write_pages(void* p, size_t n) noexcept;
bool can_write_shared_pages(void* p, size_t n) noexcept;

}  // namespace detail

/// True if `n` bytes (n > 0) can be read. Two instructions up to a page.
[[gnu::always_inline]] inline bool is_readable(const void* p, size_t n) noexcept {
  if (n > detail::kProbedPage) [[unlikely]]
    return detail::can_read_pages(p, n);
  return detail::can_read_byte(p) &&
         detail::can_read_byte(static_cast<const std::byte*>(p) + n - 1);
}
/// True if they can be written. The caller writes them next.
[[gnu::always_inline]] inline bool is_writable(void* p, size_t n) noexcept {
  if (n > detail::kProbedPage) [[unlikely]]
    return detail::can_write_pages(p, n);
  return detail::can_write_byte(p) && detail::can_write_byte(static_cast<std::byte*>(p) + n - 1);
}
/// As is_writable(), for memory that other threads may write at the same time without losing their
/// writes: for calls that write only a part of it, and later.
inline bool is_writable_shared(void* p, size_t n) noexcept {
  return detail::can_write_shared_pages(p, n);
}
/// The same for an object; false for null.
template <class T>
[[gnu::always_inline]] inline bool is_readable(const T* p) noexcept {
  return is_readable(p, sizeof *p);
}
template <class T>
[[gnu::always_inline]] inline bool is_writable(T* p) noexcept {
  return is_writable(p, sizeof *p);
}

}  // namespace vireo
