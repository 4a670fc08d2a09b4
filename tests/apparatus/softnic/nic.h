// The devices of this process and the contexts in which programs have opened them.
//
// SOFTNIC_WIRE names them: `WIRE[@INTERFACE][,...]`, one device for each, on the shared-memory wire
// of that name; the device says of itself that it belongs to the network interface (its port's GID
// bears the interface's index, its MAC and MTU are the interface's). Unset: lock-step, two devices
// joined to each other within this process. Owner: process; a device lives for ever, as the
// program may keep the pointer. Thread: any; lists guarded by a lock of their own.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/fd.h"
#include "tests/apparatus/softnic/devx.h"
#include "tests/apparatus/softnic/port.h"

namespace vireo::softnic {

struct Context;

struct Nic : ibv_device {
  std::string wire;       ///< empty: lock-step
  std::string interface;  ///< empty: none
  std::array<uint8_t, 6> mac{};
  uint32_t ifindex = 0;
  uint32_t mtu = 1500;
  uint32_t index = 0;
  uint32_t last_qp = 0;
  Nic* peer = nullptr;  ///< lock-step
  std::vector<Context*> contexts;
  Port port;

  explicit Nic(std::mutex& lock) : ibv_device{}, port(lock) {}
  /// Before the first queue pair. Errors: EBUSY the wire has both its ends, those of take_seat().
  int plug();
  /// After the last.
  void unplug();
  /// Holder of the port's lock.
  void tell(ibv_event_type type);
  /// IBV_EVENT_WQ_FATAL of each context's first, where it has one. Holder of the port's lock.
  void tell_of_queues();
  uint64_t guid() const;  ///< in network order
  union ibv_gid gid() const;
};

/// What a program has open. Objects that it did not destroy end with it, as the kernel does it.
struct Context : verbs_context {
  Nic* nic = nullptr;
  pid_t owner = 0;   ///< in the children of that process it is nothing
  UniqueFd counter;  ///< async_fd
  std::deque<ibv_async_event> events;
  std::vector<std::unique_ptr<Pd>> pds;
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<std::unique_ptr<Cq>> cqs;
  std::vector<std::unique_ptr<Wq>> wqs;
  std::vector<std::unique_ptr<Table>> tables;
  std::vector<std::unique_ptr<Qp>> qps;
  bool has_commands = false;  ///< DevX
  std::vector<std::unique_ptr<mlx5dv_devx_obj>> firmware_objects;
  std::vector<std::unique_ptr<mlx5dv_flow_matcher>> matchers;

  void tell(const ibv_async_event& e);
};

inline Context& of(ibv_context* c) { return *static_cast<Context*>(verbs_get_ctx(c)); }

/// `n`, or the same device of this process where a parent got `n`; nullptr: there is none now.
Nic* in_this_process(Nic& n);
/// All that there ever were.
std::vector<Nic*> every_device();
/// The devices that the environment asks for now.
std::vector<Nic*> devices();
void set_mtu(uint32_t mtu);

/// The operations table of a context (object_calls.cpp).
void fill_operations(Context& c);
/// Ends a queue pair; holder of the port's lock.
void destroy(Context& c, Qp& qp);

}  // namespace vireo::softnic
