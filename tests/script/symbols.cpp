#include "tests/script/symbols.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

#include "stack/tcp/tcp.h"

namespace vireo::script {
namespace {

struct Name {
  const char* name;
  int64_t value;
};

#define NAMED(x) {#x, x}
constexpr Name kNames[] = {
    NAMED(SOL_SOCKET),       NAMED(SO_REUSEADDR),  NAMED(SO_REUSEPORT),   NAMED(SO_RCVBUF),
    NAMED(SO_SNDBUF),        NAMED(SO_KEEPALIVE),  NAMED(SO_LINGER),      NAMED(SO_ERROR),
    NAMED(SOL_TCP),          NAMED(IPPROTO_TCP),   NAMED(TCP_NODELAY),    NAMED(TCP_CORK),
    NAMED(TCP_QUICKACK),     NAMED(TCP_KEEPIDLE),  NAMED(TCP_KEEPINTVL),  NAMED(TCP_KEEPCNT),
    NAMED(TCP_USER_TIMEOUT), NAMED(TCP_LINGER2),   NAMED(TCP_SYNCNT),     NAMED(TCP_MAXSEG),
    NAMED(SHUT_RD),          NAMED(SHUT_WR),       NAMED(SHUT_RDWR),      NAMED(MSG_PEEK),
    NAMED(MSG_MORE),         NAMED(MSG_DONTWAIT),  NAMED(MSG_NOSIGNAL),   NAMED(MSG_FASTOPEN),
    NAMED(POLLIN),           NAMED(POLLOUT),       NAMED(POLLERR),        NAMED(POLLHUP),
    NAMED(POLLRDHUP),        NAMED(F_GETFL),       NAMED(F_SETFL),        NAMED(O_NONBLOCK),
    NAMED(O_RDWR),           NAMED(O_RDONLY),      NAMED(FIONREAD),       NAMED(SIOCOUTQ),
    NAMED(SIOCOUTQNSD),      NAMED(SOCK_STREAM),   NAMED(SOCK_NONBLOCK),  NAMED(SOCK_CLOEXEC),
    NAMED(TCP_ESTABLISHED),  NAMED(TCP_SYN_SENT),  NAMED(TCP_SYN_RECV),   NAMED(TCP_FIN_WAIT1),
    NAMED(TCP_FIN_WAIT2),    NAMED(TCP_TIME_WAIT), NAMED(TCP_CLOSE),      NAMED(TCP_CLOSE_WAIT),
    NAMED(TCP_LAST_ACK),     NAMED(TCP_CLOSING),   {"SIOCINQ", FIONREAD}, {"...", 0},
};
constexpr Name kErrors[] = {
    NAMED(EAGAIN),       NAMED(EINPROGRESS),  NAMED(EALREADY),    NAMED(EISCONN),
    NAMED(ENOTCONN),     NAMED(ECONNREFUSED), NAMED(ECONNRESET),  NAMED(ECONNABORTED),
    NAMED(ETIMEDOUT),    NAMED(EPIPE),        NAMED(EBADF),       NAMED(EINVAL),
    NAMED(EHOSTUNREACH), NAMED(ENETUNREACH),  NAMED(ENOPROTOOPT), NAMED(EADDRNOTAVAIL),
    NAMED(EADDRINUSE),   NAMED(EOPNOTSUPP),
};
#undef NAMED

bool single(const std::string& text, int64_t& out) {
  const char* end = text.data() + text.size();
  if (const auto r = std::from_chars(text.data(), end, out); r.ec == std::errc() && r.ptr == end)
    return true;
  for (const Name& n : kNames)
    if (text == n.name) return out = n.value, true;
  for (const Name& n : kErrors)
    if (text == n.name) return out = n.value, true;
  return false;
}

}  // namespace

bool constant(const std::string& text, int64_t& out) {
  out = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t bar = std::min(text.find('|', at), text.size());
    std::string one = text.substr(at, bar - at);
    while (!one.empty() && one.front() == ' ') one.erase(0, 1);
    while (!one.empty() && one.back() == ' ') one.pop_back();
    int64_t v = 0;
    if (!single(one, v)) return false;
    out |= v;
    at = bar + 1;
  }
  return true;
}

std::string errno_name(int error) {
  for (const Name& n : kErrors)
    if (n.value == error) return n.name;
  return std::to_string(error);
}

}  // namespace vireo::script
