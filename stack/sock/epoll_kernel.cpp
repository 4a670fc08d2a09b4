// The kernel's side of an epoll's items: which of the two kernel epolls has an item, and events
// from the hybrid.
#include "stack/sock/epoll.h"

namespace vireo {
namespace {

constexpr uint32_t kOutEvents = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;

bool names(int fd, const File* f) { return fd_table().find(fd).file == f; }

uint64_t data_of(uint32_t index, uint32_t generation) {
  return static_cast<uint64_t>(generation) << 32 | index;
}

}  // namespace

int Epoll::name_of(const Handle& h) noexcept {
  if (names(h.fd, h.file)) [[likely]]
    return h.fd;
  for (int fd = 0; fd < fd_table().end(); ++fd)
    if (names(fd, h.file)) return fd;
  return -1;
}

Result<int> Epoll::hybrid_fd() noexcept {
  if (hybrid_) return hybrid_.get();
  const int fd = libc().epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) return fail_errno("epoll_create1");
  hybrid_.reset(protect_fd(fd));
  return hybrid_.get();
}

Epoll::Place Epoll::wanted_place(const Item& i) const noexcept {
  const File& f = *i.target.file;
  if (i.is_epoll) return Place::kHybrid;
  if (!watches_kernel(f)) return Place::kNowhere;
  // Such a socket stays on the kernel for good, which serves the item alone. Other sockets may
  // change sides, along with their item's state, so their events pass through Vireo.
  if (f.mode.load(std::memory_order_acquire) == Mode::kKernel &&
      f.kind.load(std::memory_order_relaxed) == FileKind::kTcp)
    return Place::kRaw;
  return Place::kHybrid;
}

uint32_t Epoll::hybrid_events(const Item& i) const noexcept {
  uint32_t events = i.event.events & ~static_cast<uint32_t>(EPOLLEXCLUSIVE);
  const Mode m = i.target->mode.load(std::memory_order_acquire);
  // Vireo sends for these.
  if (m == Mode::kCarried || m == Mode::kListening) events &= ~kOutEvents;
  return events;
}

/// Moves the item to the place for its socket's mode. `rearm`: its events changed.
Result<void> Epoll::settle(int epoll_fd, Item& i, bool rearm) noexcept {
  const Mode m = i.target->mode.load(std::memory_order_acquire);
  has_void_ |= m == Mode::kVoid;
  if (m == Mode::kListening) listens_.store(true, std::memory_order_relaxed);
  const bool has_engine = m == Mode::kCarried || m == Mode::kListening;
  count_engine(i, has_engine ? i.target->engine.load(std::memory_order_acquire) : nullptr);
  const Place want = wanted_place(i);
  if (want != i.place) leave_kernel(epoll_fd, i);
  if (i.disarmed) return {};  // until EPOLL_CTL_MOD
  // Also if it is there already: the mode decides which events the kernel reports.
  if (want != Place::kNowhere) i.target->touch();  // the kernel keeps the watch
  if (want == Place::kHybrid) return enter_hybrid(i);
  if (want == Place::kRaw && (i.place != want || rearm)) {
    epoll_event event = i.event;
    const int op = i.place == want ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (!names(i.target.fd, i.target.file)) return {};
    // Only the kernel knows whether such an item is armed.
    if (i.has(EPOLLONESHOT)) i.target->holders.store(Holders::kUnknown, std::memory_order_relaxed);
    number_ = epoll_fd;
    if (libc().epoll_ctl(epoll_fd, op, i.target.fd, &event) != 0) return fail_errno("epoll_ctl");
    if (op == EPOLL_CTL_ADD) ++raw_count_;
    i.place = want;
  }
  return {};
}

/// Without the control lock: the caller is the program's only thread, and in no call on an epoll.
void Epoll::leave_raw(Item& i) noexcept {
  if (i.place == Place::kRaw) leave_kernel(name_of({&self_, 0, number_}), i);
}

