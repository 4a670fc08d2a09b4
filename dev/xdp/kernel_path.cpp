#include "dev/xdp/kernel_path.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "core/bpf_constant.h"
#include "core/high_fd.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

/// What the kernel puts into the page beside the frame takes less than the rest of it.
constexpr size_t kMostBytes = 3072;

uint64_t namespace_here() noexcept {
  struct stat s{};
  const long r = sys(SYS_newfstatat, AT_FDCWD, reinterpret_cast<long>("/proc/thread-self/ns/net"),
                     reinterpret_cast<long>(&s), 0);
  return r == 0 ? s.st_ino : 0;
}

}  // namespace

KernelPath::KernelPath(IfIndex interface) noexcept
    : interface_(interface), home_(namespace_here()) {}

bool KernelPath::is_at_home() const noexcept { return home_ != 0 && namespace_here() == home_; }

Result<int> KernelPath::program() noexcept {
  const std::lock_guard hold(lock_);
  if (program_) return program_.get();
  if (refused_ != 0) return fail(refused_, "program that passes all");
  const int fd = load_constant_program(BPF_PROG_TYPE_XDP, XDP_PASS, "vireo_pass");
  if (fd < 0) {
    refused_ = -fd;
    return fail(refused_, "program that passes all");
  }
  program_.reset(to_high_number(fd));
  return program_.get();
}

Result<void> KernelPath::give(std::span<const std::byte> frame,
                              std::span<const std::byte> note) noexcept {
  if (frame.size() > kMostBytes) return fail(EMSGSIZE, "frame for the kernel");
  if (!is_at_home()) return fail(EPERM, "another network namespace");
  const auto fd = program();
  if (!fd) return std::unexpected(fd.error());
  std::vector<std::byte> both;
  if (!note.empty()) {
    both.assign(note.begin(), note.end());
    both.insert(both.end(), frame.begin(), frame.end());
    frame = both;
  }
  xdp_md context{};
  context.data = static_cast<uint32_t>(note.size());
  context.data_end = static_cast<uint32_t>(frame.size());
  context.ingress_ifindex = interface_.value();
  bpf_attr a{};
  a.test.prog_fd = static_cast<uint32_t>(*fd);
  a.test.data_in = reinterpret_cast<uintptr_t>(frame.data());
  a.test.data_size_in = context.data_end;
  a.test.ctx_in = reinterpret_cast<uintptr_t>(&context);
  a.test.ctx_size_in = sizeof context;
  a.test.repeat = 1;
  a.test.batch_size = 1;
  a.test.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
  if (const long r = sys(SYS_bpf, BPF_PROG_TEST_RUN, reinterpret_cast<long>(&a), sizeof a); r < 0)
    return fail(r == -EINVAL ? ENOTSUP : static_cast<int>(-r), "frame for the kernel");
  return {};
}

}  // namespace vireo::xdp
