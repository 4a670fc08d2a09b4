// Counters in shared memory: slots for sockets, sums of closed ones, decisions.
#include "stack/sock/counters.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "core/log.h"
#include "core/stats_reading.h"
#include "stack/sock/libc.h"
#include "stack/sock/protected_fds.h"

namespace vireo {
namespace {

/// Reasons that an operator can remove; the others are as intended.
bool is_curable(const Refusal& r) {
  if (r.why == Carriage::kDevice) return r.err != ENETDOWN;  // loss of the device was logged then
  return r.why == Carriage::kRights || r.why == Carriage::kDeviceBusy || r.why == Carriage::kMemory;
}

}  // namespace

Counters::~Counters() {
  if (fd_ >= 0) {
    ::munmap(all_, sizeof *all_);
    unprotect_fd(fd_);
    kernel::close(fd_);
  } else {
    delete all_;
  }
}

void Counters::fork_child() noexcept {
  lock_.reset_after_fork();
  fd_ = -1;
  all_ = nullptr;
  shown_.store(nullptr, std::memory_order_relaxed);
}

StatsLayout& Counters::all() {
  if (StatsLayout* s = shown_.load(std::memory_order_acquire)) return *s;
  const LockGuard guard(lock_);
  if (all_ == nullptr) map();
  shown_.store(all_, std::memory_order_release);
  return *all_;
}

void Counters::map() {
  const bool shown = !settings_.stats_dir.empty();
  const int fd = !shown ? -1
                        : static_cast<int>(::syscall(SYS_memfd_create, kStatsMemfdName,
                                                     MFD_CLOEXEC | MFD_ALLOW_SEALING));
  void* at = MAP_FAILED;
  // Sealed, so that a tool that runs as root may map it without trusting this process.
  if (fd >= 0 && ::ftruncate(fd, sizeof(StatsLayout)) == 0 &&
      ::syscall(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
    at = ::mmap(nullptr, sizeof(StatsLayout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    // Not readable by tools, but usable.
    if (fd >= 0) kernel::close(fd);
    all_ = new StatsLayout;
  } else {
    fd_ = protect_fd(fd);
    all_ = new (at) StatsLayout;
  }
  all_->bytes = sizeof(StatsLayout);
  all_->pid = ::getpid();
  std::strncpy(all_->program, program_.c_str(), sizeof all_->program - 1);
}

SocketStats& Counters::take(int proto, int family, int fd) {
  StatsLayout& all = this->all();
  const LockGuard guard(lock_);
  for (uint32_t i = 0; i < kStatsSockets; ++i) {
    SocketStats& s = all.sockets[(next_slot_ + i) % kStatsSockets];
    const uint32_t g = s.generation.load(std::memory_order_relaxed);
    if (g != 0 && s.closed == 0) continue;
    next_slot_ = (next_slot_ + i + 1) % kStatsSockets;
    // Has old values; the generation continues, so that no reader takes it for the old one.
    s.~SocketStats();
    new (&s) SocketStats;
    s.fd = fd;
    s.proto = static_cast<uint8_t>(proto);
    s.family = static_cast<uint8_t>(family);
    s.generation.store(g + 2, std::memory_order_release);
    return s;
  }
  return unlisted_;
}

void Counters::put(SocketStats& s) {
  if (&s == &unlisted_) return;
  const LockGuard guard(lock_);
  const uint32_t g = s.generation.load(std::memory_order_relaxed);
  s.generation.store(g + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // pairs with the reader's acquire fence
  s.fd = -1;
  s.closed = 1;
  s.generation.store(g + 2, std::memory_order_release);
  ClosedStats& sum = all_->closed[static_cast<size_t>(s.carriage)];
  sum.sockets.add();
  for (const auto& c : kSocketCounters) (sum.*c.counter).add((s.*c.counter).get());
}

void Counters::count_carried() {
  StatsLayout& all = this->all();  // the child of a fork has none until this call
  const LockGuard guard(lock_);
  all.sockets_carried.add();
}

void Counters::count_kernel(const Refusal& why) {
  {
    StatsLayout& all = this->all();
    const LockGuard guard(lock_);
    all.sockets_kernel.add();
    all.refused[static_cast<size_t>(why.why)].add();
  }
  if (!is_curable(why)) {
    log<LogLevel::kDebug>("stays on the kernel: {} ({})", carriage_name(why.why), why.where);
    return;
  }
  if (warned_.exchange(true, std::memory_order_relaxed)) return;
  if (why.err != 0)
    log<LogLevel::kWarn>("sockets stay on the kernel: {} ({}: {})", carriage_text(why.why),
                         why.where, std::strerror(why.err));
  else
    log<LogLevel::kWarn>("sockets stay on the kernel: {} ({})", carriage_text(why.why), why.where);
}

}  // namespace vireo
