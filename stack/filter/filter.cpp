#include "stack/filter/filter.h"

#include <netinet/in.h>
// After the header above: else these define its names again.
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <linux/xfrm.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "core/high_fd.h"
#include "stack/filter/ipsec.h"
#include "stack/filter/nft_rules.h"
#include "stack/filter/sessions.h"
#include "stack/filter/traffic_control.h"

namespace vireo::filter {
Filter::Filter(IsOwnProgram is_own) : is_own_(std::move(is_own)) {
  epoll_.reset(to_high_number(static_cast<int>(::syscall(SYS_epoll_create1, EPOLL_CLOEXEC))));
  if (auto e = EventFd::create()) legacy_changed_ = std::move(*e);
  follow(legacy_changed_.fd());
  open(nft_, NETLINK_NETFILTER, "nf_tables", NFNLGRP_NFTABLES);
  open(ipsec_, NETLINK_XFRM, "xfrm_user", XFRMNLGRP_POLICY);
  open(control_, NETLINK_ROUTE, nullptr, RTNLGRP_TC);
  const LockGuard guard(reading_);
  read();
  if (auto legacy = read_legacy())
    legacy_ = std::move(*legacy);
  else
    read_.unreadable = legacy.error().code;
  legacy_at_.store(Clock::now().ns(), std::memory_order_relaxed);
  publish();
}

void Filter::open(std::optional<Session>& s, int protocol, const char* module, uint32_t group) {
  if (module != nullptr && is_absent(module)) return;
  auto made = Session::open(protocol, group);
  if (!made) {
    // Another error: this kernel does not have it.
    if (made.error().code == EPERM || made.error().code == EACCES) unopened_ = EPERM;
    return;
  }
  s = std::move(*made);
  follow(s->fd());
}

void Filter::follow(int fd) {
  epoll_event e{.events = EPOLLIN, .data = {.fd = fd}};
  ::syscall(SYS_epoll_ctl, epoll_.get(), EPOLL_CTL_ADD, fd, &e);
}

bool Filter::was_told() {
  bool told = false;
  for (std::optional<Session>* s : {&nft_, &ipsec_, &control_})
    if (*s) told |= (*s)->was_told();
  return told;
}

/// The program may have dropped its capabilities since the first reading: then the old rules are
/// kept.
void Filter::read() {
  constexpr int kTries = 4;  // the rules may change during a reading
  Ruleset r;
  for (int i = 0; i == 0 || (i < kTries && was_told()); ++i) {
    r = {.unreadable = unopened_};
    const auto ask = [&](std::optional<Session>& s, auto&& how) {
      if (!s) return;
      if (const auto done = how(*s, r); !done) r.unreadable = done.error().code;
    };
    ask(nft_, read_nft);
    ask(ipsec_, read_ipsec);
    ask(control_, [&](Session& s, Ruleset& to) { return read_traffic_control(s, to, is_own_); });
  }
  if (r.unreadable == 0 || rules() == nullptr)
    read_ = std::move(r);
  else
    read_.unreadable = r.unreadable;
}

void Filter::publish() {
  auto next = std::make_shared<Ruleset>(read_);
  add_legacy(legacy_, *next);
  const bool is_empty = next->is_empty();
  {
    const LockGuard guard(lock_);
    rules_ = std::move(next);
  }
  generation_.fetch_add(1, std::memory_order_release);  // pairs with the acquire in generation()
  // release pairs with the acquire in is_empty(): the rules are in place.
  is_empty_.store(is_empty, std::memory_order_release);
}

bool Filter::process() {
  const LockGuard guard(reading_);
  const bool is_read = legacy_changed_.drain();
  if (!was_told()) return is_read;
  read();
  publish();
  return true;
}

void Filter::look_at_legacy(Instant now) {
  int64_t before = legacy_at_.load(std::memory_order_relaxed);
  if (!is_legacy_due(now) ||
      !legacy_at_.compare_exchange_strong(before, now.ns(), std::memory_order_relaxed))
    return;
  auto legacy = read_legacy();
  const LockGuard guard(reading_);
  if (!legacy || *legacy == legacy_) return;
  legacy_ = std::move(*legacy);
  publish();
  legacy_changed_.signal();
}

std::shared_ptr<const Ruleset> Filter::rules() const {
  const LockGuard guard(lock_);
  return rules_;
}

}  // namespace vireo::filter
