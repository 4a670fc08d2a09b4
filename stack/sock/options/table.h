// Every option of socket(7), ip(7), ipv6(7), tcp(7) and udp(7), a row each: what becomes of a
// socket for which it is set, where its value is kept, how that is applied to a live flow, how it
// is read, and how a kernel's socket is told that goes on in its place. No option is accepted and
// then without effect: tests/unit/sock/option_walk_test.cpp walks the table, the kernel's headers
// and the kernel itself, and fails for one that is not here.
//
// The rows are in socket.cpp, ip.cpp, ipv6.cpp, tcp.cpp and udp.cpp. One of an int that the
// kernel's socket judges, and that is read where it is used, needs its place alone:
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
  kOurs,     ///< Vireo honours it, or gives its answer
  kKernels,  ///< the kernel's socket beneath does all that it is about; or it is a hint, or read
             ///< only, or Linux does nothing for it on such a socket
  kLeaves,   ///< only the kernel can honour it: the socket is the kernel's from then on
  kRefused,  ///< as kLeaves, but a connection that is carried fails it with `error`: programs can
             ///< do without, and find out by trying
};

/// With which values an option leaves the socket to the kernel.
enum class LeavesIf : uint8_t {
  kSet,            ///< any
  kOn,             ///< an int other than 0
  kNotNegative,    ///< an int
  kNotEmpty,       ///< of at least a byte
  kUnknownStamps,  ///< SO_TIMESTAMPING of other times than Vireo tells
};

/// How an option that is ours is set, applied, read and handed on. Every part may be missing.
/// Control lock held in all of them, but for `apply` (and the engine's, too) and `tell` (none).
struct OptionHandling {
  /// Its place. The kernel's socket is asked first, so that limits, clamping and errno are Linux's;
  /// then its answer is read back and kept here.
  int& (*kept)(SocketOptions&) = nullptr;

  // ---- setsockopt(2), in the order in which they are asked
  /// All of the call. nullopt: go on as with the others.
  std::optional<Result<void>> (*set)(const SetCall&) = nullptr;
  /// Must a connection refuse it (EINVAL)? The kernel's socket beneath, which has none, cannot say.
  bool (*is_fixed)(const SetCall&) = nullptr;
  /// Does this socket go to the kernel with such a value, though others do not?
  bool (*leaves)(const File&, int value) = nullptr;
  /// Keeps what the kernel made of it, in another way than reading an int back.
  void (*keep)(const SetCall&, SocketOptions&) = nullptr;
  /// Makes a live connection follow. A listener is configured anew, whatever was set.
  void (*apply)(LiveConnection&) = nullptr;
  /// UDP: changes the socket's groups. false: it is none of those calls.
  bool (*change_groups)(const SetCall&) = nullptr;

  // ---- getsockopt(2)
  /// The answer is not the kernel's socket's to give. nullopt: it is. Not asked for sockets that
  /// are the kernel's.
  std::optional<Result<void>> (*tell)(const GetCall&) = nullptr;
  /// Of what is kept, where the kernel's socket beneath belongs to many. nullopt: the int `kept`,
  /// else the kernel's answer.
  std::optional<Result<void>> (*read)(const GetCall&) = nullptr;

  // ---- a kernel's socket that goes on in its place
  /// Another way than to set the int `kept`, if it is not what a new socket has.
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
  /// Of class kLeaves or kRefused: does such a value ask for what only the kernel can do? `len` as
  /// setsockopt(2) has it; `value`: its first int.
  bool leaves_with(int value, socklen_t len, bool is_udp) const;
};

/// Linux's names of a level are lower.
inline constexpr int kMaxOptionName = 127;

/// The options of a level.
struct OptionLevel {
  int level;
  std::span<const SocketOption> rows;
  std::array<uint8_t, kMaxOptionName + 1> places;  ///< in `rows`, by name; kNone: not there
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

/// The levels that there are.
std::span<const OptionLevel* const> option_levels();
/// Null: Vireo knows of none such.
const SocketOption* find_option(int level, int name);

/// A row as a number that is kept where there is no room for more.
using OptionId = uint16_t;
inline constexpr OptionId kNoOption = 0xffff;
/// Of null: kNoOption.
OptionId id_of(const SocketOption* option);
const SocketOption* option_of(OptionId id);

}  // namespace vireo
