// The kernel's side of copies: what a process got a copy of, its own sockets beneath do not hear
// again from the kernel (copied.bpf.c). Loaded when it is first needed.
// Owner: Sharing, one a process. Thread: any. Source: bpf(2), Linux 6.6 (tcx).
#pragma once

#include <cstdint>
#include <map>

#include "core/fd.h"
#include "core/result.h"
#include "core/types.h"

namespace vireo::xdp {

class CopiedFrames {
 public:
  /// Errors: ENOTSUP, EPERM, EMFILE.
  static Result<CopiedFrames> load();

  /// In the kernel, of the program that attach() puts at an ingress.
  uint32_t number() const { return number_; }
  /// For SO_ATTACH_BPF.
  int filter() const { return filter_.get(); }
  /// Frames that come in by the interface have their mark. @return what keeps it so. Errors:
  /// ENOTSUP (also where another interface has the same marks), EPERM, EMFILE.
  Result<UniqueFd> attach(IfIndex ifindex) noexcept;
  /// STEER_COPIED_MARK of a shared end of which this process gets copies from now on, or no more.
  void set_own(uint32_t mark, bool on) const noexcept;

 private:
  UniqueFd filter_, marks_, own_;
  uint32_t number_ = 0;
  std::map<uint32_t, IfIndex> attached_;  ///< by their part of a mark
};

}  // namespace vireo::xdp
