// The stack that packetdrill drives: IP packets at one end and libc's calls at the other, a script
// Host for every connection between them, in virtual time. Time moves when packetdrill sleeps or
// waits for a packet, and by a microsecond whenever it asks for the time (it spins through the last
// ones). Calls that block wait for what the other thread of packetdrill makes happen.
// Owner: the interface's userdata. Thread: packetdrill's two; everything is under `mutex_`.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
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
  int listen(int fd, int backlog);
  int accept(int fd, sockaddr* sa, socklen_t* n);
  int connect(int fd, const sockaddr* sa, socklen_t n);
  ssize_t receive(int fd, std::span<const iovec> to, int flags);
  /// `sa`: the peer, where MSG_FASTOPEN connects on the way.
  ssize_t send(int fd, std::span<const iovec> from, int flags, const sockaddr* sa, socklen_t n);
  int shutdown(int fd, int how);
  int close(int fd);
  int fcntl(int fd, int command, long argument);
  int ioctl(int fd, unsigned long request, int* value);
  int getsockopt(int fd, int level, int name, void* value, socklen_t* n);
  int setsockopt(int fd, int level, int name, const void* value, socklen_t n);
  int poll(std::span<pollfd> fds, int timeout);
  int epoll_create();
  int epoll_ctl(int epfd, int op, int fd, const epoll_event* event);
  int epoll_wait(int epfd, std::span<epoll_event> out, int timeout);

  int packet_in(std::span<const uint8_t> packet);
  int packet_out(void* packet, size_t* n, long long* usecs);
  void sleep(Duration d);
  timeval time();

 private:
  /// A connection, or what becomes one: a Host whose one peer it is.
  struct Conn {
    std::unique_ptr<script::Host> host;
    Place local, remote;
    bool has_peer = false;
    int fd = -1;              ///< of the Host's socket
    int inner_listener = -1;  ///< the Host's
    int listener = -1;        ///< ours, that it came to
    uint64_t events = 0;      ///< counts what an edge-triggered wait is told of
  };
  struct Option {
    int level = 0, name = 0;
    std::vector<int64_t> value;
  };
  struct Socket {
    std::shared_ptr<Conn> conn;  ///< of a listener: only for its options
    bool nonblocking = false;
    bool listens = false;
    int backlog = 0;
    std::vector<Option> options;  ///< for the connections of a listener
    std::vector<uint8_t> fast_open_keys;
  };
  struct Watch {
    epoll_event event{};
    short seen = 0;
    uint64_t events = 0;
    bool armed = true;
  };
  struct Leaving {
    Place local, remote;
    script::WireSegment segment;
    size_t most = 0;  ///< payload bytes of the packet it may be merged into
  };

  Socket* at(int fd);
  int new_fd();
  script::Host& host(Socket& s) const { return *s.conn->host; }
  std::shared_ptr<Conn> make_conn();
  std::shared_ptr<Conn> conn_of(const Arrived& a);
  std::shared_ptr<Conn> child_for(const Arrived& a);
  void aim(Conn& c, const Place& remote);
  void settle();
  void collect(Conn& c);
  Instant deadline() const;
  void advance(Instant to);
  short ready(int fd);
  int collect_events(std::map<int, Watch>& watches, std::span<epoll_event> out);
  /// Tries `call` until it no longer would block; `wait` false: once.
  int64_t wait_for(std::unique_lock<std::mutex>& lock, bool wait,
                   const std::function<int64_t()>& call);

  void let_return(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable moved_;
  std::map<int, Socket> sockets_;
  std::map<int, std::map<int, Watch>> epolls_;
  std::vector<std::shared_ptr<Conn>> conns_;
  std::map<std::array<uint8_t, 16>, std::pair<std::vector<uint8_t>, uint16_t>> cookies_;
  std::deque<Leaving> leaving_;
  Place local_;  ///< of bind(), or where packets last came to
  uint16_t next_port_ = 40'000;
  uint32_t next_iss_ = 0x5eed0000;
  int blocked_ = 0;         ///< calls that wait
  bool returning_ = false;  ///< one of them is done
  const bool merge_;
  Instant start_, now_;
};

}  // namespace vireo::packetdrill
