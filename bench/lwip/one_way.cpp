// One way as fast as lwIP takes it. What counts is what arrives, after the first tenth of the time.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bench/plain/clock.h"
#include "host.h"
#include "lwip/udp.h"
#include "tcp.h"

namespace vireo::bench {
namespace {

class Arrivals {
 public:
  explicit Arrivals(const Options& o) : warm_up_(rate_.of_seconds(o.seconds / 10)) {}
  void add(uint64_t amount) {
    const uint64_t now = plain::ticks();
    all_ += amount;
    if (first_ == 0) first_ = now;
    if (now - first_ < warm_up_) return;
    if (start_ == 0) {
      start_ = now;
      return;
    }
    counted_ += amount;
    last_ = now;
  }
  void print(const char* what) const {
    const double seconds =
        std::max(1.0, static_cast<double>(last_ - start_)) * rate_.ns_per_tick() / 1e9;
    fmt::print("{{\"{}\":{},\"received\":{},\"seconds\":{:.6f}}}\n", what, counted_, all_, seconds);
  }

 private:
  plain::TickRate rate_;
  uint64_t warm_up_, first_ = 0, start_ = 0, last_ = 0, counted_ = 0, all_ = 0;
};

}  // namespace

void tcp_sink(const Options& o) {
  Host host(o, IpProto::kTcp);
  Arrivals arrivals(o);
  Conn conn;
  conn.on_data = [&](const pbuf* p) { arrivals.add(p->tot_len); };
  conn.listen(host);
  while (g_stop == 0 && !conn.ended && host.alive()) host.turn();
  for (int i = 0; i < 1000; ++i) host.turn();  // the last ACK
  arrivals.print("bytes");
}

void tcp_source(const Options& o) {
  Host host(o, IpProto::kTcp);
  Conn conn;
  conn.nodelay = false;
  conn.on_data = [](pbuf*) {};
  conn.connect(host);
  while (!conn.connected && host.alive()) host.turn();
  const plain::TickRate rate;
  const std::vector<uint8_t> message(o.size, 'v');
  const uint32_t at_once = std::max(1U, 4096 / o.size);
  uint64_t sent = 0;
  const uint64_t over = plain::ticks() + rate.of_seconds(o.seconds);
  while (plain::ticks() < over && !conn.ended && g_stop == 0) {
    for (uint32_t i = 0; i < at_once; ++i) {
      // A message that is taken in parts goes on where it stopped.
      for (size_t at = 0; at < message.size() && !conn.ended && g_stop == 0;) {
        at += conn.write(std::span(message).subspan(at));
        if (at == message.size()) break;
        conn.push();
        host.turn();
        if (at == 0 && plain::ticks() >= over) break;
      }
      ++sent;
    }
    conn.push();
    host.turn();
  }
  conn.close();
  const uint64_t linger = plain::ticks() + rate.of_seconds(0.05);
  while (plain::ticks() < linger) host.turn();
  fmt::print("{{\"messages\":{}}}\n", sent);
}

void udp_sink(const Options& o) {
  Host host(o, IpProto::kUdp);
  Arrivals arrivals(o);
  udp_pcb* const pcb = udp_new();
  if (udp_bind(pcb, &host.local, kPort) != ERR_OK) die("udp_bind");
  const auto came = [](void* to, udp_pcb*, pbuf* p, const ip_addr_t*, u16_t) {
    static_cast<Arrivals*>(to)->add(1);
    pbuf_free(p);
  };
  udp_recv(pcb, came, &arrivals);
  fmt::print(stderr, "ready\n");
  while (g_stop == 0 && host.alive()) host.turn();
  arrivals.print("datagrams");
}

void udp_source(const Options& o) {
  Host host(o, IpProto::kUdp);
  udp_pcb* const pcb = udp_new();
  if (udp_bind(pcb, &host.local, kPort) != ERR_OK ||
      udp_connect(pcb, &host.remote, kPort) != ERR_OK)
    die("udp_connect");
  const plain::TickRate rate;
  const auto size = static_cast<u16_t>(o.size);
  const std::vector<uint8_t> message(o.size, 'v');
  uint64_t sent = 0;
  const uint64_t over = plain::ticks() + rate.of_seconds(o.seconds);
  while (plain::ticks() < over && g_stop == 0 && host.alive()) {
    for (uint32_t i = 0; i < o.batch; ++i) {
      pbuf* const p = pbuf_alloc(PBUF_TRANSPORT, size, PBUF_RAM);
      pbuf_take(p, message.data(), size);
      if (udp_send(pcb, p) == ERR_OK) ++sent;
      pbuf_free(p);
    }
    host.flush();
    if (sent % 64 == 0) host.turn();
  }
  fmt::print("{{\"sent\":{}}}\n", sent);
}

}  // namespace vireo::bench
