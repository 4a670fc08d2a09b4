// How the rows of the table are written, and its five parts. Used within stack/sock/options only.
// Owner: none (constants).
#pragma once

#include "stack/sock/options/table.h"

namespace vireo {

extern const OptionLevel kSocketLevel;  // socket.cpp
extern const OptionLevel kIpLevel;      // ip.cpp
extern const OptionLevel kIpv6Level;    // ipv6.cpp
extern const OptionLevel kTcpLevel;     // tcp.cpp
extern const OptionLevel kUdpLevel;     // udp.cpp

// multicast.cpp
bool change_groups(const SetCall& c);

namespace rows {

using enum LeavesIf;
using enum OptionClass;

/// The same for TCP and UDP.
constexpr SocketOption ours(int level, int name, const char* text, OptionHandling how = {}) {
  return {level, name, text, kOurs, kOurs, kOn, 0, how};
}
constexpr SocketOption kernels(int level, int name, const char* text, OptionHandling how = {}) {
  return {level, name, text, kKernels, kKernels, kOn, 0, how};
}
constexpr SocketOption leaves(int level, int name, const char* text, LeavesIf when = kOn) {
  return {level, name, text, kLeaves, kLeaves, when};
}
/// Linux ignores it on a stream.
constexpr SocketOption leaves_udp(int level, int name, const char* text, LeavesIf when = kOn) {
  return {level, name, text, kKernels, kLeaves, when};
}

/// About the memberships of a UDP socket; of a stream they are without effect.
constexpr SocketOption groups(int level, int name, const char* text, OptionClass of_tcp) {
  return {level, name, text, of_tcp, kOurs, kSet, 0, {.change_groups = change_groups}};
}

}  // namespace rows
}  // namespace vireo
