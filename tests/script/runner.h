// Plays a packet script against a Host: moves its clock from event to event, injects, calls, and
// compares what leaves with what is expected.
// Owner: the test. Thread: one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/script/host.h"
#include "tests/script/script.h"

namespace vireo::script {

class Runner {
 public:
  /// `iss`, `irs`: the initial numbers that script number 0 stands for.
  /// `bursts`: what the host's device segments (Host::set_bursts); the script is the same.
  Runner(const Script& script, Seq32 iss, Seq32 irs, const tcp::BurstLimits& bursts = {});
  /// @return empty: all went as written; else script, line, what was expected and what was.
  std::string run();

 private:
  struct Pending {
    const Event* event = nullptr;
    std::function<int64_t()> retry;
    Instant due;
    bool finished = false;
    Instant at;
    int64_t result = 0;
  };

  bool play(const Event& e);
  Instant start_of(const Event& e);
  bool advance(Instant to);
  bool advance_until_sent(Instant to);
  bool settle(Instant by);
  bool retry_pending();
  bool no_segment_before(Instant t);

  bool inject(const PacketSpec& p);
  bool inject(const IcmpSpec& i);
  bool expect(const Event& e, const PacketSpec& p);
  bool call(const Event& e, const Call& c);
  bool check_result(const Call& c, int64_t r);
  bool check(const std::vector<Assertion>& all);
  bool value_of(const std::string& name, int64_t& out) const;

  PacketSpec as_spec(const WireSegment& w) const;
  std::vector<uint8_t> option_bytes(const std::vector<Option>& options) const;
  bool options_match(const PacketSpec& want, const PacketSpec& got) const;
  bool payload_right(const WireSegment& w) const;
  std::string describe(const WireSegment& w) const;
  bool fail(const std::string& what);
  double seconds(Instant t) const { return static_cast<double>((t - zero_).ns()) / 1e9; }

  const Script& script_;
  std::unique_ptr<Host> host_;
  Seq32 iss_, irs_;
  Instant zero_;
  Instant last_;  ///< time of the event before
  const Event* event_ = nullptr;
  std::string failure_;
  std::unique_ptr<Pending> pending_;
  bool ts_known_ = false;
  uint32_t ts_base_ = 0;  ///< live timestamp of the script's 0
  uint64_t written_ = 0;  ///< bytes of the stream that write() took
  uint64_t read_ = 0;
};

/// Byte `i` of the stream that either side of a script sends.
inline char stream_byte(uint64_t i, bool ours) {
  return static_cast<char>((i * 131 + (i >> 8) * 29 + (ours ? 7 : 101)) & 0xff);
}

/// Config of Linux's names in `settings` over our defaults; false: an unknown name, in `bad`.
bool configure(const std::vector<Setting>& settings, tcp::Config& c, std::string& bad);

}  // namespace vireo::script
