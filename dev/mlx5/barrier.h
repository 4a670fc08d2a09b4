// Memory barriers between the processor and the device. There are two kinds of memory: rings and
// doorbell records are ordinary memory that the device accesses coherently; a doorbell register is
// device memory, mapped write-combining. Hence three barriers.
//
// On x86, stores become visible in order and loads are not reordered with loads, so the first two
// only restrict the compiler. A write-combining store has no ordering and may stay in its buffer
// for long. Arm guarantees none of these orders.
// Owner: none. Thread: any. Source: rdma-core's util/udma_barrier.h for the choice of barriers;
// Intel SDM vol. 3 §12.3 (write combining), Arm ARM B2.3.
#pragma once

#include <atomic>

namespace vireo::mlx5 {

/// Before a store to a doorbell record, which lets the device read what was written.
inline void publish_to_device() noexcept {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_release);
#elif defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// After a load of an owner bit that showed that the device has written.
inline void acquire_from_device() noexcept {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_acquire);
#elif defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Between doorbell record and register, so that the device sees the record first. Also after the
/// register write: flushes the write-combining buffer and keeps two doorbells in order.
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
