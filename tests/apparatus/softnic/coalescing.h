// Segments of a connection that come together as one packet (LRO): a device collects what follows
// each other without a gap and differs in nothing but what a completion can tell, and writes the
// headers of the first, then all payloads. Neither lengths nor sums in the headers are made right:
// length, acknowledgement, window, least TTL and the last timestamps are in the completion.
// Here a session ends at the latest with the burst in which its frames came; a device's has a
// timer. Owner: the Qp of a TIR. Thread: holder of the port's lock.
// Source: DPDK's and FreeBSD's mlx5 drivers, for what they make of such packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/apparatus/softnic/completion.h"
#include "tests/apparatus/softnic/frame.h"

namespace vireo::softnic {

class Coalescing {
 public:
  static constexpr uint32_t kCountsFromEthernet = 1;  ///< what a packet's greatest length covers
  static constexpr uint32_t kMinPayload = 64;
  static constexpr uint32_t kPeriodsUs[] = {8, 16, 32, 1024};
  static constexpr size_t kMaxSessions = 4;

  struct Session {
    std::vector<std::byte> bytes;
    Headers headers;
    Seen seen;
    uint32_t next_seq = 0;
    Lro told;
  };

  /// Packets of at most `most` bytes, Ethernet header and all.
  Coalescing(uint32_t most, bool v4, bool v6) : most_(most), v4_(v4), v6_(v6) {}
  uint32_t most() const { return most_; }
  std::vector<Session>& sessions() { return sessions_; }
  /// May it be one of several? `good`: its checksums hold.
  bool is_fit(std::span<const std::byte> frame, const Headers& h, bool good) const;
  /// That of the frame's connection, or sessions().size().
  size_t find(const Headers& h) const;
  /// If it is the next of that session, of the same rule, it belongs to it from now on.
  bool extend(Session& s, std::span<const std::byte> frame, const Headers& h, const Seen& seen);
  void begin(std::span<const std::byte> frame, const Headers& h, const Seen& seen);

 private:
  uint32_t most_;
  bool v4_, v6_;
  std::vector<Session> sessions_;
};

}  // namespace vireo::softnic
