// Expected failures are values: an errno and the step that failed.
// Owner: none (values). Thread: any.
#pragma once

#include <cerrno>
#include <expected>

namespace vireo {

/// Why something was refused: `code` is an errno of Linux, `where` a static string that names the
/// step.
struct Err {
  int code = 0;
  const char* where = "";
};

template <class T>
using Result = std::expected<T, Err>;

/// The failure side of a Result: `return fail(ENOBUFS, "arena");`
inline std::unexpected<Err> fail(int code, const char* where) {
  return std::unexpected(Err{code, where});
}
/// As above, with the current errno.
inline std::unexpected<Err> fail_errno(const char* where) {
  return std::unexpected(Err{errno, where});
}

}  // namespace vireo
