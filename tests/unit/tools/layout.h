// A made-up process for the tests of what tools show: one carried connection, one listener, one
// socket that stays on the kernel for loopback, one that is closed.
// Owner: the test. Thread: one.
#pragma once

#include <netinet/in.h>

#include <cstring>
#include <memory>

#include "core/address.h"
#include "core/stats_layout.h"

namespace vireo::test {

inline void set_address(SocketStats& s, const char* local, uint16_t lport, const char* remote,
                        uint16_t rport) {
  const auto put = [](uint8_t(&to)[16], const char* text) {
    if (*text != '\0') std::memcpy(to, IpAddr::parse(text)->bytes().data(), 16);
  };
  put(s.local_addr, local);
  put(s.remote_addr, remote);
  s.local_port = lport;
  s.remote_port = rport;
}

inline std::unique_ptr<StatsLayout> made_up_process() {
  auto l = std::make_unique<StatsLayout>();
  l->bytes = sizeof *l;
  l->pid = 4711;
  std::strcpy(l->program, "server");
  l->engines[0].rx_packets.add(1000);
  l->engines[1].rx_packets.add(1);
  l->engines[0].tx_packets.add(2000);
  l->ports[0].queues = 2;
  std::strcpy(l->ports[0].name, "eth1");
  std::strcpy(l->ports[0].mode, "native copy");
  l->ports[0].ifindex.store(7);
  l->group.members.set(3);
  l->group.slot.set(1);
  l->group.frames.set(1000);
  l->group.own.set(600);
  l->group.queued.set(300);
  l->group.unused.set(99);
  l->group.left.set(1);
  l->sockets_carried.add(3);
  l->sockets_kernel.add(1);
  l->refused[static_cast<size_t>(Carriage::kLoopback)].add(1);

  SocketStats& tcp = l->sockets[0];
  tcp.fd = 9;
  tcp.proto = IPPROTO_TCP;
  tcp.family = AF_INET;
  tcp.tcp_state = 3;
  tcp.carriage = Carriage::kCarried;
  set_address(tcp, "10.0.0.2", 80, "10.0.0.1", 40000);
  tcp.rx_packets.add(10);
  tcp.rx_bytes.add(1'234'567);
  tcp.retransmits.add(3);
  tcp.generation.store(4);

  SocketStats& kernel = l->sockets[1];
  kernel.fd = 5;
  kernel.proto = IPPROTO_UDP;
  kernel.family = AF_INET6;
  kernel.carriage = Carriage::kLoopback;
  kernel.err = EACCES;
  std::strcpy(kernel.detail, "bound to loopback");
  set_address(kernel, "::1", 53, "", 0);
  kernel.os_rx_packets.add(6);
  kernel.generation.store(2);

  SocketStats& listener = l->sockets[2];
  listener.fd = 3;
  listener.proto = IPPROTO_TCP;
  listener.family = AF_INET;
  listener.listening = 1;
  listener.carriage = Carriage::kCarried;
  set_address(listener, "", 80, "", 0);
  listener.generation.store(2);

  SocketStats& closed = l->sockets[3];
  closed.proto = IPPROTO_TCP;
  closed.family = AF_INET;
  closed.closed = 1;
  closed.carriage = Carriage::kCarried;
  set_address(closed, "10.0.0.2", 80, "10.0.0.9", 50000);
  closed.rx_packets.add(77);
  closed.generation.store(8);
  ClosedStats& sum = l->closed[static_cast<size_t>(Carriage::kCarried)];
  sum.sockets.add(5);
  sum.rx_packets.add(500);
  return l;
}

}  // namespace vireo::test
