// One message there and one back, one at a time.
#include <fmt/format.h>

#include <cstring>
#include <ctime>
#include <vector>

#include "bench/plain/clock.h"
#include "bench/plain/histogram.h"
#include "host.h"
#include "lwip/tcp.h"
#include "lwip/udp.h"
#include "tcp.h"

namespace vireo::bench {
namespace {

constexpr double kLateSeconds = 0.2;  ///< a datagram that took so long is lost

/// Which replies came, and when: what both clients measure.
class Asking {
 public:
  explicit Asking(const Options& o)
      : request(o.size),
        begin_(plain::ticks()),
        warm_(begin_ + rate_.of_seconds(o.seconds / 10)),
        end_(begin_ + rate_.of_seconds(o.seconds)),
        patience_(rate_.of_seconds(kLateSeconds)) {}
  bool is_over() const { return plain::ticks() >= end_; }
  void ask() {
    ++request[0];
    waits = true;
    start_ = plain::ticks();
  }
  bool is_late() const { return plain::ticks() - start_ > patience_; }
  void lose() {
    waits = false;
    ++lost_;
  }
  void answered() {
    if (start_ >= warm_) took_.add(plain::ticks() - start_);
    waits = false;
  }
  void print() const {
    std::printf("{\"messages\":%llu,\"lost\":%llu,", static_cast<unsigned long long>(took_.total()),
                static_cast<unsigned long long>(lost_));
    took_.print("round_trip", rate_.ns_per_tick());
    std::printf("}\n");
  }

  std::vector<uint8_t> request;
  bool waits = false;

 private:
  plain::TickRate rate_;
  plain::Histogram took_;
  uint64_t lost_ = 0, start_ = 0;
  uint64_t begin_, warm_, end_, patience_;
};

}  // namespace

void tcp_server(const Options& o) {
  Host host(o, IpProto::kTcp);
  Conn conn;
  uint32_t had = 0;
  std::vector<uint8_t> message(o.size);
  conn.on_data = [&](pbuf* p) {
    for (uint32_t at = 0; at < p->tot_len;) {
      const auto part = static_cast<u16_t>(std::min(o.size - had, p->tot_len - at));
      pbuf_copy_partial(p, message.data() + had, part, static_cast<u16_t>(at));
      at += part;
      had += part;
      if (had != o.size) continue;
      conn.write(message);
      conn.push();
      had = 0;
    }
  };
  conn.listen(host);
  while (g_stop == 0 && !conn.ended && host.alive()) host.turn();
  for (int i = 0; i < 1000; ++i) host.turn();  // the last ACK
  fmt::print("{{}}\n");
}

void tcp_client(const Options& o) {
  Host host(o, IpProto::kTcp);
  Conn conn;
  conn.connect(host);
  while (!conn.connected && host.alive()) host.turn();
  Asking asking(o);
  uint32_t had = 0;
  conn.on_data = [&](pbuf* p) {
    had += p->tot_len;
    if (had < o.size) return;
    if (pbuf_get_at(p, 0) != asking.request[0]) die("another reply than was asked for");
    had = 0;
    asking.answered();
  };
  while (!asking.is_over()) {
    asking.ask();
    conn.write(asking.request);
    conn.push();
    host.flush();
    while (asking.waits) {
      if (conn.ended) die("the server went away");
      host.turn();
    }
  }
  conn.close();
  for (int i = 0; i < 1000; ++i) host.turn();
  asking.print();
}

void udp_server(const Options& o) {
  Host host(o, IpProto::kUdp);
  udp_pcb* const pcb = udp_new();
  if (udp_bind(pcb, &host.local, kPort) != ERR_OK) die("udp_bind");
  const auto answer = [](void*, udp_pcb* socket, pbuf* p, const ip_addr_t* from, u16_t port) {
    // What is answered is another buffer: the received one has no room for other headers.
    pbuf* const reply = pbuf_alloc(PBUF_TRANSPORT, p->tot_len, PBUF_RAM);
    pbuf_copy(reply, p);
    udp_sendto(socket, reply, from, port);
    pbuf_free(reply);
    pbuf_free(p);
  };
  udp_recv(pcb, answer, nullptr);
  fmt::print(stderr, "ready\n");
  while (g_stop == 0 && host.alive()) host.turn();
  fmt::print("{{}}\n");
}

void udp_client(const Options& o) {
  Host host(o, IpProto::kUdp);
  udp_pcb* const pcb = udp_new();
  if (udp_bind(pcb, &host.local, kPort) != ERR_OK ||
      udp_connect(pcb, &host.remote, kPort) != ERR_OK)
    die("udp_connect");
  Asking asking(o);
  const auto came = [](void* argument, udp_pcb*, pbuf* p, const ip_addr_t*, u16_t) {
    auto& a = *static_cast<Asking*>(argument);
    if (a.waits && pbuf_get_at(p, 0) == a.request[0]) a.answered();
    pbuf_free(p);
  };
  udp_recv(pcb, came, &asking);
  while (!asking.is_over()) {
    asking.ask();
    const auto size = static_cast<u16_t>(o.size);
    pbuf* const p = pbuf_alloc(PBUF_TRANSPORT, size, PBUF_RAM);
    pbuf_take(p, asking.request.data(), size);
    udp_send(pcb, p);
    pbuf_free(p);
    host.flush();
    for (uint32_t i = 1; asking.waits; ++i) {
      host.turn();
      if (i % 1024 == 0 && asking.is_late()) asking.lose();
    }
  }
  asking.print();
}

}  // namespace vireo::bench
