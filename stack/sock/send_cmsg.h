// Ancillary data of packets to send (cmsg(3)). Owner: the call. Thread: its own.
#pragma once

#include <sys/socket.h>

#include <concepts>
#include <cstddef>
#include <cstring>

namespace vireo {

/// One of the messages, copied: the program's memory need not be aligned.
struct Control {
  int level, type;
  size_t bytes;  ///< of `data`
  const std::byte* data;

  template <class T>
  bool holds() const {
    return bytes == sizeof(T);
  }
  template <class T>
  T as() const {
    T v;
    std::memcpy(&v, data, sizeof v);
    return v;
  }
};

/// Calls `take` for each, as far as it returns true. @return false: it did not, or they are
/// malformed (linux/socket.h CMSG_OK). The caller has checked that they are readable.
template <std::predicate<const Control&> Take>
bool for_each_control(const msghdr& msg, Take&& take) {
  const size_t room = msg.msg_controllen;
  if (room < sizeof(cmsghdr)) return true;  // as in Linux: there is none
  const auto* const all = static_cast<const std::byte*>(msg.msg_control);
  for (size_t at = 0; room - at >= sizeof(cmsghdr);) {
    cmsghdr head;
    std::memcpy(&head, all + at, sizeof head);
    if (head.cmsg_len < sizeof head || head.cmsg_len > room - at) return false;
    const size_t bytes = head.cmsg_len - CMSG_LEN(0);
    if (!take(Control{head.cmsg_level, head.cmsg_type, bytes, all + at + CMSG_LEN(0)}))
      return false;
    const size_t step = CMSG_ALIGN(head.cmsg_len);
    if (step > room - at) break;
    at += step;
  }
  return true;
}

}  // namespace vireo
