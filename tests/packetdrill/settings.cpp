#include "tests/packetdrill/settings.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "stack/tcp/isn.h"
#include "tests/script/runner.h"

namespace vireo::packetdrill {
namespace {

std::string read_setting(const std::string& name) {
  std::ifstream in("/proc/sys/net/ipv4/" + name);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<script::Setting> kernel_settings() {
  std::vector<script::Setting> all;
  for (const char* name :
       {"tcp_sack", "tcp_timestamps", "tcp_window_scaling", "tcp_syn_retries", "tcp_synack_retries",
        "tcp_retries2", "tcp_fin_timeout", "tcp_keepalive_time", "tcp_keepalive_intvl",
        "tcp_keepalive_probes", "tcp_ecn", "tcp_congestion_control", "tcp_early_retrans",
        "tcp_recovery", "tcp_frto"})
    if (const std::string value = read_setting(name); !value.empty()) all.push_back({name, value});
  // Linux counts a buffer's overhead: half of it is shown as window (tcp_adv_win_scale 1), and the
  // shift is for the largest the buffer may grow to.
  std::ifstream in("/proc/sys/net/ipv4/tcp_rmem");
  uint64_t least = 0, initial = 0, most = 0;
  if (in >> least >> initial >> most) {
    unsigned shift = 0;
    while (shift < 14 && (65535ULL << shift) < most) ++shift;
    all.push_back({"tcp_rmem", "4096 " + std::to_string(initial / 2) + " " + std::to_string(most)});
    all.push_back({"vireo.wscale", std::to_string(shift)});
  }
  return all;
}

/// Bits of net.ipv4.tcp_fastopen.
constexpr unsigned long kClient = 0x1, kServer = 0x2, kClientWithout = 0x4, kServerWithout = 0x200,
                        kAllListeners = 0x400;

unsigned long fast_open_bits() {
  return std::strtoul(read_setting("tcp_fastopen").c_str(), nullptr, 0);
}

/// Keys of net.ipv4.tcp_fastopen_key: four words in hexadecimal each, a comma between two keys.
std::vector<uint8_t> fast_open_keys() {
  std::vector<uint8_t> keys;
  const std::string text = read_setting("tcp_fastopen_key");
  for (const char* p = text.c_str(); *p != '\0';) {
    char* end = nullptr;
    const auto word = static_cast<uint32_t>(std::strtoul(p, &end, 16));
    if (end == p) break;
    for (unsigned i = 0; i < 4; ++i) keys.push_back(static_cast<uint8_t>(word >> (8 * i)));
    p = *end == '\0' ? end : end + 1;
  }
  return keys;
}

}  // namespace

std::unique_ptr<script::Host> make_host(Seq32 iss) {
  tcp::Config c;
  c.mss = 1460;
  std::string bad;
  script::configure(kernel_settings(), c, bad);
  if (const std::string n = read_setting("tcp_notsent_lowat"); !n.empty())
    c.notsent_lowat = static_cast<uint32_t>(std::strtoul(n.c_str(), nullptr, 10));
  constexpr uint32_t kFrames = 4096;
  auto host = std::make_unique<script::Host>(c, iss, kFrames);
  read_fast_open(*host);
  return host;
}

void read_fast_open(script::Host& host) {
  const unsigned long bits = fast_open_bits();
  script::FastOpenState& f = host.fast_open();
  f.as_client = (bits & kClient) != 0;
  f.without_cookie = f.without_cookie || (bits & kClientWithout) != 0;
  f.all_listeners = (bits & kServer) != 0 && (bits & kAllListeners) != 0;
  f.take_unasked = (bits & kServer) != 0 && (bits & kServerWithout) != 0;
}

std::vector<std::vector<uint8_t>> fast_open_cookies(const Place& server, const Place& client) {
  if ((fast_open_bits() & kServer) == 0) return {};
  return fast_open_cookies(fast_open_keys(), server, client);
}

/// net/ipv4/tcp_fastopen.c: SipHash of the client's address and the server's.
std::vector<std::vector<uint8_t>> fast_open_cookies(std::span<const uint8_t> keys,
                                                    const Place& server, const Place& client) {
  const size_t n = server.v6 ? 16 : 4;
  std::vector<uint8_t> in(client.address.begin(), client.address.begin() + static_cast<long>(n));
  in.insert(in.end(), server.address.begin(), server.address.begin() + static_cast<long>(n));
  std::vector<std::vector<uint8_t>> all;
  for (; keys.size() >= 16; keys = keys.subspan(16)) {
    tcp::IsnSecret key;
    static_assert(sizeof key == 16);
    std::memcpy(static_cast<void*>(&key), keys.data(), sizeof key);
    const uint64_t h = tcp::siphash(key, in);
    std::vector<uint8_t> cookie(sizeof h);
    std::memcpy(cookie.data(), &h, sizeof h);
    all.push_back(std::move(cookie));
  }
  return all;
}

}  // namespace vireo::packetdrill
