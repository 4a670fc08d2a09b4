#include "stack/sock/processor_time.h"

#include <fcntl.h>

#include <charconv>

#include "core/fd.h"
#include "stack/sock/libc.h"

namespace vireo {
namespace {

/// Less is an accident.
constexpr Duration kLeast = Duration::ms(5);
/// What was longer ago says nothing.
constexpr Duration kWindow = Duration::ms(100);
/// How long a finding stays valid.
constexpr Duration kValid = Duration::s(1);

}  // namespace

std::optional<ProcessorTime::Reading> ProcessorTime::read() noexcept {
  const UniqueFd fd(::open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC));
  char text[96];
  const ssize_t n = fd ? libc().read(fd.get(), text, sizeof text) : -1;
  if (n <= 0) return std::nullopt;
  Reading r;
  const char* const end = text + n;
  const auto run = std::from_chars(text, end, r.run_ns);
  if (run.ec != std::errc() || run.ptr == end) return std::nullopt;
  if (std::from_chars(run.ptr + 1, end, r.waited_ns).ec != std::errc()) return std::nullopt;
  return r;
}

bool ProcessorTime::judge(const Reading& r, Instant now) noexcept {
  const int64_t run = r.run_ns - run_ns_.load(std::memory_order_relaxed);
  const int64_t waited = r.waited_ns - waited_ns_.load(std::memory_order_relaxed);
  const bool is_it = waited > run && waited > kLeast.ns();
  if (is_it) short_until_ns_.store((now + kValid).ns(), std::memory_order_relaxed);
  if (is_it || now.ns() - since_ns_.load(std::memory_order_relaxed) > kWindow.ns()) {
    run_ns_.store(r.run_ns, std::memory_order_relaxed);
    waited_ns_.store(r.waited_ns, std::memory_order_relaxed);
    since_ns_.store(now.ns(), std::memory_order_relaxed);
  }
  return is_it;
}

bool ProcessorTime::is_short(Instant now) noexcept {
  if (now.ns() < short_until_ns_.load(std::memory_order_relaxed)) return true;
  const auto r = read();
  return r && judge(*r, now);
}

void ProcessorTime::forget() noexcept {
  for (auto* const value : {&run_ns_, &waited_ns_, &since_ns_, &short_until_ns_})
    value->store(0, std::memory_order_relaxed);
}

}  // namespace vireo
