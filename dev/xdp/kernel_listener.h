// The way of a connection that was opened here to the kernel's listener, which then has it for
// accept(2) like its own: the peer's segment that ended the handshake is given to the kernel with a
// note of what was agreed, and a program at the interface's ingress (tcx) makes the listener take
// it (Linux 6.9, bpf_sk_assign_tcp_reqsk). The program is attached only meanwhile.
// Owner: XdpDevice. Thread: any.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>

#include "core/fd.h"
#include "core/result.h"
#include "core/types.h"
#include "dev/device.h"
#include "dev/xdp/kernel_path.h"

namespace vireo::xdp {

class KernelListener {
 public:
  explicit KernelListener(IfIndex interface) noexcept : interface_(interface) {}

  /// Loads the program, once: some milliseconds. Errors: ENOTSUP an older kernel, EPERM.
  Result<void> prepare() noexcept;
  /// Device::give_to_listener(), once prepared.
  Result<void> give(KernelPath& path, std::span<Opening> openings) noexcept;

 private:
  Result<void> load() noexcept;
  int give_one(KernelPath& path, const Opening& o) noexcept;

  const IfIndex interface_;
  std::mutex lock_;
  UniqueFd program_;
  UniqueFd answer_;  ///< the map with the program's kernel_listener_answer
  uint64_t secret_ = 0;
  uint32_t number_ = 0;
  int refused_ = 0;  ///< errno of the first try to load it
};

}  // namespace vireo::xdp
