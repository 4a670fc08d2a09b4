// How long a connection may stay in a state, by its settings, and the watch that holds every
// connection of an engine to it. The table of bounds is in soak_bounds.cpp.
// Owner: the test. Thread: one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stack/engine/engine.h"
#include "tests/fuzz/tcp/invariants.h"

namespace vireo::sim {

/// One connection as the watch knows it.
struct Seen {
  uint64_t life = 0;  ///< of ports and ISN: another connection has another
  tcp::State state = tcp::State::kClosed;
  bool closed = false;  ///< the program has closed it
  StreamOffset una = 0, edge = 0;
  Instant entered;     ///< `state`
  Instant closed_at;   ///< by the program
  Instant progressed;  ///< bytes were acknowledged, the window moved, or nothing was outstanding
  Instant shut_at;     ///< the peer's window was shut, and has been since
  fuzz::Watch watch;
};

class BoundsWatch {
 public:
  /// Looks at every connection, half-open ones and TIME-WAIT too. Look often: what it sees late it
  /// takes for younger than it is, never for older.
  /// @return what has outlived its bound or broken an invariant; empty if all is well.
  std::string look(Engine& e, Instant now);
  /// Longest stay seen, by state.
  const std::map<tcp::State, Duration>& longest() const { return longest_; }

 private:
  std::string look(TcpFlow& f, Instant now);

  std::vector<Seen> seen_;                                                  ///< by the flow's tag
  std::map<std::vector<uint8_t>, std::pair<uint32_t, Instant>> half_open_;  ///< ISS, first seen
  std::map<tcp::State, Duration> longest_;
  unsigned looks_ = 0;
};

const char* name(tcp::State s);

}  // namespace vireo::sim
