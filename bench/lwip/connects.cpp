// Connect, one byte there and back, close: --batch connections at a time. The client closes first.
// It keeps no connection in TIME_WAIT, which flatters lwIP: it would look through all of them at
// each connect, and run out of local ports.
#include <fmt/format.h>

#include <ctime>
#include <deque>
#include <vector>

#include "bench/plain/clock.h"
#include "bench/plain/connect_tally.h"
#include "host.h"
#include "lwip/tcp.h"

namespace vireo::bench {
namespace {

// Those that lwIP takes for who names none.
constexpr uint16_t kFirstLocalPort = 0xc000, kLastLocalPort = 0xffff;

class Crowd {
 public:
  Crowd(Host& host, const Options& o) : host_(host), tally_(o.seconds), members_(o.batch) {
    for (auto& m : members_) {
      m.crowd = this;
      open(m);
    }
    host_.flush();
  }
  void run() {
    while (!tally_.is_over() && g_stop == 0 && host_.alive()) {
      host_.turn();
      bury();
    }
    tally_.print();
  }

 private:
  struct Member {
    Crowd* crowd = nullptr;
    uint64_t start = 0;
  };

  void open(Member& m) {
    m.start = plain::ticks();
    tcp_pcb* const pcb = tcp_new();
    tcp_arg(pcb, &m);
    tcp_nagle_disable(pcb);
    tcp_err(pcb, [](void*, err_t) { die("the server went away"); });
    tcp_recv(pcb, [](void* self, tcp_pcb* from, pbuf* p, err_t) -> err_t {
      auto& its = *static_cast<Member*>(self);
      its.crowd->answered(its, from, p);
      return ERR_OK;
    });
    const auto connected = [](void*, tcp_pcb* to, err_t) -> err_t {
      return tcp_write(to, "c", 1, TCP_WRITE_FLAG_COPY);  // leaves with the turn's ACK
    };
    if (tcp_connect(pcb, &host_.remote, kPort, connected) != ERR_OK) die("tcp_connect");
  }
  void answered(Member& m, tcp_pcb* pcb, pbuf* p) {
    if (p == nullptr) die("the server closed first");
    tcp_recved(pcb, p->tot_len);
    pbuf_free(p);
    tcp_arg(pcb, nullptr);
    tcp_recv(pcb, nullptr);
    tcp_err(pcb, nullptr);
    if (tcp_close(pcb) != ERR_OK) die("tcp_close");
    closed_.push_back(pcb);
    tally_.add(m.start);
    if (!tally_.is_over()) open(m);
  }
  /// They end one after the other, more or less.
  void bury() {
    while (!closed_.empty() && closed_.front()->state == TIME_WAIT) {
      tcp_abort(closed_.front());  // in this state it says nothing
      closed_.pop_front();
    }
  }

  Host& host_;
  plain::ConnectTally tally_;
  std::vector<Member> members_;
  std::deque<tcp_pcb*> closed_;
};

}  // namespace

void connect_server(const Options& o) {
  Host host(o, IpProto::kTcp);
  tcp_pcb* const pcb = tcp_new();
  if (tcp_bind(pcb, &host.local, kPort) != ERR_OK) die("tcp_bind");
  tcp_pcb* const listener = tcp_listen(pcb);
  tcp_accept(listener, [](void*, tcp_pcb* child, err_t e) -> err_t {
    if (e != ERR_OK || child == nullptr) return ERR_VAL;
    tcp_nagle_disable(child);
    tcp_recv(child, [](void*, tcp_pcb* from, pbuf* p, err_t) -> err_t {
      if (p == nullptr) return tcp_close(from);
      const uint8_t byte = pbuf_get_at(p, 0);
      tcp_recved(from, p->tot_len);
      pbuf_free(p);
      return tcp_write(from, &byte, 1, TCP_WRITE_FLAG_COPY);  // leaves with the turn's ACK
    });
    return ERR_OK;
  });
  fmt::print(stderr, "ready\n");
  while (g_stop == 0 && host.alive()) host.turn();
  fmt::print("{{}}\n");
}

void connect_client(const Options& o) {
  Host host(o, IpProto::kTcp);
  host.steer(o, kFirstLocalPort, kLastLocalPort);
  // A queue that was just opened may lose a frame, and lwIP waits 3 s for a SYN's answer.
  const timespec opening{0, 50'000'000};
  nanosleep(&opening, nullptr);
  Crowd(host, o).run();
}

}  // namespace vireo::bench
