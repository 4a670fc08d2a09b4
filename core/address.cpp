#include "core/address.h"

#include <arpa/inet.h>

#include <algorithm>

namespace vireo {

IpAddr IpAddr::v6(const uint8_t (&bytes)[16]) {
  IpAddr r;
  std::memcpy(r.b_.data(), bytes, 16);
  return r;
}

std::optional<IpAddr> IpAddr::parse(std::string_view text) {
  char buf[INET6_ADDRSTRLEN];
  if (text.size() >= sizeof buf) return std::nullopt;
  *std::copy(text.begin(), text.end(), buf) = '\0';
  be32 a4;
  if (inet_pton(AF_INET, buf, &a4) == 1) return v4(a4);
  in6_addr a6;
  if (inet_pton(AF_INET6, buf, &a6) == 1) return v6(a6);
  return std::nullopt;
}

in6_addr IpAddr::as_in6() const {
  in6_addr a;
  std::memcpy(&a, b_.data(), 16);
  return a;
}

bool IpAddr::is_loopback() const {
  if (is_v4()) return b_[12] == 127;
  return std::all_of(b_.begin(), b_.end() - 1, [](uint8_t b) { return b == 0; }) && b_[15] == 1;
}

bool IpAddr::in_prefix(const IpAddr& net, unsigned bits) const {
  if (is_v4() != net.is_v4()) return false;
  if (is_v4()) bits += 96;
  bits = std::min(bits, 128U);
  const unsigned whole = bits / 8;
  if (std::memcmp(b_.data(), net.b_.data(), whole) != 0) return false;
  const unsigned rest = bits % 8;
  return rest == 0 || ((b_[whole] ^ net.b_[whole]) >> (8 - rest)) == 0;
}

std::string IpAddr::str() const {
  char buf[INET6_ADDRSTRLEN] = "";
  if (is_v4())
    inet_ntop(AF_INET, b_.data() + 12, buf, sizeof buf);
  else
    inet_ntop(AF_INET6, b_.data(), buf, sizeof buf);
  return buf;
}

std::optional<Endpoint> Endpoint::from_sockaddr(const sockaddr* sa, socklen_t len) {
  if (sa == nullptr || len < sizeof(sa_family_t)) return std::nullopt;
  if (sa->sa_family == AF_INET && len >= sizeof(sockaddr_in)) {
    sockaddr_in in;
    std::memcpy(&in, sa, sizeof in);
    return Endpoint{IpAddr::v4(std::bit_cast<be32>(in.sin_addr.s_addr)), ntohs(in.sin_port), 0};
  }
  // 24 bytes is the structure without its scope, which Linux accepts too (SIN6_LEN_RFC2133).
  if (sa->sa_family == AF_INET6 && len >= 24) {
    sockaddr_in6 in6{};
    std::memcpy(&in6, sa, std::min<size_t>(len, sizeof in6));
    const IpAddr a = IpAddr::v6(in6.sin6_addr);
    return Endpoint{a, ntohs(in6.sin6_port),
                    a.is_v4() || !a.is_link_local() ? 0 : in6.sin6_scope_id};
  }
  return std::nullopt;
}

sockaddr_in6 Endpoint::as_sockaddr_in6() const {
  return {.sin6_family = AF_INET6,
          .sin6_port = htons(port),
          .sin6_flowinfo = 0,
          .sin6_addr = addr.as_in6(),
          .sin6_scope_id = addr.is_link_local() ? scope : 0};
}

socklen_t Endpoint::to_sockaddr(sockaddr_storage& out, int family) const {
  const auto put = [&](const auto& sa) -> socklen_t {
    std::memcpy(&out, &sa, sizeof sa);
    return sizeof sa;
  };
  return family == AF_INET ? put(as_sockaddr_in()) : put(as_sockaddr_in6());
}

std::string Endpoint::str() const {
  const std::string p = std::to_string(port);
  return addr.is_v4() ? addr.str() + ":" + p : "[" + addr.str() + "]:" + p;
}

}  // namespace vireo
