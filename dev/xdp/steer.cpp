#include "dev/xdp/steer.h"

#include <bpf/bpf.h>
#include <linux/if_link.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "core/high_fd.h"
#include "dev/xdp/steer_arrays.h"
#include "dev/xdp/steer_hold.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

/// Rules of a dead member that are removed in one hold.
constexpr size_t kRemovedInOneHold = 256;

}  // namespace

Steering::Steering(SteeringMember member)
    : member_(std::move(member)), owner_(static_cast<pid_t>(sys(SYS_getpid))) {}

Steering::~Steering() { detach(); }

SteerTables Steering::tables() const {
  return {fd(kSteerExact4), fd(kSteerExact6), fd(kSteerLocal4), fd(kSteerLocal6)};
}

SteerShares Steering::shares() { return {ports_, tables()}; }

std::atomic<uint64_t>& Steering::accepting_of(unsigned slot) const noexcept {
  void* const word = &ports_.arrays().accepting[slot].until;
  return *static_cast<std::atomic<uint64_t>*>(word);
}

Result<void> Steering::attach(IfIndex ifindex, Attach how) {
  bpf_link_create_opts options{};
  options.sz = sizeof options;
  options.flags = how == Attach::kNative ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE;
  const int made =
      bpf_link_create(program_fd(), static_cast<int>(ifindex.value()), BPF_XDP, &options);
  if (made >= 0) {
    fds_[kSteerLink].reset(to_high_number(made));
    return {};
  }
  switch (-made) {
    case EBUSY:
    case EEXIST:
      return fail(EBUSY, "interface has an XDP program already");
    case EPERM:
    case EACCES:
      return fail(EPERM, "attach of the steering program (needs CAP_NET_ADMIN)");
    case ENODEV:
      return fail(ENODEV, "attach of the steering program");
    default:
      return fail(ENOTSUP, how == Attach::kNative ? "driver refuses native XDP"
                                                  : "interface refuses generic XDP");
  }
}

void Steering::detach() noexcept {
  // Not in a forked child: the rules are the parent's.
  if (fds_[kSteerLink] && is_shared_ && sys(SYS_getpid) == owner_) remove_all_of(slot());
  fds_[kSteerLink].reset();
}

bool Steering::is_attached() const {
  if (fd(kSteerLink) < 0) return false;
  bpf_link_info info{};
  uint32_t length = sizeof info;
  if (bpf_obj_get_info_by_fd(fd(kSteerLink), &info, &length) != 0) return false;
  return info.xdp.ifindex != 0;
}

void Steering::leave_joined() noexcept { ports_.arrays().brings_joined = 1; }

Result<void> Steering::set_socket(QueueId queue, int xsk) {
  const uint32_t key = STEER_SOCKET(slot(), queue.value());
  if (bpf_map_update_elem(fd(kSteerSockets), &key, &xsk, BPF_ANY) != 0)
    return fail_errno("entry of the queue in the steering program");
  return {};
}

void Steering::clear_socket(QueueId queue) noexcept {
  const uint32_t key = STEER_SOCKET(slot(), queue.value());
  bpf_map_delete_elem(fd(kSteerSockets), &key);
}

Result<void> Steering::set_ring(int ring) {
  const uint32_t key = slot();
  steer_reader& r = ports_.arrays().readers[slot()];
  std::atomic_ref(r.lost).store(0, std::memory_order_relaxed);
  reader_sleeps().store(0, std::memory_order_relaxed);
  if (bpf_map_update_elem(fd(kSteerRings), &key, &ring, BPF_ANY) != 0)
    return fail_errno("entry of the ring in the steering program");
  return {};
}

void Steering::clear_ring() noexcept {
  if (sys(SYS_getpid) != owner_) return;  // in a forked child it is the parent's
  const uint32_t key = slot();
  bpf_map_delete_elem(fd(kSteerRings), &key);
}

std::atomic<uint64_t>& Steering::reader_sleeps() const noexcept {
  void* const word = &ports_.arrays().readers[slot()].sleeps;
  return *static_cast<std::atomic<uint64_t>*>(word);
}

uint64_t Steering::reader_lost() const noexcept {
  return std::atomic_ref(ports_.arrays().readers[slot()].lost).load(std::memory_order_relaxed);
}

Result<uint64_t> Steering::add(const FlowKey& key, FlowTag tag) {
  return add_rule(key, STEER_VALUE(slot(), tag.value()));
}

Result<uint64_t> Steering::spare(const FlowKey& key) {
  return add_rule(key, STEER_SPARED | STEER_VALUE(slot(), 0));
}

Result<uint64_t> Steering::add_rule(const FlowKey& key, uint64_t value) {
  const auto rule = rule_of(key);
  if (!rule) return std::unexpected(rule.error());
  const Hold hold(*this);
  if (!hold.is_complete()) return fail(ETIMEDOUT, "a stopped process holds the steering tables");
  if (ports_.is_full(*rule)) return fail(ENOSPC, "steering table is full");
  if (auto ok = tables().insert(*rule, value); ok)
    ports_.added(*rule, value);
  else if (ok.error().code != EEXIST || !takes_spare(*rule, value))
    return std::unexpected(ok.error());
  rules_.emplace(++last_id_, Own{*rule, value});
  return last_id_;
}

