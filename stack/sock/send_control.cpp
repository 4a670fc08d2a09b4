#include "stack/sock/send_control.h"

#include <linux/capability.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>

#include <linux/udp.h>  // behind <netinet/in.h>

#include <cerrno>
#include <concepts>
#include <cstring>

#include "core/fd.h"
#include "core/user_memory.h"
#include "stack/sock/libc.h"
#include "stack/sock/options/options.h"
#include "stack/sock/send_cmsg.h"
#include "stack/sock/send_reports.h"

namespace vireo {
namespace {

/// Of a datagram. More is the kernel's, which limits it by net.core.optmem_max.
constexpr size_t kMaxControl = 4096;

/// As for_each_control; false also if they are not readable.
template <std::predicate<const Control&> Take>
bool for_each_readable(const msghdr& msg, Take&& take) {
  const auto* const all = static_cast<const std::byte*>(msg.msg_control);
  if (msg.msg_controllen >= sizeof(cmsghdr) && !is_readable(all, msg.msg_controllen)) return false;
  return for_each_control(msg, take);
}

/// Of the calling thread, which may have dropped it meanwhile.
bool may_mark() {
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct caps[2]{};
  return ::syscall(SYS_capget, &head, caps) == 0 &&
         (caps[0].effective & (1U << CAP_NET_ADMIN | 1U << CAP_NET_RAW)) != 0;
}

/// SO_PRIORITY is Linux 6.14's. Asked of a socket that may not broadcast, so that nothing is sent:
/// the kernel reads the ancillary data first.
bool kernel_takes_priority() {
  static const bool takes = [] {
    const UniqueFd fd(libc().socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in all{};
    all.sin_family = AF_INET;
    all.sin_port = htons(9);
    all.sin_addr.s_addr = INADDR_BROADCAST;
    alignas(cmsghdr) std::byte room[CMSG_SPACE(sizeof(uint32_t))]{};
    const cmsghdr head{CMSG_LEN(sizeof(uint32_t)), SOL_SOCKET, SO_PRIORITY};
    std::memcpy(room, &head, sizeof head);
    msghdr m{};
    m.msg_name = &all;
    m.msg_namelen = sizeof all;
    m.msg_control = room;
    m.msg_controllen = sizeof room;
    const int saved = errno;
    const bool is_unknown = !fd || (kernel::sendmsg(fd.get(), &m, 0) < 0 && errno == EINVAL);
    errno = saved;
    return !is_unknown;
  }();
  return takes;
}
constexpr uint32_t kMostPriority = 6;  // TC_PRIO_INTERACTIVE: above it needs a capability

bool take_socket(const Control& c, SendControl& to) {
  if (!c.holds<uint32_t>()) return false;
  const auto value = c.as<uint32_t>();
  switch (c.type) {
    case SO_TIMESTAMPING_OLD:
    case SO_TIMESTAMPING_NEW:
    case kScmTsOptId:
      to.asks_report = true;
      return true;
    case SO_MARK:
      to.mark = value;
      return may_mark();
    case SO_PRIORITY:
      to.priority = static_cast<uint8_t>(value);
      return value <= kMostPriority && kernel_takes_priority();
    default:
      return false;
  }
}

bool take_udp(const Control& c, SendControl& to) {
  if (c.type != UDP_SEGMENT || !c.holds<uint16_t>()) return false;
  to.segment = c.as<uint16_t>();
  return true;
}

bool take_ip(const Control& c, SendControl& to) {
  switch (c.type) {
    case IP_PKTINFO: {
      if (!c.holds<in_pktinfo>()) return false;
      const auto info = c.as<in_pktinfo>();
      if (info.ipi_ifindex != 0) to.by = IfIndex(static_cast<uint32_t>(info.ipi_ifindex));
      to.source = IpAddr::v4(std::bit_cast<be32>(info.ipi_spec_dst.s_addr));
      return true;
    }
    case IP_TTL: {
      if (!c.holds<int>()) return false;
      const int ttl = c.as<int>();
      to.ttl = static_cast<uint8_t>(ttl);
      return ttl >= 1 && ttl <= 255;
    }
    case IP_TOS: {
      if (!c.holds<int>() && !c.holds<uint8_t>()) return false;
      const int tos = c.holds<int>() ? c.as<int>() : c.as<uint8_t>();
      to.tos = static_cast<uint8_t>(tos);
      to.priority = static_cast<uint8_t>(priority_of_tos(tos));
      return tos >= 0 && tos <= 255;
    }
    default:
      return false;
  }
}

/// IPV6_PKTINFO. Of a datagram over IPv4 the address must be a mapped one.
bool take_ip6_info(const Control& c, bool over_v4, SendControl& to) {
  if (c.bytes < sizeof(in6_pktinfo)) return false;
  const auto info = c.as<in6_pktinfo>();
  const IpAddr from = IpAddr::v6(info.ipi6_addr);
  if (over_v4 && !from.is_v4()) return false;
  if (!over_v4 && from.is_v4()) return false;
  if (info.ipi6_ifindex != 0) to.by = IfIndex(info.ipi6_ifindex);
  if (over_v4 || !from.is_unspecified()) to.source = from;
  return true;
}

bool take_ip6(const Control& c, SendControl& to) {
  constexpr int kOfSocket = -1;
  if (c.type == IPV6_PKTINFO) return take_ip6_info(c, false, to);
  if (!c.holds<int>()) return false;
  const int value = c.as<int>();
  const auto byte = static_cast<uint8_t>(value);
  switch (c.type) {
    case IPV6_HOPLIMIT:
      to.ttl = value == kOfSocket ? std::nullopt : std::optional(byte);
      return value >= kOfSocket && value <= 255;
    case IPV6_TCLASS:  // -1 is the socket's, or 255 by some kernels
      to.tos = byte;
      return value >= 0 && value <= 255;
    case IPV6_DONTFRAG:
      to.dont_fragment = value != 0;
      return value >= 0 && value <= 1;
    default:
      return false;
  }
}

}  // namespace

UdpAsked SendControl::asked(IpSettings ip) const noexcept {
  ip.tos = tos.value_or(ip.tos);
  ip.ttl = ttl.value_or(ip.ttl);
  ip.priority = priority.value_or(ip.priority);
  ip.mark = mark.value_or(ip.mark);
  return {source.value_or(IpAddr()), by, ip};
}

std::optional<SendControl> read_send_control(const msghdr& msg, int domain, const Endpoint& to) {
  if (msg.msg_controllen > kMaxControl) return std::nullopt;
  SendControl all;
  const bool over_v4 = to.addr.is_v4();
  const bool is_good = for_each_readable(msg, [&](const Control& c) {
    switch (c.level) {
      case IPPROTO_UDP:
        return take_udp(c, all);
      case SOL_SOCKET:
        return take_socket(c, all);
      case IPPROTO_IP:
        return !over_v4 || take_ip(c, all);
      case IPPROTO_IPV6:
        if (!over_v4) return take_ip6(c, all);
        return domain != AF_INET6 || c.type != IPV6_PKTINFO || take_ip6_info(c, true, all);
      default:
        return true;  // ignored
    }
  });
  if (!is_good) return std::nullopt;
  all.names_way =
      all.source || all.by != IfIndex() || all.tos || all.ttl || all.priority || all.mark;
  return all;
}

int stream_control_error(const msghdr& msg) {
  if (msg.msg_controllen != 0 && !is_readable(msg.msg_control, msg.msg_controllen)) return EFAULT;
  const bool is_good = for_each_readable(msg, [](const Control& c) {
    if (c.level != SOL_SOCKET) return true;
    switch (c.type) {
      case SCM_RIGHTS:
      case SCM_CREDENTIALS:
        return true;
      case kScmTsOptId:
        return false;
      default: {
        SendControl ignored;
        return take_socket(c, ignored);
      }
    }
  });
  return is_good ? 0 : EINVAL;
}

}  // namespace vireo
