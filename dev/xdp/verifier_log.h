// Keeps the kernel verifier's messages about a rejected program. libbpf writes them here, and
// requests them only after a load failed. Owner: the loader of the program. Thread: the owner's.
// Source: bpf(2), log_buf; libbpf.h, bpf_object_open_opts.
#pragma once

#include <bpf/libbpf.h>

#include <string_view>
#include <vector>

#include "dev/xdp/xsk.h"

namespace vireo::xdp {

class VerifierLog {
 public:
  /// The buffer is large, as kernels before 6.4 reject one that cannot hold everything; pages that
  /// are never written cost nothing.
  VerifierLog();

  /// For opening the object.
  bpf_object_open_opts options() const;
  /// The last `most` lines about the program, without the verifier's statistics; none if the load
  /// failed before the verifier ran. Valid as long as this object.
  std::vector<std::string_view> last_lines(size_t most) const;

 private:
  Mapping text_;
};

}  // namespace vireo::xdp
