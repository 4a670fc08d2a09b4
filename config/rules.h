// The rules file (VMA_CONFIG_FILE, libvma.conf): which sockets of which program are carried, and
// which are left to the kernel.
//
//   application-id <program|*> <id|*>
//   use <vireo|vma|os|sdp|sa|*> <role> <address>:<ports>[:<address>:<ports>]
//   log [destination stderr|syslog|file <name>] [min-level <1-9>]
//   # to the end of the line
//
// role: tcp_server, udp_receiver (the local address); tcp_client, udp_connect (the remote address,
// then the local); udp_sender (the remote address). address: *, 10.0.0.0/8, or IPv6 in brackets,
// [2001:db8::]/32 or [2001:db8::/32]. ports: *, 80 or 80-90. * is any address of either family.
//
// Only the first application-id that matches the process applies, and in it the first matching
// `use` of the role; if none matches, the socket is carried (libvma: match.cpp). Lines of the same
// program and id are combined wherever they are; lines before any application-id apply to every
// program. A line with an error is reported and the others apply, except that `use` lines under an
// invalid application-id apply to no program, as they were not meant for another. Owner: process,
// parsed once at load, immutable after.
// Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostic.h"
#include "core/address.h"
#include "core/log.h"

namespace vireo {

enum class Role : uint8_t { kTcpServer, kTcpClient, kUdpSender, kUdpReceiver, kUdpConnect };

enum class Transport : uint8_t {
  kKernel,  ///< `os`
  kVireo,   ///< `vireo`, `vma`, `*`, or no rule
};

class Rules {
 public:
  enum class LogDestination : uint8_t { kStderr, kSyslog, kFile };
  /// The values of `log` lines; the last one wins. Settings in the environment override them.
  struct Log {
    std::optional<LogDestination> destination;
    std::string file;  ///< for kFile, as written
    std::optional<LogLevel>
        level;  ///< from min-level: 9 error, 8 warn, 5-7 info, 2-4 details, 1 debug
  };

  /// No rules: everything is carried.
  Rules() = default;

  /// Never fails. `filename` is for the messages, which give line and column (from 1, in bytes).
  static Rules parse(std::string_view text, std::string_view filename, Diagnostics& out);

  /// The rules if the default file is missing, as in the sample file: DNS is left to the kernel.
  static Rules built_in();

  /// Reads and parses `path`. A missing file gives built_in() without a message, unless it
  /// `must_exist` (it was named explicitly). A file that cannot be read, or is longer than 1 MiB,
  /// gives one diagnostic and no rules.
  static Rules load(const std::string& path, bool must_exist, Diagnostics& out);

  /// A copy with the `use` line `line` before all others, for every program. nullopt: the line has
  /// an error, which is in `out`, or is no such line.
  std::optional<Rules> with_first(std::string_view line, Diagnostics& out) const;

  /// @param program  name of the process (program_invocation_short_name); of a path, only the last
  /// part is used
  /// @param app_id   VMA_APPLICATION_ID; * matches every application-id
  /// @param local    unspecified parts (port 0, address any) match only *, 0.0.0.0/0 or [::]/0
  /// @param remote   ignored for kTcpServer and kUdpReceiver
  Transport lookup(std::string_view program, std::string_view app_id, Role role,
                   const Endpoint& local, const Endpoint& remote) const;

  const Log& log() const { return log_; }
  size_t size() const;  ///< `use` lines in force

 private:
  friend class RulesParser;

  struct Match {
    std::optional<IpAddr> net;  ///< nullopt: any
    unsigned bits = 0;
    uint16_t first_port = 0;  ///< 0-65535: any
    uint16_t last_port = 65'535;

    bool fits(const Endpoint& e) const;
  };
  struct Use {
    Role role;
    Transport transport;
    Match first;
    std::optional<Match> second;
  };
  struct Block {
    std::string program;  ///< pattern of fnmatch(3)
    std::string id;
    std::vector<Use> uses;
    bool is_void = false;  ///< under an invalid application-id

    bool is_for(std::string_view program_name, std::string_view app_id) const;
  };

  std::vector<Block> blocks_;
  Log log_;
};

}  // namespace vireo
