// The running kernel's version, where its behaviour cannot be asked for. Owner: none. Thread: any.
#pragma once

#include <sys/utsname.h>

#include <cstdlib>

namespace vireo::xdp {

/// 6018 for Linux 6.18.
inline unsigned kernel_version() noexcept {
  static const unsigned version = [] {
    utsname u{};
    uname(&u);
    char* end = u.release;
    const unsigned long major = std::strtoul(end, &end, 10);
    const unsigned long minor = *end == '.' ? std::strtoul(end + 1, nullptr, 10) : 0;
    return static_cast<unsigned>(major * 1000 + minor);
  }();
  return version;
}

}  // namespace vireo::xdp
