// Two hosts whose sockets go by RDMA devices in lock-step (tests/apparatus/softnic), in one thread
// and in virtual time: two namespaces with the kernel's routes and shadow sockets (two_hosts.h), a
// Stack in each without its helper thread, whose looks are taken here in its place, each second.
//
// A blocking call of a socket works, too: where it would sleep, the other host and the devices have
// their turns, and time goes on until something wakes it. One that nothing ever wakes ends the
// program.
//
// When a World ends, it finds everything that was lent given back: frames, rules, regions, pairs,
// completion queues, descriptors, timers. Owner: the test. Thread: one.
#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <memory>
#include <ostream>
#include <vector>

#include "dev/verbs/verbs.h"
#include "tests/apparatus/softnic/control.h"
#include "tests/unit/sock/mux.h"
#include "tests/unit/sock/two_hosts.h"

namespace vireo::test {

/// By which back end both hosts drive their devices; kStriding: mlx5 with striding queues, kLro:
/// and with LRO.
enum class Backend : uint8_t { kVerbs, kMlx5, kStriding, kLro };
inline constexpr Backend kBackends[] = {Backend::kVerbs, Backend::kMlx5, Backend::kStriding,
                                        Backend::kLro};
std::ostream& operator<<(std::ostream& o, Backend b);

struct Shape {
  Backend backend = Backend::kVerbs;
  uint32_t rx_frames = 512, tx_frames = 512;
  size_t arena_bytes = size_t{8} << 20;
  StampTime stamps = StampTime::kSystem;
  RingLogic rings = RingLogic::kInterface;  ///< of host b
  int ring_limit = 0;
};

class World {
 public:
  explicit World(const Shape& shape);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  /// Closes by reset what the test left open, then counts.
  ~World();

  Api& api(int side) { return side == 0 ? *a_ : *b_; }
  Api& a() { return *a_; }
  Api& b() { return *b_; }
  Engine& engine(int side) { return *stack(side).engine_if_any(); }
  Stack& stack(int side) { return api(side).host().stack(); }
  ibv_device* nic(int side) const { return nics_[side]; }

  Instant now() const;
  /// A turn of all engines and of the devices; 10 us go by. @return true: something was done.
  bool turn();
  /// Turns until that time has gone by.
  void pass(Duration d);
  /// step() and turns until done(), or `bound` is over. Idle time is skipped. @return done().
  bool run(const std::function<bool()>& step, const std::function<bool()>& done, Duration bound);
  /// While this side's program stands still, nobody calls in there.
  void stop(int side, bool stopped) { stopped_[side] = stopped; }

  /// At the next sleep of a blocking call, `delay` after it began.
  void while_asleep(std::function<void()> what, Duration delay = {});
  /// How long the last blocking call slept, of virtual time.
  Duration slept() const { return slept_; }
  void begin_call() { slept_ = {}; }

  // ---- what most tests open
  int listener(int side, uint16_t port, int type = SOCK_STREAM | SOCK_NONBLOCK);
  int udp(int side, uint16_t port);
  /// {a's, b's}; both are carried.
  std::pair<int, int> connection(uint16_t port);
  void connect_to(int side, int fd, uint16_t port);
  int begin_connect(int side, uint16_t port);
  int keep(int side, int fd);  ///< closed in the end, unless the test does it
  void close(int side, int fd);

  /// A sleeping call's ppoll(2).
  int sleep(pollfd* fds, nfds_t n, const timespec* timeout);

 private:
  struct Open {
    int side, fd;
  };
  bool turn_of(int side);
  bool turn_of(Engine& e, bool looks);
  void skip_idle(Instant end);
  void close_all();
  void expect_nothing_lent(int side);

  const Shape shape_;
  ibv_device* nics_[2];
  size_t descriptors_;
  std::unique_ptr<Hosts> hosts_;
  std::unique_ptr<Api> a_, b_;
  Instant looked_[2];
  bool stopped_[2] = {};
  std::vector<Open> open_;
  std::function<void()> asleep_;
  Duration asleep_after_{};
  Duration slept_{};
};

}  // namespace vireo::test
