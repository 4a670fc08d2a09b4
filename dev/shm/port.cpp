#include "dev/shm/port.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dev/shm/shm_device.h"

namespace vireo {
namespace {
constexpr Duration kLookInterval = Duration::ms(1);
}

Result<std::unique_ptr<Device>> open_shm(std::string_view name, const ShmOptions& options) {
  auto seat = take_seat(name, options.slots, options.mtu);
  if (!seat) return std::unexpected(seat.error());
  auto bell = ShmBell::create(std::move(seat->bell), seat->host);
  if (!bell) return std::unexpected(bell.error());
  return std::make_unique<ShmDevice>(std::move(*seat), std::move(*bell));
}

ShmDevice::ShmDevice(WireSeat seat, ShmBell bell) : seat_(std::move(seat)), bell_(std::move(bell)) {
  const WireHeader& h = header();
  const unsigned mine = seat_.host ? 0 : 1;
  sender_ = RingSender(ring_of(seat_.wire.data(), mine, h.slots, h.stride));
  receiver_ = RingReceiver(ring_of(seat_.wire.data(), 1 - mine, h.slots, h.stride));
  caps_.kind = DeviceKind::kShm;
  caps_.mode = "shared memory";
  caps_.mtu = h.mtu;
  caps_.tx_l4 = caps_.rx_l4 = caps_.tx_ip = caps_.rx_ip = Checksum::kNotNeeded;
  caps_.max_body_slices = UINT16_MAX;  // all bodies are copied anyway
  caps_.inline_bytes = static_cast<uint16_t>(sender_.capacity());
  constexpr uint32_t kFramingBytes = 22;
  caps_.multi_frame = h.mtu + kFramingBytes > 2048 - PacketPool::kHeadroom;
}

ShmDevice::~ShmDevice() {
  VIREO_ASSERT(!open_);
  // Pairs with peer_is_there(): frames sent before are visible before.
  header().gone[seat_.host ? 0 : 1].store(1, std::memory_order_release);
}

Result<std::unique_ptr<Queue>> ShmDevice::open_queue(QueueId id, PacketPool& pool) {
  if (id.value() != 0) return fail(EINVAL, "shm queue number");
  if (open_) return fail(EBUSY, "shm queue is open");
  return std::make_unique<ShmQueue>(*this, pool);
}

Result<FlowRule> ShmDevice::steer(const FlowKey& key, FlowTag /*tag*/, Queue& /*to*/) {
  const auto id = rules_.add(key);
  if (!id) return std::unexpected(id.error());
  return rule(*id);
}

void ShmDevice::unsteer(uint64_t rule_id) noexcept { rules_.remove(rule_id); }

bool ShmDevice::peer_is_there(bool clears_bell) noexcept {
  if (peer_gone_) return false;
  // Pairs with the store in the peer's ~ShmDevice.
  peer_gone_ = header().gone[seat_.host ? 1 : 0].load(std::memory_order_acquire) != 0 ||
               (clears_bell ? bell_.clear() : bell_.peer_died());
  return !peer_gone_;
}

ShmQueue::ShmQueue(ShmDevice& device, PacketPool& pool)
    : device_(device), pool_(pool), sender_(device.sender_), receiver_(device.receiver_) {
  device_.open_ = true;
}

ShmQueue::~ShmQueue() {
  tx_flush();
  device_.open_ = false;
}

/// @return descriptors written; 0: too few descriptors or buffers.
unsigned ShmQueue::copy_out(WireSlot& slot, uint32_t length, std::span<RxDesc> out) noexcept {
  const uint32_t room = pool_.frame_bytes() - PacketPool::kHeadroom;
  const uint32_t buffers = (length + room - 1) / room;
  if (buffers > out.size() || buffers > pool_.rx_count()) return 0;
  const std::byte* from = slot.bytes();
  for (uint32_t i = 0; i < buffers; ++i) {
    PacketBuf* p = pool_.take();
    const uint32_t part = std::min(room, length - i * room);
    p->length = static_cast<uint16_t>(part);
    std::memcpy(p->data(), from + size_t{i} * room, part);
    const RxFlags more = i + 1 < buffers ? RxFlags::kMore : RxFlags::kNone;
    out[i] = {PacketRef(p), RxFlags::kIpOk | RxFlags::kL4Ok | more, FlowTag()};
  }
  return buffers;
}

unsigned ShmQueue::rx_burst(std::span<RxDesc> out) noexcept {
  unsigned n = 0;
  while (n < out.size()) {
    WireSlot* slot = receiver_.front();
    if (slot == nullptr) break;
    const uint32_t length = slot->length;  // read once: the peer can write it
    if (length == 0 || length > receiver_.capacity() || device_.broken_) [[unlikely]] {
      device_.broken_ = true;
      break;
    }
    receiver_.prefetch_next();
    const unsigned used = copy_out(*slot, length, out.subspan(n));
    if (used == 0) break;
    n += used;
    receiver_.pop();
  }
  if (n == 0) return 0;
  receiver_.release();
  return n;
}

bool ShmQueue::tx(const TxFrame& frame, Doorbell bell) noexcept {
  VIREO_DEBUG_ASSERT(frame.mss == 0);  // caps().tso_max_bytes is 0
  WireSlot* slot = sender_.reserve();
  if (slot == nullptr) [[unlikely]] {
    tx_flush();  // a peer asleep would never empty the full ring
    return false;
  }
  std::byte* to = slot->bytes();
  const std::byte* const end = to + sender_.capacity();
  VIREO_ASSERT(frame.head.size() <= sender_.capacity());
  if (frame.head.data() != to) std::memcpy(to, frame.head.data(), frame.head.size());
  to += frame.head.size();
  for (const PacketSlice& s : frame.body) {
    VIREO_ASSERT(s.length <= end - to);  // else longer than the MTU in caps
    std::memcpy(to, s.packet->frame + s.at, s.length);
    to += s.length;
  }
  const auto length = static_cast<uint32_t>(to - slot->bytes());
  slot->length = length;
  if (bell == Doorbell::kLater) {
    sender_.publish();
    unrung_ = true;
  } else {
    unrung_ = false;
    if (sender_.publish_and_look()) [[unlikely]]
      device_.bell_.ring();
  }
  head_place_ = sender_.next_place();
  sender_.claim_ahead(length);
  return true;
}

void ShmQueue::tx_flush() noexcept {
  if (std::exchange(unrung_, false) && sender_.look()) device_.bell_.ring();
}

Result<bool> ShmQueue::arm() noexcept {
  if (device_.broken_) return fail(ENODEV, "shm peer broke the wire");
  if (receiver_.front() != nullptr) {  // true also for the last frames of a peer that is gone
    receiver_.arm();                   // for other threads that sleep on this queue
    return false;
  }
  if (!device_.peer_is_there(/*clears_bell=*/true)) {
    if (receiver_.front() != nullptr) return false;
    return fail(ENODEV, "shm peer is gone");
  }
  return receiver_.arm();
}

int ShmQueue::wait_fd() const noexcept { return device_.bell_.wait_fd(); }

void ShmQueue::wake_ack() noexcept { (void)device_.bell_.clear(); }

bool ShmQueue::alive() noexcept {
  if (device_.peer_gone_ || device_.broken_) return false;
  const Instant now = Clock::now();
  if (now < device_.next_look_) return true;
  device_.next_look_ = now + kLookInterval;
  return device_.peer_is_there(/*clears_bell=*/false);
}

}  // namespace vireo
