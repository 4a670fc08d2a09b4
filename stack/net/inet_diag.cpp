#include "stack/net/inet_diag.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "core/fd.h"
#include "core/high_fd.h"
#include "stack/net/attributes.h"
#include "stack/net/messages.h"

namespace vireo::net {
namespace {

constexpr size_t kAnswerBytes = 32 * 1024;  // largest read of the kernel

struct Question {
  nlmsghdr head;
  inet_diag_req_v2 ask;
  nlattr filter;
  inet_diag_bc_op at_least[2], at_most[2];  // the port is in the operation after its own
};

Question question(int family, IpProto proto, uint32_t states, uint16_t port) {
  Question q{};
  q.head = {sizeof q, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 0, 0};
  q.ask.sdiag_family = static_cast<uint8_t>(family);
  q.ask.sdiag_protocol = static_cast<uint8_t>(proto);
  q.ask.idiag_states = states;
  q.ask.id.idiag_sport = be16(port).raw();  // UDP heeds this, TCP the filter
  q.filter = {.nla_len = sizeof q - offsetof(Question, filter), .nla_type = INET_DIAG_REQ_BYTECODE};
  // `yes` and `no` are offsets in bytes to the next operation; four bytes beyond the end rejects.
  constexpr uint8_t kStep = 2 * sizeof(inet_diag_bc_op);
  q.at_least[0] = {INET_DIAG_BC_S_GE, kStep, 2 * kStep + 4};
  q.at_least[1] = {0, 0, port};
  q.at_most[0] = {INET_DIAG_BC_S_LE, kStep, kStep + 4};
  q.at_most[1] = {0, 0, port};
  return q;
}

IpAddr address(const __be32* from, int family) {
  if (family == AF_INET) return IpAddr::v4(std::bit_cast<be32>(from[0]));
  uint8_t bytes[16];
  std::memcpy(bytes, from, sizeof bytes);
  return IpAddr::v6(bytes);
}

DiagSocket socket_of(const nlmsghdr& m, const inet_diag_msg& d) {
  const Attributes<INET_DIAG_SKV6ONLY> a = attributes_of<INET_DIAG_SKV6ONLY>(m, &d);
  const nlattr* const v6only = a[INET_DIAG_SKV6ONLY];
  return {.v6 = d.idiag_family == AF_INET6,
          .v6only = v6only != nullptr && attribute_length(v6only) >= 1 && *attribute_data(v6only),
          .local = address(d.id.idiag_src, d.idiag_family),
          .remote = address(d.id.idiag_dst, d.idiag_family),
          .remote_port = std::bit_cast<be16>(d.id.idiag_dport),
          .device = IfIndex(d.id.idiag_if),
          .cookie = uint64_t{d.id.idiag_cookie[1]} << 32 | d.id.idiag_cookie[0]};
}

Result<bool> ask(int family, IpProto proto, uint32_t states, uint16_t port, DiagSeen seen,
                 void* context) {
  const UniqueFd fd(to_high_number(static_cast<int>(
      ::syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG))));
  if (!fd) return fail_errno("socket sock_diag");
  const Question q = question(family, proto, states, port);
  if (::syscall(SYS_write, fd.get(), &q, sizeof q) < 0) return fail_errno("write sock_diag");
  std::vector<std::byte> answer(kAnswerBytes);
  for (;;) {
    const long n = ::syscall(SYS_read, fd.get(), answer.data(), answer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < static_cast<long>(sizeof(nlmsghdr))) return fail_errno("read sock_diag");
    for (size_t at = 0; static_cast<size_t>(n) - at >= sizeof(nlmsghdr);) {
      const auto& m = *reinterpret_cast<const nlmsghdr*>(answer.data() + at);
      if (m.nlmsg_len < sizeof m || m.nlmsg_len > static_cast<size_t>(n) - at) break;
      if (m.nlmsg_type == NLMSG_DONE) return false;
      if (m.nlmsg_type == NLMSG_ERROR) return fail(parse_error(m), "sock_diag");
      const auto* const d = header_of<inet_diag_msg>(m);
      if (d != nullptr && d->id.idiag_sport == be16(port).raw() && seen(context, socket_of(m, *d)))
        return true;
      at += std::min<size_t>(NLMSG_ALIGN(m.nlmsg_len), static_cast<size_t>(n) - at);
    }
  }
}

}  // namespace

Result<bool> any_diag_of(IpProto proto, uint32_t states, uint16_t port, DiagSeen seen,
                         void* context) {
  for (const int family : {AF_INET, AF_INET6}) {
    const auto r = ask(family, proto, states, port, seen, context);
    if (!r || *r) return r;
  }
  return false;
}

}  // namespace vireo::net
