// The kernel's defaults for a new socket, which a carried socket gets, too. A value that cannot be
// read (no /proc, another namespace's file) or is invalid is replaced by Linux's own default,
// below. Owner: process, read once at load. Thread: any after. Source: tcp(7), socket(7), ip(7),
// ip-sysctl.rst.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.h"

namespace vireo {

/// Defaults of TCP (tcp(7), Documentation/networking/ip-sysctl).
struct TcpDefaults {
  std::string tcp_congestion_control = "cubic";
  Duration tcp_keepalive_time = Duration::s(7200);
  Duration tcp_keepalive_intvl = Duration::s(75);
  int tcp_keepalive_probes = 9;
  int tcp_syn_retries = 6;
  int tcp_synack_retries = 5;
  int tcp_syncookies = 1;
  bool tcp_abort_on_overflow = false;
  int tcp_retries2 = 15;
  Duration tcp_fin_timeout = Duration::s(60);
  int tcp_max_orphans = 65'536;
  int tcp_mtu_probing = 0;  ///< 1: after a black hole was detected; 2: always
  int tcp_base_mss = 1024;  ///< where probing begins
  int tcp_mtu_probe_floor = 48;
  int tcp_probe_threshold = 8;
  Duration tcp_probe_interval = Duration::s(600);
  int tcp_retries1 = 3;
  int tcp_notsent_lowat = -1;  ///< as an unsigned number: no limit
  bool tcp_timestamps = true;
  bool tcp_sack = true;
  bool tcp_window_scaling = true;
  int tcp_ecn = 2;  ///< 0 no, 1 request and accept, 2 accept; higher values: AccECN, in this order
  /// Bits: 1 client, 2 server, 4 client without cookies, 0x200 no cookie needed, 0x400 every
  /// listener
  int tcp_fastopen = 1;
  Duration tcp_fastopen_blackhole{};  ///< tcp_fastopen_blackhole_timeout_sec
};

struct KernelDefaults : TcpDefaults {
  /// Buffer sizes in bytes: the minimum, that of a new socket, and the maximum of automatic tuning.
  struct BufferSizes {
    int least;
    int initial;
    int most;
  };
  struct PortRange {
    uint16_t first;
    uint16_t last;
  };

  BufferSizes tcp_rmem{4096, 131'072, 6'291'456};
  BufferSizes tcp_wmem{4096, 16'384, 4'194'304};
  int rmem_default = 212'992;  ///< SO_RCVBUF of a UDP socket
  int rmem_max = 212'992;      ///< maximum for SO_RCVBUF (the kernel doubles it)
  int wmem_default = 212'992;
  int wmem_max = 212'992;
  int somaxconn = 4096;
  PortRange ip_local_port_range{32'768, 60'999};

  /// Reads the files under `root`, which is /proc/sys except in tests.
  static KernelDefaults read(const std::string& root = "/proc/sys");

  /// net.ipv4.tcp_fastopen_key in the form of TCP_FASTOPEN_KEY: 16 bytes or, with a backup, 32.
  /// Empty: unreadable (only root may) or not set. Read when it is needed, as the kernel generates
  /// one when its first listener uses Fast Open.
  static std::vector<std::byte> read_fastopen_key(const std::string& root = "/proc/sys");
};

}  // namespace vireo
