// The device contract as a test suite: what every Queue back end owes the engine (dev/device.h). A
// back end joins with
//   INSTANTIATE_TEST_SUITE_P(Xdp, DeviceContract, ::testing::Values(ContractBackend{"veth",
//   make_pair}), contract_name);
// in its own contract_<name>.cpp, where make_pair gives two connected devices.
// Owner: the test. Thread: the test's, save where a test says otherwise.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "dev/device.h"
#include "frames.h"

namespace vireo::test {

using Milliseconds = std::chrono::milliseconds;

/// What a test asks of the devices it gets.
struct PairOptions {
  uint32_t pool_frames = 1024;  ///< of each side
  uint32_t tx_ring = 64;        ///< wished for; a back end may round it
  uint32_t rx_ring = 256;       ///< wished for; at least three times what tx_ring became
};

/// Two devices, 0 and 1: what 0 sends 1 receives, and the reverse. Lives longer than queues and
/// rules.
class DevicePair {
 public:
  virtual ~DevicePair() = default;
  virtual Device& device(int side) = 0;
  /// Used by one side only, so that the sides may run in two threads.
  virtual PacketPool& pool(int side) = 0;
  virtual Mac mac(int side) const { return {2, 0, 0, 0, 0, static_cast<uint8_t>(side + 1)}; }
  virtual IpAddr v4(int side) const {
    return IpAddr::v4(be32(0x0a000001U + static_cast<uint32_t>(side)));
  }
  virtual IpAddr v6(int side) const;
  /// Lets time pass. @return false: nothing is under way any more (for wires in virtual time).
  virtual bool progress();
  /// How long a frame may take that should not come at all.
  virtual Milliseconds quiet() const { return Milliseconds(20); }
  /// True if frames that match no rule do not come.
  virtual bool filters() const { return true; }
  /// True if a frame sent while the receiver has buffers is never lost.
  virtual bool lossless() const { return true; }
  /// Makes `side` lose its device, where the back end can. @return false: it cannot.
  virtual bool unplug(int side) {
    (void)side;
    return false;
  }
};

struct ContractBackend {
  std::string name;
  std::function<std::unique_ptr<DevicePair>(const PairOptions&)>
      make;  ///< nullptr: skip (a right is missing)
};
inline std::ostream& operator<<(std::ostream& o, const ContractBackend& b) { return o << b.name; }
inline std::string contract_name(const ::testing::TestParamInfo<ContractBackend>& i) {
  return i.param.name;
}

struct Received {
  Bytes bytes;  ///< all parts of a packet that spans frames
  RxFlags flags = RxFlags::kNone;
  FlowTag tag;
};

/// Opens queue 0 on both sides, steers UDP port kPort of both addresses there, and in the end
/// checks that every frame is back in its pool.
class DeviceContract : public ::testing::TestWithParam<ContractBackend> {
 protected:
  static constexpr uint16_t kPort = 7000;
  static constexpr size_t kHeader = 42;  ///< of flow(): Ethernet, IPv4, UDP

  void SetUp() override;
  void TearDown() override;
  /// Opens everything again with other wishes.
  void reopen(const PairOptions& options);

  Queue& queue(int side) { return *queues_[side]; }
  PacketPool& pool(int side) { return pair_->pool(side); }

  /// UDP over IPv4 from `from` to the steered port of the other side.
  FrameSpec flow(int from, uint16_t from_port = 6000, uint16_t to_port = kPort) const;
  /// The key by which `side` names its local port, open to every remote.
  FlowKey local_key(int side, uint16_t port = kPort) const;
  /// Frame `number` of flow(from), `size` bytes in all.
  Bytes frame(int from, uint32_t number, size_t size = 100) const;

  /// Queues `bytes` as a head of `head` bytes and one body slice. @return false: refused, nothing
  /// taken.
  bool send(int side, std::span<const std::byte> bytes, Doorbell bell = Doorbell::kNow,
            size_t head = kHeader);
  /// As send(), reaping and letting time pass until there is room. Fails the test if there never
  /// is.
  void send_surely(int side, std::span<const std::byte> bytes);
  /// One burst of whole packets, appended to `out`.
  unsigned receive_burst(int side, std::vector<Received>& out, size_t limit = 16);
  /// Receives until `count` frames are there or nothing comes for a while.
  std::vector<Received> receive(int side, size_t count);
  /// Sends frames `sent` to `total` of 0 by `send_number`, which says false where there is no room,
  /// and receives at 1 meanwhile. `got` then holds all, in order, or the test has failed.
  void carry(std::vector<Received>& got, uint32_t sent, uint32_t total,
             const std::function<bool(uint32_t)>& send_number);
  /// True if nothing comes for quiet().
  bool stays_quiet(int side);
  /// Reaps until no frame is under way any more, or time is up. @return how many were reaped.
  unsigned reap_until_idle(int side);

  std::unique_ptr<DevicePair> pair_;
  std::unique_ptr<Queue> queues_[2];
  std::vector<FlowRule> rules_;
  uint32_t idle_free_[2] = {};  ///< free frames of the pool when nothing is under way
  bool joins_[2] = {};          ///< the last frame received goes on in the next

 private:
  void open(const PairOptions& options);
  void close();
};

/// A body of one buffer holding `bytes`, from `pool`; nullptr if it is empty.
PacketRef body_of(PacketPool& pool, std::span<const std::byte> bytes);

}  // namespace vireo::test
