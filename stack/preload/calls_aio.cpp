// libc's aio(7), and libaio's io_submit(2) if the program uses it. By syscall(2):
// calls_syscall.cpp.
#include "stack/preload/aio.h"

#include <aio.h>
#include <dlfcn.h>
#include <linux/aio_abi.h>

#include <cerrno>

#include "core/user_memory.h"
#include "stack/preload/process_stack.h"
#include "stack/preload/real.h"
#include "stack/preload/signals.h"
#include "stack/sock/calls.h"

struct io_context;

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

namespace {

/// Moves `fd` to the kernel. @return false: it stays carried.
bool give(int fd) noexcept {
  const Handle h = fd_table().find(fd);
  if (!h) return true;
  const int saved = errno;
  Inside inside;
  const bool is_given =
      sock::hand_over(h, {Carriage::kInherited, 0, "aio"}).has_value() || !h->is_carried();
  errno = saved;
  return is_given;
}

/// The next library's function of that name.
template <class F>
F next(const char* name) noexcept {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

bool give(const aiocb* block) noexcept {
  if (process_stack() == nullptr || !is_readable(block) || give(block->aio_fildes)) return true;
  errno = EINVAL;
  return false;
}

}  // namespace

long preload::give_to_aio(long n, iocb* const* list) noexcept {
  if (process_stack() == nullptr) return n;
  for (long i = 0; i < n; ++i) {
    if (!is_readable(&list[i]) || !is_readable(list[i])) return n;  // the kernel returns EFAULT
    if (!give(static_cast<int>(list[i]->aio_fildes))) return i;
  }
  return n;
}

extern "C" {

VIREO_EXPORT int aio_read(aiocb* block) noexcept {
  static const auto libcs = next<decltype(&::aio_read)>("aio_read");
  return give(block) ? libcs(block) : -1;
}
VIREO_EXPORT int aio_write(aiocb* block) noexcept {
  static const auto libcs = next<decltype(&::aio_write)>("aio_write");
  return give(block) ? libcs(block) : -1;
}
VIREO_EXPORT int lio_listio(int mode, aiocb* const* list, int n, sigevent* event) noexcept {
  for (int i = 0; process_stack() != nullptr && i < n && is_readable(&list[i]); ++i)
    if (!give(list[i])) return -1;
  static const auto libcs = next<decltype(&::lio_listio)>("lio_listio");
  return libcs(mode, list, n, event);
}

// The same with large-file support.
static_assert(sizeof(aiocb) == sizeof(aiocb64));
VIREO_EXPORT int aio_read64(aiocb64* block) noexcept {
  return aio_read(reinterpret_cast<aiocb*>(block));
}
VIREO_EXPORT int aio_write64(aiocb64* block) noexcept {
  return aio_write(reinterpret_cast<aiocb*>(block));
}
VIREO_EXPORT int lio_listio64(int mode, aiocb64* const* list, int n, sigevent* event) noexcept {
  return lio_listio(mode, reinterpret_cast<aiocb* const*>(list), n, event);
}

/// @return how many, or a negative errno.
VIREO_EXPORT int io_submit(io_context* context, long n, iocb** list) noexcept {
  static const auto libaios = next<int (*)(io_context*, long, iocb**)>("io_submit");
  if (libaios == nullptr) return -ENOSYS;
  const long most = give_to_aio(n, list);
  return most == 0 && n > 0 ? -EINVAL : libaios(context, most, list);
}

}  // extern "C"
