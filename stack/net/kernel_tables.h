// The kernel's tables as described by the netlink messages received so far: the source of the next
// snapshot. One socket receives dumps and notifications, and the kernel queues both in the order of
// its changes; so a dump fills a new table, to which notifications that arrive meanwhile are
// applied too, and which then replaces the old one. Some changes have no notification (IPv4 routes
// removed with their interface or address): then the table is dumped again. Owner: the mirror's
// session. Thread: the helper.
#pragma once

#include <linux/netlink.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "stack/net/messages.h"
#include "stack/net/snapshot.h"

namespace vireo::net {

/// What one request can dump; also the bits of a set of parts.
enum class Part : uint8_t {
  kNone = 0,
  kLinks = 1,
  kAddrs = 2,
  kRules4 = 4,
  kRules6 = 8,
  kRoutes4 = 16,
  kRoutes6 = 32,
  kNeighbours = 64,
  kConf = 128,
};

}  // namespace vireo::net

template <>
inline constexpr bool vireo::kIsFlags<vireo::net::Part> = true;

namespace vireo::net {

inline constexpr Part kAllParts = static_cast<Part>(255);

class KernelTables {
 public:
  /// Begins the dump of one part; its messages come by dumped(), until end_dump().
  void begin_dump(Part part);
  void dumped(const nlmsghdr& m);
  void end_dump();
  /// A notification.
  void changed(const nlmsghdr& m);

  /// Parts that must be dumped again; reading clears the set.
  Part take_stale() { return std::exchange(stale_, Part::kNone); }
  /// A link or address was removed: its routes may be removed a moment after the message. Reading
  /// clears it.
  bool take_unsettled() { return std::exchange(unsettled_, false); }
  /// Something has changed since the last build().
  bool is_dirty() const { return dirty_ != Part::kNone; }
  /// A snapshot of the present state; it shares unchanged tables with the last one.
  std::unique_ptr<Snapshot> build();

 private:
  /// Routes of one table in the kernel's order: by prefix, TOS, metric, then order of insertion.
  struct RouteKey {
    IpAddr dst;
    uint8_t dst_len = 0;
    uint8_t tos = 0;
    uint32_t metric = 0;
    int32_t order = 0;
    bool operator<(const RouteKey& o) const;
    bool same_place(const RouteKey& o) const;
  };
  struct Table {
    std::map<RouteKey, Route> routes;
    bool by_source = false;
    bool dirty = true;
    std::shared_ptr<const RouteTable> built;
  };
  using Family = std::map<uint32_t, Table>;
  struct NeighbourKey {
    IfIndex ifindex;
    IpAddr addr;
    auto operator<=>(const NeighbourKey&) const = default;
  };
  template <class T>
  struct Stamped {
    T row;
    uint32_t dump = 0;  ///< the last dump that contained it, or during which it was notified
  };

  void on_link(const nlmsghdr& m, bool removed);
  void on_neighbour(const nlmsghdr& m, bool removed);
  void on_conf(const nlmsghdr& m, bool removed);
  void on_route(const nlmsghdr& m, bool from_dump);
  /// @return false: the message does not fit the table's contents.
  static bool insert_v4(Table& t, const Route& r, unsigned flags);
  static bool insert_v6(Table& t, const Route& r, unsigned flags);
  static bool remove(Table& t, const Route& r);
  static void append(Table& t, const Route& r);
  void mark(Part p) { dirty_ |= p; }
  void build_routes(Snapshot& s);

  std::map<IfIndex, Stamped<Link>> links_;
  std::map<NeighbourKey, Stamped<Neighbour>> neighbours_;
  std::map<int32_t, Stamped<uint8_t>> rp_filters_;  ///< by Conf::ifindex
  std::vector<Addr> addrs_;
  std::vector<Rule> rules_[2];  // by family: 0 IPv4, 1 IPv6
  Family routes_[2];

  Part dumping_ = Part::kNone;
  uint32_t dump_ = 1;
  std::vector<Addr> fresh_addrs_;
  std::vector<Rule> fresh_rules_;
  Family fresh_routes_;

  Part stale_ = Part::kNone;
  bool unsettled_ = false;
  Part dirty_ = kAllParts;
  Snapshot last_;
};

}  // namespace vireo::net
