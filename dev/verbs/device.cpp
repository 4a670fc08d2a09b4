#include "dev/verbs/device.h"

#include <cerrno>

#include "dev/verbs/late_libibverbs.h"
#include "dev/verbs/limits.h"
#include "dev/verbs/queue.h"
#include "dev/verbs/steer.h"

namespace vireo {
namespace verbs {

namespace {

/// errno of drivers for rules they do not support at all (as opposed to: not now).
bool is_of_no_such_kind(int error) { return error == EOPNOTSUPP || error == EINVAL; }

}  // namespace

VerbsDevice::VerbsDevice(std::shared_ptr<Context> context, const VerbsTarget& target, Arena& arena,
                         const VerbsOptions& options, QueueMaker make)
    : context_(std::move(context)),
      arena_(arena),
      options_(options),
      make_(make),
      mac_(target.mac) {
  const ibv_device_attr_ex& limits = context_->limits();
  caps_.kind = DeviceKind::kVerbs;
  caps_.mode = "verbs";
  // One QP: the engine opens all queues and uses the one that rules name.
  caps_.queues = 1;
  caps_.vlan_rules = true;
  caps_.reopens = true;
  caps_.mtu = target.mtu;
  caps_.multi_frame = receive_segments(2048, caps_.mtu) > 1;
  caps_.max_body_slices = static_cast<uint16_t>(send_segments(limits) - 1);
  caps_.inline_bytes = static_cast<uint16_t>(options.inline_bytes);
  if (sums_checksums(limits))
    caps_.tx_l4 = caps_.rx_l4 = caps_.tx_ip = caps_.rx_ip = Checksum::kOffload;
  if (segments(limits)) caps_.tso_max_bytes = limits.tso_caps.max_tso;
}

VerbsDevice::~VerbsDevice() {
  VIREO_ASSERT(pair_ == nullptr);
  if (!context_->is_ours()) return;
  rules_.for_each([](uint64_t, const Rule& r) { ibv_destroy_flow(r.flow); });
}

Result<std::unique_ptr<Queue>> VerbsDevice::open_queue(QueueId id, PacketPool& pool) {
  const auto arena = arena_.bytes();
  const auto frames = pool.memory();
  if (id.value() != 0) return fail(EINVAL, "number of the queue");
  if (frames.data() < arena.data() || frames.data() + frames.size() > arena.data() + arena.size())
    return fail(EINVAL, "pool outside the arena of the device");
  const std::lock_guard hold(lock_);
  if (pair_ != nullptr) return fail(EBUSY, "verbs queue is open");
  auto made = make_(*this, context_, arena, pool, caps_, options_);
  if (!made) return std::unexpected(made.error());
  pair_ = made->pair;
  make_rule_ = made->make_rule;
  return std::move(made->queue);
}

void VerbsDevice::set_kind(DeviceKind kind, const char* mode, bool tags) {
  caps_.kind = kind;
  caps_.mode = mode;
  caps_.tags = tags;
}

void VerbsDevice::close(const Queue& queue) noexcept {
  const std::lock_guard hold(lock_);
  pair_ = nullptr;
  rules_.for_each([&](uint64_t id, const Rule& r) {
    if (r.to == &queue) remove(id, r);
  });
}

ibv_flow* VerbsDevice::create_flow(const FlowKey& key, FlowTag tag, Queue& to) {
  if (make_rule_ != nullptr && key.proto == IpProto::kTcp)
    if (ibv_flow* const flow = make_rule_(to, key, mac_, tag)) return flow;
  if (caps_.tags && tag.value() > 0 && tag.value() <= kMaxTag) {
    FlowRequest request = flow_request(key, context_->port(), mac_, tag);
    ibv_flow* flow = ibv_create_flow(pair_, &request.attr);
    if (flow != nullptr || !is_of_no_such_kind(errno)) return flow;
  }
  // Without tag support, frames come without a tag.
  FlowRequest request = flow_request(key, context_->port(), mac_, FlowTag());
  return ibv_create_flow(pair_, &request.attr);
}

/// If the device cannot match VLANs, the rule takes the flow's frames of all VLANs.
ibv_flow* VerbsDevice::create_flow_of_vlan(const FlowKey& key, FlowTag tag, Queue& to) {
  FlowKey of_any = key;
  of_any.vlan = VlanId();
  if (key.vlan != VlanId() && !refuses_vlans_) {
    ibv_flow* flow = create_flow(key, tag, to);
    if (flow != nullptr || !is_of_no_such_kind(errno)) return flow;
    flow = create_flow(of_any, tag, to);
    refuses_vlans_ = flow != nullptr;
    return flow;
  }
  return create_flow(of_any, tag, to);
}

Result<FlowRule> VerbsDevice::steer(const FlowKey& key, FlowTag tag, Queue& to) {
  const std::lock_guard hold(lock_);
  if (is_gone()) return fail(ENODEV, "RDMA device");
  VIREO_ASSERT(pair_ != nullptr);
  const auto id = rules_.add(key, {nullptr, &to});
  if (!id) return std::unexpected(id.error());
  ibv_flow* const flow = create_flow_of_vlan(key, tag, to);
  if (flow == nullptr) {
    // Drivers report a full table by different errors.
    const int code = errno == ENOMEM || errno == EAGAIN ? ENOSPC : errno;
    rules_.remove(*id);
    return fail(code == EOPNOTSUPP ? ENOTSUP : code, "ibv_create_flow");
  }
  rules_.get(*id)->flow = flow;
  return rule(*id);
}

void VerbsDevice::remove(uint64_t rule_id, const Rule& rule) noexcept {
  if (context_->is_ours()) ibv_destroy_flow(rule.flow);
  rules_.remove(rule_id);
}

void VerbsDevice::unsteer(uint64_t rule_id) noexcept {
  const std::lock_guard hold(lock_);
  if (const Rule* r = rules_.get(rule_id)) remove(rule_id, *r);
}

bool VerbsDevice::is_there() noexcept {
  if (is_gone()) return false;
  if (!context_->is_receiving()) {
    has_moved_ = true;
    note_gone();
  }
  const std::lock_guard hold(lock_);
  ibv_async_event e;
  while (library().get_async_event(context_->get(), &e) == 0) {
    switch (e.event_type) {
      case IBV_EVENT_DEVICE_FATAL:
      case IBV_EVENT_CQ_ERR:
        note_gone();
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_WQ_FATAL:
        note_broken();
        break;
      default:
        break;  // a port that is down may come back; the link state handles it
    }
    library().ack_async_event(&e);
  }
  return !is_gone();
}

bool VerbsDevice::may_begin_anew(bool carried) noexcept {
  if (!is_there()) return false;
  if (carried) errors_in_row_ = 0;
  if (++errors_in_row_ == kMaxErrors) note_gone();
  return !is_gone();
}

Result<void> check(const VerbsOptions& options) {
  if (options.rx_frames == 0 || options.tx_frames == 0 || options.signal_every == 0 ||
      options.refill_receives == 0)
    return fail(EINVAL, "verbs options");
  return {};
}

}  // namespace verbs

Result<std::unique_ptr<Device>> open_verbs(const VerbsTarget& target, Arena& arena,
                                           const VerbsOptions& options) {
  if (auto good = verbs::check(options); !good) return std::unexpected(good.error());
  if (auto loaded = verbs::load_libibverbs(); !loaded) return std::unexpected(loaded.error());
  auto context = verbs::Context::open(target, arena);
  if (!context) return std::unexpected(context.error());
  return std::make_unique<verbs::VerbsDevice>(std::move(*context), target, arena, options,
                                              verbs::make_verbs_queue);
}

}  // namespace vireo
