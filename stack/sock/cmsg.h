// Ancillary data of received packets (cmsg(3)). Owner: the call. Thread: its own.
#pragma once

#include <linux/net_tstamp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <ctime>

#include <linux/errqueue.h>  // behind <ctime>, whose timespec it needs

#include "core/user_memory.h"

namespace vireo {

/// Writes ancillary data into msg_control; what does not fit is cut and sets MSG_CTRUNC
/// (net/core/scm.c put_cmsg).
class CmsgWriter {
 public:
  explicit CmsgWriter(msghdr& msg)
      : msg_(msg), at_(static_cast<std::byte*>(msg.msg_control)), left_(msg.msg_controllen) {
    if (at_ == nullptr) left_ = 0;
  }
  template <class T>
  void put(int level, int type, const T& value) {
    const size_t length = std::min(CMSG_LEN(sizeof(T)), left_);
    if (length < CMSG_LEN(sizeof(T))) msg_.msg_flags |= MSG_CTRUNC;
    cmsghdr head{};
    if (length < sizeof head || !is_writable(at_, length)) return;  // as in Linux: no error
    head.cmsg_len = length;
    head.cmsg_level = level;
    head.cmsg_type = type;
    std::memcpy(at_, &head, sizeof head);
    std::memcpy(at_ + CMSG_LEN(0), &value, length - CMSG_LEN(0));
    const size_t space = std::min(CMSG_SPACE(sizeof(T)), left_);
    at_ += space;
    left_ -= space;
    used_ += space;
  }
  ~CmsgWriter() { msg_.msg_controllen = used_; }

 private:
  msghdr& msg_;
  std::byte* at_;
  size_t left_;
  size_t used_ = 0;
};

}  // namespace vireo
