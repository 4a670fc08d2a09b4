// The steering program of an interface and its rule tables: loading, attaching, adding and removing
// rules. Owner: an XdpDevice, shared with its queues. Thread: any; guarded by its own lock, never
// on the data path. The BPF link is not pinned: when its last descriptor is closed, also by a kill,
// the program is detached and all flows go to the kernel again. Source: bpf(2), libbpf.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/address.h"
#include "core/fd.h"
#include "core/result.h"
#include "core/types.h"
#include "dev/device.h"
#include "dev/xdp/ethtool.h"
#include "dev/xdp/steer_layout.h"
#include "dev/xdp/xsk.h"

namespace vireo::xdp {

enum class Attach : uint8_t { kNative, kGeneric };

struct SteeringSizes {
  uint32_t flows = 0;      ///< exact rules per family
  uint32_t listeners = 0;  ///< local and wildcard rules per family
};

class Steering {
 public:
  /// Loads the program for `interface` without attaching it. Errors: EPERM, ENOMEM, ENOTSUP. If the
  /// kernel's verifier rejects it, the verifier's messages are logged and the last one is stored in
  /// `refusal`.
  static Result<std::shared_ptr<Steering>> load(const Interface& interface,
                                                const SteeringSizes& sizes, bool tags,
                                                std::string* refusal = nullptr, unsigned slot = 0);
  Steering(const Steering&) = delete;
  Steering& operator=(const Steering&) = delete;

  /// Errors: EBUSY another program is attached, ENOTSUP no XDP of this kind, EPERM.
  Result<void> attach(IfIndex ifindex, Attach how);
  void detach() { link_.reset(); }
  /// False once the interface is gone or the program was detached.
  bool is_attached() const;

  /// Merged packets from kernels on this host may arrive unsegmented: UDP ones go to the kernel.
  void leave_joined() noexcept;

  /// From now on frames of `queue` that match one of our rules go to socket `xsk`.
  Result<void> set_socket(QueueId queue, int xsk);
  void clear_socket(QueueId queue) noexcept;

  /// @return an id for remove(). Errors: EEXIST, ENOSPC, ENOTSUP (protocol), EINVAL (invalid key).
  Result<uint64_t> add(const FlowKey& key, FlowTag tag);
  /// As Device::spare(). Errors: as add().
  Result<uint64_t> spare(const FlowKey& key);
  void remove(uint64_t id) noexcept;

  /// As Device::set_host(): the addresses that wildcards match, and the host's MAC addresses.
  void set_host(const HostOnWire& host);
  /// As Device::ask_kernel().
  void ask_kernel(uint16_t port, bool on) noexcept;

  int program_fd() const { return program_.get(); }

 private:
  Steering(bool tags, uint32_t most_listeners, unsigned slot)
      : tags_(tags), most_listeners_(most_listeners), slot_(slot) {}

  /// A rule, in the format of the maps.
  struct Entry {
    steer_kind kind;
    uint32_t port_slot;
    union {
      steer_exact4 exact4;
      steer_exact6 exact6;
      steer_local4 local4;
      steer_local6 local6;
    };
  };
  static Result<Entry> entry_of(const FlowKey& key);
  static uint16_t link_of(const Entry& e);
  int map_of(steer_kind kind) const;
  Result<uint64_t> add_rule(const FlowKey& key, uint64_t value);
  uint32_t rules_at(uint32_t port_slot, steer_kind kind) const noexcept;
  void note(uint32_t port_slot, uint16_t bit, bool added) noexcept;
  void note_rule(const Entry& e, bool added) noexcept;
  void note_lone(const Entry& e, bool may_be_lone) noexcept;
  void set_links(std::span<const HostLink> links) noexcept;
  void set_addresses(std::span<const IpAddr> addresses);

  UniqueFd program_, exact4_, exact6_, local4_, local6_, sockets_;
  Mapping arrays_;  ///< the program's global variables, see Arrays
  UniqueFd link_;
  const bool tags_;                ///< the program writes tags
  const uint32_t most_listeners_;  ///< per family: the rest of the table is for addresses
  const unsigned slot_;
  uint32_t listeners_[2] = {};  ///< rules for local ends, by family: IPv4, IPv6
  std::mutex lock_;
  std::unordered_map<uint64_t, Entry> rules_;
  std::unordered_map<uint64_t, uint32_t> per_port_;  ///< (port slot, bit of its word) -> rules
  std::vector<VlanId> vlans_;                        ///< from the last set_host()
  std::vector<IpAddr> addresses_;                    ///< from the last set_host()
  uint64_t last_id_ = 0;
};

}  // namespace vireo::xdp
