#include <atomic>
#include <cerrno>
#include <utility>

#include "dev/shm/bell.h"
#include "dev/shm/host_registry.h"
#include "dev/shm/ring.h"
#include "tests/apparatus/softnic/wire.h"

namespace vireo::softnic {
namespace {

constexpr uint32_t kSlots = 1024;

class SharedEnd final : public Wire {
 public:
  SharedEnd(WireSeat seat, ShmBell bell) : seat_(std::move(seat)), bell_(std::move(bell)) {
    const WireHeader& h = header();
    const unsigned mine = seat_.host ? 0 : 1;
    sender_ = RingSender(ring_of(seat_.wire.data(), mine, h.slots, h.stride));
    receiver_ = RingReceiver(ring_of(seat_.wire.data(), 1 - mine, h.slots, h.stride));
  }
  ~SharedEnd() override {
    // Pairs with peer_is_gone(): what was sent before is seen before.
    header().gone[seat_.host ? 0 : 1].store(1, std::memory_order_release);
  }
  std::span<std::byte> reserve() noexcept override {
    slot_ = sender_.reserve();
    if (slot_ == nullptr) return {};
    return {slot_->bytes(), sender_.capacity()};
  }
  void publish(size_t bytes) noexcept override {
    slot_->length = static_cast<uint32_t>(bytes);
    sender_.publish();
    unrung_ = true;
  }
  const std::atomic<uint32_t>* ring() noexcept override {
    if (!std::exchange(unrung_, false)) return nullptr;
    const uint32_t how = sender_.look();
    if ((how & kByBell) != 0) bell_.ring();
    return (how & kByWord) != 0 ? &sender_.word() : nullptr;
  }
  std::span<const std::byte> front() noexcept override {
    WireSlot* slot = receiver_.front();
    if (slot == nullptr || broken_) return {};
    const uint32_t length = slot->length;  // read once: the peer can write it
    if (length == 0 || length > receiver_.capacity()) {
      broken_ = true;
      return {};
    }
    receiver_.prefetch_next();
    return {slot->bytes(), length};
  }
  void pop() noexcept override {
    receiver_.pop();
    receiver_.release();
  }
  bool arm() noexcept override { return broken_ || receiver_.arm(); }
  int bell_fd() const noexcept override { return bell_.wait_fd(); }
  void clear_bell() noexcept override { bell_.clear(); }
  const std::atomic<uint32_t>* word() const noexcept override { return &receiver_.word(); }
  bool arm_word() noexcept override { return broken_ || receiver_.arm(kByWord); }
  bool peer_is_gone() noexcept override {
    return broken_ || header().gone[seat_.host ? 1 : 0].load(std::memory_order_acquire) != 0 ||
           bell_.peer_died();  // the flag pairs with ~SharedEnd
  }

 private:
  WireHeader& header() const { return *reinterpret_cast<WireHeader*>(seat_.wire.data()); }
  WireSeat seat_;
  ShmBell bell_;
  RingSender sender_;
  RingReceiver receiver_;
  WireSlot* slot_ = nullptr;
  bool unrung_ = false;
  bool broken_ = false;  ///< the peer does not keep to the layout: it is heard no more
};

}  // namespace

std::unique_ptr<Wire> join_shared_wire(const std::string& name, uint32_t mtu) {
  auto seat = take_seat(name, kSlots, mtu);
  if (!seat) {
    errno = seat.error().code;
    return nullptr;
  }
  auto bell = ShmBell::create(std::move(seat->bell), seat->host);
  if (!bell) {
    errno = bell.error().code;
    return nullptr;
  }
  return std::make_unique<SharedEnd>(std::move(*seat), std::move(*bell));
}

}  // namespace vireo::softnic
