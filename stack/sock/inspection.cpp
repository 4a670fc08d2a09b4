// Shows datagrams to receive callbacks.
#include "stack/sock/inspection.h"

#include <new>
#include <utility>

#include "stack/sock/blocking.h"
#include "stack/sock/cancel.h"
#include "stack/sock/extra_state.h"
#include "stack/sock/udp_socket.h"

namespace vireo::inspection {

constinit std::atomic<bool> g_is_due{false};

namespace {

using List =
    boost::intrusive::list<Inspector,
                           boost::intrusive::member_hook<
                               Inspector, boost::intrusive::list_member_hook<>, &Inspector::hook>,
                           boost::intrusive::constant_time_size<false>>;

Lock g_lock;
List g_list VIREO_GUARDED_BY(g_lock);
/// This thread is in a callback.
thread_local constinit bool t_is_inside = false;

Inspector* inspector_of(const File& f) noexcept {
  return f.extra == nullptr ? nullptr : f.extra->inspector.get();
}

Arrival describe(const Inspector& i, const PacketBuf& first) noexcept {
  Arrival a{};
  a.fd = i.socket.fd;
  a.ends = ends_of(first);
  a.ready_packets = i.ready_packets;
  a.ready_bytes = i.ready.bytes();
  a.hw_time = first.hw_time;
  return a;
}

/// The buffers of a packet that was shown, as one that was not.
PacketChain unlend(LentBuffer& first) noexcept {
  PacketChain all;
  for (LentBuffer* b = &first; b != nullptr;) {
    LentBuffer* const next = b->next;
    all.push_back(lending::reclaim(*b));
    b = next;
  }
  return all;
}

/// All that has come and was not shown, in its order.
void collect(UdpFlow& u, PacketChain& waiting) noexcept { waiting.append(std::move(u.queue)); }

void drop_first(UdpFlow& u, PacketChain& waiting) noexcept {
  for (uint32_t n = buffers_of_first(waiting); n != 0; --n)
    UdpFlows::received(u, *waiting.pop_front());
}

/// Shows one datagram, without the lock meanwhile. @return false: the socket has no flow or no
/// callback any more.
bool show_one(Handle h, Engine& e, PacketChain& waiting,
              EngineGuard& guard) noexcept VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  Inspector* i = inspector_of(f);
  Arrival a = describe(*i, *waiting.front());
  const Lent lent = lending::lend(h, e, waiting, buffers_of_first(waiting));
  if (lent.first == nullptr) {  // no memory
    drop_first(f.udp_flow(), waiting);
    f.stats->rx_drops.add();
    return true;
  }
  a.first = lent.first;
  a.buffers = lent.buffers;
  a.bytes = lent.bytes;
  const Callback callback = i->callback;
  guard.unlock();
  t_is_inside = true;
  const Verdict verdict = callback.show(a, callback);
  t_is_inside = false;
  guard.lock();
  i = inspector_of(f);
  if (i == nullptr) return false;  // a child that was forked in the callback: all is the parent's
  const bool goes_on = f.flow != nullptr && f.is_carried() && i->callback.show != nullptr &&
                       (fd_table().find(a.fd).file == &f || fd_table().count_names(f) != 0);
  switch (verdict) {
    case Verdict::kDrop:
      lending::give_back_packet(*lent.first);
      break;
    case Verdict::kKeep:
      break;
    case Verdict::kQueue: {
      PacketChain packet = unlend(*lent.first);
      if (!goes_on) {
        if (f.flow != nullptr && f.is_udp()) f.udp_flow().queue.append(std::move(packet));
        f.ready.notify(kReadyIn);
        break;
      }
      i->ready.append(std::move(packet));
      ++i->ready_packets;
      f.ready.notify(kReadyIn);
      break;
    }
  }
  return goes_on;
}

}  // namespace

Result<void> set(Handle h, const Callback& callback) VIREO_NO_THREAD_ANALYSIS {
  if (!h->is_udp()) return fail(EOPNOTSUPP, "callback");
  const LockGuard control(h->control);
  if (!h.is_alive()) return fail(EBADF, "callback");
  File& f = *h.file;
  const Mode mode = f.mode.load(std::memory_order_relaxed);
  if (mode != Mode::kCarried && mode != Mode::kUndecided) return fail(EINVAL, "callback");
  std::unique_ptr<Inspector> made(callback.show == nullptr ? nullptr
                                                           : new (std::nothrow) Inspector);
  if (callback.show != nullptr && made == nullptr) return fail(ENOMEM, "callback");
  if (extra_of(f) == nullptr) return fail(ENOMEM, "callback");
  Engine* const e = f.engine.load(std::memory_order_relaxed);
  std::optional<EngineGuard> guard;
  if (e != nullptr) guard.emplace(*e);
  std::unique_ptr<Inspector>& its = f.extra->inspector;
  if (its != nullptr && made != nullptr) {
    its->callback = callback;
    its->socket = h;
    if (f.flow != nullptr && f.udp_flow().soft_error == 0) f.udp_flow().soft_error = kInspected;
    return {};
  }
  if (made != nullptr) {
    made->callback = callback;
    made->socket = h;
    its = std::move(made);
    if (f.flow != nullptr && f.udp_flow().soft_error == 0) f.udp_flow().soft_error = kInspected;
    if (f.flow != nullptr && !f.udp_flow().queue.empty()) note(f);  // as if it came now
    return {};
  }
  if (its == nullptr) return {};
  give_queue_back(f);
  if (f.flow != nullptr && f.udp_flow().soft_error == kInspected) f.udp_flow().soft_error = 0;
  forget(*its);
  if (its->is_busy)
    its->callback.show = nullptr;  // the thread that shows frees it
  else
    its.reset();
  if (f.flow != nullptr && !f.udp_flow().queue.empty()) f.ready.notify(kReadyIn);
  return {};
}

