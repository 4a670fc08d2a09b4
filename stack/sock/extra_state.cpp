// A socket's state for the extra API: made at first use, freed with the socket.
#include "stack/sock/extra_state.h"

#include <new>
#include <utility>

#include "stack/sock/blocking.h"

namespace vireo {

ExtraState* extra_of(File& f) noexcept {
  if (f.extra != nullptr) return f.extra;
  auto* const made = new (std::nothrow) ExtraState;
  if (Engine* const e = f.engine.load(std::memory_order_acquire); e != nullptr) {
    const EngineGuard guard(*e);
    f.extra = made;
  } else {
    f.extra = made;
  }
  return made;
}

void drop_extra(File& f) noexcept {
  lending::take_all_back(f);
  if (f.extra->inspector != nullptr) f.extra->inspector->ready.clear();
}

void free_extra(File& f) noexcept {
  ExtraState* const x = std::exchange(f.extra, nullptr);
  if (x == nullptr) return;
  if (x->inspector != nullptr) inspection::forget(*x->inspector);
  delete x;
}

void forget_extra(File& f) noexcept {
  lending::forget_all(f);
  if (f.extra->inspector == nullptr) return;
  // Its packets are the parent's.
  PacketChain& parents = f.extra->inspector->ready;
  (void)new (std::nothrow) PacketChain(std::move(parents));
  f.extra->inspector.reset();
}

}  // namespace vireo
