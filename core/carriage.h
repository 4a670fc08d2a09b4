// Whether Vireo carries a socket, and if not, why. Owner: none (values). Thread: any.
#pragma once

#include <cstdint>
#include <expected>
#include <string_view>

namespace vireo {

/// Carried, or the reason why the kernel serves the socket. Shown by vireo-stat; values are part of
/// the stats layout.
enum class Carriage : uint8_t {
  kUndecided = 0,  ///< not connected, bound or listening yet
  kCarried,
  kDisabled,    ///< VMA_OFFLOADED_SOCKETS=0 or VIREO_DEVICE=off
  kRule,        ///< a line of the rules file selects the kernel
  kFamily,      ///< not AF_INET or AF_INET6
  kType,        ///< not SOCK_STREAM or SOCK_DGRAM, or a protocol other than TCP and UDP
  kLoopback,    ///< the other end is this host
  kNoRoute,     ///< the kernel has no route to the destination
  kInterface,   ///< the route uses an interface that is not carried (kind, VIREO_INTERFACES, down),
                ///< or not for sockets that name it
  kDeviceBusy,  ///< another process holds the interface's XDP hook or queue
  kRights,      ///< a capability is missing
  kMemory,      ///< RLIMIT_MEMLOCK or memory
  kDevice,      ///< the device refused for another reason
  kSteering,    ///< no room or no support for the steering rule
  kOption,      ///< an option was set that only the kernel supports
  kBroadcast,   ///< broadcast or unsupported multicast destination
  kInherited,   ///< inherited from another process: fork, exec or SCM_RIGHTS
  kFragment,    ///< larger than the path MTU: the kernel fragments
  kNamespace,   ///< created in a network namespace other than that of Vireo's interfaces
  kFilter,      ///< the host's packet filter drops, or may drop, its packets
  kCount
};

/// Why a socket or a flow is not carried.
struct Refusal {
  Carriage why = Carriage::kDevice;
  int err = 0;  ///< errno of the step, 0 = none
  const char* where = "";
};
template <class T>
using Carried = std::expected<T, Refusal>;

/// The reason for an errno of a device or its setup.
Carriage carriage_of_errno(int code);
/// Short name for tables and JSON, e.g. "no-route".
std::string_view carriage_name(Carriage c);
/// One sentence for users, with the remedy.
std::string_view carriage_text(Carriage c);

}  // namespace vireo
