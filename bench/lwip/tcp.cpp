#include "tcp.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "lwip/tcp.h"

namespace vireo::bench {

void Conn::attach(tcp_pcb* pcb) {
  pcb_ = pcb;
  tcp_arg(pcb, this);
  if (nodelay) tcp_nagle_disable(pcb);
  tcp_recv(pcb, [](void* self, tcp_pcb* from, pbuf* p, err_t) -> err_t {
    auto& c = *static_cast<Conn*>(self);
    if (p == nullptr) {
      c.ended = true;
      return ERR_OK;
    }
    c.on_data(p);
    tcp_recved(from, p->tot_len);
    pbuf_free(p);
    return ERR_OK;
  });
  tcp_err(pcb, [](void* self, err_t) {  // lwIP has freed the pcb
    auto& c = *static_cast<Conn*>(self);
    c.pcb_ = nullptr;
    c.ended = true;
  });
}

void Conn::listen(Host& host) {
  tcp_pcb* const pcb = tcp_new();
  if (tcp_bind(pcb, &host.local, kPort) != ERR_OK) die("tcp_bind");
  tcp_pcb* const listener = tcp_listen(pcb);
  tcp_arg(listener, this);
  tcp_accept(listener, [](void* self, tcp_pcb* child, err_t e) -> err_t {
    auto& c = *static_cast<Conn*>(self);
    if (e != ERR_OK || child == nullptr || c.pcb_ != nullptr) return ERR_VAL;
    c.attach(child);
    c.connected = true;
    return ERR_OK;
  });
  fmt::print(stderr, "ready\n");
}

void Conn::connect(Host& host) {
  // A queue that was just opened may lose a frame, and lwIP waits 3 s for a SYN's answer.
  const timespec opening{0, 50'000'000};
  nanosleep(&opening, nullptr);
  tcp_pcb* const pcb = tcp_new();
  attach(pcb);
  if (tcp_bind(pcb, &host.local, kPort) != ERR_OK) die("tcp_bind");
  const auto connected_now = [](void* self, tcp_pcb*, err_t) -> err_t {
    static_cast<Conn*>(self)->connected = true;
    return ERR_OK;
  };
  if (tcp_connect(pcb, &host.remote, kPort, connected_now) != ERR_OK) die("tcp_connect");
  host.flush();
}

size_t Conn::write(std::span<const uint8_t> bytes) {
  if (pcb_ == nullptr) return 0;
  size_t taken = 0;
  while (taken < bytes.size()) {
    const auto part = static_cast<u16_t>(
        std::min<size_t>({bytes.size() - taken, size_t{tcp_sndbuf(pcb_)}, size_t{0xffff}}));
    if (part == 0 || tcp_write(pcb_, bytes.data() + taken, part, TCP_WRITE_FLAG_COPY) != ERR_OK)
      break;
    taken += part;
  }
  return taken;
}

void Conn::push() {
  if (pcb_ != nullptr) tcp_output(pcb_);
}

void Conn::close() {
  if (pcb_ == nullptr) return;
  tcp_arg(pcb_, nullptr);
  tcp_recv(pcb_, nullptr);
  tcp_err(pcb_, nullptr);
  if (tcp_close(pcb_) != ERR_OK) die("tcp_close");
  pcb_ = nullptr;
}

}  // namespace vireo::bench
