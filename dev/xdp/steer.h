// The steering program of an interface and its rule tables: loading, attaching, adding and removing
// rules. Processes of a group share them: each is a member with a slot, its own rules and sockets;
// one loads, the others join by its descriptors. Owner: an XdpDevice, shared with its queues.
// Thread: any; guarded by its own lock, never on the data path. The BPF link is not pinned: when
// its last descriptor is closed, also by a kill, the program is detached and all flows go to the
// kernel again. Source: bpf(2), libbpf.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/address.h"
#include "core/fd.h"
#include "core/result.h"
#include "core/types.h"
#include "dev/device.h"
#include "dev/xdp/ethtool.h"
#include "dev/xdp/steer_layout.h"
#include "dev/xdp/steer_ports.h"
#include "dev/xdp/steer_rule.h"

namespace vireo::xdp {

enum class Attach : uint8_t { kNative, kGeneric };

class SteerShares;

struct SteeringSizes {
  uint32_t flows = 0;      ///< exact rules per family
  uint32_t listeners = 0;  ///< local and wildcard rules per family
};

/// A process among those that share the program.
struct SteeringMember {
  unsigned slot = 0;  ///< below STEER_MEMBERS
  /// Whether the member with this slot lives; only for slots that hold the lock of the tables.
  std::function<bool(unsigned)> is_alive = [](unsigned) { return true; };
};

/// The descriptors by which a process takes part.
enum SteeringFd : uint8_t {
  kSteerProgram,
  kSteerLink,
  kSteerExact4,
  kSteerExact6,
  kSteerLocal4,
  kSteerLocal6,
  kSteerSockets,
  kSteerRings,   ///< of copies
  kSteerArrays,  ///< the program's variables
  kSteerCounts,  ///< SteerCounts
  kSteeringFds
};
using SteeringKit = std::array<UniqueFd, kSteeringFds>;

class Steering {
 public:
  /// Loads the program for `interface` without attaching it. Errors: EPERM, ENOMEM, ENOTSUP. If the
  /// kernel's verifier rejects it, the verifier's messages are logged and the last one is stored in
  /// `refusal`.
  static Result<std::shared_ptr<Steering>> load(const Interface& interface,
                                                const SteeringSizes& sizes, bool tags,
                                                std::string* refusal = nullptr,
                                                SteeringMember member = {});
  /// Takes part in another member's. Its slot must be free of rules: remove_all_of(). Errors:
  /// ENOTSUP of another build, ENOMEM, ENOENT no libbpf.
  static Result<std::shared_ptr<Steering>> join(SteeringKit kit, SteeringMember member);
  ~Steering();
  Steering(const Steering&) = delete;
  Steering& operator=(const Steering&) = delete;

  /// Errors: EBUSY another program is attached, ENOTSUP no XDP of this kind, EPERM.
  Result<void> attach(IfIndex ifindex, Attach how);
  /// Ends our part. The program stays attached for the other members.
  void detach() noexcept;
  /// False once the interface is gone or the program was detached.
  bool is_attached() const;

  /// Duplicates, for join() in another process. After attach(). Errors: EMFILE.
  Result<SteeringKit> kit();

  /// Merged packets from kernels on this host may arrive unsegmented: UDP ones go to the kernel.
  void leave_joined() noexcept;

  /// From now on frames of `queue` that match one of our rules go to socket `xsk`.
  Result<void> set_socket(QueueId queue, int xsk);
  void clear_socket(QueueId queue) noexcept;

  /// From now on copies of frames for UDP ends that this process shares go to `ring`, a
  /// BPF_MAP_TYPE_RINGBUF.
  Result<void> set_ring(int ring);
  void clear_ring() noexcept;
  /// Whether its reader is to be woken. Valid while this object lives.
  std::atomic<uint64_t>& reader_sleeps() const noexcept;
  /// Frames of which the ring had no room for a copy.
  uint64_t reader_lost() const noexcept;

  /// Takes the place of any member's spare(). @return an id for remove(). Errors: EEXIST (see
  /// holder_of()), ENOSPC, ENOTSUP (protocol), EINVAL (invalid key), ETIMEDOUT (a stopped process
  /// holds the tables).
  Result<uint64_t> add(const FlowKey& key, FlowTag tag);
  /// As Device::spare(). Errors: as add().
  Result<uint64_t> spare(const FlowKey& key);
  /// As Device::share(). Errors: as add(); EINVAL an exact key.
  Result<uint64_t> share(const FlowKey& key);
  /// The number of the end that share() made or joined.
  unsigned shared_end(uint64_t id) noexcept;
  /// As FlowRule::brings_connections(). A system call if it does not.
  bool brings_connections(uint64_t id) noexcept;
  /// As Device::accepting(). Valid while this object lives.
  std::atomic<uint64_t>& accepting() const noexcept { return accepting_of(slot()); }
  void remove(uint64_t id) noexcept;
  /// The slot of the member that has the key, or that is its first sharer. Errors: ENOENT nobody,
  /// and those of the key.
  Result<unsigned> holder_of(const FlowKey& key) const;

  /// Removes what a member left: rules, sockets, questions, shares. Frames of its flows go to the
  /// kernel, those of ends that it shared to the other sharers; others are not disturbed. Call for
  /// each member that died before its slot is given again: the lock of the tables is then free of
  /// it, too.
  void remove_all_of(unsigned slot);

  /// As Device::set_host(): the addresses that wildcards match, and the host's MAC addresses. All
  /// members share them; each tells what the host has, and what the last one said holds.
  void set_host(const HostOnWire& host);
  /// As Device::ask_kernel().
  void ask_kernel(uint16_t port, bool on) noexcept;

  int program_fd() const { return fd(kSteerProgram); }
  unsigned slot() const { return member_.slot; }
  bool tags() const { return ports_.facts().tags != 0; }
  uint32_t queues() const { return ports_.facts().queues; }

 private:
  class Hold;

  explicit Steering(SteeringMember member);
  int fd(SteeringFd which) const { return fds_[which].get(); }
  SteerTables tables() const;
  SteerShares shares();
  std::atomic<uint64_t>& accepting_of(unsigned slot) const noexcept;
  struct Own {
    SteerRule rule;
    uint64_t value;  ///< as added; 0: it is shared
  };
  Result<uint64_t> add_rule(const FlowKey& key, uint64_t value);
  bool takes_spare(const SteerRule& rule, uint64_t value) const noexcept;
  bool has_part(uint64_t value, unsigned slot) noexcept;
  void remove_rule(const SteerRule& rule, unsigned slot, const Hold& hold) noexcept;
  void set_links(std::span<const HostLink> links) noexcept;
  void set_addresses(std::span<const IpAddr> addresses, bool v4);
  void set_fragments(unsigned slot, bool on) noexcept;

  const SteeringMember member_;
  const pid_t owner_;
  SteeringKit fds_;
  SteerPorts ports_;
  std::mutex lock_;      ///< of this process; with the lock of SteerCounts
  SharedLockWait wait_;  ///< for the latter
  bool is_shared_ = false;
  std::unordered_map<uint64_t, Own> rules_;
  std::unordered_set<uint64_t> first_;  ///< of them, which this process shares as the first
  uint64_t last_id_ = 0;
};

}  // namespace vireo::xdp
