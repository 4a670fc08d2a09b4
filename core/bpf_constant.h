// The smallest BPF program: one that returns a number, whatever it is given.
// Owner: none. Thread: any. errno stays. Source: bpf(2).
#pragma once

#include <cstdint>

namespace vireo {

/// @param type BPF_PROG_TYPE_... @param name at most 15 characters. @return a descriptor, or
/// -errno.
int load_constant_program(uint32_t type, int returns, const char* name) noexcept;

}  // namespace vireo
