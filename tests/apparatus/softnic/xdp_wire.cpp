// A real interface as a port's wire: AF_XDP brings the frames that flow rules want, all others go
// to the kernel and come from it, as beside a NIC with a bifurcated driver.
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/fd.h"
#include "core/packet.h"
#include "dev/device.h"
#include "dev/shm/kernel_calls.h"
#include "dev/xdp/xdp.h"
#include "tests/apparatus/softnic/frame.h"
#include "tests/apparatus/softnic/wire.h"

namespace vireo::softnic {
namespace {

constexpr uint32_t kFrameBytes = 2048;
constexpr uint32_t kFrames = 4096;  // of each queue
constexpr uint32_t kFraming = 22;   // Ethernet header and two VLAN tags
constexpr size_t kBurst = 32;

/// One queue of the interface, with frames of its own.
struct Lane {
  explicit Lane(std::span<std::byte> memory) : pool(memory, kFrameBytes) {}
  PacketPool pool;
  std::unique_ptr<Queue> queue;
};

/// What a rule of every address may take: the addresses of the host, and of each VLAN the station.
void tell_host(Device& device, uint32_t ifindex) {
  std::vector<HostLink> links;
  std::vector<IpAddr> addresses;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    if (i->ifa_addr->sa_family == AF_PACKET) {
      sockaddr_ll ll{};
      std::memcpy(&ll, i->ifa_addr, sizeof ll);
      if (ll.sll_ifindex != static_cast<int>(ifindex)) continue;
      std::array<uint8_t, 6> mac{};
      std::memcpy(mac.data(), ll.sll_addr, mac.size());
      for (uint16_t vlan = 0; vlan < 4095; ++vlan) links.push_back({VlanId(vlan), mac});
    } else if (const auto e = Endpoint::from_sockaddr(i->ifa_addr, sizeof(sockaddr_in6))) {
      addresses.push_back(e->addr);
    }
  }
  ::freeifaddrs(all);
  device.set_host({links, addresses});
}

struct Steered {
  FlowKey key;
  FlowRule rule;
  unsigned holders;
};

class XdpEnd final : public Wire {
 public:
  /// @return an errno, 0: it is open.
  int open(uint32_t ifindex) {
    const auto failed = [](const auto& result) { return result.error().code; };
    // The device says how many queues there are only once it is open, on memory that it must have.
    auto arena = Arena::create(size_t{kMaxLanes} * kFrames * kFrameBytes, false);
    if (!arena) return failed(arena);
    arena_ = std::move(*arena);
    auto device = open_xdp(IfIndex(ifindex), arena_, {});
    if (!device) return failed(device);
    device_ = std::move(*device);
    if (device_->caps().queues > kMaxLanes) return ENOTSUP;
    tell_host(*device_, ifindex);
    auto bell = UniqueFd(kernel::epoll_create1(EPOLL_CLOEXEC));
    if (!bell) return errno;
    for (uint32_t q = 0; q < device_->caps().queues; ++q) {
      auto memory = arena_.bytes().subspan(size_t{q} * kFrames * kFrameBytes);
      auto lane = std::make_unique<Lane>(memory.first(size_t{kFrames} * kFrameBytes));
      auto queue = device_->open_queue(QueueId(q), lane->pool);
      if (!queue) return failed(queue);
      lane->queue = std::move(*queue);
      lane->queue->rx_refill();
      epoll_event e{};
      e.events = EPOLLIN;
      if (kernel::epoll_ctl(bell.get(), EPOLL_CTL_ADD, lane->queue->wait_fd(), &e) < 0)
        return errno;
      lanes_.push_back(std::move(lane));
    }
    bell_ = std::move(bell);
    room_.resize(device_->caps().mtu + kFraming);
    return 0;
  }

