#include "tests/apparatus/mem/mem_device.h"

namespace vireo {

MemDevice::MemDevice(MemLink& link, MemEnd end, const MemDeviceOptions& options)
    : link_(link), end_(end), options_(options), queues_(options.queues) {
  caps_.kind = DeviceKind::kMem;
  caps_.mode = "virtual time";
  caps_.queues = options.queues;
  caps_.mtu = options.mtu;
  caps_.doorbell_is_call = options.doorbell_is_call;
  VIREO_ASSERT(options.checksums != Checksum::kOffload);
  caps_.tx_l4 = caps_.rx_l4 = caps_.tx_ip = caps_.rx_ip = options.checksums;
  caps_.max_body_slices = options.inline_head ? options.max_body_slices : 1;
  VIREO_ASSERT(options.tso_max_bytes == 0 || options.inline_head);
  caps_.tso_max_bytes = options.tso_max_bytes;
  caps_.tags = options.tags;
  caps_.hides_tags = options.hides_tags;
  constexpr uint32_t kFramingBytes = 22;  // Ethernet header and two VLAN tags
  caps_.multi_frame = options.mtu + kFramingBytes > 2048 - PacketPool::kHeadroom;
}

MemDevice::~MemDevice() {
  for (const MemQueue* q : queues_) VIREO_ASSERT(q == nullptr);
  link_.devices_[static_cast<size_t>(end_)] = nullptr;
}

Result<std::unique_ptr<Queue>> MemDevice::open_queue(QueueId id, PacketPool& pool) {
  if (id.value() >= queues_.size()) return fail(EINVAL, "mem queue number");
  if (queues_[id.value()] != nullptr) return fail(EBUSY, "mem queue is open");
  return std::make_unique<MemQueue>(*this, id, pool);
}

Result<FlowRule> MemDevice::steer(const FlowKey& key, FlowTag tag, Queue& to) {
  if (!plugged_) return fail(ENODEV, "mem unplugged");
  const auto id = steering_.add(key, tag, to);
  if (!id) return std::unexpected(id.error());
  return rule(*id);
}

Result<void> MemDevice::give_to_kernel(std::span<const std::byte> frame) {
  constexpr size_t kMostBytes = 3072;  // as AF_XDP
  if (frame.size() > kMostBytes) return fail(EMSGSIZE, "mem frame for the kernel");
  ++stats_.to_kernel;
  kernel_frames_.emplace_back(frame.begin(), frame.end());
  return {};
}

Result<void> MemDevice::give_to_listener(std::span<Opening> openings) {
  for (Opening& o : openings) {
    o.error = openings_error_;
    if (o.error != 0) continue;
    ++stats_.to_listener;
    openings_.push_back({{o.ack.begin(), o.ack.end()}, o.agreed});
  }
  return {};
}

MemQueue* MemDevice::first_to_depart() const {
  MemQueue* first = nullptr;
  for (MemQueue* q : queues_)
    if (q != nullptr && (first == nullptr || q->next_departure() < first->next_departure()))
      first = q;
  return first;
}

Instant MemDevice::next_departure() const {
  const MemQueue* q = plugged_ ? first_to_depart() : nullptr;
  return q != nullptr ? q->next_departure() : Instant::never();
}

void MemDevice::depart(Instant now) {
  for (auto& frame : first_to_depart()->depart()) link_.wire(end_).send(std::move(frame), now);
}

void MemDevice::receive(std::vector<std::byte> frame) {
  if (!plugged_) return;
  constexpr ptrdiff_t kTypeAt = 12, kTagBytes = 4;
  const auto type = frame.begin() + kTypeAt;
  if (options_.hides_tags != nullptr && type[0] == std::byte{0x81} && type[1] == std::byte{0x00})
    frame.erase(type, type + kTagBytes);
  const SteeringRule* rule = steering_.match(frame);
  auto* to = rule != nullptr ? static_cast<MemQueue*>(rule->queue) : nullptr;
  if (to == nullptr && options_.promiscuous) to = queues_[0];
  if (to == nullptr) {
    ++stats_.to_kernel;
    kernel_frames_.push_back(std::move(frame));
    return;
  }
  RxFlags flags = RxFlags::kNone;
  FlowTag tag;
  if (options_.checksums == Checksum::kNotNeeded) flags |= RxFlags::kIpOk | RxFlags::kL4Ok;
  if (rule != nullptr && options_.tags) {
    flags |= RxFlags::kHasTag;
    tag = rule->tag;
  }
  ++(to->deliver(frame, flags, tag) ? stats_.rx_frames : stats_.rx_no_buffer);
}

}  // namespace vireo
