// A netlink socket that asks the kernel questions and hears of changes. Owner: Filter. Thread: one
// at a time.
#pragma once

#include <linux/netlink.h>

#include <functional>
#include <vector>

#include "core/result.h"
#include "stack/net/rtnetlink_socket.h"

namespace vireo::filter {

class Session {
 public:
  /// Is told of what happens in `group`. Errors: of socket(2) and bind(2), EPERM without
  /// CAP_NET_ADMIN.
  static Result<Session> open(int protocol, uint32_t group);

  /// Each message of the answer is given to `take`. Errors: the kernel's; EBUSY: the answer did not
  /// end.
  Result<void> dump(const net::Request& question, const std::function<void(const nlmsghdr&)>& take);
  /// Was it told of a change since this was asked last? Takes all that came.
  bool was_told();
  int fd() const { return socket_.fd(); }  ///< readable when it was, maybe

 private:
  explicit Session(net::RtnetlinkSocket s);
  /// The next datagram. Errors: EAGAIN and those of recvmsg(2).
  Result<std::span<const std::byte>> receive();

  net::RtnetlinkSocket socket_;
  std::vector<std::byte> buffer_;
  bool told_ = false;
};

/// Some part of the kernel is a module that is not there, so that it has nothing to ask of; to ask
/// would load it.
bool is_absent(const char* module);

}  // namespace vireo::filter