  std::span<std::byte> reserve() noexcept override {
    if (!is_sent_ && !send()) return {};
    return room_;
  }
  void publish(size_t bytes) noexcept override {
    bytes_ = bytes;
    is_sent_ = false;
    send();
  }
  const std::atomic<uint32_t>* ring() noexcept override {
    if (!is_sent_) send();
    first().tx_flush();
    first().tx_reap();
    return nullptr;
  }
  std::span<const std::byte> front() noexcept override {
    if (!front_.empty()) return front_;
    for (size_t tried = 0; tried <= lanes_.size(); ++tried) {
      if (at_ == count_) {
        burst_from(*lanes_[lane_ = (lane_ + 1) % lanes_.size()]);
        continue;
      }
      // A NIC gets finished what a kernel on this host has left to it.
      const bool is_unfinished = has(burst_[at_].flags, RxFlags::kL4Ok);
      if (!has(burst_[at_].flags, RxFlags::kMore) && joined_.empty()) {
        PacketBuf& p = *burst_[at_++].packet;
        if (is_unfinished) fill_checksums({p.data(), p.length});
        return front_ = std::as_const(p).bytes();
      }
      for (bool more = true; more && at_ < count_; ++at_) {  // the queue gives whole packets
        const auto part = burst_[at_].packet->bytes();
        joined_.insert(joined_.end(), part.begin(), part.end());
        more = has(burst_[at_].flags, RxFlags::kMore);
      }
      if (is_unfinished) fill_checksums(joined_);
      return front_ = joined_;
    }
    return {};
  }
  void pop() noexcept override {
    front_ = {};
    joined_.clear();
    if (at_ == count_) release();
  }
  bool arm() noexcept override {
    if (!front_.empty() || at_ < count_) return false;
    return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& l) {
      const auto armed = l->queue->arm();
      return !armed || *armed;  // of a lost device peer_is_gone() tells
    });
  }
  int bell_fd() const noexcept override { return bell_.get(); }
  void clear_bell() noexcept override {
    for (const auto& l : lanes_) l->queue->wake_ack();
  }
  bool peer_is_gone() noexcept override {
    return !std::all_of(lanes_.begin(), lanes_.end(),
                        [](const auto& l) { return l->queue->alive(); });
  }

  bool is_selective() const noexcept override { return true; }
  int want(const FlowKey& key) override {
    for (Steered& s : steered_)
      if (s.key == key) {
        ++s.holders;
        return 0;
      }
    auto rule = device_->steer(key, FlowTag(), first());
    if (!rule) return rule.error().code;
    steered_.push_back({key, std::move(*rule), 1});
    return 0;
  }
  void unwant(const FlowKey& key) override {
    const auto s = std::find_if(steered_.begin(), steered_.end(),
                                [&](const Steered& one) { return one.key == key; });
    if (s != steered_.end() && --s->holders == 0) steered_.erase(s);
  }

 private:
  static constexpr uint32_t kMaxLanes = 4;

  Queue& first() { return *lanes_.front()->queue; }

  /// Copies what was published into frames of the first lane, and queues it. @return false: later.
  bool send() noexcept {
    PacketPool& pool = lanes_.front()->pool;
    first().tx_reap();
    const size_t frames = (bytes_ + kFrameBytes - 1) / kFrameBytes;
    if (pool.free_count() < frames) return false;
    std::array<PacketRef, 16> held;
    std::array<PacketSlice, held.size()> body;
    if (frames > held.size()) return is_sent_ = true;  // no wire takes it
    for (size_t i = 0; i < frames; ++i) {
      const auto part = std::span(room_).subspan(
          i * kFrameBytes, std::min<size_t>(kFrameBytes, bytes_ - i * kFrameBytes));
      held[i].reset(pool.take());
      held[i]->data_at = 0;
      held[i]->length = static_cast<uint16_t>(part.size());
      std::copy(part.begin(), part.end(), held[i]->data());
      body[i] = {held[i].get(), 0, held[i]->length};
    }
    is_sent_ = first().tx({.head = {}, .body = {body.data(), frames}}, Doorbell::kLater);
    return is_sent_;
  }

  void burst_from(Lane& lane) noexcept {
    release();
    count_ = lane.queue->rx_burst(burst_);
  }
  /// The frames of the burst, all handed out, go back to their lane.
  void release() noexcept {
    for (size_t i = 0; i < count_; ++i) burst_[i].packet.reset();
    at_ = count_ = 0;
    if (!lanes_.empty()) lanes_[lane_]->queue->rx_refill();
  }

  Arena arena_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Steered> steered_;
  UniqueFd bell_;

  std::vector<std::byte> room_;  ///< of the frame that is written
  size_t bytes_ = 0;
  bool is_sent_ = true;

  std::array<RxDesc, kBurst> burst_;
  size_t at_ = 0, count_ = 0;  ///< of the burst, taken from lane_
  size_t lane_ = 0;
  std::vector<std::byte> joined_;  ///< a frame that came in parts
  std::span<const std::byte> front_;
};

}  // namespace

std::unique_ptr<Wire> open_interface(uint32_t ifindex) {
  auto end = std::make_unique<XdpEnd>();
  errno = end->open(ifindex);
  if (errno != 0) return nullptr;
  return end;
}

}  // namespace vireo::softnic
