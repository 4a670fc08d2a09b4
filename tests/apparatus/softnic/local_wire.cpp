#include <deque>
#include <vector>

#include "tests/apparatus/softnic/wire.h"

namespace vireo::softnic {
namespace {

constexpr size_t kFrames = 1024;
constexpr uint32_t kFraming = 22;  // Ethernet header and two VLAN tags

using Frames = std::deque<std::vector<std::byte>>;

class LocalEnd final : public Wire {
 public:
  LocalEnd(std::shared_ptr<Frames> out, std::shared_ptr<Frames> in, uint32_t mtu)
      : out_(std::move(out)), in_(std::move(in)), room_(mtu + kFraming) {}
  std::span<std::byte> reserve() noexcept override {
    return out_->size() < kFrames ? std::span(room_) : std::span<std::byte>();
  }
  void publish(size_t bytes) noexcept override {
    out_->emplace_back(room_.begin(), room_.begin() + static_cast<ptrdiff_t>(bytes));
  }
  std::span<const std::byte> front() noexcept override {
    return in_->empty() ? std::span<const std::byte>() : std::span(in_->front());
  }
  void pop() noexcept override { in_->pop_front(); }
  bool arm() noexcept override { return in_->empty(); }

 private:
  std::shared_ptr<Frames> out_, in_;
  std::vector<std::byte> room_;
};

}  // namespace

LocalWire make_local_wire(uint32_t mtu) {
  auto there = std::make_shared<Frames>(), back = std::make_shared<Frames>();
  return {
      {std::make_unique<LocalEnd>(there, back, mtu), std::make_unique<LocalEnd>(back, there, mtu)}};
}

}  // namespace vireo::softnic
