// Lets a process into a group of a name only once: a second membership would have a second
// descriptor of the same memfd, and closing it would drop the record locks of the first (table.h).
// Owner: a Group. Thread: any. A forked child is another process.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"

namespace vireo::xdp {

class Entrance {
 public:
  /// Errors: EEXIST.
  static Result<Entrance> open(std::string_view name);
  Entrance(Entrance&& o) noexcept : name_(std::exchange(o.name_, {})) {}
  ~Entrance();

 private:
  explicit Entrance(std::string_view name) : name_(name) {}
  std::string name_;  ///< empty: moved from
};

}  // namespace vireo::xdp
