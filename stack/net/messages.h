// Converts rtnetlink messages to table rows (rtnetlink(7); linux/rtnetlink.h, if_link.h,
// fib_rules.h, neighbour.h). Owner: none (pure functions). Thread: any. The kernel's messages are
// trusted, but every length is checked.
#pragma once

#include <linux/netlink.h>

#include <optional>

#include "stack/net/snapshot.h"

namespace vireo::net {

/// A link from RTM_NEWLINK or RTM_DELLINK of family AF_UNSPEC. Nullopt: malformed, or of another
/// family (bridge).
std::optional<Link> parse_link(const nlmsghdr& m);
/// RTM_NEWADDR, RTM_DELADDR. Nullopt: malformed, or neither IPv4 nor IPv6.
std::optional<Addr> parse_addr(const nlmsghdr& m);
std::optional<Rule> parse_rule(const nlmsghdr& m);
std::optional<Neighbour> parse_neighbour(const nlmsghdr& m);

/// RTM_NEWNETCONF, RTM_DELNETCONF of IPv4: an interface's settings, or those for all.
struct Conf {
  int32_t ifindex = 0;  ///< NETCONFA_IFINDEX_ALL: minimum for all interfaces
  std::optional<uint8_t> rp_filter;
};
std::optional<Conf> parse_conf(const nlmsghdr& m);

struct RouteMessage {
  Route route;
  bool cloned =
      false;  ///< RTM_F_CLONED: a cached exception or the answer to a query, no entry of a table
  bool by_source = false;  ///< IPv6 route with a source prefix
};
std::optional<RouteMessage> parse_route(const nlmsghdr& m);

/// errno of an NLMSG_ERROR (0: acknowledged).
int parse_error(const nlmsghdr& m);

}  // namespace vireo::net
