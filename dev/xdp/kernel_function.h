// The kernel's functions that BPF programs may call (kfuncs), by name. libbpf finds them, too, but
// builds an index of all types of the kernel for that, which takes 100 ms; this reads them once.
// Owner: none. Thread: any. Source: Documentation/bpf/btf.rst.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/result.h"

namespace vireo::xdp {

/// @return the number of its type in the kernel's BTF: bpf_insn.imm of a call. Errors: ENOENT the
/// kernel has none of that name; those of open(2).
Result<int32_t> kernel_function(std::string_view name);

}  // namespace vireo::xdp
