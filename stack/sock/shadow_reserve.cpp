// Keeps, lends and closes kernel sockets.
#include "stack/sock/shadow_reserve.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/high_fd.h"
#include "stack/sock/libc.h"
#include "stack/sock/net_namespace.h"
#include "stack/sock/stack.h"

namespace vireo {

ShadowReserve::Loan ShadowReserve::lend(uint8_t age, int family, bool nonblock,
                                        bool cloexec) noexcept {
  const LockGuard guard(lock_);
  if (age != age_) return {};
  const auto fits = [&](const Shadow& s) { return s.fd && !s.is_lent && s.family == family; };
  Shadow* s = &shadows_[last_];  // usually the one returned last
  if (!fits(*s)) s = std::ranges::find_if(shadows_, fits);
  if (s == shadows_.end()) return {};
  const int fd = libc().fcntl(s->fd.get(), cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  if (fd < 0) return {};
  if (s->nonblock != nonblock) (void)libc().fcntl(fd, F_SETFL, nonblock ? O_NONBLOCK : 0);
  s->is_lent = true;
  s->wants_nodelay = false;
  return {fd, static_cast<uint8_t>(s - shadows_.begin() + 1)};
}

bool ShadowReserve::put(Handle h) noexcept {
  const LockGuard guard(lock_);
  const uint8_t made_in = h->made_in.load(std::memory_order_relaxed);
  if ((made_in & ~File::kNoDelay) != age_) return false;
  Shadow* s = of(*h.file);
  if (s != nullptr) {
    h->place.store(0, std::memory_order_relaxed);
  } else {
    if (first_number_ < 0) {
      first_number_ = high_number();
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      limit_ = static_cast<unsigned>(std::min<rlim_t>(kMax, limit.rlim_cur / 16));
    }
    const auto find = [&](auto&& is) VIREO_NO_THREAD_ANALYSIS {
      return std::find_if(shadows_.begin(), shadows_.begin() + limit_, is);
    };
    s = find([](const Shadow& place) { return !place.fd; });
    // A place whose socket is lent for long can be reused.
    if (s == shadows_.begin() + limit_)
      s = find([](const Shadow& place) { return place.lent_to != nullptr; });
    if (s == shadows_.begin() + limit_) return false;
    if (s->fd) end(*s);
    const int high = libc().fcntl(h.fd, F_DUPFD_CLOEXEC, first_number_);
    if (high < 0) return false;
    s->fd.reset(high);
    s->family = h->domain.load(std::memory_order_relaxed);
    s->has_nodelay = (made_in & File::kNoDelay) != 0;
  }
  s->lent_to = nullptr;
  s->is_lent = false;
  s->nonblock = h->nonblock.load(std::memory_order_relaxed);
  last_ = static_cast<unsigned>(s - shadows_.begin());
  kernel::close(h.fd);
  return true;
}

uint8_t ShadowReserve::age() noexcept {
  if (net_namespace::has_anyone_left() || g_users_differ.load(std::memory_order_relaxed))
      [[unlikely]]
    return 0;
  const LockGuard guard(lock_);
  const uint32_t users = g_users.load(std::memory_order_relaxed);
  if (users != users_) [[unlikely]] {
    begin_age();
    users_ = users;
  }
  return age_;
}

void ShadowReserve::set_pristine(File& f, uint8_t age, const Loan& loan) noexcept {
  const LockGuard guard(lock_);
  if (age != age_) return;  // the loan ended with its age
  f.made_in.store(age, std::memory_order_relaxed);
  if (loan.place == 0) return;
  shadows_[loan.place - 1U].lent_to = &f;
  f.place.store(loan.place, std::memory_order_relaxed);
}

void ShadowReserve::end_loan(File& f) noexcept {
  const LockGuard guard(lock_);
  if (Shadow* const s = of(f)) end(*s);
}

void ShadowReserve::end_loan(uint8_t age, const Loan& loan) noexcept {
  const LockGuard guard(lock_);
  if (age == age_) end(shadows_[loan.place - 1U]);  // else it ended with its age
}

bool ShadowReserve::set_nodelay(File& f, bool on) noexcept {
  const LockGuard guard(lock_);
  Shadow* const s = of(f);
  if (s != nullptr) s->wants_nodelay = on;
  return s != nullptr;
}

std::optional<bool> ShadowReserve::nodelay(const File& f) noexcept {
  const LockGuard guard(lock_);
  const Shadow* const s = of(f);
  return s != nullptr ? std::optional(s->wants_nodelay) : std::nullopt;
}

void ShadowReserve::fork_prepare() noexcept {
  lock_.lock();
  begin_age();
}

void ShadowReserve::end(Shadow& s) noexcept {
  if (s.is_lent && s.has_nodelay != s.wants_nodelay) {
    const int on = s.wants_nodelay ? 1 : 0;
    (void)libc().setsockopt(s.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  if (s.lent_to != nullptr) s.lent_to->place.store(0, std::memory_order_relaxed);
  s = Shadow();
}

void ShadowReserve::begin_age() noexcept {
  for (Shadow& s : shadows_)
    if (s.fd) end(s);
  age_ = age_ == kLastAge ? 1 : static_cast<uint8_t>(age_ + 1);
}

void File::end_loan() noexcept { stack->shadow_reserve().end_loan(*this); }

}  // namespace vireo
