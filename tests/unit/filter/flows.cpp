#include "tests/unit/filter/rules.h"

namespace vireo::filter {
namespace {

const Interface kEth0{IfIndex(10), "eth0"};

}  // namespace

Flow tcp_listener(uint16_t port, const char* address) {
  const IpAddr a = *IpAddr::parse(address);
  return {.v6 = !a.is_v4(), .local = {a, port}, .interface = kEth0, .begins_there = true};
}

Flow udp_bound(uint16_t port, const char* address) {
  Flow f = tcp_listener(port, address);
  f.proto = IpProto::kUdp;
  return f;
}

Flow tcp_client(const char* to, uint16_t port, const char* from) {
  const IpAddr a = *IpAddr::parse(to);
  return {.v6 = !a.is_v4(),
          .local = {*IpAddr::parse(from), 0},
          .remote = {a, port},
          .interface = kEth0,
          .begins_here = true};
}

Flow established(const char* to, uint16_t port) {
  Flow f = tcp_client(to, port);
  f.local.port = 40'000;
  f.begins_here = false;
  f.is_established = true;
  return f;
}

}  // namespace vireo::filter
