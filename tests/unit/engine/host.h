// One engine over a `mem` device in virtual time, and hand-made peers on its wire: whatever a
// stranger can put on a wire, to the bit, and whatever the engine answers, exactly when.
//
//   Host   the engine (10.0.0.1, fd00::1 on eth0), its clock, its wire, its listeners
//   Peer   one address and port out there: says segments, hears the answers
//
// The kernel's tables are made up: every other address lies behind one router, whose Ethernet
// address is known. No device of this machine is touched and no right is needed.
// Owner: the test. Thread: one.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "stack/engine/engine.h"
#include "stack/tcp/tcp.h"
#include "stack/wire/tcp_options.h"
#include "tests/apparatus/mem/mem_link.h"
#include "tests/unit/engine/tables.h"

namespace vireo::test {

using tcp::SegFlags;
inline constexpr SegFlags kFin = SegFlags::kFin, kSyn = SegFlags::kSyn, kRst = SegFlags::kRst,
                          kPsh = SegFlags::kPsh, kAck = SegFlags::kAck;

/// A TCP segment that the engine sent.
struct Heard {
  Endpoint from, to;
  Seq32 seq, ack;
  uint16_t window = 0;
  SegFlags flags = SegFlags::kNone;
  uint8_t tos = 0;
  uint8_t ttl = 0;
  wire::TcpOptions options;
  std::vector<uint8_t> raw_options;
  std::string data;
  Instant at;

  bool is(SegFlags f) const { return (flags & ~kPsh) == f; }
};

/// A connection as the program would hold it: the owner of an accepted or connected flow.
struct Conn {
  TcpFlow* flow = nullptr;
  tcp::Effects effects = tcp::Effects::kNone;  ///< told so far
  SocketStats stats;

  tcp::Tcb& tcb() { return flow->tcb; }
  tcp::State state() { return tcp::state(flow->tcb); }
};

/// A listening socket: the owner of a Listener.
struct Listening {
  Listener* listener = nullptr;
  unsigned told = 0;  ///< accept events
  SocketStats stats;
};

struct HostOptions {
  size_t arena_bytes = size_t{8} << 20;
  Duration time_wait = Duration::s(60);
  uint32_t max_orphans = 65'536;
  MemImpairments to_host{};    ///< what the wire does to frames towards the engine ...
  MemImpairments from_host{};  ///< ... and from it
  MemDeviceOptions device{};
  uint64_t seed = 0;  ///< of the wire's harm; not 0: initial numbers and the clock repeat, too
  Duration ahead = Duration::s(10);  ///< of this machine's clock
  bool autocork = true;
  Instant (*clock)() = Clock::now;  ///< EngineConfig's
  bool knows_router = true;         ///< false: its Ethernet address is still asked for
};

class Host {
 public:
  explicit Host(const HostOptions& options = {});
  ~Host();

  Engine& engine() { return *engine_; }
  EngineStats& stats() { return stats_; }
  MemLink& link() { return link_; }
  net::Mirror& mirror() { return *mirror_; }
  Instant now() const { return clock_.now(); }
  IpAddr address(bool v6 = false) const { return ip(v6 ? "fd00::1" : "10.0.0.1"); }

  /// One turn of the engine now; what it sends leaves.
  void poll();
  /// Turns until there is nothing left to do at this time.
  void settle();
  /// Virtual time goes on, stopping wherever a frame arrives or a deadline passes.
  void pass(Duration d);

  // ---- the program's side
  /// Listens on every address of the family (IPv6: of both).
  Listening& listen(uint16_t port, uint32_t backlog = 16, tcp::Config config = {}, bool v6 = false,
                    const ListenOptions& options = {});
  void close(Listening& l);
  /// The next accepted connection, null if none waits.
  Conn* accept(Listening& l);
  void close(Conn& c, bool reset = false);
  size_t write(Conn& c, const std::string& bytes);
  /// All that is readable.
  std::string read(Conn& c);

