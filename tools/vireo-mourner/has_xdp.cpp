#include "tools/vireo-mourner/has_xdp.h"

#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "core/fd.h"

namespace vireo {
namespace {

/// The attribute `type` in [at, at + bytes), or null.
const rtattr* find(const rtattr* at, size_t bytes, unsigned type) {
  auto left = static_cast<int>(bytes);
  for (; RTA_OK(at, left); at = RTA_NEXT(at, left))
    if ((at->rta_type & NLA_TYPE_MASK) == type) return at;
  return nullptr;
}

}  // namespace

bool has_xdp(uint32_t ifindex) {
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  struct {
    nlmsghdr header;
    ifinfomsg link;
  } ask{};
  ask.header.nlmsg_len = sizeof ask;
  ask.header.nlmsg_type = RTM_GETLINK;
  ask.header.nlmsg_flags = NLM_F_REQUEST;
  ask.link.ifi_index = static_cast<int>(ifindex);
  if (::send(socket.get(), &ask, sizeof ask, 0) != sizeof ask) return false;
  alignas(nlmsghdr) static char answer[32 << 10];
  const ssize_t n = ::recv(socket.get(), answer, sizeof answer, 0);
  const auto* header = reinterpret_cast<const nlmsghdr*>(answer);
  if (n < 0 || !NLMSG_OK(header, static_cast<unsigned>(n)) || header->nlmsg_type != RTM_NEWLINK)
    return false;
  const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(header));
  const rtattr* xdp = find(IFLA_RTA(link), IFLA_PAYLOAD(header), IFLA_XDP);
  if (xdp == nullptr) return false;
  const rtattr* attached =
      find(static_cast<const rtattr*>(RTA_DATA(xdp)), RTA_PAYLOAD(xdp), IFLA_XDP_ATTACHED);
  return attached != nullptr &&
         *static_cast<const uint8_t*>(RTA_DATA(attached)) != XDP_ATTACHED_NONE;
}

}  // namespace vireo
