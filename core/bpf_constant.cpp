#include "core/bpf_constant.h"

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>

namespace vireo {

int load_constant_program(uint32_t type, int returns, const char* name) noexcept {
  // r0 = returns; exit
  const bpf_insn program[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, returns},
                              {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  bpf_attr a{};
  a.prog_type = type;
  a.insns = reinterpret_cast<uintptr_t>(program);
  a.insn_cnt = std::size(program);
  a.license = reinterpret_cast<uintptr_t>("BSD");
  std::strncpy(a.prog_name, name, sizeof a.prog_name - 1);
  const int saved = errno;
  const auto fd = static_cast<int>(::syscall(SYS_bpf, BPF_PROG_LOAD, &a, sizeof a));
  const int result = fd < 0 ? -errno : fd;
  errno = saved;
  return result;
}

}  // namespace vireo
