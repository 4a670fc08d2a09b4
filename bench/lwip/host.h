// lwIP on the bare device: its raw API, in the one thread that also polls. Frames are read where
// the device leaves them; what lwIP sends in a turn leaves with one doorbell. lwIP keeps its state
// in globals: one Host a process. Owner: the program. Thread: one.
#pragma once

#include <memory>
#include <vector>

#include "bench/device_end.h"
#include "lwip/netif.h"
#include "lwip/pbuf.h"
#include "netif/ethernet.h"

namespace vireo::bench {

class Host {
 public:
  /// With the flows of `proto` to `o.local` and kPort steered to it. Errors: die().
  Host(const Options& o, IpProto proto);
  Host(const Host&) = delete;

  /// The flows from the peer's kPort to these local ports, too.
  void steer(const Options& o, uint16_t first, uint16_t last);
  /// Takes in what has arrived, runs timers that are due, and sends what lwIP said to all of it.
  void turn();
  /// Rings for what was written outside of a turn.
  void flush();
  bool alive() { return end_.queue->alive(); }

  ip_addr_t local{}, remote{};

 private:
  /// A received frame, as lwIP passes it on.
  struct Received {
    pbuf_custom buffer{};
    PacketRef packet;
    Host* host = nullptr;
  };
  static err_t init(netif* n);
  static err_t to_peer(netif* n, pbuf* p, const ip4_addr_t* whom);
  static err_t send(netif* n, pbuf* p);
  static void give_back(pbuf* p);
  void take(RxDesc& d);

  IpProto proto_;
  End end_;
  std::vector<FlowRule> rules_;
  eth_addr peer_mac_{};
  netif netif_{};
  std::vector<std::unique_ptr<Received>> all_;
  std::vector<Received*> free_;
  bool owes_doorbell_ = false;
  uint32_t turns_ = 0;
};

// ---- the programs, by role
void tcp_server(const Options& o);
void tcp_client(const Options& o);
void connect_server(const Options& o);
void connect_client(const Options& o);
void udp_server(const Options& o);
void udp_client(const Options& o);
void tcp_sink(const Options& o);
void tcp_source(const Options& o);
void udp_sink(const Options& o);
void udp_source(const Options& o);

}  // namespace vireo::bench
