#include "stack/tcp/shared_config.h"

#include <new>

namespace vireo::tcp {

namespace {

struct Block : Config {
  uint64_t refs = 1;
  Block* next = nullptr;
  Block* previous = nullptr;
};

constexpr unsigned kLooks = 8;

constinit ControlLock g_lock;
constinit Block* g_first VIREO_GUARDED_BY(g_lock) = nullptr;  ///< the one found last

void push_front(Block& b) VIREO_REQUIRES(g_lock) {
  b.previous = nullptr;
  b.next = g_first;
  if (g_first != nullptr) g_first->previous = &b;
  g_first = &b;
}

void unlink(Block& b) VIREO_REQUIRES(g_lock) {
  (b.previous == nullptr ? g_first : b.previous->next) = b.next;
  if (b.next != nullptr) b.next->previous = b.previous;
}

/// With a reference for the caller; nullptr: no memory.
Block* find_or_make(const Config& c) {
  const ControlGuard guard(g_lock);
  unsigned looks = 0;
  for (Block* b = g_first; b != nullptr && looks < kLooks; b = b->next, ++looks) {
    if (static_cast<const Config&>(*b) != c) continue;
    ++b->refs;
    if (b == g_first) return b;
    unlink(*b);
    push_front(*b);
    return b;
  }
  auto* b = new (std::nothrow) Block{c};
  if (b != nullptr) push_front(*b);
  return b;
}

}  // namespace

constinit const Config SharedConfig::kDefault;

ControlLock& SharedConfig::lock() noexcept { return g_lock; }

void SharedConfig::set(Config c) noexcept {
  c.rcv_buf = kDefault.rcv_buf;
  c.snd_buf = kDefault.snd_buf;
  c.mss = kDefault.mss;
  c.ts_offset = kDefault.ts_offset;
  if (c == *config_) return;
  const Block* b = find_or_make(c);
  if (b == nullptr) return;
  drop();
  config_ = b;
}

void SharedConfig::drop() noexcept {
  if (config_ == &kDefault) return;
  auto* b = const_cast<Block*>(static_cast<const Block*>(config_));
  const ControlGuard guard(g_lock);
  if (--b->refs != 0) return;
  unlink(*b);
  delete b;
}

}  // namespace vireo::tcp
