// Every option of socket(7), ip(7), ipv6(7), tcp(7) and udp(7), and what becomes of a socket for
// which it is set: none is accepted and then without effect. tests/unit/sock/option_walk_test.cpp
// walks the table, the kernel's headers and the kernel itself, and fails for one that is not here.
// Owner: none (constants). Thread: any. Source: the headers linux/in.h, in6.h, tcp.h, udp.h,
// asm-generic/socket.h.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>

namespace vireo {

struct SocketOptions;  // stack/sock/options.h

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

struct SocketOption {
  int level;
  int name;
  const char* text;  ///< "TCP_NODELAY"
  OptionClass tcp;
  OptionClass udp;
  LeavesIf leaves = LeavesIf::kOn;
  int error = 0;
  /// The kernel's answer is kept here when it was set, and read from here where the kernel's socket
  /// beneath belongs to many.
  int SocketOptions::* kept = nullptr;

  OptionClass of(bool is_udp) const { return is_udp ? udp : tcp; }
  /// Of class kLeaves or kRefused: does such a value ask for what only the kernel can do? `len` as
  /// setsockopt(2) has it; `value`: its first int.
  bool leaves_with(int value, socklen_t len, bool is_udp) const;
};

std::span<const SocketOption> all_options();
/// Null: Vireo knows of none such.
const SocketOption* find_option(int level, int name);

}  // namespace vireo
