// Rings of io_uring(7) made by liburing as a shared library. By libc's syscall(2) (Rust, libuv):
// calls_syscall.cpp.
#include <sys/types.h>

#include "stack/preload/note_ring.h"
#include "stack/preload/real.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

struct io_uring;
struct io_uring_params;

extern "C" {

VIREO_EXPORT int io_uring_setup(unsigned entries, io_uring_params* p) {
  return note_ring(real().io_uring_setup(entries, p));
}
VIREO_EXPORT int io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
  return note_ring(real().io_uring_queue_init(entries, ring, flags));
}
VIREO_EXPORT int io_uring_queue_init_params(unsigned entries, io_uring* ring, io_uring_params* p) {
  return note_ring(real().io_uring_queue_init_params(entries, ring, p));
}
VIREO_EXPORT int io_uring_queue_init_mem(unsigned entries, io_uring* ring, io_uring_params* p,
                                         void* buffer, size_t bytes) {
  return note_ring(real().io_uring_queue_init_mem(entries, ring, p, buffer, bytes));
}

}  // extern "C"
