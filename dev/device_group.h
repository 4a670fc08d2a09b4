// Processes that share interfaces and packet memory, as an engine's owner sees them. Back end:
// AF_XDP (dev/xdp/group). Owner: the process, one at most. Thread: as noted.
#pragma once

#include <functional>
#include <memory>

#include "core/arena.h"
#include "core/clock.h"
#include "core/flow_hash.h"
#include "core/result.h"
#include "core/stats_layout.h"

namespace vireo {

class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  /// The packet memory that an engine has to use for devices that are shared. Once.
  virtual Arena take_arena() noexcept = 0;
  /// What nobody else knows: for sequence numbers and cookies that any of them may have to check.
  virtual FlowHashKey secret() const noexcept = 0;

  /// Readable when another process wants to join.
  virtual int fd() const noexcept = 0;
  /// True until the first process has joined: queues are used as if nobody else could. Before
  /// serve() the engine is told (Ports::share()), under its lock, and this.
  virtual bool is_alone() const noexcept = 0;
  /// With the engine's lock.
  virtual void end_solitude() noexcept = 0;
  /// Lets those join who want to. Thread: one at a time; no lock of an engine. @return false: the
  /// process has no descriptor left, fd() stays readable.
  virtual bool serve() noexcept = 0;
  /// Takes back what members left that died. Thread: as serve(). @return when to call again.
  virtual Duration tend(Instant now) noexcept = 0;
  /// A program for SO_ATTACH_BPF, by which a kernel socket does not hear what this process gets a
  /// copy of (Device::share()); -1: there are no copies. Any thread; milliseconds at the first
  /// call.
  virtual int filter_of_copied() noexcept { return -1; }
  /// Whether a member has this BPF program at the ingress of interfaces, by its number in the
  /// kernel: it passes all packets on. Any thread.
  virtual bool has_program(uint32_t number) const noexcept {
    (void)number;
    return false;
  }
  /// Reads all frames' owners: some microseconds. Any thread.
  virtual void write_stats(GroupStats& to) const noexcept = 0;
  /// The process ends: the kernel gets what would come to it from now on. Any thread.
  virtual void retire() noexcept = 0;
};

/// Enters the group of the user and network namespace. Errors: `where` says why interfaces that
/// others use cannot be shared. Null: devices that the settings allow are not shared.
using GroupOpener = std::function<Result<std::shared_ptr<DeviceGroup>>()>;

}  // namespace vireo
