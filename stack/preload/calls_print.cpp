// dprintf(3) and its variants: libc writes the text by an internal call, unseen by Vireo.
#include <dlfcn.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "stack/preload/real.h"
#include "stack/sock/calls.h"

using namespace vireo;           // NOLINT: the C names below live in no namespace
using namespace vireo::preload;  // NOLINT

namespace {

/// Writes all of it, as a libc stream does. @return bytes, or -1 and errno.
int write_all(int fd, const char* text, int n) {
  for (int done = 0; done < n;) {
    const ssize_t some = ::write(fd, text + done, static_cast<size_t>(n - done));
    if (some < 0) return -1;
    done += static_cast<int>(some);
  }
  return n;
}

/// Calls `format(buffer, size)`, which works as vsnprintf(3), once or twice.
template <class Format>
int print(int fd, Format&& format) {
  char small[1024];
  const int n = format(small, sizeof small);
  if (n < static_cast<int>(sizeof small)) return n < 0 ? n : write_all(fd, small, n);
  const std::unique_ptr<char, decltype(&std::free)> large(
      static_cast<char*>(std::malloc(static_cast<size_t>(n) + 1)), std::free);
  if (!large) return -1;
  (void)format(large.get(), static_cast<size_t>(n) + 1);
  return write_all(fd, large.get(), n);
}

}  // namespace

extern "C" {

int __vsnprintf_chk(char* to, size_t n, int flag, size_t room, const char* format, va_list v);

VIREO_EXPORT int vdprintf(int fd, const char* format, va_list v) {
  static const auto libcs = reinterpret_cast<decltype(&::vdprintf)>(::dlsym(RTLD_NEXT, "vdprintf"));
  if (!fd_table().find(fd)) return libcs(fd, format, v);
  return print(fd, [&](char* to, size_t n) {
    va_list again;
    va_copy(again, v);
    const int made = std::vsnprintf(to, n, format, again);
    va_end(again);
    return made;
  });
}
VIREO_EXPORT int __vdprintf_chk(int fd, int flag, const char* format, va_list v) {
  static const auto libcs = reinterpret_cast<int (*)(int, int, const char*, va_list)>(
      ::dlsym(RTLD_NEXT, "__vdprintf_chk"));
  if (!fd_table().find(fd)) return libcs(fd, flag, format, v);
  return print(fd, [&](char* to, size_t n) {
    va_list again;
    va_copy(again, v);
    const int made = __vsnprintf_chk(to, n, flag, n, format, again);
    va_end(again);
    return made;
  });
}
VIREO_EXPORT int dprintf(int fd, const char* format, ...) {
  va_list v;
  va_start(v, format);
  const int n = vdprintf(fd, format, v);
  va_end(v);
  return n;
}
VIREO_EXPORT int __dprintf_chk(int fd, int flag, const char* format, ...) {
  va_list v;
  va_start(v, format);
  const int n = __vdprintf_chk(fd, flag, format, v);
  va_end(v);
  return n;
}

}  // extern "C"
