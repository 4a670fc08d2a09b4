#include "config/kernel_defaults.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "config/file.h"

namespace vireo {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();

class Sysctl {
 public:
  explicit Sysctl(const std::string& root) : root_(root + "/net/") {}

  /// The first line; nullopt if the file is missing or empty.
  std::optional<std::string> line(const char* name) const {
    auto text = read_file(root_ + name, 4096);
    if (!text) return std::nullopt;
    const size_t end = text->find_first_of("\n\0");
    if (end != text->npos) text->resize(end);
    if (text->empty()) return std::nullopt;
    return std::move(*text);
  }

  /// Exactly N integers in [least, most].
  template <size_t N>
  std::optional<std::array<int, N>> numbers(const char* name, int least, int most) const {
    const auto text = line(name);
    if (!text) return std::nullopt;
    std::string_view rest = *text;
    std::array<int, N> values{};
    const auto skip_blanks = [&] {
      rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    };
    for (int& v : values) {
      skip_blanks();
      const auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), v);
      if (ec != std::errc() || v < least || v > most) return std::nullopt;
      rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    }
    skip_blanks();
    if (!rest.empty()) return std::nullopt;
    return values;
  }

  void read(const char* name, int& out, int least, int most = kMaxInt) const {
    if (const auto v = numbers<1>(name, least, most)) out = (*v)[0];
  }
  void read(const char* name, bool& out) const {
    if (const auto v = numbers<1>(name, 0, kMaxInt)) out = (*v)[0] != 0;
  }
  /// An unsigned 32-bit number, stored in an int with the same bits, as in the kernel.
  void read_unsigned(const char* name, int& out) const {
    const auto text = line(name);
    if (!text) return;
    uint32_t v = 0;
    const auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), v);
    if (ec == std::errc() && end == text->data() + text->size()) out = static_cast<int>(v);
  }
  void read_seconds(const char* name, Duration& out, int least) const {
    if (const auto v = numbers<1>(name, least, kMaxInt)) out = Duration::s((*v)[0]);
  }
  void read(const char* name, KernelDefaults::BufferSizes& out) const {
    const auto v = numbers<3>(name, 1, kMaxInt);
    if (v && (*v)[0] <= (*v)[2]) out = {(*v)[0], (*v)[1], (*v)[2]};
  }

 private:
  std::string root_;
};

}  // namespace

/// The file has 32-bit words in hexadecimal, little-endian from the key's bytes; four per key.
std::vector<std::byte> KernelDefaults::read_fastopen_key(const std::string& root) {
  const auto text = Sysctl(root).line("ipv4/tcp_fastopen_key");
  if (!text) return {};
  std::vector<std::byte> key;
  const char* at = text->data();
  const char* const end = at + text->size();
  for (bool more = true; more;) {
    uint32_t word = 0;
    const auto [next, ec] = std::from_chars(at, end, word, 16);
    if (ec != std::errc()) return {};
    for (int i = 0; i < 4; ++i) key.push_back(static_cast<std::byte>(word >> (8 * i)));
    at = next;
    more = at != end && (*at == '-' || *at == ',');
    if (more) ++at;
  }
  const bool is_set = std::ranges::any_of(key, [](std::byte b) { return b != std::byte{}; });
  if (at != end || !is_set || (key.size() != 16 && key.size() != 32)) return {};
  return key;
}

KernelDefaults KernelDefaults::read(const std::string& root) {
  const Sysctl net(root);
  KernelDefaults d;
  net.read("ipv4/tcp_rmem", d.tcp_rmem);
  net.read("ipv4/tcp_wmem", d.tcp_wmem);
  net.read("core/rmem_default", d.rmem_default, 1);
  net.read("core/rmem_max", d.rmem_max, 1);
  net.read("core/wmem_default", d.wmem_default, 1);
  net.read("core/wmem_max", d.wmem_max, 1);
  net.read("core/somaxconn", d.somaxconn, 0);
  if (auto cc = net.line("ipv4/tcp_congestion_control")) d.tcp_congestion_control = std::move(*cc);
  net.read_seconds("ipv4/tcp_keepalive_time", d.tcp_keepalive_time, 1);
  net.read_seconds("ipv4/tcp_keepalive_intvl", d.tcp_keepalive_intvl, 1);
  net.read("ipv4/tcp_keepalive_probes", d.tcp_keepalive_probes, 1, 255);
  net.read("ipv4/tcp_syn_retries", d.tcp_syn_retries, 1, 127);
  net.read("ipv4/tcp_synack_retries", d.tcp_synack_retries, 0, 255);
  net.read("ipv4/tcp_syncookies", d.tcp_syncookies, 0, 2);
  net.read("ipv4/tcp_abort_on_overflow", d.tcp_abort_on_overflow);
  net.read("ipv4/tcp_retries2", d.tcp_retries2, 0, 255);
  net.read_seconds("ipv4/tcp_fin_timeout", d.tcp_fin_timeout, 0);
  net.read("ipv4/tcp_max_orphans", d.tcp_max_orphans, 0);
  net.read("ipv4/tcp_mtu_probing", d.tcp_mtu_probing, 0, 2);
  net.read("ipv4/tcp_base_mss", d.tcp_base_mss, 48, 65'535);
  net.read("ipv4/tcp_mtu_probe_floor", d.tcp_mtu_probe_floor, 48, 65'535);
  net.read("ipv4/tcp_probe_threshold", d.tcp_probe_threshold, 0);
  net.read_seconds("ipv4/tcp_probe_interval", d.tcp_probe_interval, 0);
  net.read("ipv4/tcp_retries1", d.tcp_retries1, 0, 255);
  net.read_unsigned("ipv4/tcp_notsent_lowat", d.tcp_notsent_lowat);
  net.read("ipv4/tcp_timestamps", d.tcp_timestamps);
  net.read("ipv4/tcp_sack", d.tcp_sack);
  net.read("ipv4/tcp_window_scaling", d.tcp_window_scaling);
  net.read("ipv4/tcp_ecn", d.tcp_ecn, 0, 5);
  net.read("ipv4/tcp_fastopen", d.tcp_fastopen, 0);
  net.read_seconds("ipv4/tcp_fastopen_blackhole_timeout_sec", d.tcp_fastopen_blackhole, 0);
  const auto ports = net.numbers<2>("ipv4/ip_local_port_range", 1, 65'535);
  if (ports && (*ports)[0] <= (*ports)[1])
    d.ip_local_port_range = {static_cast<uint16_t>((*ports)[0]),
                             static_cast<uint16_t>((*ports)[1])};
  return d;
}

}  // namespace vireo
