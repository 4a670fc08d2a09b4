// Memory barriers between the processor and the device. Three cases, as the memory is of two kinds:
// rings and doorbell records are ordinary memory that the device reads and writes coherently; a
// doorbell register is the device's, and mapped write-combining.
//
// On x86 stores reach ordinary memory in order and loads are not reordered with loads, so there the
// first two only hold the compiler back. A write-combining store is ordered with nothing and may
// stay in its buffer for long. Arm orders none of these by itself.
// Owner: none. Thread: any. Source: rdma-core's util/udma_barrier.h for which barrier is what;
// Intel SDM vol. 3 §12.3 (write combining), Arm ARM B2.3.
#pragma once

#include <atomic>

namespace vireo::mlx5 {

/// Before a store that lets the device read what was written: into a doorbell record.
inline void publish_to_device() noexcept {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_release);
#elif defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// After a load that showed that the device has written: of an owner bit.
inline void acquire_from_device() noexcept {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_acquire);
#elif defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Between a doorbell record and the register: the device must not see the bell before the record.
/// And behind the register: what is combined goes out now, and two bells in their order.
inline void order_register_write() noexcept {
#if defined(__x86_64__)
  asm volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace vireo::mlx5
