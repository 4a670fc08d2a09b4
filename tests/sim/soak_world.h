// Two hosts, each a whole engine, at the ends of one `mem` link in virtual time, and programs on
// them that open, write, read, close and die at random. The same seed is the same run.
//
//   World     the clock, the link, what befalls them, and the calendar of what comes
//   Host      an engine and its listeners
//   Socket    what a program holds of a connection
//   Talk      a connection as both programs know it: what each has said
//   Door      a listener
//   Mouth     a UDP socket; datagrams go both ways beside the connections (soak_beside.cpp)
//
// Owner: the test. Thread: one.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "stack/engine/engine.h"
#include "tests/apparatus/mem/mem_link.h"
#include "tests/apparatus/mem/prng.h"
#include "tests/sim/soak_bounds.h"

namespace vireo::sim {

inline constexpr const char* kV4[] = {"10.0.0.1", "10.0.0.2"};
inline constexpr const char* kV6[] = {"fd00::1", "fd00::2"};
inline constexpr net::Mac kMac[] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};

class World {
 public:
  explicit World(uint64_t seed);
  ~World();

  /// Programs come and go for `d`, then no new ones do, all that is open is closed, and time goes
  /// on until nothing is left. @return what went wrong first; empty if nothing did.
  std::string round(Duration d);
  Duration elapsed() const { return clock_.now() - start_; }
  /// What was done and seen, in a line.
  std::string story() const;

 private:
  struct Half {
    uint64_t written = 0;
    bool ended = false;  ///< FIN follows what is written
    bool is_taken = false;
  };
  struct Talk {
    uint64_t id = 0;
    Half half[2];  ///< by host
    bool is_remade = false;
  };
  /// What went with a SYN, before its sender knew whom it talks with (RFC 7413).
  struct SynWords {
    std::shared_ptr<Talk> talk;
    uint64_t bytes = 0;
    bool is_met = false;
  };
  struct Socket {
    unsigned host = 0;
    TcpFlow* flow = nullptr;
    std::shared_ptr<Talk> talk;
    SocketStats stats;
    World* world = nullptr;
    uint64_t id = 0;
    uint64_t to_write = 0, read = 0;
    bool is_paused = false, is_told = false, is_ended = false, is_dying = false;
  };
  /// What a program holds of a socket without a connection.
  template <class Of>
  struct Unconnected {
    World* world = nullptr;
    unsigned host = 0;
    Of* flow = nullptr;
    SocketStats stats;
    bool is_told = false;
  };
  using Door = Unconnected<Listener>;
  using Mouth = Unconnected<UdpFlow>;
  /// A frame that the path does not carry, for the router to tell of (RFC 1191 §4).
  struct TooBig {
    unsigned from;
    std::vector<std::byte> frame;
  };
  static constexpr unsigned kDoors = 8;
  struct Host {
    std::unique_ptr<net::Mirror> mirror;
    EngineStats stats;
    std::unique_ptr<Engine> engine;
    std::array<Door, kDoors> doors;
    BoundsWatch watch;
    uint32_t frames = 0;  ///< of the pool, free when all is quiet
  };
  struct Event {
    Instant at;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& o) const {
      return std::pair(at, order) > std::pair(o.at, o.order);  // the first on top
    }
  };

  static void on_tcp(TcpFlow& f, tcp::Effects);
  static void on_accept(Listener& l);
  static void on_udp(UdpFlow& u);

  // ---- time
  Instant now() const { return clock_.now(); }
  void pass_to(Instant end);
  void settle();
  void look();
  void in(Duration d, std::function<void()> what);
  /// A time of that mean, exponentially distributed.
  Duration around(Duration mean);
  void wrong(const std::string& what);

  // ---- what befalls the link
  MemVerdict befalls(unsigned from, std::span<const std::byte> frame);
  void answer_for_kernel(unsigned host);
  void pull_cable();
  void move_path();
  bool is_too_big(unsigned from, std::span<const std::byte> frame);
  void answer_for_router();

  // ---- programs
  tcp::Config config();
  IpAddr address(unsigned host, bool v6) const;
  void open();
  void open_crossing();
  Socket* connect(unsigned host, bool v6, uint16_t from, uint16_t to, bool is_fast = false);
  void speak_with_syn(Socket& s);
  Socket& own(unsigned host, TcpFlow& f);
  void toggle_door();
  void shut(Door& d);
  void service();
  void accept(Door& d);
  std::shared_ptr<Talk> begin_talk(uint64_t ends, const std::array<Seq32, 2>& iss);
  void meet(Socket& s);
  void take(Socket& s);
  void write(Socket& s);
  void read(Socket& s);
  std::string at_fault(const Socket& s) const;
  void act(uint64_t id);
  void close(Socket& s, bool reset);
  void half_close(Socket& s);
  void end(Socket& s);
  void vanish(Socket& s);
  void toggle_mouth();
  void speak();
  void hear(Mouth& m);
  void close_mouths();
  std::string census(unsigned host);

  Prng rng_;
  VirtualClock clock_;
  Instant start_, looked_;
  MemLink link_;
  std::array<Host, 2> hosts_;
  std::priority_queue<Event> calendar_;
  uint64_t order_ = 0, next_id_ = 1;
  bool is_busy_ = false;                             ///< programs come and go
  Instant cable_out_[2];                             ///< by sender: until then nothing gets through
  uint16_t path_mtu_[2] = {UINT16_MAX, UINT16_MAX};  ///< of the way from a host, IPv4 alone
  std::vector<TooBig> too_big_;
  std::map<std::pair<unsigned, uint16_t>, std::unique_ptr<Mouth>> mouths_;  ///< by host and port
  std::vector<Mouth*> spoken_to_;
  std::set<uint64_t> dead_;  ///< tuples that one end vanished from
  /// By tuple and initial numbers.
  std::map<std::tuple<uint64_t, uint32_t, uint32_t>, std::shared_ptr<Talk>> talks_;
  /// By tuple, the opener's host and its initial number.
  std::map<std::tuple<uint64_t, unsigned, uint32_t>, SynWords> syn_words_;
  std::map<uint64_t, std::unique_ptr<Socket>> sockets_;
  std::vector<Socket*> told_;
  std::vector<Door*> knocked_;
  std::vector<std::byte> stream_;
  std::string wrong_;
  std::map<std::string, uint64_t> counts_;
};

}  // namespace vireo::sim
