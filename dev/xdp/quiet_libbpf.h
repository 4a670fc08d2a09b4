// libbpf prints to stderr, which a preloaded library must not do, and may raise the program's
// RLIMIT_MEMLOCK (the setter that prevents it is missing from Debian 12's libbpf.so). Both are
// restored at the end. Owner: a loader of a program. Thread: the owner's. After load_libbpf().
#pragma once

#include <bpf/libbpf.h>
#include <sys/resource.h>

namespace vireo::xdp {

class QuietLibbpf {
 public:
  QuietLibbpf();
  ~QuietLibbpf();
  QuietLibbpf(const QuietLibbpf&) = delete;
  QuietLibbpf& operator=(const QuietLibbpf&) = delete;

 private:
  libbpf_print_fn_t print_;
  rlimit memlock_{};
};

}  // namespace vireo::xdp
