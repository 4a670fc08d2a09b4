// The kernel's receive path of an interface, for single frames: an XDP program that passes all is
// run on them, live (Documentation/bpf/bpf_prog_run.rst, Linux 5.18). The rights are needed for the
// first frame only. Owner: XdpDevice. Thread: any.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>

#include "core/fd.h"
#include "core/result.h"
#include "core/types.h"

namespace vireo::xdp {

class KernelPath {
 public:
  /// Of the network namespace of this thread.
  explicit KernelPath(IfIndex interface) noexcept;

  /// The kernel verifies the checksums. `note`: the frame's metadata (xdp_md.data_meta), a multiple
  /// of 4 bytes, 32 at most. Errors: ENOTSUP an older kernel, EPERM a right is missing
  /// or this thread has left the namespace, EMSGSIZE more than a page has room for.
  Result<void> give(std::span<const std::byte> frame,
                    std::span<const std::byte> note = {}) noexcept;

  /// The kernel looks for the interface in the namespace of the thread that calls: is that its own?
  bool is_at_home() const noexcept;

 private:
  Result<int> program() noexcept;

  const IfIndex interface_;
  const uint64_t home_;  ///< the namespace's inode; 0: unknown
  std::mutex lock_;
  UniqueFd program_;
  int refused_ = 0;  ///< errno of the first try to load it
};

}  // namespace vireo::xdp
