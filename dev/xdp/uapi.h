// AF_XDP constants newer than the installed kernel headers, and raw system calls: in a preloaded
// library the libc names are our own, and the kick must not change errno. Source: linux/if_xdp.h of
// Linux 6.6.
#pragma once

#include <linux/if_xdp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstdint>

namespace vireo::xdp {

inline constexpr uint16_t kBindUseSg = 1U << 4;  ///< XDP_USE_SG: packets of several descriptors
inline constexpr uint32_t kPacketContinues = 1U << 0;  ///< XDP_PKT_CONTD in xdp_desc.options
inline constexpr uint32_t kMaxDescriptors =
    17;  ///< MAX_SKB_FRAGS of the kernel, the least it can be built with
inline constexpr uint32_t kKernelHeadroom =
    256;  ///< XDP_PACKET_HEADROOM: kept free before a received frame

#ifndef SO_INCOMING_NAPI_ID
#define SO_INCOMING_NAPI_ID 56
#endif
#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#endif
#ifndef SO_BUSY_POLL_BUDGET
#define SO_BUSY_POLL_BUDGET 70
#endif

/// A system call with the kernel's return value: the result, or -errno.
inline long sys(long nr, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                long f = 0) noexcept {
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

inline long set_option(int fd, int level, int name, const void* value, unsigned length) noexcept {
  return sys(SYS_setsockopt, fd, level, name, reinterpret_cast<long>(value), length);
}

inline long get_option(int fd, int level, int name, void* value, unsigned* length) noexcept {
  return sys(SYS_getsockopt, fd, level, name, reinterpret_cast<long>(value),
             reinterpret_cast<long>(length));
}

}  // namespace vireo::xdp