void Epoll::leave_kernel(int epoll_fd, Item& i) noexcept {
  const bool named = i.target.is_alive() && names(i.target.fd, i.target.file);
  switch (i.place) {
    case Place::kNowhere:
      break;
    case Place::kRaw:
      if (named) (void)libc().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, i.target.fd, nullptr);
      if (raw_count_ != 0) --raw_count_;
      break;
    case Place::kHybrid:
      // If the number now refers to another file, the kernel still has the entry (a dup keeps it),
      // and no call can remove it.
      if (!i.target.is_alive()) {
        i.kernel_fd = i.nested_fd = -1;  // the kernel removed it with the last descriptor
      } else if (!names(i.kernel_fd, i.target.file)) {
        rebuild_ = true;
        i.kernel_fd = -1;
      }
      if (i.kernel_fd >= 0)
        (void)libc().epoll_ctl(hybrid_.get(), EPOLL_CTL_DEL, i.kernel_fd, nullptr);
      if (i.nested_fd >= 0)
        (void)libc().epoll_ctl(hybrid_.get(), EPOLL_CTL_DEL, i.nested_fd, nullptr);
      i.kernel_fd = i.nested_fd = -1;
      --hybrid_count_;
      break;
  }
  i.place = Place::kNowhere;
  i.kernel_bits = 0;
}

Result<void> Epoll::register_in(int kernel_epoll, int fd, Item& i) noexcept {
  epoll_event event{};
  event.events = hybrid_events(i);
  event.data.u64 = data_of(i.index, i.generation);
  if (libc().epoll_ctl(kernel_epoll, EPOLL_CTL_ADD, fd, &event) == 0) return {};
  if (errno == EEXIST && libc().epoll_ctl(kernel_epoll, EPOLL_CTL_MOD, fd, &event) == 0) return {};
  return fail_errno("epoll_ctl");
}

Result<void> Epoll::enter_hybrid(Item& i) noexcept {
  const bool made = !hybrid_;
  const auto hybrid = hybrid_fd();
  if (!hybrid) return std::unexpected(hybrid.error());
  const int fd = i.place == Place::kHybrid && names(i.kernel_fd, i.target.file) ? i.kernel_fd
                                                                                : name_of(i.target);
  if (fd < 0) return {};  // closed meanwhile: will be notified
  if (auto done = register_in(*hybrid, fd, i); !done) return done;
  i.kernel_fd = fd;
  if (i.is_epoll) {
    const LockGuard guard(i.target->control);
    if (!i.target.is_alive()) return {};
    const auto inner = i.target->epoll->hybrid_fd();
    if (!inner) return std::unexpected(inner.error());
    if (auto done = register_in(*hybrid, *inner, i); !done) return done;
    i.nested_fd = *inner;
  }
  if (i.place != Place::kHybrid) {
    i.place = Place::kHybrid;
    if (++hybrid_count_ == 1 || made) wake_all();  // sleeping threads do not wait on it yet
  }
  return {};
}

/// Records the hybrid's events in their items and puts these on the ready list.
void Epoll::look_at_hybrid() noexcept {
  ++look_;
  if (hybrid_count_ == 0 && !rebuild_) return;
  epoll_event reports[64];
  const int n = kernel::epoll_now(hybrid_.get(), reports, std::size(reports));
  for (int k = 0; k < n; ++k) {
    const auto index = static_cast<uint32_t>(reports[k].data.u64);
    if (index >= items_.size() ||
        items_[index].generation != static_cast<uint32_t>(reports[k].data.u64 >> 32) ||
        items_[index].place != Place::kHybrid) {
      rebuild_ = true;  // a dup whose number is unknown keeps an entry alive
      continue;
    }
    Item& i = items_[index];
    if (i.kernel_look != look_ && !i.has(EPOLLET | EPOLLONESHOT)) i.kernel_bits = 0;
    i.kernel_bits |= reports[k].events;
    i.kernel_look = look_;
    if ((reports[k].events & EPOLLIN) != 0 && !i.is_epoll)
      i.target->kernel_hint.store(true, std::memory_order_relaxed);
    const LockGuard guard(ready_lock_);
    push(i);
  }
  if (rebuild_) [[unlikely]]
    rebuild_hybrid();
}

/// Makes a new kernel epoll with the items that belong there.
void Epoll::rebuild_hybrid() noexcept {
  rebuild_ = false;
  hybrid_.reset();
  for (Item& i : items_) {
    if (!i.in_use || i.place != Place::kHybrid) continue;
    i.place = Place::kNowhere;
    i.kernel_fd = i.nested_fd = -1;
    --hybrid_count_;
    if (!i.disarmed) (void)enter_hybrid(i);
  }
  // Outer epolls have the old one registered.
  if (self_.ready.is_watched()) self_.ready.notify(kModeChanged);
  wake_all();
}

}  // namespace vireo
