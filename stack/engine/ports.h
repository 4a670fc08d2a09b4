// The interfaces in use: opened on demand, polled, lost, or moved to another device.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/carriage.h"
#include "dev/opener.h"
#include "stack/engine/part.h"
#include "stack/engine/port.h"
#include "stack/net/lookup.h"

namespace vireo {

struct Hub;

/// What a socket that is to be bound or connected would go by.
struct Reach {
  IpAddr source;        ///< its own address; unspecified: every one
  unsigned ports = 0;   ///< interfaces
  bool reopens = true;  ///< each of which other engines may open, too
};

class Ports : Part {
 public:
  struct Polled {
    Port* port;
    Queue* queue;
  };

  explicit Ports(DeviceOpener opener) : opener_(std::move(opener)) {}

  // ---- which
  std::span<Port* const> all() const noexcept { return all_; }
  /// Their queues, all of them, and the only one; null: there are more, or none.
  const std::vector<Polled>& polled() const noexcept { return polled_; }
  const Polled& only() const noexcept { return only_; }
  /// The port whose device brings frames of `carrier`; opens it if need be (milliseconds).
  Carried<Port*> open(IfIndex carrier);
  /// Opens every interface that may be carried (for wildcard binds). @return how many are open; the
  /// refusal if none.
  Carried<unsigned> open_all();
  /// The open or openable port that owns `local`; refusal kLoopback/kInterface where there is none.
  Carried<Port*> of_address(const IpAddr& local);
  /// The same of the interface that SO_BINDTODEVICE names.
  Carried<Port*> of_device(IfIndex device);
  /// May a socket name the port's interface, or a VLAN on it, to hear what comes by that one alone?
  /// Not where all of it looks as if it had come by the first.
  Carried<void> may_name(const Port& port) const noexcept;
  /// What a bind to `local` finds; opens what it would.
  Carried<Reach> reach(const IpAddr& local);

  // ---- all queues
  void flush() noexcept;  ///< rings for what is in their rings
  void reap() noexcept;   ///< takes back what has been sent
  void reap_and_refill() noexcept;
  /// Arms all queues. @return false: work is there already.
  bool arm_all() noexcept;
  /// After a sleep that a device ended. What woke this thread, and is gone with this, may have been
  /// what another waits for: the devices are asked to tell of the next.
  void wake_ack_all() noexcept;
  /// Descriptors to poll(2) for POLLIN while asleep; constant but for opens and losses. Any holder.
  std::span<const int> wait_fds() const { return wait_fds_; }
  /// Frames that come from now on bear their time (PacketBuf::hw_time), by devices that tell it.
  /// @return false: none does.
  bool stamp_frames();

  // ---- their life
  /// Are all devices still there, and what have they lost? Three system calls a queue. Flows of
  /// one that is not there end with ENETDOWN.
  void look_after() noexcept;
  /// Asks the devices what they have lost, for the counters. A system call a queue.
  void count_losses() noexcept;
  /// Devices and queues give their frames back, and end.
  void close_all() noexcept { owned_.clear(); }

 private:
  struct FailedOpen {
    IfIndex carrier;
    Instant at;
    Refusal refusal;
  };

  // ports.cpp
  Carried<void> open_device(Port& port);
  void take_up(Port& p);

  // lost_port.cpp, move_port.cpp
  void lose(Port& p) noexcept;
  bool move(Port& p) noexcept;

  Hub& hub() const noexcept;
  DeviceOpener opener_;
  Polled only_{};               ///< the only one of `polled_`; null: there are more, or none
  std::vector<Polled> polled_;  ///< all queues
  std::vector<Port*> all_;
  std::vector<std::unique_ptr<Port>> owned_;
  std::vector<int> wait_fds_;
  std::vector<FailedOpen> failed_;
  bool stamps_ = false;  ///< stamp_frames() was asked for
};

}  // namespace vireo
