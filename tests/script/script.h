// A packet script as data: what parse() makes of the text, what a Runner plays.
//
// The language is packetdrill's (its README and examples), with what a test of a protocol engine
// needs of it:
//
//   // RFC 9293 §3.5: passive open        first line: the clause, a colon, what is tested
//   --tolerance_usecs=1000                how far an outbound segment may be from its time
//   `sysctl -q net.ipv4.tcp_sack=0`       settings of the connection, by Linux's names
//   0.000 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
//   +0.1 < S 0:0(0) win 1000 <mss 1460>   a segment arrives
//   +0 > S. 0:0(0) ack 1 <...>            a segment must leave, now
//   +0...0.5 accept(3, ..., ...) = 4      a blocking call and when it must return
//   +0 %{ assert tcpi_unacked == 0 }%     a fact of TCP_INFO
//
// Times: `1.5` since the start, `+.1` since the event before, `0.1~0.3` anywhere between, `*` any.
// Sequence numbers are relative to each side's initial number. Every segment that leaves must be
// expected: silence is tested by saying nothing. An expected run longer than what left is matched
// with the contiguous segments that follow it at the same instant.
// Owner: none (values). Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/clock.h"

namespace vireo::script {

/// One TCP option as written: its kind and numbers.
struct Option {
  enum class Kind : uint8_t {
    kNop,
    kEnd,
    kMss,
    kWindowScale,
    kSackPermitted,
    kSack,        ///< values: left, right, left, right, ...
    kTimestamps,  ///< values: val, ecr
    kRaw,         ///< values: kind, then its bytes after the length (`raw 254 1 2`)
  };
  Kind kind = Kind::kNop;
  std::vector<uint32_t> values;
};

enum class EcnBits : uint8_t { kAny, kNotEct, kEct0, kEct1, kCe };

struct PacketSpec {
  bool inbound = false;
  uint8_t flags = 0;
  uint32_t seq = 0;
  uint32_t length = 0;
  std::optional<uint32_t> ack;
  std::optional<uint16_t> window;
  uint16_t urgent = 0;
  bool any_options = false;
  std::vector<Option> options;
  EcnBits ecn = EcnBits::kAny;
};

/// `< icmp unreachable port_unreachable [1:1461(1460)]`
struct IcmpSpec {
  std::string code;
  uint32_t mtu = 0;
  uint32_t quoted_seq = 0;
};

struct Call {
  std::string name;
  std::vector<std::string> arguments;
  std::string result;  ///< of the right-hand side, without errno
  std::string error;   ///< "EAGAIN", empty: none
};

/// `left op right`, a number or a name of TCP_INFO on each side.
struct Assertion {
  std::string left, op, right;
};

struct When {
  enum class Kind : uint8_t { kAbsolute, kRelative, kAny };
  Kind kind = Kind::kAbsolute;
  Duration from{};
  Duration to{};          ///< of a range; else equal to `from`
  bool blocking = false;  ///< `a...b`: a call that starts at `from` and returns at `to`
};

struct Event {
  unsigned line = 0;
  std::string text;
  When when;
  std::variant<PacketSpec, IcmpSpec, Call, std::vector<Assertion>> action;
};

struct Setting {
  std::string name, value;
};

struct Script {
  std::string path;
  std::string clause;  ///< "RFC 9293 §3.5"
  std::string title;
  Duration tolerance = Duration::us(1000);
  std::vector<Setting> settings;
  std::vector<Event> events;
};

/// @return an error with its line, empty: `out` is the script.
std::string parse(const std::string& path, const std::string& text, Script& out);
/// Clause and title of the first line alone, for the list of tests.
void parse_heading(const std::string& text, Script& out);

std::string to_string(const PacketSpec& p);

}  // namespace vireo::script
