#include "dev/xdp/ethtool.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "core/fd.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

class IfRequest {
 public:
  IfRequest(int fd, const char* name) : fd_(fd) { std::memcpy(r_.ifr_name, name, IFNAMSIZ); }
  bool get(unsigned long what) {
    return sys(SYS_ioctl, fd_, static_cast<long>(what), reinterpret_cast<long>(&r_)) == 0;
  }
  bool ethtool(void* command) {
    r_.ifr_data = static_cast<char*>(command);
    return get(SIOCETHTOOL);
  }
  const ifreq& operator*() const { return r_; }

 private:
  int fd_;
  ifreq r_{};
};

uint32_t queue_pairs(IfRequest request) {
  ethtool_channels c{};
  c.cmd = ETHTOOL_GCHANNELS;
  if (!request.ethtool(&c)) return 1;
  // Drivers report pairs (combined), or RX and TX separately.
  return std::max(1U, c.combined_count + std::min(c.rx_count, c.tx_count));
}

/// Empty if the driver does not report it.
std::string driver(IfRequest request) {
  ethtool_drvinfo d{};
  d.cmd = ETHTOOL_GDRVINFO;
  if (!request.ethtool(&d)) return {};
  return {d.driver, strnlen(d.driver, sizeof d.driver)};
}

/// Tells what strips VLAN tags before XDP sees a frame. On a veth the peer strips them; it is
/// usually in another namespace and cannot be queried, so `rxvlan off` set by the operator stands
/// for both ends. Interfaces stacked on another one receive frames without tags.
const char* hides_tags(IfRequest request, std::string_view driver) {
  constexpr std::string_view kAbove[] = {"macvlan", "ipvlan", "bridge", "bonding", "team"};
  if (std::ranges::find(kAbove, driver) != std::end(kAbove))
    return "VLAN tags hidden: they are taken off beneath it";
  ethtool_value flags{.cmd = ETHTOOL_GFLAGS, .data = 0};
  if (!request.ethtool(&flags) || (flags.data & ETH_FLAG_RXVLAN) == 0) return nullptr;
  if (driver == "veth") return "VLAN tags hidden: ethtool rxvlan off, txvlan off at the peer";
  return "VLAN tags hidden: ethtool -K IF rxvlan off";
}

/// Drivers that may deliver what a kernel on the same host sent with work left to a NIC (checksum,
/// segmentation), or that are stacked on such interfaces.
bool is_virtual(std::string_view driver) {
  constexpr std::string_view kAll[] = {"veth",
                                       "tun",
                                       "virtio_net",
                                       "macvlan",
                                       "ipvlan",
                                       "netkit",
                                       "bridge",
                                       "bonding",
                                       "team",
                                       "vif",
                                       "hv_netvsc",
                                       "vmxnet3",
                                       "802.1Q VLAN Support"};
  return std::ranges::find(kAll, driver) != std::end(kAll);
}

}  // namespace

Result<Interface> describe(IfIndex ifindex) {
  const long s = sys(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (s < 0) return fail(static_cast<int>(-s), "socket for interface queries");
  const UniqueFd fd(static_cast<int>(s));

  ifreq by_index{};
  by_index.ifr_ifindex = static_cast<int>(ifindex.value());
  if (sys(SYS_ioctl, fd.get(), SIOCGIFNAME, reinterpret_cast<long>(&by_index)) != 0)
    return fail(ENODEV, "interface index (SIOCGIFNAME)");

  Interface i;
  std::memcpy(i.name, by_index.ifr_name, IFNAMSIZ);
  if (IfRequest r(fd.get(), i.name); r.get(SIOCGIFMTU)) i.mtu = static_cast<uint32_t>((*r).ifr_mtu);
  if (IfRequest r(fd.get(), i.name); r.get(SIOCGIFHWADDR))
    std::memcpy(i.mac.data(), (*r).ifr_hwaddr.sa_data, i.mac.size());
  i.queues = queue_pairs(IfRequest(fd.get(), i.name));
  const std::string by = driver(IfRequest(fd.get(), i.name));
  i.is_virtual = is_virtual(by);
  i.is_tap = by == "tun";
  i.hides_tags = hides_tags(IfRequest(fd.get(), i.name), by);
  return i;
}

}  // namespace vireo::xdp
