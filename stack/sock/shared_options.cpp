#include "stack/sock/shared_options.h"

#include <atomic>
#include <new>

#include "stack/sock/options.h"

namespace vireo {

struct OptionsBlock : SocketOptions {
  OptionsTable& home;
  /// Becomes 0, and leaves 0, under the table's lock only.
  std::atomic<uint32_t> refs{1};
  OptionsBlock* next = nullptr;
  OptionsBlock* previous = nullptr;

  OptionsBlock(const SocketOptions& o, OptionsTable& t) : SocketOptions(o), home(t) {}
};

namespace {

constexpr unsigned kLooks = 8;

const SocketOptions& default_options() {
  static const SocketOptions options;
  return options;
}

OptionsBlock* block_of(const SocketOptions* o) {
  return o == &default_options() ? nullptr
                                 : const_cast<OptionsBlock*>(static_cast<const OptionsBlock*>(o));
}

void push_front(OptionsBlock*& first, OptionsBlock& b) {
  b.previous = nullptr;
  b.next = first;
  if (first != nullptr) first->previous = &b;
  first = &b;
}

void unlink(OptionsBlock*& first, OptionsBlock& b) {
  (b.previous == nullptr ? first : b.previous->next) = b.next;
  if (b.next != nullptr) b.next->previous = b.previous;
}

}  // namespace

SharedOptions::SharedOptions() noexcept : options_(&default_options()) {}

SharedOptions::SharedOptions(const SharedOptions& o) noexcept : options_(o.options_) {
  // relaxed: `o` has a reference, so the block stays.
  if (OptionsBlock* b = block_of(options_)) b->refs.fetch_add(1, std::memory_order_relaxed);
}

SharedOptions::~SharedOptions() {
  if (OptionsBlock* b = block_of(options_)) b->home.drop(*b);
}

std::optional<SharedOptions> OptionsTable::share(const SocketOptions& o) {
  const ControlGuard guard(lock_);
  unsigned looks = 0;
  for (OptionsBlock* b = first_; b != nullptr && looks < kLooks; b = b->next, ++looks) {
    if (*b != o) continue;
    b->refs.fetch_add(1, std::memory_order_relaxed);
    unlink(first_, *b);
    push_front(first_, *b);
    return SharedOptions(*b);
  }
  auto* b = new (std::nothrow) OptionsBlock(o, *this);
  if (b == nullptr) return std::nullopt;
  push_front(first_, *b);
  return SharedOptions(*b);
}

void OptionsTable::drop(OptionsBlock& b) noexcept {
  const ControlGuard guard(lock_);
  if (b.refs.fetch_sub(1, std::memory_order_relaxed) != 1) return;  // the lock orders it
  unlink(first_, b);
  delete &b;
}

}  // namespace vireo
