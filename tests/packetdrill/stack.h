// The stack that packetdrill drives: a script Host with IP packets at one end and libc's calls at
// the other, in virtual time. Time moves when packetdrill sleeps or waits for a packet, and by a
// microsecond whenever it asks for the time (it spins through the last ones).
// Calls that block wait for what the other thread of packetdrill makes happen.
// Owner: the interface's userdata. Thread: packetdrill's two; everything is under `mutex_`.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "tests/packetdrill/interface.h"
#include "tests/packetdrill/ip.h"
#include "tests/script/host.h"

namespace vireo::packetdrill {

class Stack {
 public:
  /// `merge`: contiguous segments of one instant leave as one packet, as with segmentation offload.
  explicit Stack(bool merge) : merge_(merge) {}

  int socket(int type);
  int bind(int fd, const sockaddr* sa, socklen_t n);
  int accept(int fd, sockaddr* sa, socklen_t* n);
  int connect(int fd, const sockaddr* sa, socklen_t n);
  ssize_t receive(int fd, std::span<const iovec> to, int flags);
  ssize_t send(int fd, std::span<const iovec> from, int flags);
  int fcntl(int fd, int command, long argument);
  int ioctl(int fd, unsigned long request, int* value);
  int getsockopt(int fd, int level, int name, void* value, socklen_t* n);
  int setsockopt(int fd, int level, int name, const void* value, socklen_t n);
  int poll(std::span<pollfd> fds, int timeout);
  /// A call of Host that returns 0 or -errno.
  int simple(const std::function<int(script::Host&)>& call);

  int packet_in(std::span<const uint8_t> packet);
  int packet_out(void* packet, size_t* n, long long* usecs);
  void sleep(Duration d);
  timeval time();

 private:
  script::Host& host();
  void advance(Instant to);
  /// Tries `call` until it no longer would block; `wait` false: once.
  int64_t wait_for(std::unique_lock<std::mutex>& lock, bool wait,
                   const std::function<int64_t()>& call);

  std::mutex mutex_;
  std::condition_variable moved_;
  std::unique_ptr<script::Host> host_;
  Place local_, remote_;
  const bool merge_;
  Instant start_;
};

}  // namespace vireo::packetdrill