/// The kernel's connection is carried again, perhaps by another member: the frames that a spare
/// leaves to the kernel. The ports' counts stay as they are.
bool Steering::takes_spare(const SteerRule& rule, uint64_t value) const noexcept {
  const auto is_spare = [](uint64_t v) { return (v & STEER_MARKS) == STEER_SPARED; };
  const auto there = tables().find(rule);
  if (is_spare(value) || !there || !is_spare(*there)) return false;
  tables().replace(rule, value);
  return true;
}

Result<uint64_t> Steering::share(const FlowKey& key) {
  const auto rule = rule_of(key);
  if (!rule) return std::unexpected(rule.error());
  if (rule->is_exact()) return fail(EINVAL, "sharing of a single flow");
  const Hold hold(*this);
  if (!hold.is_complete()) return fail(ETIMEDOUT, "a stopped process holds the steering tables");
  const auto how = key.proto == IpProto::kUdp ? SteerShares::kCopies : SteerShares::kSpread;
  if (auto ok = shares().add(*rule, slot(), how); !ok) return std::unexpected(ok.error());
  rules_.emplace(++last_id_, Own{*rule, 0});
  return last_id_;
}

unsigned Steering::shared_end(uint64_t id) noexcept {
  const std::lock_guard guard(lock_);
  const auto it = rules_.find(id);
  const auto value = it == rules_.end() ? std::nullopt : tables().find(it->second.rule);
  return value && STEER_IS_SHARED(*value) ? static_cast<uint32_t>(*value) : 0;
}

bool Steering::brings_connections(uint64_t id) noexcept {
  const std::lock_guard guard(lock_);
  const auto it = rules_.find(id);
  if (it == rules_.end() || it->second.rule.is_exact() || first_.contains(id)) return true;
  const auto value = tables().find(it->second.rule);
  const bool brings = !value || !STEER_IS_SHARED(*value) || slot_of(*value) == slot();
  if (brings) first_.insert(id);
  return brings;
}

void Steering::remove(uint64_t id) noexcept {
  const Hold hold(*this);
  const auto it = rules_.find(id);
  if (it == rules_.end()) return;
  // Somebody else's may have taken a spare's place.
  const auto& [rule, value] = it->second;
  if ((value & STEER_MARKS) != STEER_SPARED || tables().find(rule) == value)
    remove_rule(rule, slot(), hold);
  rules_.erase(it);
  first_.erase(id);
}

/// Whether the rule with this value is the member's, or one that it shares.
bool Steering::has_part(uint64_t value, unsigned slot) noexcept {
  return STEER_IS_SHARED(value) ? shares().has(value, slot) : slot_of(value) == slot;
}

/// Takes the member's part: a rule that others share remains.
void Steering::remove_rule(const SteerRule& rule, unsigned slot, const Hold& hold) noexcept {
  const auto value = rule.is_exact() ? std::nullopt : tables().find(rule);
  const bool shared = value && STEER_IS_SHARED(*value);
  // Without the lock before, as this process may end in between, and after, as it may be late.
  if (!hold.is_complete()) ports_.mark_stale();
  if (shared && shares().leave(rule, *value, slot)) {
    if (!hold.is_complete()) ports_.mark_stale();
    return;
  }
  if (!tables().erase(rule)) return;
  if (shared) shares().forget(*value);
  if (hold.is_complete())
    ports_.removed(rule);
  else
    ports_.removed_unlocked(rule);
}

Result<unsigned> Steering::holder_of(const FlowKey& key) const {
  const auto rule = rule_of(key);
  if (!rule) return std::unexpected(rule.error());
  const auto value = tables().find(*rule);
  if (!value) return fail(ENOENT, "flow is not steered");
  return slot_of(*value);
}

void Steering::remove_all_of(unsigned slot) {
  accepting_of(slot).store(0, std::memory_order_relaxed);  // before its sockets are gone
  for (uint32_t queue = 0; queue < queues(); ++queue) {
    const uint32_t key = STEER_SOCKET(slot, queue);
    bpf_map_delete_elem(fd(kSteerSockets), &key);
  }
  const uint32_t ring = slot;
  bpf_map_delete_elem(fd(kSteerRings), &ring);
  set_fragments(slot, false);
  std::vector<SteerRule> left;
  const auto collect = [&](const SteerRule& rule, uint64_t value) {
    if (has_part(value, slot)) left.push_back(rule);
  };
  if (!tables().for_each(collect)) {
    const Hold hold(*this);  // then nothing changes meanwhile
    tables().for_each(collect);
  }
  for (size_t done = 0; done < left.size();) {
    const Hold hold(*this);  // for some at a time: others wait
    for (const size_t end = std::min(left.size(), done + kRemovedInOneHold); done < end; ++done) {
      const auto value = tables().find(left[done]);
      if (value && has_part(*value, slot)) remove_rule(left[done], slot, hold);
    }
  }
  const Hold hold(*this);  // also if there is nothing to remove: the dead one may hold the lock
  ports_.ask_no_more(slot);
  if (!hold.is_complete()) ports_.mark_stale();
  if (slot == this->slot()) rules_.clear();
}

void Steering::ask_kernel(uint16_t port, bool on) noexcept {
  const Hold hold(*this);
  if (hold.is_complete())
    ports_.ask_kernel(port, slot(), on);
  else
    ports_.ask_kernel_unlocked(port, slot(), on);
}

}  // namespace vireo::xdp
