// Keeps what the kernel's verifier says of a program that it refuses. libbpf writes it here, and
// asks for it only when a load has failed. Owner: who loads the program. Thread: the owner's.
// Source: bpf(2), log_buf; libbpf.h, bpf_object_open_opts.
#pragma once

#include <bpf/libbpf.h>

#include <string_view>
#include <vector>

#include "dev/xdp/xsk.h"

namespace vireo::xdp {

class VerifierLog {
 public:
  /// Kernels before 6.4 refuse a log that has not room for everything; memory that nobody writes
  /// costs nothing.
  VerifierLog();

  /// To open the object with.
  bpf_object_open_opts options() const;
  /// The last `most` lines about the program, without the verifier's counts; none if it was not
  /// asked (the load failed before). Borrowed from this.
  std::vector<std::string_view> last_lines(size_t most) const;

 private:
  Mapping text_;
};

}  // namespace vireo::xdp
