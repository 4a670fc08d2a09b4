// What the parts of a Hub have in common: a copy would not know where its hub is.
// Owner: none. Guard: none.
#pragma once

namespace vireo {

struct Part {
  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
};

}  // namespace vireo
