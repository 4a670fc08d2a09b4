// A host with one address, for one peer: sockets in front of the protocol engine, segments behind
// it, and a clock that only its user moves. What stack/sock and stack/engine do for a program, in
// the least that a packet script needs; calls return what libc's would, or -errno, and never wait.
// Owner: the test. Thread: one. Source: RFC 9293 §3.10, socket(7), tcp(7).
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/packet.h"
#include "stack/tcp/burst.h"
#include "stack/tcp/tcb.h"
#include "tests/script/script.h"

namespace vireo::script {

/// A segment as it is on the wire, numbers absolute.
struct WireSegment {
  uint32_t seq = 0;
  uint32_t ack = 0;
  uint16_t window = 0;
  uint16_t urgent = 0;
  uint8_t flags = 0;
  EcnBits ecn = EcnBits::kNotEct;
  bool absolute = false;  ///< the answer to a stranger: its numbers belong to no connection
  bool again = false;     ///< a retransmission; known of what leaves
  std::vector<uint8_t> options;
  std::string payload;
  Instant at;
};

/// What a host knows of Fast Open (RFC 7413), filled in by its user before it is needed.
struct FastOpenState {
  bool as_client = true;
  bool without_cookie = false;  ///< as client: data goes without one
  std::vector<uint8_t> cookie;  ///< the peer's, empty: not known
  uint16_t cookie_mss = 0;      ///< of its SYN-ACK
  bool all_listeners = false;   ///< they take it unasked (net.ipv4.tcp_fastopen 0x400)
  bool take_unasked = false;    ///< as server: data on a SYN without a cookie, too
  std::vector<std::vector<uint8_t>> granted;  ///< cookies good for this peer, the first is given
};

class Host {
 public:
  /// `iss`: initial number of the first connection.
  Host(const tcp::Config& config, Seq32 iss, uint32_t frames = 4096);
  ~Host();

  // ---- time and wire
  Instant now() const { return now_; }
  /// When something happens by itself next.
  Instant deadline() const;
  /// Moves the clock to `t` (not past deadline()) and does what is due.
  void step(Instant t);
  void deliver(const WireSegment& s);
  /// An ICMP error that quoted `seq`; `error` an errno, `mtu` of "fragmentation needed" or 0.
  void deliver_icmp(uint32_t seq, int error, uint32_t mtu);
  std::deque<WireSegment>& sent() { return sent_; }

  // ---- calls
  int socket(bool nonblocking);
  int bind(int fd);
  int listen(int fd, int backlog);
  int accept(int fd);
  /// 0 where TCP_FASTOPEN_CONNECT leaves the SYN to the first write.
  int connect(int fd);
  /// sendto(2) with MSG_FASTOPEN.
  int64_t send_fast_open(int fd, const std::string& data);
  int64_t read(int fd, size_t n, int flags, std::string& out);
  int64_t write(int fd, const std::string& data, int flags);
  int shutdown(int fd, int how);
  int close(int fd);
  int setsockopt(int fd, int level, int name, const std::vector<int64_t>& value);
  /// The value, or -errno - 1'000'000 so that errors are told from values.
  int64_t getsockopt(int fd, int level, int name);
  int set_nonblocking(int fd, bool on);
  bool is_nonblocking(int fd) const;
  short poll(int fd) const;
  int64_t ioctl(int fd, unsigned long request);

  /// Its device segments, from now on: what leaves together is planned as one (tcp/burst.h).
  void set_bursts(const tcp::BurstLimits& limits) { bursts_ = limits; }
  FastOpenState& fast_open() { return fast_open_; }
  /// The connection of the script: the latest that was made. Null: none yet.
  const tcp::Tcb* connection() const { return tcb_.get(); }
  const PacketPool& pool() const { return pool_; }
  static constexpr int64_t kErrorBase = -1'000'000;

 private:
  struct Socket {
    enum class Kind : uint8_t { kFree, kFresh, kListener, kConnection };
    Kind kind = Kind::kFree;
    bool nonblocking = false;
    bool linger_off = false;  ///< SO_LINGER 0
    bool error_taken = false;
    bool shut_read = false;
    bool told_connected = false;  ///< by connect(), or sendto() with MSG_FASTOPEN
    bool fast_open_connect = false;
    int fast_open_backlog = 0;
    int backlog = 0;
    tcp::Config config;
  };

  Socket* at(int fd);
  const Socket* at(int fd) const { return const_cast<Host*>(this)->at(fd); }
  void pump();
  void emit(const tcp::Plan& p, bool absolute);
  tcp::Segment segment(const WireSegment& s);
  void effects(tcp::Effects e);
  void open(const tcp::Config& c);
  void open_passive(Socket& listener, int fd, tcp::Segment&& syn);
  int64_t begin_fast_open(const std::string& data);
  int take_error(Socket& s);
  bool is_live() const { return tcb_ && tcp::state(*tcb_) != tcp::State::kClosed; }
  void apply(Socket& s);
  tcp::Config socket_config(const Socket& s) const;

  std::vector<std::byte> memory_;
  PacketPool pool_;
  tcp::Config config_;
  Instant now_ = Instant::from_ns(1'000'000'000'000);
  Seq32 next_iss_;
  uint32_t ts_offset_;
  std::deque<WireSegment> sent_;
  std::vector<Socket> sockets_;
  std::unique_ptr<tcp::Tcb> tcb_;
  int fd_ = -1;                ///< of the connection
  int listener_ = -1;          ///< it was born from, until accepted
  bool waits_accept_ = false;  ///< complete, not yet accepted
  bool has_time_wait_ = false;
  tcp::TimeWait time_wait_;
  FastOpenState fast_open_;
  bool grants_cookie_ = false;  ///< the SYN asked for one
  Instant time_wait_until_ = Instant::never();
  tcp::BurstLimits bursts_;
};

}  // namespace vireo::script
