// A host whose TCP is lwIP 2.1, by its raw API, in the test's thread and in virtual time. Its
// frames go to the wire of a Vireo host and come from there; its clock is that host's; its random
// numbers are seeded. So the same seed is the same run, to the byte.
//
// lwIP keeps its state in globals: one LwipHost at a time. Debian builds it for threads, but
// nothing of the raw API needs its thread: that one alone calls sys_check_timeouts() and the
// netif's input otherwise, and here the test does. Owner: the test. Thread: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/engine/host.h"

struct tcp_pcb;
struct netif;

namespace vireo::test {

/// One connection of lwIP's program.
struct LwipConn {
  tcp_pcb* pcb = nullptr;  ///< null: closed, or lwIP has freed it
  std::string received;
  bool connected = false, ended = false;
  int error = 0;        ///< err_t that ended it, 0 = none
  bool reads = true;    ///< false: keeps what comes out of the window, as a program that sleeps
  uint32_t unread = 0;  ///< bytes not given back to the window
};

class LwipHost {
 public:
  explicit LwipHost(Host& peer, unsigned seed);
  ~LwipHost();
  LwipHost(const LwipHost&) = delete;
  LwipHost& operator=(const LwipHost&) = delete;

  static IpAddr address() { return ip("10.9.9.9"); }
  void listen(uint16_t port);
  /// The next accepted connection, null if none waits.
  LwipConn* accept();
  LwipConn& connect(uint16_t port);
  /// @return bytes taken.
  size_t write(LwipConn& c, std::string_view bytes);
  void half_close(LwipConn& c);
  void close(LwipConn& c);
  void abort(LwipConn& c);
  /// Reads again, and what it had left.
  void resume(LwipConn& c);

  /// What has arrived is taken, timers that are due run. @return there was something to take.
  bool turn();
  /// When a timer is due next.
  Instant next_deadline() const;

 private:
  friend struct LwipCalls;
  void attach(LwipConn& c);

  Host& peer_;
  std::unique_ptr<netif> netif_;
  tcp_pcb* listener_ = nullptr;
  std::vector<std::unique_ptr<LwipConn>> conns_;
  std::vector<LwipConn*> waiting_;
};

}  // namespace vireo::test
