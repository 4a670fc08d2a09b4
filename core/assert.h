// A bug is an assertion: it names the place and ends the process. Expected failures are Results.
#pragma once

namespace vireo {
[[noreturn]] void assertion_failed(const char* what, const char* file, int line) noexcept;
}

#define VIREO_ASSERT(cond) \
  (__builtin_expect(!!(cond), 1) ? (void)0 : ::vireo::assertion_failed(#cond, __FILE__, __LINE__))

#ifdef VIREO_DEBUG
#define VIREO_DEBUG_ASSERT(cond) VIREO_ASSERT(cond)
#else
#define VIREO_DEBUG_ASSERT(cond) ((void)0)
#endif
