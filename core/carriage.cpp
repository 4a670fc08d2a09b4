#include "core/carriage.h"

#include <array>
#include <cerrno>

namespace vireo {
namespace {

struct Entry {
  std::string_view name;
  std::string_view text;
};

constexpr std::array<Entry, static_cast<size_t>(Carriage::kCount)> kEntries{{
    {"undecided", "not connected, bound or listening yet"},
    {"carried", "carried by Vireo"},
    {"disabled", "switched off by VMA_OFFLOADED_SOCKETS=0 or VIREO_DEVICE=off"},
    {"rule", "a line of the rules file (VMA_CONFIG_FILE) leaves it to the kernel"},
    {"family", "only IPv4 and IPv6 sockets are carried"},
    {"type", "only TCP and UDP sockets are carried"},
    {"loopback", "the other end is this host: the kernel's loopback serves it"},
    {"no-route", "the kernel has no route to the destination: see ip route get"},
    {"interface",
     "the interface is not carried, or not for this socket: see vireo-doctor, VIREO_INTERFACES"},
    {"device-busy",
     "another process (of a fork: the parent) holds the interface's XDP hook or queue and does not "
     "share it: end it, or use another interface"},
    {"rights", "a capability is missing: CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF are needed"},
    {"memory",
     "memory for the device was refused: raise ulimit -l (RLIMIT_MEMLOCK) or lower "
     "VIREO_ARENA_BYTES"},
    {"device", "the device refused: see vireo-doctor"},
    {"steering", "the device has no room for another steering rule"},
    {"option", "an option was set that only the kernel can honour"},
    {"broadcast", "broadcast is left to the kernel"},
    {"inherited", "the socket came from another process"},
    {"fragment", "larger than the path MTU: the kernel fragments it"},
    {"namespace",
     "the program entered another network namespace (setns, unshare): what it opens there is the "
     "kernel's; start it in there (ip netns exec) and it is carried"},
    {"filter",
     "a rule of the host's packet filter (nftables, iptables, tc, IPsec) refuses its packets, or "
     "may: see vireo-doctor, VIREO_RESPECT_FILTER"},
}};

}  // namespace

Carriage carriage_of_errno(int code) {
  switch (code) {
    case EBUSY:
      return Carriage::kDeviceBusy;
    case EPERM:
    case EACCES:
      return Carriage::kRights;
    case ENOMEM:
    case ENOBUFS:
      return Carriage::kMemory;
    default:
      return Carriage::kDevice;
  }
}

std::string_view carriage_name(Carriage c) { return kEntries[static_cast<size_t>(c)].name; }
std::string_view carriage_text(Carriage c) { return kEntries[static_cast<size_t>(c)].text; }

}  // namespace vireo
