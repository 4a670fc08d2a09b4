// What the cases share: the command line, sockets, and the five ways to wait for a byte.
// Plain calls; an error ends the program with its name and status 1. Thread: one.
#pragma once

#include <netinet/in.h>
#include <sys/epoll.h>

#include <csignal>
#include <cstdint>
#include <span>
#include <string>

#include "clock.h"

namespace plain {

enum class Way : uint8_t { kBlock, kSpin, kPoll, kSelect, kEpoll };

struct Options {
  std::string name;  ///< of the case
  bool is_server = false;
  sockaddr_in address{};  ///< the server's
  bool tcp = true;
  Way way = Way::kBlock;
  double seconds = 1;
  uint32_t size = 1;  ///< bytes of a message
  uint32_t batch = 1;
  uint32_t count = 1;  ///< connections, or how many at a time
  uint32_t ports = 1;  ///< the server listens on, from `address` on
  double rate = 0;     ///< messages a second
  bool no_delay = false;
  std::string sizes;  ///< file of `BYTES PROBABILITY` lines: a cumulative distribution
  uint64_t seed = 1;
};

/// Set by SIGINT and SIGTERM: servers end and print what they saw.
extern volatile std::sig_atomic_t g_stop;

[[noreturn]] void fail(const char* what);
inline int must(int result, const char* what) {
  if (result < 0) [[unlikely]]
    fail(what);
  return result;
}

sockaddr_in with_port(sockaddr_in address, uint32_t more);
void set_nonblocking(int fd);
void set_no_delay(int fd);

/// A listener, or a bound UDP socket.
int serving(const Options& o, uint32_t more_port = 0, int backlog = 4096);
/// Connected; without blocking where `o.way` needs it. TCP_NODELAY by `no_delay`.
int connected(const Options& o, bool no_delay, uint32_t more_port = 0);
/// Room for `count` descriptors and some. Errors: end the program.
void allow_descriptors(uint32_t count);

/// One socket and how to wait for it to be readable.
class Reader {
 public:
  Reader(Way way, int fd, int timeout_ms = -1);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  /// @return bytes; 0 at the end, when told to stop, or (is_late()) when the time is over.
  size_t some(std::span<char> to);
  bool is_late() const { return late_; }
  int fd() const { return fd_; }

 private:
  /// @return false: the time is over.
  bool await() const;
  Way way_;
  int fd_;
  int timeout_ms_;
  int epoll_ = -1;
  uint64_t patience_ = 0;  ///< ticks, for kSpin
  bool late_ = false;
};

/// All of it, on a socket with or without blocking.
void write_all(int fd, std::span<const char> from);

/// epoll_wait that begins again after a signal, unless told to stop. @return events.
int wait_events(int epoll, std::span<epoll_event> events, int timeout_ms);
void watch(int epoll, int fd, uint32_t events, uint64_t tag, int operation = EPOLL_CTL_ADD);

// ---- the cases; each prints one line of JSON at its end
void round_trip(const Options& o);
void stream(const Options& o);
void datagrams(const Options& o);
void connects(const Options& o);
void echo(const Options& o);
void messages(const Options& o);
void paced(const Options& o);
void first(const Options& o);

}  // namespace plain
