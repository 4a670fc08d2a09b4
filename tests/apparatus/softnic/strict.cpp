#include "tests/apparatus/softnic/strict.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vireo::softnic {

bool is_lenient() noexcept {
  const char* value = std::getenv("SOFTNIC_LENIENT");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

void broken_rule(const char* format, ...) noexcept {
  if (is_lenient()) return;
  va_list arguments;
  va_start(arguments, format);
  std::fputs("softnic: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputs("\n", stderr);
  va_end(arguments);
  std::abort();
}

}  // namespace vireo::softnic
