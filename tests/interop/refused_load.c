// To preload: this kernel's verifier refuses each XDP program, whatever it is, for it is given one
// that reads beyond its context. Stands in for a kernel whose verifier cannot follow ours.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>

long syscall(long number, ...) {
  long a[6];
  va_list all;
  va_start(all, number);
  for (int i = 0; i < 6; ++i) a[i] = va_arg(all, long);
  va_end(all);
  long (*const next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  union bpf_attr asked;
  memset(&asked, 0, sizeof asked);
  if (number == SYS_bpf && a[0] == BPF_PROG_LOAD) {
    memcpy(&asked, (void*)a[1], (size_t)a[2] < sizeof asked ? (size_t)a[2] : sizeof asked);
    static const struct bpf_insn beyond[] = {
        {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 0, .src_reg = 1, .off = 4096},
        {.code = BPF_JMP | BPF_EXIT}};
    if (asked.prog_type == BPF_PROG_TYPE_XDP) {
      asked.insns = (__u64)(unsigned long)beyond;
      asked.insn_cnt = 2;
      asked.func_info_cnt = asked.line_info_cnt = 0;
      a[1] = (long)&asked;
    }
  }
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