bool has_inspector(const File& f) noexcept { return inspector_of(f) != nullptr; }

uint32_t buffers_of_first(const PacketChain& queue) noexcept {
  uint32_t n = 1;
  for (const PacketBuf* p = queue.front(); p->offset != 0 && p->next != nullptr; p = p->next) ++n;
  return n;
}

PacketChain& receivable(const File& f) noexcept {
  Inspector* const i = inspector_of(f);
  return i != nullptr ? i->ready : f.udp_flow().queue;
}

bool is_readable_now(const File& f) noexcept {
  if (!receivable(f).empty()) return true;
  if (has_news(f)) t_interrupts.has_unshown = true;
  return false;
}

bool has_news(const File& f) noexcept {
  const Inspector* const i = inspector_of(f);
  return i != nullptr && (!i->ready.empty() || (!i->is_busy && !f.udp_flow().queue.empty()));
}

void took_one(const File& f) noexcept {
  if (Inspector* const i = inspector_of(f); i != nullptr) --i->ready_packets;
}

void begin_receive(const File& f) noexcept {
  std::swap(f.udp_flow().queue, inspector_of(f)->ready);
}
void end_receive(const File& f, bool is_taken) noexcept {
  Inspector& i = *inspector_of(f);
  std::swap(f.udp_flow().queue, i.ready);
  if (is_taken) --i.ready_packets;
}

void note(File& f) noexcept {
  Inspector* const i = inspector_of(f);
  if (i == nullptr) return;
  const LockGuard guard(g_lock);
  if (!i->hook.is_linked()) g_list.push_back(*i);
  g_is_due.store(true, std::memory_order_relaxed);
}

void give_queue_back(File& f) noexcept {
  Inspector* const i = inspector_of(f);
  if (i == nullptr || f.flow == nullptr) return;
  i->ready.append(std::move(f.udp_flow().queue));
  f.udp_flow().queue = std::move(i->ready);
  i->ready_packets = 0;
}

void show(Handle h) noexcept VIREO_NO_THREAD_ANALYSIS {
  Engine* const e = h->engine.load(std::memory_order_acquire);
  if (e == nullptr) return;
  FilePin pin;
  EngineGuard guard(*e);
  if (!h.is_alive() || !h->is_udp()) return;
  pin.pin(*h.file);
  show(h, *e, guard);
}

void show(Handle h, Engine& e, EngineGuard& guard) noexcept VIREO_NO_THREAD_ANALYSIS {
  File& f = *h.file;
  Inspector* i = inspector_of(f);
  if (i == nullptr || f.flow == nullptr || !f.is_carried() || i->is_busy || t_is_inside) return;
  i->is_busy = true;
  PacketChain waiting;
  bool goes_on = true;
  for (;;) {
    collect(f.udp_flow(), waiting);
    if (waiting.empty()) break;
    goes_on = show_one(h, e, waiting, guard);
    if (!goes_on) break;
  }
  i = inspector_of(f);  // pinned, and whoever removes the callback leaves it to us
  if (i == nullptr) return waiting.clear();  // a child that was forked in the callback
  i->is_busy = false;
  if (i->callback.show == nullptr) f.extra->inspector.reset();
  if (waiting.empty()) return;
  if (f.flow == nullptr) return waiting.clear();
  waiting.append(std::move(f.udp_flow().queue));
  f.udp_flow().queue = std::move(waiting);
  f.ready.notify(kReadyIn);
}

bool show_all() noexcept {
  t_interrupts.has_unshown = false;
  if (t_is_inside) return false;
  for (;;) {
    Handle h;
    {
      const LockGuard guard(g_lock);
      if (g_list.empty()) {
        g_is_due.store(false, std::memory_order_relaxed);
        return true;
      }
      h = g_list.front().socket;
      g_list.pop_front();
    }
    show(h);
  }
}

void forget(Inspector& i) noexcept {
  const LockGuard guard(g_lock);
  if (i.hook.is_linked()) g_list.erase(g_list.iterator_to(i));
}

void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { g_lock.lock(); }
void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { g_lock.unlock(); }
void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS {
  g_lock.reset_after_fork();
  g_list.clear();
  g_is_due.store(false, std::memory_order_relaxed);
}

}  // namespace vireo::inspection
