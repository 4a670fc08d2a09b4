#include "tests/apparatus/softnic/doorbell_page.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>

#include "core/fd.h"
#include "tests/apparatus/softnic/fork.h"
#include "tests/apparatus/softnic/store.h"

/// As sigaction(3), which a preloaded library may take for the program's and put off.
extern "C" int __sigaction(int number, const struct sigaction* now, struct sigaction* before);

namespace vireo::softnic {
namespace {

constexpr size_t kMax = 64;
std::atomic<DoorbellPage*> g_pages[kMax];  ///< that are watched; pairs with the handler's look
struct sigaction g_before;

void refused(int number, siginfo_t* info, void* context) {
  const int before = errno;
  if (info->si_code == SEGV_ACCERR && DoorbellPage::take(info->si_addr, context)) {
    errno = before;
  } else if ((g_before.sa_flags & SA_SIGINFO) != 0) {
    g_before.sa_sigaction(number, info, context);
  } else if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) {
    g_before.sa_handler(number);
  } else {
    __sigaction(number, &g_before, nullptr);  // the store is tried again and ends the process
  }
}

void handle_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction a{};
    a.sa_sigaction = refused;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;  // the program's own handler may need its other stack
    __sigaction(SIGSEGV, &a, &g_before);
  });
}

std::byte* map(int fd) {
  void* p = mmap(nullptr, DoorbellPage::kBytes, PROT_READ | PROT_WRITE,
                 fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) return nullptr;
  madvise(p, DoorbellPage::kBytes, MADV_DONTFORK);  // as a driver's: a child rings nothing
  return static_cast<std::byte*>(p);
}

}  // namespace

DoorbellPage::DoorbellPage() {
  const UniqueFd fd(static_cast<int>(syscall(SYS_memfd_create, "doorbells", MFD_CLOEXEC)));
  if (fd && ftruncate(fd.get(), kBytes) == 0 && (device_ = map(fd.get())) != nullptr)
    program_ = map(fd.get());
  if (program_ == nullptr) {
    if (device_ != nullptr) munmap(device_, kBytes);
    program_ = device_ = map(-1);
  }
  if (program_ == nullptr) abort();  // as any other allocation of a page
  std::memset(device_, kFill, kBytes);
}

DoorbellPage::~DoorbellPage() {
  for (auto& p : g_pages)
    if (p.load(std::memory_order_relaxed) == this) p.store(nullptr, std::memory_order_relaxed);
  munmap(program_, kBytes);
  if (device_ != program_) munmap(device_, kBytes);
}

bool DoorbellPage::watch(void (*call)(void*), void* of) {
  if (device_ == program_) return false;
  handle_faults();
  call_ = call;
  of_ = of;
  auto* const slot = std::find_if(std::begin(g_pages), std::end(g_pages), [this](auto& p) {
    DoorbellPage* free = nullptr;
    return p.compare_exchange_strong(free, this, std::memory_order_release);
  });
  if (slot == std::end(g_pages)) return false;
  is_watched_ = mprotect(program_, kBytes, PROT_READ) == 0;
  if (!is_watched_) slot->store(nullptr, std::memory_order_relaxed);
  return is_watched_;
}

void forget_doorbells() {
  for (auto& p : g_pages) p.store(nullptr, std::memory_order_relaxed);
}

bool DoorbellPage::take(const void* at, void* context) {
  for (auto& p : g_pages) {
    DoorbellPage* const page = p.load(std::memory_order_acquire);
    if (page == nullptr ||
        reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(page->program_) >= kBytes)
      continue;
    page->store(at, context);
    return true;
  }
  return false;
}

void DoorbellPage::store(const void* at, void* context) {
  const size_t offset = static_cast<size_t>(static_cast<const std::byte*>(at) - program_);
  const auto store = refused_store(context);
  if (!store || offset % sizeof(uint64_t) != 0) {
    // Whoever stored may try again; the device looks for it from now on.
    is_watched_ = false;
    mprotect(program_, kBytes, PROT_READ | PROT_WRITE);
    return;
  }
  __atomic_store_n(reinterpret_cast<uint64_t*>(device_ + offset), store->value, __ATOMIC_RELEASE);
  skip(context, *store);
  call_(of_);
}

}  // namespace vireo::softnic
