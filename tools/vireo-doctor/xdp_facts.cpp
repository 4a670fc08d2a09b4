#include "tools/vireo-doctor/xdp_facts.h"

#include <bpf/libbpf.h>
#include <linux/genetlink.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/fd.h"

namespace vireo::doctor {
namespace {

// From linux/netdev.h, which Debian 12 lacks.
constexpr uint8_t kNetdevGetDevice = 1;
constexpr uint16_t kNetdevIfindex = 1;
constexpr uint16_t kNetdevXdpFeatures = 3;

/// Sends one request with one attribute; copies the reply's attribute `wanted` to `out`.
template <class T>
bool ask(int fd, uint16_t family, uint8_t command, uint16_t attribute, const void* value,
         size_t bytes, uint16_t wanted, T& out) {
  alignas(nlmsghdr) char buffer[8192] = {};
  auto* const request = reinterpret_cast<nlmsghdr*>(buffer);
  const size_t length = NLMSG_LENGTH(GENL_HDRLEN) + NLA_ALIGN(NLA_HDRLEN + bytes);
  request->nlmsg_len = static_cast<uint32_t>(length);
  request->nlmsg_type = family;
  request->nlmsg_flags = NLM_F_REQUEST;
  auto* const head = static_cast<genlmsghdr*>(NLMSG_DATA(request));
  head->cmd = command;
  head->version = 1;
  char* const at = reinterpret_cast<char*>(head) + GENL_HDRLEN;
  const nlattr a{static_cast<uint16_t>(NLA_HDRLEN + bytes), attribute};
  std::memcpy(at, &a, sizeof a);
  std::memcpy(at + NLA_HDRLEN, value, bytes);
  if (::send(fd, buffer, length, 0) != static_cast<ssize_t>(length)) return false;

  const auto n = ::recv(fd, buffer, sizeof buffer, 0);
  if (n < static_cast<ssize_t>(NLMSG_LENGTH(GENL_HDRLEN)) || request->nlmsg_type != family)
    return false;  // NLMSG_ERROR: no such family, command or interface
  const size_t end = std::min<size_t>(static_cast<size_t>(n), request->nlmsg_len);
  for (size_t from = NLMSG_LENGTH(GENL_HDRLEN); from + NLA_HDRLEN <= end;) {
    nlattr found;
    std::memcpy(&found, buffer + from, sizeof found);
    if (found.nla_len < NLA_HDRLEN || from + found.nla_len > end) return false;
    if ((found.nla_type & NLA_TYPE_MASK) == wanted && found.nla_len >= NLA_HDRLEN + sizeof out) {
      std::memcpy(&out, buffer + from + NLA_HDRLEN, sizeof out);
      return true;
    }
    from += NLA_ALIGN(found.nla_len);
  }
  return false;
}

}  // namespace

Attached attached_program(IfIndex ifindex) {
  bpf_xdp_query_opts q{};
  q.sz = sizeof q;
  if (bpf_xdp_query(static_cast<int>(ifindex.value()), 0, &q) != 0) return {};
  switch (q.attach_mode) {
    case XDP_ATTACHED_DRV:
      return {q.drv_prog_id, "native"};
    case XDP_ATTACHED_SKB:
      return {q.skb_prog_id, "generic"};
    case XDP_ATTACHED_HW:
      return {q.hw_prog_id, "offloaded"};
    case XDP_ATTACHED_MULTI:
      return {q.drv_prog_id != 0 ? q.drv_prog_id : q.skb_prog_id, "several"};
    default:
      return {};
  }
}

std::optional<uint64_t> xdp_features(IfIndex ifindex) {
  const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC));
  if (!fd) return std::nullopt;
  constexpr char kFamily[] = "netdev";
  uint16_t family = 0;
  if (!ask(fd.get(), GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, kFamily,
           sizeof kFamily, CTRL_ATTR_FAMILY_ID, family))
    return std::nullopt;
  const uint32_t index = ifindex.value();
  uint64_t features = 0;
  if (!ask(fd.get(), family, kNetdevGetDevice, kNetdevIfindex, &index, sizeof index,
           kNetdevXdpFeatures, features))
    return std::nullopt;
  return features;
}

std::string driver_of(const std::string& interface) {
  char to[512];
  const auto n =
      ::readlink(("/sys/class/net/" + interface + "/device/driver").c_str(), to, sizeof to);
  if (n <= 0) return {};
  const std::string path(to, static_cast<size_t>(n));
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace vireo::doctor
