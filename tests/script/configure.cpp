// What Linux's sysctl names mean for a connection of ours.
#include <cstdlib>
#include <sstream>

#include "tests/script/runner.h"

namespace vireo::script {
namespace {

/// Some settings come with features that not every engine has: those are taken where they exist.
template <class C>
bool optional_setting(C& c, const std::string& name, int64_t n, const std::string& text) {
  if (name == "tcp_ecn") {
    if constexpr (requires { c.ecn; }) c.ecn = static_cast<decltype(c.ecn)>(n);
    return true;
  }
  if (name == "tcp_congestion_control") {
    if constexpr (requires { c.congestion; }) {
      using Kind = decltype(c.congestion);
      if constexpr (requires { Kind::kReno; })
        if (text == "reno") c.congestion = Kind::kReno;
      if constexpr (requires { Kind::kCubic; })
        if (text == "cubic") c.congestion = Kind::kCubic;
      if constexpr (requires { Kind::kDctcp; })
        if (text == "dctcp") c.congestion = Kind::kDctcp;
    }
    return true;
  }
  if (name == "tcp_early_retrans") {
    if constexpr (requires { c.tlp; }) c.tlp = n != 0;
    return true;
  }
  if (name == "tcp_recovery") {
    if constexpr (requires { c.rack; }) c.rack = n != 0;
    return true;
  }
  if (name == "tcp_frto") {
    if constexpr (requires { c.frto; }) c.frto = n != 0;
    return true;
  }
  return false;
}

}  // namespace

bool configure(const std::vector<Setting>& settings, tcp::Config& c, std::string& bad) {
  for (const Setting& s : settings) {
    static const std::string kFamily = "net.ipv4.";
    const std::string name = s.name.starts_with(kFamily) ? s.name.substr(kFamily.size()) : s.name;
    const int64_t n = std::atoll(s.value.c_str());
    if (name == "tcp_sack") {
      c.sack = n != 0;
    } else if (name == "tcp_timestamps") {
      c.timestamps = n != 0;
    } else if (name == "tcp_window_scaling") {
      c.window_scaling = n != 0;
    } else if (name == "tcp_rmem" || name == "tcp_wmem") {  // least, initial, most
      std::istringstream three(s.value);
      uint32_t least = 0, initial = 0;
      three >> least >> initial;
      (name == "tcp_rmem" ? c.rcv_buf : c.snd_buf) = initial;
    } else if (name == "tcp_syn_retries") {
      c.syn_retries = static_cast<uint8_t>(n);
    } else if (name == "tcp_synack_retries") {
      c.synack_retries = static_cast<uint8_t>(n);
    } else if (name == "tcp_mtu_probing") {
      c.mtu_probing = static_cast<tcp::MtuProbing>(n);
    } else if (name == "tcp_base_mss") {
      c.mtu_base = static_cast<uint16_t>(n);
    } else if (name == "tcp_mtu_probe_floor") {
      c.mtu_floor = static_cast<uint16_t>(n);
    } else if (name == "tcp_probe_threshold") {
      c.mtu_threshold = static_cast<uint16_t>(n);
    } else if (name == "tcp_probe_interval") {
      c.mtu_interval_s = static_cast<uint16_t>(n);
    } else if (name == "tcp_retries2") {
      c.retries2 = static_cast<uint8_t>(n);
    } else if (name == "tcp_fin_timeout") {
      c.fin_timeout = Duration::s(n);
    } else if (name == "tcp_keepalive_time") {
      c.keep_idle = Duration::s(n);
    } else if (name == "tcp_keepalive_intvl") {
      c.keep_interval = Duration::s(n);
    } else if (name == "tcp_keepalive_probes") {
      c.keep_count = static_cast<uint8_t>(n);
    } else if (name == "vireo.mss") {
      c.mss = static_cast<uint16_t>(n);
    } else if (name == "vireo.wscale") {
      c.wscale = static_cast<uint8_t>(n);
    } else if (!optional_setting(c, name, n, s.value)) {
      bad = s.name;
      return false;
    }
  }
  return true;
}

}  // namespace vireo::script
