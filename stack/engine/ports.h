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

/// What a socket would use after bind or connect.
struct Reach {
  IpAddr source;        ///< its own address; unspecified: all
  unsigned ports = 0;   ///< interfaces
  bool reopens = true;  ///< other engines can open each of them too
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
  /// All their queues; and the only queue, null if there are several or none.
  const std::vector<Polled>& polled() const noexcept { return polled_; }
  const Polled& only() const noexcept { return only_; }
  /// The port of the interface `carrier`; opens it if needed (milliseconds).
  Carried<Port*> open(IfIndex carrier);
  /// Opens every interface that may be carried (for wildcard binds). @return the number of open
  /// ones; the refusal if none.
  Carried<unsigned> open_all();
  /// The port of the interface that has `local`, opened if needed; refusal kLoopback or kInterface
  /// if there is none.
  Carried<Port*> of_address(const IpAddr& local);
  /// The same for the interface given to SO_BINDTODEVICE.
  Carried<Port*> of_device(IfIndex device);
  /// The port's queue for copies of frames (Device::share() of UDP), if it is not open yet. Threads
  /// asleep do not wait for it: tell them. @return whether it was. Errors: the device's.
  Result<bool> open_copies(Port& p);
  /// Whether a socket may receive by the port's interface only, or by one VLAN on it. Not where the
  /// device hides VLAN tags: all frames then seem to come by the interface itself.
  Carried<void> may_name(const Port& port) const noexcept;
  /// What a bind to `local` would use; opens it.
  Carried<Reach> reach(const IpAddr& local);

  // ---- all queues
  void flush() noexcept;  ///< rings for the frames in the rings
  void reap() noexcept;   ///< takes back sent buffers
  void reap_and_refill() noexcept;
  /// Arms all queues. @return false: there is work already.
  bool arm_all() noexcept;
  /// Whether a queue says that of itself (dev/device.h).
  bool come_in_bulk() noexcept;
  /// After a sleep that a device ended. The acknowledged event may have been meant for another
  /// sleeper, too: the devices are armed for the next.
  void wake_ack_all() noexcept;
  /// Descriptors to poll(2) for POLLIN while asleep; change only when a port is opened or lost. Any
  /// lock holder.
  std::span<const int> wait_fds() const { return wait_fds_; }
  /// Frames have a time stamp from now on (PacketBuf::hw_time), from devices that support it.
  /// @return false: none does.
  bool stamp_frames();

  // ---- when frames arrived, by the system's clock (arrivals.cpp)
  /// `f` begins or ends to ask for the time of each frame that it receives. While anyone does, all
  /// frames have it, as on Linux: it is read before their flow is known, once for each burst.
  void ask_arrivals(Flow& f, bool on) noexcept;
  bool notes_arrivals() const noexcept { return askers_ != 0; }
  /// ns of CLOCK_REALTIME; 0: it came before anyone asked.
  int64_t arrival_of(const PacketBuf& p) const noexcept {
    return p.arrival() >= asked_since_ ? p.arrival() : 0;
  }

  /// From now on other processes may use the queues, too.
  void share() noexcept;

  // ---- lost devices
  /// Checks that all devices exist, and reads their losses. Three system calls a queue. Flows of a
  /// lost device end with ENETDOWN.
  void look_after() noexcept;
  /// Reads the devices' losses, for the counters. One system call a queue.
  void count_losses() noexcept;
  /// Devices and queues return their buffers and end.
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
  void choose_only() noexcept;

  // lost_port.cpp, move_port.cpp
  void lose(Port& p) noexcept;
  bool move(Port& p) noexcept;

  Hub& hub() const noexcept;
  DeviceOpener opener_;
  Polled only_{};  ///< the only one of `polled_`; null: several or none, or arrivals are noted
  std::vector<Polled> polled_;  ///< all queues
  std::vector<Port*> all_;
  std::vector<std::unique_ptr<Port>> owned_;
  std::vector<int> wait_fds_;
  std::vector<FailedOpen> failed_;
  bool stamps_ = false;  ///< stamp_frames() was called
  uint32_t askers_ = 0;  ///< ask_arrivals()
  int64_t asked_since_ = INT64_MAX;
};

}  // namespace vireo
