// One TCP connection of lwIP's raw API. Thread: that of its Host.
#pragma once

#include <functional>
#include <span>

#include "host.h"

struct tcp_pcb;

namespace vireo::bench {

struct Conn {
  std::function<void(pbuf*)> on_data;  ///< in order; the window is opened and `p` freed after it
  bool connected = false;
  bool ended = false;  ///< by the peer's FIN, or an error
  bool nodelay = true;

  Conn() = default;
  Conn(const Conn&) = delete;

  /// Takes the first connection to kPort. Says "ready" on stderr.
  void listen(Host& host);
  void connect(Host& host);
  /// @return bytes taken, which leave after push().
  size_t write(std::span<const uint8_t> bytes);
  /// What was written leaves with the host's next doorbell, as far as windows allow.
  void push();
  void close();

 private:
  void attach(tcp_pcb* pcb);
  tcp_pcb* pcb_ = nullptr;
};

}  // namespace vireo::bench
