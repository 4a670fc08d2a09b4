// A non-blocking netlink socket, by default for rtnetlink, used by direct system calls: nothing
// here calls interposed functions. Owner: whoever opened it. Thread: sends from any, receives from
// one. Its port id is random, in the upper half: the kernel would choose our process id, which
// would then be taken for programs that bind a netlink socket to getpid().
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/address.h"
#include "core/fd.h"
#include "core/result.h"

namespace vireo::net {

class RtnetlinkSocket {
 public:
  /// Errors: of socket(2) and bind(2). `receive_buffer_bytes` 0: the system's default.
  static Result<RtnetlinkSocket> open(uint32_t receive_buffer_bytes, int protocol = NETLINK_ROUTE);

  /// Joins a multicast group (RTNLGRP_*).
  Result<void> join(uint32_t group);
  /// Errors: of sendto(2).
  Result<void> send(std::span<const std::byte> message);
  /// One datagram of the kernel, perhaps with several messages. Errors: EAGAIN none; ENOBUFS
  /// notifications were lost; others of recvmsg(2). A datagram too long for `buffer` gives ENOBUFS;
  /// one that is not from the kernel is skipped.
  Result<std::span<std::byte>> receive(std::span<std::byte> buffer);
  int fd() const { return fd_.get(); }
  uint32_t port() const { return port_; }  ///< nlmsg_pid of replies to our requests

 private:
  UniqueFd fd_;
  uint32_t port_ = 0;
};

/// Builds a request: fixed header, then attributes. Small requests only.
class Request {
 public:
  template <class Header>
  Request(uint16_t type, uint16_t flags, uint32_t seq, const Header& header) {
    *this_header() = {.nlmsg_len = NLMSG_HDRLEN,
                      .nlmsg_type = type,
                      .nlmsg_flags = flags,
                      .nlmsg_seq = seq,
                      .nlmsg_pid = 0};
    append(&header, sizeof header);
  }
  void attribute(uint16_t type, const void* data, size_t len);
  template <class T>
  void attribute(uint16_t type, T value) {
    attribute(type, &value, sizeof value);
  }
  /// 4 or 16 bytes.
  void attribute(uint16_t type, const IpAddr& addr);
  std::span<const std::byte> bytes() const;

 private:
  nlmsghdr* this_header() { return reinterpret_cast<nlmsghdr*>(buffer_); }
  void append(const void* data, size_t len);
  alignas(nlmsghdr) std::byte buffer_[256] = {};
};

}  // namespace vireo::net
