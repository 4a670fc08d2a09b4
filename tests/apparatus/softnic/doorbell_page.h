// A page of doorbell registers, as a driver maps one from the device, that tells of each store: the
// program may not write it. What it stores is refused as a fault of memory, the handler reads it
// off the instruction, writes it for the program and does the device's work; so a doorbell is a
// call, in the thread that rings it, and nobody needs to look. The program must leave SIGSEGV to
// us: a thread that blocks it, or a handler that was set later and passes nothing on, ends the
// process. An instruction that store.h does not know opens the page for good; a page that was never
// watched is open. Owner: the ring whose registers it has. Thread: setup any; the call comes in
// whichever thread of the process stored, on its stack or its alternate one, with no lock of ours.
// Source: mprotect(2), memfd_create(2), sigaction(2).
#pragma once

#include <atomic>
#include <cstddef>

namespace vireo::softnic {

class DoorbellPage {
 public:
  static constexpr size_t kBytes = 4096;
  static constexpr int kFill = 0xff;  ///< of the page: no doorbell is all ones

  DoorbellPage();
  ~DoorbellPage();
  DoorbellPage(const DoorbellPage&) = delete;

  /// As the program sees it.
  std::byte* data() const { return program_; }
  /// The same page, for us.
  std::byte* device_side() const { return device_; }
  /// From now on `call(of)` follows every store, in the thread that stores.
  /// @return false: it is refused.
  bool watch(void (*call)(void* of), void* of);
  bool is_watched() const { return is_watched_.load(std::memory_order_relaxed); }

  /// A store was refused; for the handler alone. @return true: to one of our pages, and it is done.
  static bool take(const void* at, void* context);

 private:
  void store(const void* at, void* context);

  std::byte* program_ = nullptr;
  std::byte* device_ = nullptr;  ///< the same as program_ where the kernel gives no second mapping
  std::atomic<bool> is_watched_{false};
  void (*call_)(void*) = nullptr;
  void* of_ = nullptr;
};

}  // namespace vireo::softnic
