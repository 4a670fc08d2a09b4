// An interface opened through AF_XDP, as the contract's Device; created by open_xdp() of xdp.h.
// Owner: its caller. Thread: any for every function.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "dev/device.h"
#include "dev/xdp/ethtool.h"
#include "dev/xdp/kernel_listener.h"
#include "dev/xdp/kernel_path.h"
#include "dev/xdp/steer.h"
#include "dev/xdp/xdp.h"

namespace vireo::xdp {

class Sharing;

class XdpDevice final : public Device {
 public:
  XdpDevice(IfIndex ifindex, const Interface& interface, Arena& arena, const XdpOptions& options,
            Attach attached, bool brings_joined, bool multi_buffer,
            std::shared_ptr<Steering> steering, std::shared_ptr<Sharing> sharing);
  ~XdpDevice() override;

  Result<std::unique_ptr<Queue>> open_queue(QueueId id, PacketPool& pool) override;
  Result<FlowRule> steer(const FlowKey& key, FlowTag tag, Queue& to) override;
  Result<FlowRule> spare(const FlowKey& key) override;
  Result<std::unique_ptr<Queue>> open_copies(PacketPool& pool) override;
  Result<FlowRule> share(const FlowKey& key, Queue& to) override;
  std::atomic<uint64_t>* accepting() noexcept override { return &steering_->accepting(); }
  Result<void> give_to_kernel(std::span<const std::byte> frame) override {
    return kernel_path_.give(frame);
  }
  Result<void> prepare_listener() override;
  Result<void> give_to_listener(std::span<Opening> openings) override;
  void set_host(const HostOnWire& host) override { steering_->set_host(host); }
  void ask_kernel(uint16_t port, bool on) override { steering_->ask_kernel(port, on); }

  const Steering& steering() const { return *steering_; }

 private:
  void unsteer(uint64_t rule_id) noexcept override;
  bool brings_connections(uint64_t rule_id) noexcept override {
    return steering_->brings_connections(rule_id);
  }
  uint16_t bind_flags(bool multi_frame) const;

  const IfIndex ifindex_;
  const std::string interface_;  ///< its name at open
  Arena& arena_;
  const XdpOptions options_;
  const Attach attached_;
  const bool multi_buffer_;
  const bool is_virtual_;
  const bool takes_joined_;  ///< a received packet may exceed the MTU: several merged segments
  std::shared_ptr<Steering> steering_;
  std::shared_ptr<Sharing> sharing_;  ///< null: no other process may use the interface
  KernelPath kernel_path_;
  KernelListener kernel_listener_;
  std::mutex lock_;                               ///< guards open_queue() and what follows
  UniqueFd ingress_;                              ///< CopiedFrames::attach()
  std::unordered_map<uint64_t, uint32_t> marks_;  ///< of shared ends of UDP, by their rules
};

}  // namespace vireo::xdp
