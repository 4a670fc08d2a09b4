#include "stack/net/netlink.h"

#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netconf.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <vector>

#include "core/fd.h"
#include "core/high_fd.h"
#include "stack/net/kernel_tables.h"
#include "stack/net/kick_queue.h"
#include "stack/net/rtnetlink_socket.h"

namespace vireo::net {
namespace {

constexpr Duration kWorkBudget = Duration::ms(5);  // of one process()
constexpr Duration kMaxPublishInterval = Duration::ms(20);
constexpr Duration kSettleDelay = Duration::ms(10);  // for routes of a removed interface to go
constexpr Duration kRetryDelay = Duration::ms(1);    // before a failed dump is repeated
constexpr Duration kDumpTimeout = Duration::s(2);    // a dump without a message fails
constexpr size_t kReceiveBytes = 64 * 1024;          // dumps come in pieces of at most 32 KiB

Instant now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant::from_ns(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
}

constexpr uint32_t kGroups[] = {
    RTNLGRP_LINK,       RTNLGRP_NEIGH,     RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV6_RULE, RTNLGRP_IPV4_NETCONF,
};

/// Order of a full dump: routes after what they refer to.
constexpr Part kDumpOrder[] = {Part::kLinks,  Part::kConf,    Part::kAddrs,   Part::kRules4,
                               Part::kRules6, Part::kRoutes4, Part::kRoutes6, Part::kNeighbours};

Request dump_request(Part part, uint32_t seq) {
  constexpr uint16_t kFlags = NLM_F_REQUEST | NLM_F_DUMP;
  switch (part) {
    case Part::kLinks: {
      Request r(RTM_GETLINK, kFlags, seq, ifinfomsg{});
      constexpr uint32_t kSkipStats = 1U << 3;  // RTEXT_FILTER_SKIP_STATS
      r.attribute(IFLA_EXT_MASK, kSkipStats);
      return r;
    }
    case Part::kConf:
      return {RTM_GETNETCONF, kFlags, seq, netconfmsg{.ncm_family = AF_INET}};
    case Part::kAddrs:
      return {RTM_GETADDR, kFlags, seq, ifaddrmsg{}};
    case Part::kRules4:
    case Part::kRules6: {
      fib_rule_hdr h{};
      h.family = part == Part::kRules6 ? AF_INET6 : AF_INET;
      return {RTM_GETRULE, kFlags, seq, h};
    }
    case Part::kRoutes4:
    case Part::kRoutes6: {
      rtmsg h{};
      h.rtm_family = part == Part::kRoutes6 ? AF_INET6 : AF_INET;
      return {RTM_GETROUTE, kFlags, seq, h};
    }
    default:
      return {RTM_GETNEIGH, kFlags, seq, ndmsg{}};
  }
}

void add(std::atomic<uint64_t>& counter, uint64_t n = 1) {
  counter.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace

class Mirror::Session {
 public:
  explicit Session(const MirrorOptions& options) : options_(options), buffer_(kReceiveBytes) {}

  Result<void> open();
  bool process();
  bool request(IfIndex ifindex, const IpAddr& addr) noexcept;
  int fd() const { return epoll_.get(); }

  SnapshotStore store;
  MirrorStats stats;

 private:
  Result<void> watch(int fd);
  Result<void> wait_for_first_snapshot();
  void clear_wakeups();
  void send_kicks();
  void read_kick_errors();
  /// @return false: nothing to read now.
  bool receive_one();
  void take_reply(const nlmsghdr& m);
  /// @return true: began one.
  bool begin_next_dump(Instant t);
  void ask_for(Part parts) { wanted_ |= parts; }
  bool publish_if_due(Instant t);
  void arm_timer(Instant t);

  const MirrorOptions options_;
  RtnetlinkSocket socket_;  // dumps and notifications
  RtnetlinkSocket kicker_;  // neighbour requests
  UniqueFd epoll_, wakeup_, timer_;
  std::vector<std::byte> buffer_;

  KernelTables tables_;
  Part wanted_ = kAllParts;
  Part running_ = Part::kNone;  // the dump in progress
  bool interrupted_ = false;    // it must be repeated
  uint32_t seq_ = 0;
  Part dumped_ = Part::kNone;  // parts dumped once; the first snapshot needs all
  Instant give_up_at_{};       // time limit of the dump in progress
  Instant settle_at_ = Instant::never();
  Instant retry_at_ = Instant::never();
  Instant publish_at_{};  // not earlier
  Instant last_published_{};
  Instant armed_for_ = Instant::never();

  KickQueue kicks_;
  std::atomic<bool> helper_woken_{false};
};

Result<void> Mirror::Session::watch(int fd) {
  epoll_event e{.events = EPOLLIN, .data = {.fd = fd}};
  if (::syscall(SYS_epoll_ctl, epoll_.get(), EPOLL_CTL_ADD, fd, &e) != 0)
    return fail_errno("epoll_ctl");
  return {};
}

Result<void> Mirror::Session::open() {
  auto s = RtnetlinkSocket::open(options_.receive_buffer_bytes);
  if (!s) return std::unexpected(s.error());
  socket_ = std::move(*s);
  auto k = RtnetlinkSocket::open(0);
  if (!k) return std::unexpected(k.error());
  kicker_ = std::move(*k);
  for (const uint32_t group : kGroups)
    if (auto r = socket_.join(group); !r) return r;
  const auto keep = [](long fd) { return to_high_number(static_cast<int>(fd)); };
  epoll_.reset(keep(::syscall(SYS_epoll_create1, EPOLL_CLOEXEC)));
  wakeup_.reset(keep(::syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK)));
  timer_.reset(keep(::syscall(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)));
  if (!epoll_ || !wakeup_ || !timer_) return fail_errno("descriptors of the mirror");
  for (const int fd : {socket_.fd(), kicker_.fd(), wakeup_.get(), timer_.get()})
    if (auto r = watch(fd); !r) return r;
  return wait_for_first_snapshot();
}

Result<void> Mirror::Session::wait_for_first_snapshot() {
  const Instant limit = now() + Duration::ms(options_.open_timeout_ms);
  process();
  while (store.generation() == 1) {
    const Duration left = limit - now();
    if (left <= Duration()) return fail(ETIMEDOUT, "first dump of the kernel's tables");
    pollfd p{.fd = epoll_.get(), .events = POLLIN, .revents = 0};
    const timespec t{.tv_sec = left.s(), .tv_nsec = static_cast<long>(left.ns() % 1'000'000'000)};
    ::syscall(SYS_ppoll, &p, 1, &t, nullptr, 0);
    process();
  }
  return {};
}

bool Mirror::Session::process() {
  clear_wakeups();
  send_kicks();
  read_kick_errors();
  const Instant begin = now();
  Instant t = begin;
  for (; t - begin < kWorkBudget; t = now()) {
    if (receive_one()) continue;
    if (!begin_next_dump(t)) break;
  }
  const bool published = publish_if_due(t);
  if (!published) store.reclaim();
  arm_timer(t);
  return published;
}

void Mirror::Session::clear_wakeups() {
  uint64_t count;
  ::syscall(SYS_read, wakeup_.get(), &count, sizeof count);
  if (::syscall(SYS_read, timer_.get(), &count, sizeof count) == sizeof count)
    armed_for_ = Instant::never();
}

bool Mirror::Session::receive_one() {
  auto got = socket_.receive(buffer_);
  if (!got) {
    if (got.error().code != ENOBUFS) return false;
    add(stats.overruns);
    ask_for(kAllParts);
    return true;
  }
  bool replied = false;
  std::span<const std::byte> left = *got;
  while (left.size() >= sizeof(nlmsghdr)) {
    const auto* m = reinterpret_cast<const nlmsghdr*>(left.data());
    if (m->nlmsg_len < sizeof *m || m->nlmsg_len > left.size()) break;
    left = left.subspan(std::min<size_t>(NLMSG_ALIGN(m->nlmsg_len), left.size()));
    add(stats.messages);
    if (m->nlmsg_pid == socket_.port() && m->nlmsg_seq == seq_) {
      replied = true;
      take_reply(*m);
    } else {
      tables_.changed(*m);
    }
  }
  if (replied) give_up_at_ = now() + kDumpTimeout;
  ask_for(tables_.take_stale());
  return true;
}

void Mirror::Session::take_reply(const nlmsghdr& m) {
  if (running_ == Part::kNone) return;
  if ((m.nlmsg_flags & NLM_F_DUMP_INTR) != 0) interrupted_ = true;
  const bool failed = m.nlmsg_type == NLMSG_ERROR;
  if (!failed && m.nlmsg_type != NLMSG_DONE) {
    tables_.dumped(m);
    return;
  }
  const Part part = std::exchange(running_, Part::kNone);
  const int error = failed ? parse_error(m) : 0;
  if (error == EBUSY || error == EINTR || error == ENOBUFS || error == ENOMEM) {
    ask_for(part);
    retry_at_ = now() + kRetryDelay;
    return;
  }
  // Any other error: this kernel has no such table (for example no IPv6), and it stays empty.
  tables_.end_dump();
  add(stats.dumps);
  dumped_ |= part;
  if (std::exchange(interrupted_, false)) ask_for(part);
}

bool Mirror::Session::begin_next_dump(Instant t) {
  if (tables_.take_unsettled()) settle_at_ = t + kSettleDelay;
  if (t >= settle_at_) {
    settle_at_ = Instant::never();
    ask_for(Part::kAddrs | Part::kRoutes4 | Part::kRoutes6);
  }
  if (running_ != Part::kNone) {
    if (t < give_up_at_) return false;
    ask_for(std::exchange(running_, Part::kNone));  // its end was lost
  }
  if (wanted_ == Part::kNone || (!retry_at_.is_never() && t < retry_at_)) return false;
  retry_at_ = Instant::never();
  for (const Part part : kDumpOrder) {
    if (!has(wanted_, part)) continue;
    if (auto sent = socket_.send(dump_request(part, ++seq_).bytes()); !sent) {
      retry_at_ = t + kRetryDelay;
      return false;
    }
    wanted_ = wanted_ & ~part;
    running_ = part;
    interrupted_ = false;
    give_up_at_ = t + kDumpTimeout;
    tables_.begin_dump(part);
    return true;
  }
  return false;
}

bool Mirror::Session::publish_if_due(Instant t) {
  if (dumped_ != kAllParts || !tables_.is_dirty() || t < publish_at_) return false;
  // During a resync, wait for its end, but not for long.
  const bool resyncing = running_ != Part::kNone || wanted_ != Part::kNone;
  if (resyncing && t < last_published_ + kMaxPublishInterval) return false;
  store.publish(tables_.build());
  add(stats.published);
  last_published_ = now();
  const Duration pause =
      std::max(Duration::us(options_.min_publish_interval_us), (last_published_ - t) * 4);
  publish_at_ = last_published_ + std::min(pause, kMaxPublishInterval);
  return true;
}

void Mirror::Session::arm_timer(Instant t) {
  Instant at = settle_at_;
  if (dumped_ == kAllParts && tables_.is_dirty()) {
    const bool resyncing = running_ != Part::kNone || wanted_ != Part::kNone;
    at = std::min(
        at, resyncing ? std::max(publish_at_, last_published_ + kMaxPublishInterval) : publish_at_);
  }
  if (running_ != Part::kNone)
    at = std::min(at, give_up_at_);
  else if (wanted_ != Part::kNone)
    at = std::min(at, retry_at_.is_never() ? t : retry_at_);
  if (at == armed_for_) return;
  armed_for_ = at;
  itimerspec spec{};
  if (!at.is_never()) {
    const int64_t ns = std::max<int64_t>(at.ns(), 1);  // a past time fires at once
    spec.it_value = {.tv_sec = ns / 1'000'000'000,
                     .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  }
  ::syscall(SYS_timerfd_settime, timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

bool Mirror::Session::request(IfIndex ifindex, const IpAddr& addr) noexcept {
  if (!kicks_.push({ifindex, addr})) {
    add(stats.kicks_dropped);
    return false;
  }
  // Pairs with the exchange in send_kicks(): either that finds the kick, or we read `false` and
  // wake the helper.
  if (!helper_woken_.exchange(true, std::memory_order_acq_rel)) {
    const uint64_t one = 1;
    ::syscall(SYS_write, wakeup_.get(), &one, sizeof one);
  }
  return true;
}

void Mirror::Session::send_kicks() {
  helper_woken_.exchange(false, std::memory_order_acq_rel);
  std::vector<Kick> sent;
  while (auto kick = kicks_.pop()) {
    if (std::ranges::find(sent, *kick) != sent.end())
      continue;  // several connections to one neighbour request it at once
    sent.push_back(*kick);
    ndmsg h{};
    h.ndm_family = static_cast<uint8_t>(kick->addr.family());
    h.ndm_ifindex = static_cast<int>(kick->ifindex.value());
    h.ndm_flags = NTF_USE;
    Request r(RTM_NEWNEIGH, NLM_F_REQUEST | NLM_F_CREATE, 0, h);
    r.attribute(NDA_DST, kick->addr);
    add(kicker_.send(r.bytes()) ? stats.kicks : stats.kicks_refused);
  }
}

void Mirror::Session::read_kick_errors() {
  alignas(nlmsghdr) std::byte reply[1024];
  for (;;) {
    auto got = kicker_.receive(reply);
    if (!got && got.error().code != ENOBUFS) return;
    add(stats.kicks_refused);  // the kernel replies to refused requests only
  }
}

Mirror::Mirror(std::unique_ptr<Session> s) : session_(std::move(s)) {}
Mirror::~Mirror() = default;

Result<std::unique_ptr<Mirror>> Mirror::open(const MirrorOptions& options) {
  auto s = std::make_unique<Session>(options);
  if (auto r = s->open(); !r) return std::unexpected(r.error());
  return std::unique_ptr<Mirror>(new Mirror(std::move(s)));
}

int Mirror::fd() const { return session_->fd(); }
bool Mirror::process() { return session_->process(); }
SnapshotStore& Mirror::store() { return session_->store; }
const MirrorStats& Mirror::stats() const { return session_->stats; }
bool Mirror::request_neighbour(IfIndex ifindex, const IpAddr& addr) noexcept {
  return session_->request(ifindex, addr);
}

}  // namespace vireo::net
