// Two devices joined by a deterministic wire in one thread, under virtual time: the test bench of
// everything above. Frames are copied into the wire when they leave a device and into frames of the
// receiver's pool when virtual time reaches their arrival. A device is as strict as hardware: a
// frame waits for its doorbell, a TX slot is free again only after tx_reap(), a frame that finds no
// empty RX buffer is lost. Owner: the test. Thread: one. Queues and rules end before their device,
// devices before the link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/clock.h"
#include "dev/caps.h"
#include "dev/device.h"
#include "tests/apparatus/mem/impairments.h"
#include "tests/apparatus/mem/virtual_clock.h"
#include "tests/apparatus/mem/wire.h"

namespace vireo {

class MemDevice;

enum class MemEnd : uint8_t { kA = 0, kB = 1 };

/// How the two devices behave.
struct MemDeviceOptions {
  uint32_t queues = 1;
  uint32_t rx_ring = 256;  ///< frames
  uint32_t tx_ring = 256;  ///< frames, from tx() until reaped
  /// From the doorbell to the moment the device reads the frame and sends it.
  Duration tx_time = {};
  /// True: the head is copied to the device, as into a WQE. False: it is written before the body,
  /// as in a UMEM.
  bool inline_head = false;
  uint16_t max_body_slices = 1;  ///< with inline_head; more are gathered into a frame of the pool
  uint32_t tso_max_bytes = 0;    ///< caps().tso_max_bytes; needs inline_head
  bool promiscuous = false;      ///< frames that match no rule come to queue 0, not to the kernel
  bool tags = true;
  bool doorbell_is_call = false;  ///< says caps()
  uint32_t mtu = 1500;            ///< caps().mtu
  /// caps()'s: the VLAN tags of frames that come are taken off.
  const char* hides_tags = nullptr;
  /// kNotNeeded: RX says that all is well. kOffload is not offered.
  Checksum checksums = Checksum::kSoftware;
};

struct MemDeviceStats {
  uint64_t rx_frames = 0;
  uint64_t rx_no_buffer = 0;  ///< dropped: RX ring empty
  uint64_t to_kernel = 0;     ///< matched no rule, or were given
  uint64_t to_listener = 0;   ///< connections that were given to the kernel's listener
  uint64_t tx_frames = 0;
  uint64_t tx_gathered = 0;  ///< sent from a copy in a frame of the pool
  uint64_t tx_bursts = 0;    ///< TxFrames that the device cut into several
  uint64_t tx_refused = 0;   ///< tx() returned false
  uint64_t doorbells = 0;    ///< rung for a frame at least
};

/// A connection that the kernel's listener was given.
struct MemOpening {
  std::vector<std::byte> ack;
  Handshake agreed;
};

class MemLink {
 public:
  /// `clock` is read at every call and moved only by step(); it outlives the link.
  MemLink(uint64_t seed, const MemImpairments& a_to_b, const MemImpairments& b_to_a,
          VirtualClock& clock, const MemDeviceOptions& options = {});
  MemLink(const MemLink&) = delete;
  MemLink& operator=(const MemLink&) = delete;
  ~MemLink();

  Device& a() { return device(MemEnd::kA); }
  Device& b() { return device(MemEnd::kB); }
  Device& device(MemEnd end);
  /// Hands the device over, for users that own theirs. It must end before the link.
  std::unique_ptr<Device> release(MemEnd end);

  /// Moves the clock to `now` and lets everything that happens until then happen, in order.
  void step(Instant now);
  Instant now() const { return clock_.now(); }
  /// When something happens next: a frame leaves or arrives. never() if nothing is under way.
  Instant next_event() const;

  /// The wire out of `from`: hooks, impairments, statistics.
  MemWire& wire(MemEnd from) { return wires_[static_cast<size_t>(from)]; }
  const MemDeviceStats& stats(MemEnd end) const;
  /// Sends a frame from `from` past its device, as the kernel of that host would.
  void inject(MemEnd from, std::span<const std::byte> frame);
  /// Frames that reached `end` and match no rule, or were given to the kernel. The test may clear
  /// the list.
  std::vector<std::vector<std::byte>>& kernel_frames(MemEnd end);
  /// The same for connections, which are refused with `error`, an errno, if that is not 0.
  std::vector<MemOpening>& openings(MemEnd end);
  void refuse_openings(MemEnd end, int error);
  /// Flow rules in force at `end`.
  size_t rules(MemEnd end) const;
  /// The interface of `end` goes away: frames under way to it are lost, alive() is false.
  void unplug(MemEnd end);

 private:
  friend class MemDevice;
  void run_to(Instant until);

  VirtualClock& clock_;
  MemWire wires_[2];  ///< by sender
  std::unique_ptr<MemDevice> owned_[2];
  MemDevice* devices_[2] = {};  ///< nullptr once a released device has ended
};

}  // namespace vireo
