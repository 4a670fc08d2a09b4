// The socket calls and the assertions of a script.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>

#include "tests/script/runner.h"
#include "tests/script/symbols.h"

namespace vireo::script {
namespace {

/// The kernel's number of a state (netinet/tcp.h).
int64_t linux_state(tcp::State s) {
  switch (s) {
    case tcp::State::kClosed:
      return TCP_CLOSE;
    case tcp::State::kSynSent:
      return TCP_SYN_SENT;
    case tcp::State::kSynReceived:
      return TCP_SYN_RECV;
    case tcp::State::kEstablished:
      return TCP_ESTABLISHED;
    case tcp::State::kFinWait1:
      return TCP_FIN_WAIT1;
    case tcp::State::kFinWait2:
      return TCP_FIN_WAIT2;
    case tcp::State::kCloseWait:
      return TCP_CLOSE_WAIT;
    case tcp::State::kClosing:
      return TCP_CLOSING;
    case tcp::State::kLastAck:
      return TCP_LAST_ACK;
    case tcp::State::kTimeWait:
      return TCP_TIME_WAIT;
  }
  return TCP_CLOSE;
}

/// Text between `[` and `]`, or `{` and `}`: numbers by name or digit, `name=` before them allowed.
bool list_of(const std::string& text, std::vector<int64_t>& out) {
  std::string inner = text;
  if (inner.size() >= 2 && (inner.front() == '[' || inner.front() == '{'))
    inner = inner.substr(1, inner.size() - 2);
  size_t at = 0;
  while (at <= inner.size() && !inner.empty()) {
    const size_t comma = std::min(inner.find(',', at), inner.size());
    std::string one = inner.substr(at, comma - at);
    if (const size_t equals = one.find('='); equals != std::string::npos)
      one = one.substr(equals + 1);
    int64_t v = 0;
    if (!constant(one, v)) return false;
    out.push_back(v);
    at = comma + 1;
  }
  return true;
}

bool would_block(int64_t r) { return r == -EAGAIN || r == -EINPROGRESS; }

}  // namespace

bool Runner::call(const Event& e, const Call& c) {
  if (pending_ && !settle(Instant::never())) return false;
  const auto argument = [&c](size_t i) {
    int64_t v = -1;
    if (i < c.arguments.size() && !constant(c.arguments[i], v)) v = -1;
    return v;
  };
  const auto fd = static_cast<int>(argument(0));
  Host& h = *host_;
  std::function<int64_t()> act;
  std::string* const wrong = &failure_;
  if (c.name == "socket") {
    const bool nonblocking = (argument(1) & SOCK_NONBLOCK) != 0;
    act = [&h, nonblocking] { return h.socket(nonblocking); };
  } else if (c.name == "bind") {
    act = [&h, fd] { return h.bind(fd); };
  } else if (c.name == "listen") {
    act = [&h, fd, n = static_cast<int>(argument(1))] { return h.listen(fd, n); };
  } else if (c.name == "accept") {
    act = [&h, fd] { return h.accept(fd); };
  } else if (c.name == "connect") {
    act = [&h, fd, e_kind = &e]() -> int64_t {
      const int r = h.connect(fd);
      // A blocking connect() tells the end of what it began.
      return e_kind->when.blocking && r == -EISCONN ? 0 : r;
    };
  } else if (c.name == "read" || c.name == "recv") {
    const auto flags = static_cast<int>(c.name == "recv" ? argument(3) : 0);
    act = [this, &h, fd, flags, n = static_cast<size_t>(argument(2))]() -> int64_t {
      std::string got;
      const int64_t r = h.read(fd, n, flags, got);
      for (size_t i = 0; i < got.size(); ++i)
        if (got[i] != stream_byte(1 + read_ + i, false)) {
          fail("byte " + std::to_string(read_ + i) + " of the stream read is wrong");
          break;
        }
      if (r > 0 && (flags & MSG_PEEK) == 0) read_ += static_cast<uint64_t>(r);
      return r;
    };
  } else if (c.name == "write" || c.name == "send" || c.name == "sendto") {
    const auto flags = static_cast<int>(c.name == "write" ? 0 : argument(3));
    act = [this, &h, fd, flags, n = static_cast<size_t>(argument(2))]() -> int64_t {
      std::string data(n, '\0');
      for (size_t i = 0; i < n; ++i) data[i] = stream_byte(1 + written_ + i, true);
      const int64_t r = h.write(fd, data, flags);
      if (r > 0) written_ += static_cast<uint64_t>(r);
      return r;
    };
  } else if (c.name == "shutdown") {
    act = [&h, fd, how = static_cast<int>(argument(1))] { return h.shutdown(fd, how); };
  } else if (c.name == "close") {
    act = [&h, fd] { return h.close(fd); };
  } else if (c.name == "fcntl") {
    if (argument(1) == F_SETFL) {
      const bool on = (argument(2) & O_NONBLOCK) != 0;
      act = [&h, fd, on] { return h.set_nonblocking(fd, on); };
    } else {
      act = [&h, fd] { return O_RDWR | (h.is_nonblocking(fd) ? O_NONBLOCK : 0); };
    }
  } else if (c.name == "setsockopt") {
    std::vector<int64_t> value;
    if (c.arguments.size() < 4 || !list_of(c.arguments[3], value)) return fail("value?");
    act = [&h, fd, value, level = static_cast<int>(argument(1)),
           name = static_cast<int>(argument(2))] { return h.setsockopt(fd, level, name, value); };
  } else if (c.name == "getsockopt" || c.name == "ioctl") {
    const bool option = c.name == "getsockopt";
    std::vector<int64_t> want;
    const size_t at = option ? 3 : 2;
    if (c.arguments.size() <= at || !list_of(c.arguments[at], want) || want.size() != 1)
      return fail("value?");
    act = [=, this, &h, level = static_cast<int>(argument(1)),
           name = static_cast<int>(argument(2))]() -> int64_t {
      const int64_t v =
          option ? h.getsockopt(fd, level, name) : h.ioctl(fd, static_cast<unsigned long>(level));
      if (v <= Host::kErrorBase) return v - Host::kErrorBase;
      if (v != want[0])
        fail("value is " + std::to_string(v) +
             (v > 0 ? " (" + errno_name(static_cast<int>(v)) + ")" : std::string()));
      return 0;
    };
  } else if (c.name == "poll") {
    std::vector<int64_t> one;  // fd, events, revents
    std::string inner = c.arguments.empty() ? "" : c.arguments[0];
    if (inner.size() > 2) inner = inner.substr(1, inner.size() - 2);
    if (!list_of(inner, one) || one.size() != 3) return fail("poll takes [{fd, events, revents}]");
    act = [=, this, &h]() -> int64_t {
      const auto ready = h.poll(static_cast<int>(one[0]));
      const int64_t got = ready & (one[1] | POLLERR | POLLHUP | POLLNVAL);
      if (got != one[2]) fail("revents are " + std::to_string(got));
      return got != 0 ? 1 : 0;
    };
  } else {
    return fail("unknown call " + c.name);
  }

  int64_t r = act();
  if (!wrong->empty()) return false;
  if (e.when.blocking && would_block(r)) {
    pending_ = std::make_unique<Pending>();
    pending_->event = &e;
    pending_->due = e.when.kind == When::Kind::kRelative ? last_ + e.when.to : zero_ + e.when.to;
    pending_->retry = [this, act, &e, &c] {
      const int64_t v = act();
      if (!would_block(v) && v != -EALREADY) {
        event_ = &e;
        check_result(c, v);
      }
      return v;
    };
    return true;
  }
  return check_result(c, r);
}

bool Runner::check_result(const Call& c, int64_t r) {
  int64_t want = 0;
  int64_t error = 0;
  if (!constant(c.result, want)) return fail("result?");
  if (want == -1 && !c.error.empty()) {
    if (!constant(c.error, error)) return fail("unknown errno " + c.error);
    want = -error;
  }
  if (r == want) return true;
  return fail("the call returned " +
              (r < 0 ? "-1 " + errno_name(static_cast<int>(-r)) : std::to_string(r)));
}

bool Runner::value_of(const std::string& name, int64_t& out) const {
  if (constant(name, out)) return true;
  const tcp::Tcb* t = host_->connection();
  if (t == nullptr) return false;
  const tcp::Info i = tcp::info(*t);
  const struct {
    const char* name;
    int64_t value;
  } all[] = {
      {"tcpi_state", linux_state(i.state)},
      {"tcpi_retransmits", i.retransmits},
      {"tcpi_rto", i.rto.us()},
      {"tcpi_rtt", i.srtt.us()},
      {"tcpi_rttvar", i.rttvar.us()},
      {"tcpi_min_rtt", i.min_rtt.us()},
      {"tcpi_snd_mss", i.snd_mss},
      {"tcpi_rcv_mss", i.rcv_mss},
      {"tcpi_unacked", i.unacked},
      {"tcpi_total_retrans", i.total_retrans},
      {"tcpi_snd_cwnd", i.snd_cwnd},
      {"tcpi_snd_ssthresh", i.snd_ssthresh},
      {"tcpi_snd_wnd", i.snd_wnd},
      {"tcpi_rcv_wnd", i.rcv_wnd},
      {"tcpi_snd_wscale", i.snd_wscale},
      {"tcpi_rcv_wscale", i.rcv_wscale},
      {"tcpi_bytes_acked", static_cast<int64_t>(i.bytes_acked)},
      {"tcpi_bytes_received", static_cast<int64_t>(i.bytes_received)},
      {"tcpi_notsent_bytes", i.notsent_bytes},
      {"tcpi_rcv_ooopack", i.rcv_ooopack},
      {"tcpi_dsack_dups", i.dsack_dups},
      {"tcpi_reord_seen", i.reord_seen},
      {"timestamps", i.timestamps},
      {"sack", i.sack},
      {"wscale", i.wscale},
  };
  for (const auto& one : all)
    if (name == one.name) return out = one.value, true;
  return false;
}

bool Runner::check(const std::vector<Assertion>& all) {
  for (const Assertion& a : all) {
    int64_t left = 0, right = 0;
    if (!value_of(a.left, left)) return fail("unknown name " + a.left);
    if (!value_of(a.right, right)) return fail("unknown name " + a.right);
    const bool holds = a.op == "=="   ? left == right
                       : a.op == "!=" ? left != right
                       : a.op == "<=" ? left <= right
                       : a.op == ">=" ? left >= right
                       : a.op == "<"  ? left < right
                                      : left > right;
    if (!holds) return fail(a.left + " is " + std::to_string(left));
  }
  return true;
}

}  // namespace vireo::script
