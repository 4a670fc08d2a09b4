// Two Tcbs joined by a wire that harms, in virtual time and by seed: the same seed is the same run.
// After every event the invariants of the control block are checked, every byte received is
// compared with a pseudo-random stream, every frame that a "device" still reads is compared with
// what it was.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "core/checksum.h"
#include "core/packet.h"
#include "stack/tcp/burst.h"
#include "stack/tcp/tcb.h"

namespace vireo::sim {

using tcp::Effects;
using tcp::Plan;
using tcp::SegFlags;
using tcp::Segment;
using tcp::State;
using tcp::Tcb;

/// What the wire does, per direction.
struct WireModel {
  Duration delay = Duration::us(50);
  Duration jitter{};           ///< uniform extra delay; more than a segment's spacing reorders
  uint32_t loss_ppm = 0;       ///< of all segments
  uint32_t duplicate_ppm = 0;  ///< sent twice
  uint32_t reorder_ppm = 0;    ///< held back by `reorder_by`
  Duration reorder_by = Duration::ms(2);
  uint64_t bytes_per_second = 0;  ///< 0 = unlimited
  uint32_t queue_bytes = 0;       ///< tail drop above this backlog, 0 = no limit
  /// Between these times after the start it swallows what has more payload and options than that.
  Duration shrunk_from{};
  Duration shrunk_until{};
  uint32_t shrunk_to = UINT32_MAX;
};

/// One host's program.
struct AppModel {
  uint64_t to_send = 100'000;
  uint32_t max_write = 20'000;
  uint32_t max_read = 20'000;
  Duration think{};       ///< between writes
  Duration read_pause{};  ///< between reads
  uint32_t more_percent = 0;
};

struct Scenario {
  uint64_t seed = 1;
  WireModel wire[2];
  AppModel app[2];
  tcp::Config config[2];
  Seq32 iss[2] = {Seq32(0), Seq32(0)};
  uint32_t frames = 4096;
  uint32_t frame_bytes = 2048;
  uint32_t ring_full_ppm = 0;  ///< emission refused, tried again a little later
  Duration device_holds{};     ///< how long a sent frame is still being read
  tcp::BurstLimits bursts{};   ///< bytes not 0: devices that segment
  /// The whole ring is looked at after each event, and a log kept: no draw then depends on what
  /// leaves together.
  bool logged = false;
  bool simultaneous_open = false;
  bool syn_data = false;        ///< RFC 7413: who opens gives its first bytes to the SYN
  bool takes_syn_data = false;  ///< the listener takes them, and speaks at once
  Duration gathers{};  ///< what arrives within that is one burst: nothing leaves before its end
  Duration limit = Duration::s(4000);

  std::string str() const;
};

struct Outcome {
  std::string failure;  ///< empty: the run was right
  Instant end;
  uint64_t events = 0;
  uint64_t segments = 0;
  uint64_t retransmissions = 0;
  uint64_t bursts = 0;
  std::vector<std::string> log;  ///< all segments, in the order they left
  uint64_t overflowed = 0;       ///< dropped by a full queue of the wire
  // Of side 0.
  bool syn_data = false;  ///< the SYN-ACK acknowledged all that the SYN had
  Instant start;          ///< opened
  Duration recovering{};  ///< time spent in fast recovery or after a timeout
  uint32_t timeouts = 0;
  uint32_t probes = 0;      ///< tail loss probes
  uint32_t undos = 0;       ///< episodes found spurious
  uint32_t mss_shrunk = 0;  ///< when the wire stopped to be narrow
  uint32_t mss_end = 0;
};

/// Byte `i` of the stream that `side` sends.
inline std::byte stream_byte(int side, uint64_t i) {
  uint64_t x = (i >> 3) + (side == 0 ? 0x9e3779b97f4a7c15ULL : 0xc2b2ae3d27d4eb4fULL);
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  return static_cast<std::byte>(x >> (8 * (i & 7)));
}

class TwoHosts {
 public:
  explicit TwoHosts(const Scenario& s);
  ~TwoHosts();
  Outcome run();

 private:
  struct Flying {
    Seq32 seq, ack;
    uint16_t window, urgent;
    SegFlags flags;
    std::vector<uint8_t> options;
    std::vector<std::byte> payload;
  };
  enum class What : uint8_t { kArrive, kTimer, kWrite, kRead, kPump, kDeviceDone };
  struct Event {
    Instant at;
    uint64_t order;
    What what;
    int side;
    std::shared_ptr<Flying> segment;
    PacketBuf* packet = nullptr;
    std::shared_ptr<std::vector<std::byte>> copy;
    uint16_t data_at = 0;
    bool operator<(const Event& o) const {
      return at != o.at ? at > o.at : order > o.order;  // priority_queue: earliest on top
    }
  };
  struct Host {
    std::vector<std::byte> memory;
    std::unique_ptr<PacketPool> pool;
    std::unique_ptr<Tcb> tcb;
    uint64_t written = 0;
    uint64_t read = 0;
    bool opened = false;
    bool connected = false;
    bool is_early = false;  ///< connected by the SYN alone: the handshake will say it once more
    bool got_eof = false;
    bool finished_writing = false;
    bool writer_waits = false;
    bool closed = false;
    bool pump_queued = false;
    bool write_queued = false;
    bool read_queued = false;
    uint32_t device_held = 0;
    Instant timer_at = Instant::never();
    Instant line_free;  ///< of the direction this host sends on
    StreamOffset edge_seen = 0;
    StreamOffset una_seen = 0;
  };

  void push(Event e);
  void open(int side);
  void open_passive(int side, Segment&& syn);
  void arrive(int side, const Flying& f);
  void effects(int side, Effects e);
  void pump(int side);
  bool emit(int side, const Plan& p);
  void put(int side, const Plan& p);
  bool send_burst(int side, const Plan& p, bool& is_full);
  void transmit(int side, std::shared_ptr<Flying> f);
  bool is_shrunk(const WireModel& w) const {
    return now_ >= zero_ + w.shrunk_from && now_ < zero_ + w.shrunk_until;
  }
  void write(int side);
  void read(int side);
  void arm(int side);
  void check(int side);
  void check_scoreboard(int side);
  void fail(const std::string& what);
  bool done() const;
  bool chance(uint32_t ppm) { return ppm != 0 && rng_() % 1'000'000 < ppm; }
  uint64_t upto(uint64_t n) { return n == 0 ? 0 : rng_() % (n + 1); }

  Scenario s_;
  std::mt19937_64 rng_;
  Host host_[2];
  std::priority_queue<Event> queue_;
  uint64_t order_ = 0;
  const Instant zero_ = Instant::from_ns(1'000'000'000);
  Instant now_ = zero_;
  Outcome outcome_;
  uint8_t retransmits_seen_ = 0;
};

/// Runs one scenario to its end.
inline Outcome run(const Scenario& s) { return TwoHosts(s).run(); }

}  // namespace vireo::sim
