#include "tests/packetdrill/network.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace vireo::packetdrill {
namespace {

/// Without ARP, as a tun device has none: gateways need not answer.
constexpr char kSetUp[] =
    "link set lo up\n"
    "link add tun0 mtu 1500 address 02:00:00:00:00:01 type veth peer name tun0-peer mtu 1500\n"
    "link set tun0-peer up\n"
    "link set tun0 up arp off\n"
    "addr add 192.168.255.254/16 dev tun0\n"
    "addr add fd3d:fa7b:d17d::ffff/48 dev tun0 nodad\n"
    "route add default via 192.168.0.1 dev tun0\n"
    "route add 192.0.2.1 via 192.168.0.1 dev tun0\n"
    "route add default via fd3d:fa7b:d17d:8888:: dev tun0\n"
    "route add 2001:db8::1 via fd3d:fa7b:d17d:8888:: dev tun0\n";

void ip(const std::string& commands) {
  FILE* const to = ::popen("ip -force -batch - >/dev/null 2>&1", "w");
  if (to == nullptr) return;
  (void)std::fputs(commands.c_str(), to);
  (void)::pclose(to);
}

}  // namespace

void make_network() {
  if (::if_nametoindex(kInterface) == 0) ip(kSetUp);
}

void own_address(const sockaddr* a, socklen_t n) {
  sockaddr_in6 any{};
  if (a == nullptr || n < sizeof(sockaddr_in)) return;
  std::memcpy(&any, a, std::min<size_t>(n, sizeof any));
  const bool v6 = a->sa_family == AF_INET6;
  any.sin6_port = 0;
  const int probe = ::socket(a->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool is_own = ::bind(probe, reinterpret_cast<const sockaddr*>(&any), n) == 0;
  const bool is_new = !is_own && errno == EADDRNOTAVAIL;
  ::close(probe);
  if (!is_new) return;
  std::array<char, INET6_ADDRSTRLEN> text{};
  const auto* const bytes = v6 ? static_cast<const void*>(&any.sin6_addr)
                               : &reinterpret_cast<const sockaddr_in*>(a)->sin_addr;
  ::inet_ntop(a->sa_family, bytes, text.data(), text.size());
  ip("addr add " + std::string(text.data()) + (v6 ? "/48 dev tun0 nodad\n" : "/16 dev tun0\n"));
}

std::span<const uint8_t, 14> frame_header(bool v6) {
  static constexpr std::array<uint8_t, 14> k4{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00};
  static constexpr std::array<uint8_t, 14> k6{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd};
  return v6 ? k6 : k4;
}

}  // namespace vireo::packetdrill
