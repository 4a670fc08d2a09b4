#include "dev/xdp/device.h"

#include <bit>
#include <cstring>

#include "core/log.h"
#include "dev/xdp/copy_queue.h"
#include "dev/xdp/group/sharing.h"
#include "dev/xdp/populating.h"
#include "dev/xdp/queue.h"
#include "dev/xdp/uapi.h"

namespace vireo {
namespace xdp {
namespace {

/// Link-layer bytes of a frame: Ethernet header and two VLAN tags.
constexpr uint32_t kLinkOverhead = 14 + 2 * 4;

/// FILL entries by RX entries, where processes share a queue: one that does not run takes a ring
/// full of frames, and then enough are left for the others.
constexpr uint32_t kFillOfShared = 2;

/// The bytes of a frame that a received packet can use.
constexpr uint32_t rx_room(uint32_t frame_bytes) { return frame_bytes - kKernelHeadroom; }

void set_busy_poll(int fd, const XdpOptions& o, const std::string& interface) {
  const int on = 1;
  const int us = static_cast<int>(o.busy_poll_us);
  const int budget = static_cast<int>(o.busy_poll_budget);
  // A refusal (no CAP_NET_ADMIN for the values, an old kernel) makes it slower, not broken.
  if (set_option(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &on, sizeof on) < 0 ||
      set_option(fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof us) < 0 ||
      set_option(fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof budget) < 0)
    log<LogLevel::kInfo>("{}: busy polling of the AF_XDP queue is not to be had", interface);
}

}  // namespace

XdpDevice::XdpDevice(IfIndex ifindex, const Interface& interface, Arena& arena,
                     const XdpOptions& options, Attach attached, bool brings_joined,
                     bool multi_buffer, std::shared_ptr<Steering> steering,
                     std::shared_ptr<Sharing> sharing)
    : ifindex_(ifindex),
      interface_(interface.name),
      arena_(arena),
      options_(options),
      attached_(attached),
      multi_buffer_(multi_buffer),
      is_virtual_(interface.is_virtual),
      takes_joined_(brings_joined && multi_buffer),
      steering_(std::move(steering)),
      sharing_(std::move(sharing)),
      kernel_path_(ifindex),
      kernel_listener_(ifindex) {
  caps_.kind = DeviceKind::kXdp;
  caps_.mode = attached == Attach::kGeneric ? "generic" : "native copy";
  caps_.queues = interface.queues;
  caps_.doorbell_is_call = true;
  caps_.mtu = interface.mtu;
  // Computed for the smallest frames: larger ones need chaining less often.
  const uint32_t one_frame = rx_room(2048) - kLinkOverhead;
  if (interface.mtu > one_frame) {
    if (multi_buffer) {
      caps_.multi_frame = true;
      caps_.max_body_slices = kMaxDescriptors - 1;
    } else {
      caps_.mtu = one_frame;
    }
  }
  caps_.multi_frame |= takes_joined_;
  caps_.tags = options.tags;
  caps_.link_rules = true;
  caps_.hides_tags = interface.hides_tags;
  caps_.asks_kernel = true;
}

XdpDevice::~XdpDevice() {
  // Open queues keep the maps, but the interface is free from here on.
  steering_->detach();
  if (sharing_ != nullptr) sharing_->leave(ifindex_);
}

uint16_t XdpDevice::bind_flags(bool multi_frame) const {
  uint16_t flags = 0;
  if (attached_ == Attach::kGeneric || options_.mode == XdpMode::kNative)
    flags |= XDP_COPY;
  else if (options_.mode == XdpMode::kZeroCopy)
    flags |= XDP_ZEROCOPY;
  if (options_.need_wakeup) flags |= XDP_USE_NEED_WAKEUP;
  if (multi_frame) flags |= kBindUseSg;
  return flags;
}

Result<std::unique_ptr<Queue>> XdpDevice::open_queue(QueueId id, PacketPool& pool) {
  const auto arena = arena_.bytes();
  const auto frames = pool.memory();
  if (id.value() >= caps_.queues) return fail(EINVAL, "number of the queue");
  if (frames.data() < arena.data() || frames.data() + frames.size() > arena.data() + arena.size() ||
      static_cast<size_t>(frames.data() - arena.data()) % pool.frame_bytes() != 0)
    return fail(EINVAL, "pool outside the arena of the device");

  const bool multi_frame =
      takes_joined_ || (multi_buffer_ && caps_.mtu + kLinkOverhead > rx_room(pool.frame_bytes()));
  const RingSizes sizes{.rx = options_.rx_frames,
                        .tx = options_.tx_frames,
                        .fill = options_.rx_frames * (sharing_ != nullptr ? kFillOfShared : 1)};
  const std::lock_guard hold(lock_);
  auto umem = Umem::of(arena_, {pool.frame_bytes(), bind_flags(multi_frame)});
  Sharing::OpenQueue opened;
  if (sharing_ != nullptr) {
    auto shared = sharing_->open_queue(ifindex_, id, {sizes, pool.frame_bytes(), multi_frame},
                                       [&] { return umem->open(ifindex_, id, sizes); });
    if (!shared) return std::unexpected(shared.error());
    opened = std::move(*shared);
  } else {
    auto xsk = umem->open(ifindex_, id, sizes);
    if (!xsk) return std::unexpected(xsk.error());
    opened.xsk = std::move(*xsk);
    opened.multi_frame = multi_frame;
  }
  const int fd = opened.xsk.fd();
  if (options_.busy_poll_us > 0) set_busy_poll(fd, options_, interface_);

  auto queue = std::make_unique<XdpQueue>(QueueSetup{.id = id,
                                                     .tags = options_.tags,
                                                     .multi_frame = opened.multi_frame,
                                                     .is_virtual = is_virtual_,
                                                     .need_wakeup = options_.need_wakeup,
                                                     .busy_poll = options_.busy_poll_us > 0,
                                                     .interface = interface_},
                                          std::move(opened.xsk), std::move(umem), steering_, pool,
                                          std::move(opened.rings), sharing_);
  if (opened.is_shared) queue->share();
  if (queue->is_zero_copy()) caps_.mode = "native zero-copy";
  queue->rx_refill();
  if (auto ok = steering_->set_socket(id, fd); !ok) return std::unexpected(ok.error());
  return queue;
}

Result<FlowRule> XdpDevice::steer(const FlowKey& key, FlowTag tag, Queue&) {
  // A frame goes to the socket of the queue it arrived on, whichever queue the rule names.
  const auto id = steering_->add(key, tag);
  if (id) return rule(*id);
  // EEXIST means that the frames come to us already.
  if (id.error().code == EEXIST)
    if (const auto holder = steering_->holder_of(key); holder && *holder != steering_->slot())
      return fail(EBUSY, "another process has the frames of this port or group");
  return std::unexpected(id.error());
}

Result<FlowRule> XdpDevice::spare(const FlowKey& key) {
  const auto id = steering_->spare(key);
  if (!id) return std::unexpected(id.error());
  return rule(*id);
}

Result<std::unique_ptr<Queue>> XdpDevice::open_copies(PacketPool& pool) {
  if (sharing_ == nullptr) return fail(ENOTSUP, "no other process shares the interface");
  const auto copied = sharing_->copied();
  if (!copied) return std::unexpected(copied.error());
  auto ingress = (*copied)->attach(ifindex_);
  if (!ingress) return std::unexpected(ingress.error());
  auto queue = CopyQueue::open(pool, steering_, is_virtual_);
  if (!queue) return std::unexpected(queue.error());
  const std::lock_guard hold(lock_);
  ingress_ = std::move(*ingress);
  return queue;
}

/// A frame that comes between the share and the mark is heard twice.
Result<FlowRule> XdpDevice::share(const FlowKey& key, Queue&) {
  const std::lock_guard hold(lock_);
  if (key.proto == IpProto::kUdp && !ingress_)
    return fail(ENOTSUP, "sharing of UDP without copies");
  const auto id = steering_->share(key);
  if (!id) return std::unexpected(id.error());
  if (key.proto == IpProto::kUdp) {
    const uint32_t mark = STEER_COPIED_MARK(ifindex_.value(), steering_->shared_end(*id));
    marks_.emplace(*id, mark);
    (*sharing_->copied())->set_own(mark, true);
  }
  return rule(*id);
}

/// In generic mode the steering program runs on the frames that are given, too, and would bring
/// them here.
Result<void> XdpDevice::prepare_listener() {
  if (attached_ == Attach::kGeneric) return fail(ENOTSUP, "generic mode");
  return kernel_listener_.prepare();
}

Result<void> XdpDevice::give_to_listener(std::span<Opening> openings) {
  if (auto ok = prepare_listener(); !ok) return ok;
  return kernel_listener_.give(kernel_path_, openings);
}

void XdpDevice::unsteer(uint64_t rule_id) noexcept {
  steering_->remove(rule_id);
  const std::lock_guard hold(lock_);
  const auto mark = marks_.find(rule_id);
  if (mark == marks_.end()) return;
  (*sharing_->copied())->set_own(mark->second, false);
  marks_.erase(mark);
}

}  // namespace xdp

namespace xdp {
namespace {

/// The steering program on an interface, and what its frames are like.
struct Attached {
  std::shared_ptr<Steering> steering;
  Attach how = Attach::kNative;
  bool brings_joined = false;  ///< received packets may be merged ones
};

/// Loads and attaches it.
Result<Attached> attach(IfIndex ifindex, const Interface& interface, const Arena& arena,
                        const XdpOptions& options, SteeringMember member) {
  auto steering = Steering::load(interface, {options.max_flows, options.max_listeners},
                                 options.tags, nullptr, std::move(member));
  if (!steering) return std::unexpected(steering.error());
  const Populating populating(arena);
  Attach how = options.mode == XdpMode::kGeneric ? Attach::kGeneric : Attach::kNative;
  auto attached = (*steering)->attach(ifindex, how);
  if (!attached && options.mode == XdpMode::kAuto && attached.error().code == ENOTSUP) {
    how = Attach::kGeneric;
    attached = (*steering)->attach(ifindex, how);
  }
  if (!attached) return std::unexpected(attached.error());
  // Drivers with XDP make the sender segment merged packets; tun does not.
  const bool brings_joined = interface.is_virtual && (how == Attach::kGeneric || interface.is_tap);
  if (brings_joined) (*steering)->leave_joined();
  return Attached{std::move(*steering), how, brings_joined};
}

/// The same where processes share the interface: the first one attaches the program, with its
/// options; the others take part.
Result<Attached> attach_or_join(Sharing& sharing, IfIndex ifindex, const Interface& interface,
                                const Arena& arena, const XdpOptions& options) {
  constexpr uint32_t kIsGeneric = 1;
  constexpr uint32_t kBringsJoined = 2;
  const auto control = sharing.control();
  if (!control) return std::unexpected(control.error());
  auto found = sharing.find(*control, ifindex);
  if (!found) return std::unexpected(found.error());
  if (found->steering != nullptr)
    return Attached{std::move(found->steering),
                    (found->how & kIsGeneric) != 0 ? Attach::kGeneric : Attach::kNative,
                    (found->how & kBringsJoined) != 0};
  auto made = attach(ifindex, interface, arena, options, sharing.member());
  if (!made) return made;
  const uint32_t how =
      (made->how == Attach::kGeneric ? kIsGeneric : 0) | (made->brings_joined ? kBringsJoined : 0);
  if (auto ok = sharing.publish(*control, ifindex, how, made->steering); !ok)
    return std::unexpected(ok.error());
  return made;
}

}  // namespace
}  // namespace xdp

Result<std::unique_ptr<Device>> open_xdp(IfIndex ifindex, Arena& arena, const XdpOptions& options) {
  using namespace xdp;
  if (!std::has_single_bit(options.rx_frames) || !std::has_single_bit(options.tx_frames) ||
      options.max_flows == 0 || options.max_listeners == 0)
    return fail(EINVAL, "XDP options");
  const auto interface = describe(ifindex);
  if (!interface) return std::unexpected(interface.error());
  const auto multi_buffer = kernel_has_multi_buffer();
  if (!multi_buffer) return std::unexpected(multi_buffer.error());
  auto sharing = Sharing::of(arena);
  auto attached = sharing != nullptr ? attach_or_join(*sharing, ifindex, *interface, arena, options)
                                     : attach(ifindex, *interface, arena, options, {});
  if (!attached) return std::unexpected(attached.error());
  return std::make_unique<XdpDevice>(ifindex, *interface, arena, options, attached->how,
                                     attached->brings_joined, *multi_buffer,
                                     std::move(attached->steering), std::move(sharing));
}

}  // namespace vireo
