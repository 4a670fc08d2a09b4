// Every option of socket(7), ip(7), ipv6(7), tcp(7) and udp(7), one row each: whether the socket
// stays carried when it is set, where its value is kept, how it is applied to a live flow, how it
// is read, and how it is set on a kernel socket that replaces the flow. No option is accepted
// without effect: tests/unit/sock/option_walk_test.cpp walks the table, the kernel's headers and
// the kernel itself, and fails for one that is not here.
//
// The rows are in socket.cpp, ip.cpp, ipv6.cpp, tcp.cpp and udp.cpp. An int that the kernel socket
// validates, and that is read where it is used, needs only its place:
//
//   ours(TCP(TCP_INQ), {.kept = kept<&TcpOptions::inq>}),
//
// Owner: none (constants). Thread: any. Source: the headers linux/in.h, in6.h, tcp.h, udp.h,
// asm-generic/socket.h.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "core/result.h"

namespace vireo {

struct File;            // stack/sock/file.h
struct SocketOptions;   // stack/sock/options/values.h
struct SetCall;         // stack/sock/options/call.h
struct GetCall;         // the same
struct LiveConnection;  // the same

enum class OptionClass : uint8_t {
  kOurs,     ///< Vireo implements it, or answers it
  kKernels,  ///< the kernel socket beneath implements all of it; or it is a hint, or read-only, or
             ///< Linux ignores it on such a socket
  kLeaves,   ///< only the kernel can implement it: the socket is the kernel's from then on
  kRefused,  ///< as kLeaves, but a carried connection fails it with `error`: programs can do
             ///< without it, and find out by trying
};

/// The values with which an option moves the socket to the kernel.
enum class LeavesIf : uint8_t {
  kSet,            ///< any
  kOn,             ///< an int other than 0
  kNotNegative,    ///< an int
  kNotEmpty,       ///< of at least one byte
  kUnknownStamps,  ///< SO_TIMESTAMPING of times that Vireo does not report
};

/// How an option of class kOurs is set, applied, read and passed on. Every part may be missing.
/// Control lock held in all of them; in `apply` the engine's too, in `tell` none.
struct OptionHandling {
  /// Where the value is kept. It is first set on the kernel socket, so that limits, clamping and
  /// errno are Linux's, then read back and kept here.
  int& (*kept)(SocketOptions&) = nullptr;

  // ---- setsockopt(2), in the order of the calls
  /// Handles the whole call. nullopt: continue with the parts below.
  std::optional<Result<void>> (*set)(const SetCall&) = nullptr;
  /// Whether a connection must refuse it (EINVAL). The unconnected kernel socket cannot tell.
  bool (*is_fixed)(const SetCall&) = nullptr;
  /// This value moves this socket to the kernel, though not every socket.
  bool (*leaves)(const File&, int value) = nullptr;
  /// Keeps the kernel's value in another way than reading an int back.
  void (*keep)(const SetCall&, SocketOptions&) = nullptr;
  /// Applies it to a live connection. A listener is reconfigured after any option.
  void (*apply)(LiveConnection&) = nullptr;
  /// UDP: changes the socket's multicast groups. false: it is no such call.
  bool (*change_groups)(const SetCall&) = nullptr;

  // ---- getsockopt(2)
  /// The answer does not come from the kernel socket. nullopt: it does. Not called for sockets that
  /// are the kernel's.
  std::optional<Result<void>> (*tell)(const GetCall&) = nullptr;
  /// Answers from the kept options, where the kernel socket beneath is shared by many. nullopt: the
  /// int `kept`, else the kernel's answer.
  std::optional<Result<void>> (*read)(const GetCall&) = nullptr;

  // ---- a kernel socket that replaces the flow
  /// Replaces the default, which sets the int `kept` if it differs from a new socket's.
  void (*give)(const File&, int fd) = nullptr;
};

struct SocketOption {
  int level;
  int name;
  const char* text;  ///< "TCP_NODELAY"
  OptionClass tcp;
  OptionClass udp;
  LeavesIf leaves = LeavesIf::kOn;
  int error = 0;
  OptionHandling how = {};

  OptionClass of(bool is_udp) const { return is_udp ? udp : tcp; }
  /// For classes kLeaves and kRefused: whether this value needs the kernel. `len` as in
  /// setsockopt(2); `value`: its first int.
  bool leaves_with(int value, socklen_t len, bool is_udp) const;
};

/// All of Linux's option names in a level are at most this.
inline constexpr int kMaxOptionName = 127;

/// The options of a level.
struct OptionLevel {
  int level;
  std::span<const SocketOption> rows;
  std::array<uint8_t, kMaxOptionName + 1> places;  ///< index in `rows` by name; kNone: no row
  static constexpr uint8_t kNone = 0xff;

  template <size_t N>
  explicit constexpr OptionLevel(const SocketOption (&all)[N])
      : level(all[0].level), rows(all), places() {
    static_assert(N < kNone);
    places.fill(kNone);
    for (size_t i = 0; i < N; ++i)
      places[static_cast<size_t>(all[i].name)] = static_cast<uint8_t>(i);
  }
};

/// All levels.
std::span<const OptionLevel* const> option_levels();
/// Null: unknown to Vireo.
const SocketOption* find_option(int level, int name);

/// A row's identifier, for places with little room.
using OptionId = uint16_t;
inline constexpr OptionId kNoOption = 0xffff;
/// Of null: kNoOption.
OptionId id_of(const SocketOption* option);
const SocketOption* option_of(OptionId id);

}  // namespace vireo