  // ---- the wire's side
  /// A frame as it lies, towards the engine; the engine has its turn.
  void inject(std::span<const std::byte> frame, bool poll_now = true);
  /// TCP segments that the engine sent and nobody has taken yet.
  std::deque<Heard>& heard();
  /// Frames that the engine sent since the last call, uncounted by heard().
  size_t forget_heard();
  /// The router's Ethernet address becomes known.
  void learn_router();

 private:
  void publish(bool knows_router);

  VirtualClock clock_;
  MemLink link_;
  std::unique_ptr<net::Mirror> mirror_;
  EngineStats stats_;
  std::unique_ptr<Engine> engine_;
  std::deque<Heard> heard_;
  std::vector<std::unique_ptr<Conn>> conns_;
  std::vector<std::unique_ptr<Listening>> listening_;
};

/// What a segment carries besides its numbers.
struct Said {
  std::string data = {};
  uint16_t window = 65535;
  std::vector<uint8_t> options = {};
  uint8_t tos = 0;
  bool poll_now = true;
  bool bad_checksum = false;
  bool group_mac = false;  ///< to the broadcast Ethernet address
};

/// One end of connections with the host. Numbers are absolute; connect() and the fields below it
/// keep account of one connection for those who do not want to.
class Peer {
 public:
  Peer(Host& host, const char* address, uint16_t port, uint16_t to_port)
      : Peer(host, ip(address), port, to_port) {}
  Peer(Host& host, const IpAddr& address, uint16_t port, uint16_t to_port)
      : host_(host), here{address, port, 0}, there{host.address(!address.is_v4()), to_port, 0} {}

  void say(SegFlags flags, Seq32 seq, Seq32 ack, const Said& what = {});
  /// The next segment to us that was not taken, nullopt if there is none.
  std::optional<Heard> hear();
  /// All of them.
  std::vector<Heard> hear_all();

  // ---- one connection
  /// SYN with the options below.
  void syn(const std::string& data = {});
  /// SYN, SYN-ACK, ACK. @return false: no SYN-ACK came.
  bool connect();
  /// Continues it: flags and data at `nxt`, which advances.
  void say(SegFlags flags, const std::string& data = {});
  std::vector<uint8_t> syn_options() const;
  /// For every later segment, with the present clock.
  std::vector<uint8_t> options() const;

 private:
  Host& host_;

 public:
  Endpoint here, there;
  Seq32 iss{1000}, nxt;  ///< ours
  Seq32 irs, ack;        ///< the host's
  uint16_t mss = 1460;   ///< 0: no option
  int wscale = 7;        ///< -1: no option
  bool sack = true;
  bool timestamps = true;
  uint32_t ts_val = 5'000'000, ts_ecr = 0;
  std::vector<uint8_t> more_options;  ///< appended to the SYN's
};

/// As many, on a port each, who speak to port 80.
inline std::vector<std::unique_ptr<Peer>> make_peers(Host& h, unsigned count) {
  std::vector<std::unique_ptr<Peer>> all;
  for (unsigned i = 0; i < count; ++i)
    all.push_back(std::make_unique<Peer>(h, "11.0.0.7", static_cast<uint16_t>(40'000 + i), 80));
  return all;
}

/// A connection that a peer made and the host has accepted.
class Accepted : public testing::Test {
 protected:
  Host h;
  Peer peer{h, "11.0.0.7", 40'000, 80};
  Conn* c = nullptr;

  void SetUp() override {
    Listening& l = h.listen(80);
    ASSERT_TRUE(peer.connect());
    c = h.accept(l);
    ASSERT_NE(c, nullptr);
    peer.hear_all();
  }
};

/// Bytes of a TCP frame from `from` to `to`, as a router would deliver it.
std::vector<std::byte> tcp_frame(const Endpoint& from, const Endpoint& to, SegFlags flags,
                                 Seq32 seq, Seq32 ack, const Said& what = {});

/// An ICMP error of IPv4 (RFC 792) that quotes a segment which the host sent, with `seq`.
/// `rest`: the second word of the header (the MTU of type 3 code 4).
std::vector<std::byte> icmp_error_frame(const Endpoint& sender, const Endpoint& receiver, Seq32 seq,
                                        uint8_t type, uint8_t code, uint32_t rest = 0);

}  // namespace vireo::test
