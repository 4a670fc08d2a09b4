// Lends and takes back packet buffers.
#include "stack/sock/lent_buffers.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "core/slab.h"
#include "stack/sock/blocking.h"
#include "stack/sock/extra_state.h"
#include "stack/sock/rings.h"

namespace vireo::lending {
namespace {

/// One for each engine, made with its first loan, never freed: the program's names point into them.
std::array<Slab<LentBuffer>*, Rings::kMax> g_slabs{};

Slab<LentBuffer>*& slab_of(const Engine& e) noexcept { return g_slabs[e.id().value()]; }

LentBuffer* new_buffer(const Engine& e) noexcept {
  Slab<LentBuffer>*& slab = slab_of(e);
  if (slab == nullptr) [[unlikely]]
    slab = new (std::nothrow) Slab<LentBuffer>;
  return slab == nullptr ? nullptr : slab->alloc();
}
void free_buffer(LentBuffer& b) noexcept { slab_of(*b.engine)->free(b); }

/// The packet leaves the program: its charge ends.
void return_packet(LentBuffer& b) noexcept {
  PacketBuf* const p = std::exchange(b.packet, nullptr);
  // A loose one may have outlived its socket.
  if (b.file->generation.load(std::memory_order_relaxed) == b.generation) {
    ExtraState& x = *b.file->extra;
    x.lent_bytes -= std::min(x.lent_bytes, truesize(*p));
    if (b.file->is_udp() && b.file->flow != nullptr) UdpFlows::received(b.file->udp_flow(), *p);
  }
  PacketPool::drop(p);
}

uint32_t most(const File& f) noexcept {
  // As the receive window: a connection's frames may take twice its buffer (stack/tcp/window.h).
  return f.is_udp() ? f.udp_flow().rcv_buf : 2 * f.tcp_flow().tcb.rcv_buf;
}

}  // namespace

bool may_lend(const File& f, Engine& e, uint32_t cost) noexcept {
  return f.extra != nullptr && f.extra->lent_bytes + cost <= most(f) &&
         e.pool().free_count() > e.pool().size() / 4;
}

Lent lend(Handle h, Engine& e, PacketChain& queue, uint32_t buffers) noexcept {
  Lent done;
  LentBuffer** end = &done.first;
  for (uint32_t i = 0; i < buffers; ++i) {
    LentBuffer* const b = new_buffer(e);
    if (b == nullptr) {
      while (done.first != nullptr) free_buffer(*std::exchange(done.first, done.first->next));
      return {};
    }
    b->engine = &e;
    *end = b;
    end = &b->next;
  }
  ExtraState& x = *h->extra;
  for (LentBuffer* b = done.first; b != nullptr; b = b->next) {
    PacketBuf* const p = queue.pop_front().release();
    b->data = p->data();
    b->length = p->length;
    b->holds = 1;
    b->packet = p;
    b->file = h.file;
    b->generation = h.generation;
    x.lent_bytes += truesize(*p);
    x.lent.push_back(*b);
    ++done.buffers;
    done.bytes += p->length;
  }
  if (done.first != nullptr) done.first->is_first = true;
  return done;
}

unsigned hold(LentBuffer& b) noexcept { return ++b.holds; }

unsigned give_back(LentBuffer& b) noexcept {
  if (--b.holds != 0) return b.holds;
  return_packet(b);
  free_buffer(b);
  return 0;
}

PacketRef reclaim(LentBuffer& b) noexcept {
  PacketRef p(std::exchange(b.packet, nullptr));
  ExtraState& x = *b.file->extra;
  x.lent_bytes -= std::min(x.lent_bytes, truesize(*p));
  free_buffer(b);
  return p;
}

void give_back_packet(LentBuffer& first) noexcept {
  for (LentBuffer* b = &first; b != nullptr;) {
    LentBuffer* const next = b->next;
    (void)give_back(*b);
    b = next;
  }
}

void make_loose(LentBuffer& first) noexcept {
  for (LentBuffer* b = &first; b != nullptr; b = b->next) b->hook.unlink();
}

void take_all_back(File& f) noexcept {
  ExtraState& x = *f.extra;
  while (!x.lent.empty()) {
    LentBuffer& b = x.lent.front();
    x.lent.pop_front();
    return_packet(b);
    free_buffer(b);
  }
}

void forget_all(File& f) noexcept {
  ExtraState& x = *f.extra;
  while (!x.lent.empty()) {
    LentBuffer& b = x.lent.front();
    x.lent.pop_front();
    free_buffer(b);
  }
  x.lent_bytes = 0;
}

void* name_of(const LentBuffer& first) noexcept {
  const SlabHandle h = slab_of(*first.engine)->handle(first);
  return reinterpret_cast<void*>(uint64_t{h.generation} << 32 | h.index);
}

LentBuffer* find(const Engine& e, const void* name, Handle h) noexcept {
  const auto word = reinterpret_cast<uintptr_t>(name);
  const Slab<LentBuffer>* const slab = slab_of(e);
  if (slab == nullptr) return nullptr;
  LentBuffer* const b = slab->get({static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)});
  const bool is_its = b != nullptr && b->is_first && b->hook.is_linked() && b->file == h.file &&
                      b->generation == h.generation;
  return is_its ? b : nullptr;
}

}  // namespace vireo::lending
