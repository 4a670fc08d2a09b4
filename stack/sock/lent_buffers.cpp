// Lends and takes back packet buffers.
#include "stack/sock/lent_buffers.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/slab.h"
#include "stack/sock/blocking.h"
#include "stack/sock/extra_state.h"

namespace vireo::lending {
namespace {

Lock g_lock;
/// Made with the first loan, never freed: the program's names point into it.
Slab<LentBuffer>* g_slab VIREO_GUARDED_BY(g_lock) = nullptr;

LentBuffer* new_buffer() noexcept {
  const LockGuard guard(g_lock);
  if (g_slab == nullptr) g_slab = new (std::nothrow) Slab<LentBuffer>;
  return g_slab == nullptr ? nullptr : g_slab->alloc();
}
void free_buffer(LentBuffer& b) noexcept {
  const LockGuard guard(g_lock);
  g_slab->free(b);
}

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

Lent lend(Handle h, Engine& e, PacketChain& packet) noexcept {
  Lent done;
  LentBuffer** end = &done.first;
  for (uint32_t i = 0; i < packet.buffers(); ++i) {
    LentBuffer* const b = new_buffer();
    if (b == nullptr) {
      while (done.first != nullptr) free_buffer(*std::exchange(done.first, done.first->next));
      return {};
    }
    *end = b;
    end = &b->next;
  }
  if (done.first == nullptr) return {};
  ExtraState& x = *h->extra;
  for (LentBuffer* b = done.first; b != nullptr; b = b->next) {
    PacketBuf* const p = packet.pop_front().release();
    b->data = p->data();
    b->length = p->length;
    b->holds = 1;
    b->packet = p;
    b->engine = &e;
    b->file = h.file;
    b->generation = h.generation;
    x.lent_bytes += truesize(*p);
    x.lent.push_back(*b);
    ++done.buffers;
    done.bytes += p->length;
  }
  done.first->is_first = true;
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
  const LockGuard guard(g_lock);
  const SlabHandle h = g_slab->handle(first);
  return reinterpret_cast<void*>(uint64_t{h.generation} << 32 | h.index);
}

LentBuffer* find(const void* name, Handle h) noexcept {
  const auto word = reinterpret_cast<uintptr_t>(name);
  const LockGuard guard(g_lock);
  if (g_slab == nullptr) return nullptr;
  LentBuffer* const b =
      g_slab->get({static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)});
  const bool is_its = b != nullptr && b->is_first && b->hook.is_linked() && b->file == h.file &&
                      b->generation == h.generation;
  return is_its ? b : nullptr;
}

void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { g_lock.lock(); }
void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { g_lock.unlock(); }
void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS { g_lock.reset_after_fork(); }

}  // namespace vireo::lending
