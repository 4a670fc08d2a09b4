// The kernel's view of an interface: frames sent as they are, and the frames that XDP left to the
// kernel. Owner: the test. Thread: the test's. Source: packet(7).
#pragma once

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/byteorder.h"
#include "core/fd.h"
#include "core/types.h"

namespace vireo::test {

class RawPort {
 public:
  /// `told`: what a NIC is told stands before each frame that is sent, a virtio_net_hdr.
  explicit RawPort(IfIndex ifindex, bool told = false)
      : fd_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    if (told) setsockopt(fd_.get(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on);
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_protocol = be16(ETH_P_ALL).raw();
    to.sll_ifindex = static_cast<int>(ifindex.value());
    if (bind(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) fd_.reset();
  }
  bool open() const { return static_cast<bool>(fd_); }
  bool send(std::span<const std::byte> frame) const {
    return ::send(fd_.get(), frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size());
  }
  /// The next frame that came in from the wire, VLAN tag taken off; nullopt if none comes in
  /// `wait_ms`.
  std::optional<std::vector<std::byte>> receive(int wait_ms) const {
    for (;;) {
      pollfd p{fd_.get(), POLLIN, 0};
      if (poll(&p, 1, wait_ms) != 1) return std::nullopt;
      std::vector<std::byte> bytes(65536);
      sockaddr_ll from{};
      socklen_t length = sizeof from;
      const ssize_t n = recvfrom(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&from), &length);
      if (n < 0 || from.sll_pkttype == PACKET_OUTGOING) continue;
      bytes.resize(static_cast<size_t>(n));
      return bytes;
    }
  }

 private:
  UniqueFd fd_;
};

}  // namespace vireo::test
