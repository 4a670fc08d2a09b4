// Packets in and out of the Stack, and its clock.
#include <algorithm>
#include <cstring>

#include "stack/tcp/tcp.h"
#include "tests/packetdrill/settings.h"
#include "tests/packetdrill/stack.h"

namespace vireo::packetdrill {
namespace {

constexpr Duration kPatience = Duration::s(600);  ///< virtual time without a packet: none comes
constexpr uint8_t kFin = 0x01, kSyn = 0x02, kRst = 0x04, kPsh = 0x08;

}  // namespace

std::shared_ptr<Stack::Conn> Stack::conn_of(const Arrived& a) {
  for (auto c = conns_.rbegin(); c != conns_.rend(); ++c)
    if ((*c)->local.port == a.to.port && (*c)->remote == a.from) return *c;
  return nullptr;
}

/// For a peer that is new: with a listener, where there is one for it.
std::shared_ptr<Stack::Conn> Stack::child_for(const Arrived& a) {
  const auto c = make_conn();
  c->local = a.to;
  c->remote = a.from;
  c->has_peer = true;
  conns_.push_back(c);
  for (auto& [fd, s] : sockets_) {
    if (!s.listens || s.conn->local.port != a.to.port) continue;
    c->host->fast_open().granted = s.fast_open_keys.empty()
                                       ? fast_open_cookies(a.to, a.from)
                                       : fast_open_cookies(s.fast_open_keys, a.to, a.from);
    for (const Option& o : s.options) c->host->setsockopt(c->fd, o.level, o.name, o.value);
    c->host->listen(c->fd, s.backlog);
    c->inner_listener = c->fd;
    c->listener = fd;
    break;
  }
  return c;
}

int Stack::packet_in(std::span<const uint8_t> packet) {
  const std::lock_guard lock(mutex_);
  const auto a = parse_packet(packet);
  if (!a) return 0;
  auto c = conn_of(*a);
  if (a->icmp) {
    if (c) c->host->deliver_icmp(a->icmp->seq, a->icmp->error, a->icmp->mtu);
  } else {
    if (!c) c = child_for(*a);
    ++c->events;
    c->host->deliver(a->segment);
    const script::FastOpenState& f = c->host->fast_open();
    if (!f.cookie.empty()) cookies_[c->remote.address] = {f.cookie, f.cookie_mss};
  }
  settle();
  return 0;
}

/// What `c` has sent joins what leaves the stack.
void Stack::collect(Conn& c) {
  auto& sent = c.host->sent();
  if (sent.empty()) return;
  // As Linux hands packets to the device: not more than half the window in one.
  size_t most = 0;
  if (const tcp::Tcb* const t = c.host->connection(); t != nullptr && merge_) {
    const tcp::Info i = tcp::info(*t);
    most = std::min<size_t>(65'000 / i.snd_mss, std::max(i.snd_cwnd / 2, 1U)) * i.snd_mss;
  }
  for (script::WireSegment& s : sent) leaving_.push_back({c.local, c.remote, std::move(s), most});
  sent.clear();
}

void Stack::settle() {
  for (const auto& c : conns_) collect(*c);
  moved_.notify_all();
}

Instant Stack::deadline() const {
  Instant first = Instant::never();
  for (const auto& c : conns_) first = std::min(first, c->host->deadline());
  return first;
}

void Stack::advance(Instant to) {
  while (now_ < to) {
    now_ = std::max(now_, std::min(to, deadline()));
    for (const auto& c : conns_) {
      c->host->step(now_);
      while (c->host->deadline() <= now_) c->host->step(now_);
    }
    settle();
  }
}

int Stack::packet_out(void* packet, size_t* n, long long* usecs) {
  std::unique_lock lock(mutex_);
  let_return(lock);
  const Instant end = now_ + kPatience;
  while (leaving_.empty() && deadline() <= end)
    advance(std::max(deadline(), now_ + Duration::ns(1)));
  if (leaving_.empty()) {
    // There is no way to say "nothing comes", so what comes is no packet: the script fails here.
    std::memset(packet, 0x45, 1);
    *n = 1;
    *usecs = (now_ - start_).us();
    return 0;
  }
  const Leaving first = std::move(leaving_.front());
  leaving_.pop_front();
  script::WireSegment s = first.segment;
  while (!leaving_.empty() && (s.flags & (kFin | kSyn | kRst)) == 0 && !s.payload.empty()) {
    const script::WireSegment& next = leaving_.front().segment;
    if (!(leaving_.front().remote == first.remote) ||
        leaving_.front().local.port != first.local.port)
      break;
    if (next.at != s.at || next.payload.empty() || (next.flags & (kSyn | kRst)) != 0 ||
        next.seq != s.seq + static_cast<uint32_t>(s.payload.size()) || next.ack != s.ack ||
        next.options != s.options || next.again != s.again ||
        s.payload.size() + next.payload.size() > first.most)
      break;
    s.payload += next.payload;
    s.flags |= next.flags;
    if (!s.again) s.flags |= kPsh;  // as Linux marks what it sends as one
    leaving_.pop_front();
  }
  const std::vector<uint8_t> b = build_packet(first.local, first.remote, s);
  *n = std::min(*n, b.size());
  std::memcpy(packet, b.data(), *n);
  *usecs = (s.at - start_).us();
  return 0;
}

void Stack::sleep(Duration d) {
  std::unique_lock lock(mutex_);
  let_return(lock);
  advance(now_ + d);
  let_return(lock);
}

timeval Stack::time() {
  const std::lock_guard lock(mutex_);
  const Duration t = now_ - start_;
  advance(now_ + Duration::us(1));
  return {.tv_sec = t.s(), .tv_usec = t.us() % 1'000'000};
}

}  // namespace vireo::packetdrill
