#include "tests/script/host.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "stack/tcp/syn_record.h"
#include "stack/wire/tcp_options.h"

namespace vireo::script {

using tcp::Effects;
using tcp::Plan;
using tcp::SegFlags;
using tcp::State;

namespace {

constexpr int kFirstFd = 3;

EcnBits ecn_of(wire::Ecn e) {
  switch (e) {
    case wire::Ecn::kEct0:
      return EcnBits::kEct0;
    case wire::Ecn::kEct1:
      return EcnBits::kEct1;
    case wire::Ecn::kCe:
      return EcnBits::kCe;
    case wire::Ecn::kNotEct:
      break;
  }
  return EcnBits::kNotEct;
}

wire::Ecn wire_ecn(EcnBits e) {
  switch (e) {
    case EcnBits::kEct0:
      return wire::Ecn::kEct0;
    case EcnBits::kEct1:
      return wire::Ecn::kEct1;
    case EcnBits::kCe:
      return wire::Ecn::kCe;
    default:
      return wire::Ecn::kNotEct;
  }
}

}  // namespace

Host::Host(const tcp::Config& config, Seq32 iss, uint32_t frames)
    : memory_(size_t{frames} * 2048),
      pool_(memory_, 2048),
      config_(config),
      next_iss_(iss),
      // The timestamp clock starts where the initial number does, so that its wraps are met, too.
      ts_offset_(iss.value() - static_cast<uint32_t>(now_.ns() / 1'000'000)) {}

Host::~Host() {
  if (tcb_) tcp::release(*tcb_);
}

// ---- time and wire

Instant Host::deadline() const {
  const Instant t = is_live() ? tcp::deadline(*tcb_) : Instant::never();
  return std::min(t, time_wait_until_);
}

void Host::step(Instant t) {
  now_ = std::max(now_, t);
  if (time_wait_until_ <= now_) {
    time_wait_until_ = Instant::never();
    has_time_wait_ = false;
  }
  if (is_live() && tcp::deadline(*tcb_) <= now_) effects(tcp::on_deadline(*tcb_, now_));
  pump();
}

tcp::Segment Host::segment(const WireSegment& w) {
  tcp::Segment s;
  s.seq = Seq32(w.seq);
  s.ack = Seq32(w.ack);
  s.window = w.window;
  s.flags = static_cast<SegFlags>(w.flags);
  s.urgent = w.urgent;
  s.options = w.options;
  s.ecn = wire_ecn(w.ecn);
  for (size_t at = 0; at < w.payload.size();) {
    PacketRef p(pool_.take());
    if (!p) break;  // as a device without buffers: what does not fit is not received
    const size_t n = std::min(w.payload.size() - at, size_t{pool_.frame_bytes() - p->data_at});
    std::memcpy(p->data(), w.payload.data() + at, n);
    p->length = static_cast<uint16_t>(n);
    s.payload.push_back(std::move(p));
    at += n;
  }
  return s;
}

void Host::deliver(const WireSegment& w) {
  tcp::Segment s = segment(w);
  if (is_live()) {
    if (tcp::state(*tcb_) == State::kSynSent && has(s.flags, SegFlags::kSyn) &&
        has(s.flags, SegFlags::kAck)) {
      const auto o = wire::parse_tcp_options(s.options, true);
      if (!o.fast_open.empty()) fast_open_.cookie.assign(o.fast_open.begin(), o.fast_open.end());
      if (!fast_open_.cookie.empty()) fast_open_.cookie_mss = o.has_mss ? o.mss : tcp::kDefaultMss;
    }
    effects(tcp::input(*tcb_, std::move(s), now_));
    pump();
    return;
  }
  Plan reply;
  if (has_time_wait_) {
    switch (tcp::time_wait_input(time_wait_, s, now_, reply)) {
      case tcp::TimeWaitVerdict::kDrop:
        return;
      case tcp::TimeWaitVerdict::kRestart:
        time_wait_until_ = now_ + tcp::kTimeWaitLength;
        [[fallthrough]];
      case tcp::TimeWaitVerdict::kAck:
        emit(reply, false);
        return;
      case tcp::TimeWaitVerdict::kNewConnection:
        has_time_wait_ = false;
        time_wait_until_ = Instant::never();
        next_iss_ = time_wait_.snd_nxt + 100'000;
        break;
    }
  }
  const auto l = std::find_if(sockets_.begin(), sockets_.end(),
                              [](const Socket& k) { return k.kind == Socket::Kind::kListener; });
  const bool opens = has(s.flags, SegFlags::kSyn) && !has(s.flags, SegFlags::kAck | SegFlags::kRst);
  if (l != sockets_.end() && opens && fd_ < 0) {
    open_passive(*l, static_cast<int>(l - sockets_.begin()) + kFirstFd, std::move(s));
    pump();
    return;
  }
  if (tcp::reset_for(s, s.payload.bytes(), reply)) emit(reply, !has(s.flags, SegFlags::kAck));
}

/// As Engine::open_fast() and Engine::grant_fast_open().
void Host::open_passive(Socket& listener, int fd, tcp::Segment&& syn) {
  const tcp::Config c = socket_config(listener);
  const auto o = wire::parse_tcp_options(syn.options, true);
  const bool takes = listener.fast_open_backlog > 0 || fast_open_.all_listeners;
  const bool shown =
      o.has_fast_open &&
      std::ranges::any_of(fast_open_.granted, [&](const std::vector<uint8_t>& cookie) {
        return std::ranges::equal(cookie, o.fast_open);
      });
  const bool unasked = fast_open_.take_unasked && !syn.payload.empty();
  open(c);
  listener_ = fd;
  waits_accept_ = takes && (shown || unasked);
  grants_cookie_ = takes && o.has_fast_open && !waits_accept_ && !fast_open_.granted.empty();
  if (waits_accept_)
    tcp::open_fast(*tcb_, c, pool_, std::move(syn), next_iss_, now_);
  else
    tcp::open_passive(*tcb_, c, pool_, syn, next_iss_, now_);
}

void Host::deliver_icmp(uint32_t seq, int error, uint32_t mtu) {
  if (!is_live()) return;
  if (mtu != 0) {
    if (!tcp::is_in_flight(*tcb_, Seq32(seq))) return;
    if (mtu - 40 < config_.mss)
      effects(tcp::path_shrunk(*tcb_, static_cast<uint16_t>(mtu - 40), now_));
  } else {
    effects(tcp::icmp_error(*tcb_, Seq32(seq), error, true, now_));
  }
  pump();
}

void Host::effects(Effects e) {
  if (has(e, Effects::kConnected) && listener_ >= 0) waits_accept_ = true;
}

void Host::emit(const Plan& p, bool absolute) {
  WireSegment w;
  w.seq = p.seq.value();
  w.ack = p.ack.value();
  w.window = p.window;
  w.urgent = p.urgent;
  w.flags = static_cast<uint8_t>(p.flags);
  w.ecn = ecn_of(p.ecn);
  w.absolute = absolute;
  w.again = p.retransmission;
  w.options.assign(p.options, p.options + p.options_length);
  if (p.length > 0)
    w.payload.assign(reinterpret_cast<const char*>(p.packet->frame + p.at), p.length);
  w.at = now_;
  sent_.push_back(std::move(w));
}

void Host::pump() {
  if (!tcb_) return;
  Plan p;
  while (tcp::next_segment(*tcb_, now_, p)) {
    if (grants_cookie_ && has(p.flags, SegFlags::kSyn))
      tcp::add_fast_open(p, fast_open_.granted.front());
    tcp::Burst burst;
    if (bursts_.bytes != 0 && tcp::plan_burst(*tcb_, p, bursts_, burst)) {
      burst.for_each(
          p, [&](const tcp::Burst::Segment& s) { return emit(burst.plan(p, s), false), true; });
      tcp::sent_burst(*tcb_, p, burst, burst.segments, now_);
      continue;
    }
    emit(p, false);
    tcp::sent(*tcb_, p, now_);
  }
  if (fd_ >= 0 || waits_accept_) return;
  const bool embryo = listener_ >= 0;
  if (tcp::state(*tcb_) == State::kClosed) {
    if (embryo) listener_ = -1;  // failed before it was complete: nobody hears of it
    tcp::release(*tcb_);
  } else if (tcp::state(*tcb_) == State::kTimeWait) {
    time_wait_ = tcp::make_time_wait(*tcb_);
    has_time_wait_ = true;
    time_wait_until_ = now_ + tcp::kTimeWaitLength;
    tcp::release(*tcb_);
  }
}

// ---- calls

Host::Socket* Host::at(int fd) {
  const auto i = static_cast<size_t>(fd - kFirstFd);
  if (fd < kFirstFd || i >= sockets_.size() || sockets_[i].kind == Socket::Kind::kFree)
    return nullptr;
  return &sockets_[i];
}

tcp::Config Host::socket_config(const Socket& s) const {
  tcp::Config c = s.config;
  c.ts_offset = ts_offset_;
  return c;
}

void Host::open(const tcp::Config&) {
  if (tcb_) tcp::release(*tcb_);
  tcb_ = std::make_unique<tcp::Tcb>();
}

int Host::socket(bool nonblocking) {
  Socket s;
  s.kind = Socket::Kind::kFresh;
  s.nonblocking = nonblocking;
  s.config = config_;
  for (size_t i = 0; i < sockets_.size(); ++i)
    if (sockets_[i].kind == Socket::Kind::kFree) {
      sockets_[i] = s;
      return static_cast<int>(i) + kFirstFd;
    }
  sockets_.push_back(s);
  return static_cast<int>(sockets_.size()) - 1 + kFirstFd;
}

int Host::bind(int fd) { return at(fd) != nullptr ? 0 : -EBADF; }

int Host::listen(int fd, int backlog) {
  Socket* s = at(fd);
  if (s == nullptr) return -EBADF;
  if (s->kind == Socket::Kind::kConnection) return -EINVAL;
  s->kind = Socket::Kind::kListener;
  s->backlog = backlog;
  return 0;
}

int Host::accept(int fd) {
  const Socket* l = at(fd);
  if (l == nullptr) return -EBADF;
  if (l->kind != Socket::Kind::kListener) return -EINVAL;
  if (!waits_accept_ || listener_ != fd) return -EAGAIN;
  const tcp::Config c = l->config;
  const int made = socket(false);
  at(made)->kind = Socket::Kind::kConnection;
  at(made)->config = c;
  fd_ = made;
  waits_accept_ = false;
  listener_ = -1;
  return made;
}

int Host::take_error(Socket& s) {
  if (s.error_taken || !tcb_ || tcp::error(*tcb_) == 0) return 0;
  s.error_taken = true;
  return tcp::error(*tcb_);
}

int Host::connect(int fd) {
  Socket* s = at(fd);
  if (s == nullptr) return -EBADF;
  if (s->kind == Socket::Kind::kListener) return -EISCONN;
  if (s->kind == Socket::Kind::kFresh) {
    if (is_live() || has_time_wait_) return -EADDRNOTAVAIL;  // the one tuple is in use
    s->kind = Socket::Kind::kConnection;
    const tcp::Config c = socket_config(*s);
    open(c);
    fd_ = fd;
    listener_ = -1;
    grants_cookie_ = false;
    tcp::open_active(*tcb_, c, pool_, next_iss_, now_);
    if (s->fast_open_connect && fast_open_.as_client) {
      if (!fast_open_.cookie.empty() || fast_open_.without_cookie) {
        tcp::defer_syn(*tcb_);
        return 0;
      }
      begin_fast_open({});
    }
    pump();
    return -EINPROGRESS;
  }
  if (is_live() && tcp::is_syn_deferred(*tcb_)) return -EISCONN;
  if (const int e = take_error(*s)) {
    s->kind = Socket::Kind::kFresh;
    return -e;
  }
  if (tcp::state(*tcb_) == State::kClosed) return -ECONNABORTED;
  if (tcp::state(*tcb_) <= State::kSynReceived) return -EALREADY;
  return -EISCONN;
}

int64_t Host::read(int fd, size_t n, int flags, std::string& out) {
  Socket* s = at(fd);
  if (s == nullptr) return -EBADF;
  if (s->kind != Socket::Kind::kConnection || fd != fd_) return -ENOTCONN;
  PacketChain& q = tcp::recv_queue(*tcb_);
  out.clear();
  if (!q.empty()) {
    if ((flags & MSG_PEEK) != 0) {
      for (const PacketBuf* p = q.front(); p != nullptr && out.size() < n; p = p->next)
        out.append(reinterpret_cast<const char*>(p->data()),
                   std::min<size_t>(n - out.size(), p->length));
    } else {
      while (!q.empty() && out.size() < n) {
        const auto take =
            static_cast<uint32_t>(std::min<size_t>(n - out.size(), q.front()->length));
        out.append(reinterpret_cast<const char*>(q.front()->data()), take);
        q.trim_front(take);
      }
      tcp::consumed(*tcb_, static_cast<uint32_t>(out.size()), now_);
      pump();
    }
    return static_cast<int64_t>(out.size());
  }
  if (const int e = take_error(*s)) return -e;
  if (tcp::peer_closed(*tcb_) || s->shut_read || tcp::state(*tcb_) == State::kClosed ||
      tcp::state(*tcb_) == State::kTimeWait)
    return 0;
  return -EAGAIN;
}

/// The SYN leaves, with what it may carry of `data`. @return how much.
int64_t Host::begin_fast_open(const std::string& data) {
  const iovec v{const_cast<char*>(data.data()), data.size()};
  const size_t n = tcp::begin_fast_open(
      *tcb_,
      {.cookie = fast_open_.cookie,
       .without_cookie = fast_open_.without_cookie,
       .peer_mss = fast_open_.cookie.empty() ? config_.mss : fast_open_.cookie_mss,
       .data = {&v, 1}},
      now_);
  pump();
  return n > 0 ? static_cast<int64_t>(n) : -EINPROGRESS;
}

int64_t Host::send_fast_open(int fd, const std::string& data) {
  Socket* s = at(fd);
  if (!fast_open_.as_client) return -EOPNOTSUPP;
  if (is_live() && tcp::is_syn_deferred(*tcb_)) return begin_fast_open(data);
  if (s->kind != Socket::Kind::kFresh) {
    if (is_live() && tcp::is_opening(*tcb_)) return -EALREADY;
    // As Linux: the first call after a handshake learns of it, this one goes on and sends.
    return std::exchange(s->told_connected, true) ? -EISCONN : write(fd, data, 0);
  }
  if (is_live() || has_time_wait_) return -EADDRNOTAVAIL;  // the one tuple is in use
  s->kind = Socket::Kind::kConnection;
  const tcp::Config c = socket_config(*s);
  open(c);
  fd_ = fd;
  listener_ = -1;
  grants_cookie_ = false;
  tcp::open_active(*tcb_, c, pool_, next_iss_, now_);
  return begin_fast_open(data);
}

int64_t Host::write(int fd, const std::string& data, int flags) {
  Socket* s = at(fd);
  if (s == nullptr) return -EBADF;
  if ((flags & MSG_FASTOPEN) != 0) return send_fast_open(fd, data);
  if (s->kind != Socket::Kind::kConnection || fd != fd_) return -EPIPE;
  if (const int e = take_error(*s)) return -e;
  if (is_live() && tcp::is_syn_deferred(*tcb_)) return begin_fast_open(data);
  if (tcp::is_opening(*tcb_)) return -EAGAIN;
  if (!tcp::can_send(*tcb_)) return -EPIPE;
  const iovec v{const_cast<char*>(data.data()), data.size()};
  const size_t n = tcp::append(*tcb_, {&v, 1}, (flags & MSG_MORE) != 0, now_);
  pump();
  return n > 0 || data.empty() ? static_cast<int64_t>(n) : -EAGAIN;
}

int Host::shutdown(int fd, int how) {
  Socket* s = at(fd);
  if (s == nullptr) return -EBADF;
  if (s->kind != Socket::Kind::kConnection || fd != fd_ || !is_live()) return -ENOTCONN;
  if (how != SHUT_WR) s->shut_read = true;
  if (how != SHUT_RD) tcp::shutdown_write(*tcb_, now_);
  pump();
  return 0;
}

int Host::close(int fd) {
  Socket* s = at(fd);
  if (s == nullptr) return -EBADF;
  const Socket was = *s;
  s->kind = Socket::Kind::kFree;
  if (was.kind == Socket::Kind::kListener) {
    if (listener_ == fd && tcb_) {  // not accepted: reset (tcp(7))
      waits_accept_ = false;
      listener_ = -1;
      tcp::abort(*tcb_, now_);
      pump();
    }
    return 0;
  }
  if (was.kind != Socket::Kind::kConnection || fd != fd_) return 0;
  fd_ = -1;
  if (was.linger_off)
    tcp::abort(*tcb_, now_);
  else
    tcp::close(*tcb_, now_);
  pump();
  return 0;
}

int Host::set_nonblocking(int fd, bool on) {
  Socket* s = at(fd);
  if (s == nullptr) return -EBADF;
  s->nonblocking = on;
  return 0;
}

bool Host::is_nonblocking(int fd) const {
  const Socket* s = at(fd);
  return s != nullptr && s->nonblocking;
}

short Host::poll(int fd) const {
  const Socket* s = at(fd);
  if (s == nullptr) return POLLNVAL;
  if (s->kind == Socket::Kind::kListener) return waits_accept_ && listener_ == fd ? POLLIN : 0;
  if (s->kind == Socket::Kind::kFresh || fd != fd_) return POLLOUT | POLLHUP;
  const State state = tcp::state(*tcb_);
  unsigned bits = 0;
  const bool eof = tcp::peer_closed(*tcb_) || s->shut_read || state == State::kClosed;
  if (!tcp::recv_queue(*tcb_).empty() || eof) bits |= POLLIN;
  if (eof) bits |= POLLRDHUP;
  if (state == State::kClosed) bits |= POLLHUP | POLLOUT;
  if (tcp::error(*tcb_) != 0 && !s->error_taken) bits |= POLLERR;
  if (tcp::is_syn_deferred(*tcb_)) bits |= POLLOUT;
  if (tcp::can_send(*tcb_) && tcp::is_writable(*tcb_)) bits |= POLLOUT;
  if (state > State::kSynReceived && !tcp::can_send(*tcb_)) bits |= POLLOUT;
  return static_cast<short>(bits);
}

int64_t Host::ioctl(int fd, unsigned long request) {
  const Socket* s = at(fd);
  if (s == nullptr) return kErrorBase - EBADF;
  if (s->kind != Socket::Kind::kConnection) return kErrorBase - EINVAL;
  switch (request) {
    case FIONREAD:
      return tcp::recv_queue(*tcb_).bytes();
    case SIOCOUTQ:
      return tcp::unacked_bytes(*tcb_);
    case SIOCOUTQNSD:
      return tcp::unsent_bytes(*tcb_);
    default:
      return kErrorBase - ENOTTY;
  }
}

/// Settings of `s` that a live connection takes over.
void Host::apply(Socket& s) {
  tcp::Tcb& t = *tcb_;
  const tcp::Config& c = s.config;
  tcp::set_rcv_buf(t, c.rcv_buf);
  tcp::set_snd_buf(t, c.snd_buf);
  tcp::set_user_timeout(t, c.user_timeout);
  tcp::set_fin_timeout(t, c.fin_timeout);
  tcp::set_rto_min(t, c.rto_min);
  tcp::set_notsent_lowat(t, c.notsent_lowat);
  tcp::set_window_clamp(t, c.window_clamp);
}

int Host::setsockopt(int fd, int level, int name, const std::vector<int64_t>& v) {
  Socket* s = at(fd);
  if (s == nullptr) return -EBADF;
  const bool live = s->kind == Socket::Kind::kConnection && fd == fd_ && is_live();
  const int64_t n = v.empty() ? 0 : v[0];
  tcp::Config& c = s->config;
  const auto keep = [&] {
    if (live)
      tcp::set_keepalive(*tcb_, c.keepalive, c.keep_idle, c.keep_interval, c.keep_count, now_);
  };
  if (level == SOL_SOCKET) {
    switch (name) {
      case SO_REUSEADDR:
      case SO_REUSEPORT:
        return 0;
      case SO_RCVBUF:
        c.rcv_buf = static_cast<uint32_t>(n);
        break;
      case SO_SNDBUF:
        c.snd_buf = static_cast<uint32_t>(n);
        break;
      case SO_KEEPALIVE:
        c.keepalive = n != 0;
        keep();
        return 0;
      case SO_LINGER:
        s->linger_off = v.size() > 1 && v[0] != 0 && v[1] == 0;
        return 0;
      default:
        return -ENOPROTOOPT;
    }
    if (live) apply(*s);
    return 0;
  }
  switch (name) {
    case TCP_NODELAY:
      c.nodelay = n != 0;
      if (live) tcp::set_nodelay(*tcb_, n != 0, now_);
      break;
    case TCP_CORK:
      c.cork = n != 0;
      if (live) tcp::set_cork(*tcb_, n != 0, now_);
      break;
    case TCP_QUICKACK:
      c.quickack = n != 0;
      if (live) tcp::set_quickack(*tcb_, n != 0, now_);
      break;
    case TCP_KEEPIDLE:
      c.keep_idle = Duration::s(n);
      keep();
      return 0;
    case TCP_KEEPINTVL:
      c.keep_interval = Duration::s(n);
      keep();
      return 0;
    case TCP_KEEPCNT:
      c.keep_count = static_cast<uint8_t>(n);
      keep();
      return 0;
    case TCP_USER_TIMEOUT:
      c.user_timeout = Duration::ms(n);
      break;
    case TCP_LINGER2:
      c.fin_timeout = Duration::s(n);
      break;
    case TCP_NOTSENT_LOWAT:
      c.notsent_lowat = n == 0 ? config_.notsent_lowat : static_cast<uint32_t>(n);
      break;
    case TCP_WINDOW_CLAMP:
      c.window_clamp = static_cast<uint32_t>(n);
      break;
    case TCP_FASTOPEN:
      if (s->kind != Socket::Kind::kFresh && s->kind != Socket::Kind::kListener) return -EINVAL;
      s->fast_open_backlog = static_cast<int>(n);
      return 0;
    case TCP_FASTOPEN_CONNECT:
      if (n < 0 || n > 1) return -EINVAL;
      if (!fast_open_.as_client) return -EOPNOTSUPP;
      if (s->kind != Socket::Kind::kFresh) return -EINVAL;
      s->fast_open_connect = n != 0;
      return 0;
    case TCP_FASTOPEN_NO_COOKIE:
      fast_open_.without_cookie = n != 0;
      return 0;
    case TCP_SYNCNT:
      c.syn_retries = static_cast<uint8_t>(n);
      break;
    case TCP_MAXSEG:
      c.mss = static_cast<uint16_t>(std::min<int64_t>(n, config_.mss));
      break;
    default:
      return -ENOPROTOOPT;
  }
  if (live) {
    apply(*s);
    pump();
  }
  return 0;
}

int64_t Host::getsockopt(int fd, int level, int name) {
  Socket* s = at(fd);
  if (s == nullptr) return kErrorBase - EBADF;
  const bool connection = s->kind == Socket::Kind::kConnection && fd == fd_;
  if (level == SOL_SOCKET) {
    if (name == SO_ERROR) return connection ? take_error(*s) : 0;
    // Linux doubles what was set, for its bookkeeping (socket(7)).
    if (name == SO_RCVBUF) return 2LL * s->config.rcv_buf;
    if (name == SO_SNDBUF) return 2LL * s->config.snd_buf;
    if (name == SO_KEEPALIVE) return s->config.keepalive ? 1 : 0;
    return kErrorBase - ENOPROTOOPT;
  }
  if (name == TCP_MAXSEG) return connection ? tcp::effective_mss(*tcb_) : s->config.mss;
  if (name == TCP_NODELAY) return s->config.nodelay ? 1 : 0;
  if (name == TCP_CORK) return s->config.cork ? 1 : 0;
  if (name == TCP_NOTSENT_LOWAT)  // 0: as all sockets
    return s->config.notsent_lowat == config_.notsent_lowat ? 0 : s->config.notsent_lowat;
  if (name == TCP_FASTOPEN_CONNECT) return s->fast_open_connect ? 1 : 0;
  if (name == TCP_USER_TIMEOUT) return s->config.user_timeout.get().ms();
  return kErrorBase - ENOPROTOOPT;
}

}  // namespace vireo::script
