// A netlink socket for requests to the kernel and notifications of changes. Owner: Filter. Thread:
// one at a time.
#pragma once

#include <linux/netlink.h>

#include <functional>
#include <vector>

#include "core/result.h"
#include "stack/net/rtnetlink_socket.h"

namespace vireo::filter {

class Session {
 public:
  /// Joins `group`. Errors: of socket(2) and bind(2), EPERM without CAP_NET_ADMIN.
  static Result<Session> open(int protocol, uint32_t group);

  /// Calls `take` for each message of the reply. Errors: the kernel's; EBUSY: the reply did not
  /// end.
  Result<void> dump(const net::Request& question, const std::function<void(const nlmsghdr&)>& take);
  /// Whether a notification has come since the last call. Reads all that are there.
  bool was_told();
  int fd() const { return socket_.fd(); }  ///< readable when it may have been notified

 private:
  explicit Session(net::RtnetlinkSocket s);
  /// The next datagram. Errors: EAGAIN and those of recvmsg(2).
  Result<std::span<const std::byte>> receive();

  net::RtnetlinkSocket socket_;
  std::vector<std::byte> buffer_;
  bool told_ = false;
};

/// The kernel module is not loaded, so there is nothing to read; a request would load it.
bool is_absent(const char* module);

}  // namespace vireo::filter
