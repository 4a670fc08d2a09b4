// Traffic whose progress is measured, for bench/wan.py: plain sockets and threads, no word of the
// stack beneath.
//
//   flow sink ADDRESS PORT CONNECTIONS                 counts what arrives, by time
//   flow source ADDRESS PORT CONNECTIONS SECONDS [FILE]  sends as fast as it may, then resets;
//                                                      TCP_INFO every 10 ms into FILE, as CSV
//   flow answer ADDRESS PORT CONNECTIONS               answers each burst with one byte
//   flow burst ADDRESS PORT CONNECTIONS CASE           on each connection three bursts of ten
//                                                      segments that nothing befalls, then one of
//       which the relay loses (tools/relay/mark.h):    middle   a segment in the middle
//       again  that segment and its retransmission     tail     the last segment
//       odd    the last of eleven                      probe    the last and what is sent for it
//                                                               first
//
// Ends with one line of JSON. An error ends the program with its name and status 1.

#include <linux/tcp.h>
#include <netinet/in.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/integrity/endpoint.h"
#include "tools/relay/mark.h"

namespace {

using endpoint::fail;
using endpoint::must;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr auto kSlot = std::chrono::milliseconds(100);
constexpr size_t kSegment = 1448;  // MTU 1500, IPv4, time stamps

int listening(const endpoint::Address& address) {
  const int fd = endpoint::bound(address, SOCK_STREAM);
  must(listen(fd, 64), "listen");
  return fd;
}

/// With CUBIC, whatever the host's default is.
int connected(const endpoint::Address& address) {
  const int fd = must(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  constexpr std::string_view kName = "cubic";
  must(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kName.data(), kName.size()), "TCP_CONGESTION");
  must(connect(fd, address.get(), address.size), "connect");
  return fd;
}

template <class T>
std::string list(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& v : values) text += (text.size() == 1 ? "" : ",") + std::to_string(v);
  return text + "]";
}

// ---- goodput

/// Bytes by slots since the first byte. An end by reset is an end.
std::string drain(int fd) {
  std::vector<char> buffer(256 << 10);
  std::vector<uint64_t> slots;
  Clock::time_point start;
  for (;;) {
    const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != ECONNRESET) fail("recv");
    if (n <= 0) break;
    const auto now = Clock::now();
    if (slots.empty()) start = now;
    const auto slot = static_cast<size_t>((now - start) / kSlot);
    if (slots.size() <= slot) slots.resize(slot + 1);
    slots[slot] += static_cast<uint64_t>(n);
  }
  close(fd);
  return list(slots);
}

void sink(const endpoint::Address& address, unsigned connections) {
  const int listener = listening(address);
  std::vector<std::string> results(connections);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < connections; ++i) {
    const int fd = must(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), "accept");
    threads.emplace_back([fd, &result = results[i]] { result = drain(fd); });
  }
  for (std::thread& t : threads) t.join();
  std::string text;
  for (const std::string& r : results) text += (text.empty() ? "" : ",") + r;
  std::printf("{\"slot_s\":%g,\"connections\":[%s]}\n", Seconds(kSlot).count(), text.c_str());
}

/// What the sender's TCP does, for the eye.
void trace(const std::vector<int>& fds, const char* path, const std::atomic<bool>& over) {
  FILE* const out = std::fopen(path, "we");
  if (out == nullptr) fail(path);
  std::fputs(
      "s,connection,cwnd,ssthresh,rtt_us,min_rtt_us,unacked,sacked,lost,retrans,total_retrans,"
      "state,notsent,delivery_Mbit\n",
      out);
  const auto start = Clock::now();
  for (; !over; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
    for (size_t i = 0; i < fds.size(); ++i) {
      tcp_info info{};
      socklen_t size = sizeof info;
      if (getsockopt(fds[i], IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
      std::fprintf(out, "%.3f,%zu,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%.1f\n",
                   Seconds(Clock::now() - start).count(), i, info.tcpi_snd_cwnd,
                   info.tcpi_snd_ssthresh, info.tcpi_rtt, info.tcpi_min_rtt, info.tcpi_unacked,
                   info.tcpi_sacked, info.tcpi_lost, info.tcpi_retrans, info.tcpi_total_retrans,
                   info.tcpi_ca_state, info.tcpi_notsent_bytes,
                   static_cast<double>(info.tcpi_delivery_rate) * 8e-6);
    }
  }
  std::fclose(out);
}

void source(const endpoint::Address& address, unsigned connections, double seconds,
            const char* path) {
  std::vector<int> fds;
  for (unsigned i = 0; i < connections; ++i) {
    fds.push_back(connected(address));
    // What is left at the end is not sent: a slow path would take long for it.
    const linger reset{1, 0};
    must(setsockopt(fds.back(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), "SO_LINGER");
    const timeval patience{1, 0};
    must(setsockopt(fds.back(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience),
         "SO_SNDTIMEO");
  }
  std::atomic<bool> over{false};
  std::thread tracer;
  if (path != nullptr) tracer = std::thread([&] { trace(fds, path, over); });
  const auto end = Clock::now() + Seconds(seconds);
  std::vector<std::thread> threads;
  for (const int fd : fds) {
    threads.emplace_back([fd, end] {
      const std::vector<char> buffer(128 << 10);
      while (Clock::now() < end) {
        if (send(fd, buffer.data(), buffer.size(), MSG_NOSIGNAL) < 0 && errno != EINTR &&
            errno != EAGAIN)
          fail("send");
      }
    });
  }
  for (std::thread& t : threads) t.join();
  over = true;
  if (tracer.joinable()) tracer.join();
  std::vector<uint32_t> again;
  for (const int fd : fds) {
    tcp_info info{};
    socklen_t size = sizeof info;
    must(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), "TCP_INFO");
    again.push_back(info.tcpi_total_retrans);
    close(fd);
  }
  std::printf("{\"retransmissions\":%s}\n", list(again).c_str());
}

// ---- recovery

bool read_all(int fd, std::span<char> to) {
  for (size_t have = 0; have < to.size();) {
    const ssize_t n = recv(fd, to.data() + have, to.size() - have, 0);
    if (n < 0 && errno != EINTR) fail("recv");
    if (n == 0) return false;
    if (n > 0) have += static_cast<size_t>(n);
  }
  return true;
}

void write_all(int fd, std::span<const char> from) {
  while (!from.empty()) {
    const ssize_t n = send(fd, from.data(), from.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) fail("send");
    if (n > 0) from = from.subspan(static_cast<size_t>(n));
  }
}

void no_delay(int fd) {
  const int on = 1;
  must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
}

void answer(const endpoint::Address& address, unsigned connections) {
  const int listener = listening(address);
  std::vector<char> buffer(1 << 20);
  for (unsigned i = 0; i < connections; ++i) {
    const int fd = must(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), "accept");
    no_delay(fd);
    for (uint32_t bytes = 0; read_all(fd, {reinterpret_cast<char*>(&bytes), sizeof bytes});) {
      if (bytes < sizeof bytes || bytes > buffer.size()) fail("length of a burst");
      if (!read_all(fd, std::span(buffer).first(bytes - sizeof bytes))) fail("end in a burst");
      write_all(fd, std::span(buffer).first(1));
    }
    close(fd);
  }
  std::printf("{\"connections\":%u}\n", connections);
}

struct Loss {
  uint32_t times;
  size_t at;  ///< byte of the burst
  uint32_t segments = 10;
};

Loss loss_of(std::string_view name) {
  constexpr size_t kMiddle = 4 * kSegment + 600;
  constexpr size_t kTail = 10 * kSegment - sizeof(relay::Mark);
  if (name == "middle") return {1, kMiddle};
  if (name == "again") return {2, kMiddle};
  if (name == "tail") return {1, kTail};
  if (name == "odd") return {1, kTail + kSegment, 11};
  if (name == "probe") return {2, kTail};
  std::fprintf(stderr, "no such case: %.*s\n", static_cast<int>(name.size()), name.data());
  std::exit(2);
}

/// @return how long until the answer, in microseconds.
double round_trip(int fd, std::span<const char> burst) {
  std::array<char, 1> reply;
  const auto start = Clock::now();
  write_all(fd, burst);
  if (!read_all(fd, reply)) fail("the answer");
  return Seconds(Clock::now() - start).count() * 1e6;
}

void burst(const endpoint::Address& address, unsigned connections, std::string_view name) {
  const Loss loss = loss_of(name);
  const auto bytes = static_cast<uint32_t>(loss.segments * kSegment);
  std::vector<char> clean(bytes);
  std::memcpy(clean.data(), &bytes, sizeof bytes);  // each burst begins with its length
  std::vector<double> unharmed;
  std::vector<double> harmed;
  auto number = static_cast<uint32_t>(Clock::now().time_since_epoch().count());
  for (unsigned i = 0; i < connections; ++i) {
    const int fd = connected(address);
    no_delay(fd);
    double last = 0;
    for (int k = 0; k < 3; ++k) last = round_trip(fd, clean);
    unharmed.push_back(last);
    const relay::Mark mark{.times = loss.times, .number = ++number};
    std::vector<char> marked = clean;
    std::memcpy(marked.data() + loss.at, &mark, sizeof mark);
    harmed.push_back(round_trip(fd, marked));
    close(fd);
  }
  std::printf("{\"unharmed_us\":%s,\"harmed_us\":%s}\n", list(unharmed).c_str(),
              list(harmed).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "";
  const bool is_longer = role == "source" || role == "burst";
  if (argc < (is_longer ? 6 : 5)) {
    std::fprintf(stderr,
                 "usage: flow sink|answer ADDRESS PORT CONNECTIONS\n"
                 "       flow source ADDRESS PORT CONNECTIONS SECONDS [FILE]\n"
                 "       flow burst ADDRESS PORT CONNECTIONS middle|again|tail|odd|probe\n");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  const endpoint::Address address(argv[2], argv[3]);
  const auto connections = static_cast<unsigned>(std::atoi(argv[4]));
  if (role == "sink")
    sink(address, connections);
  else if (role == "source")
    source(address, connections, std::atof(argv[5]), argc > 6 ? argv[6] : nullptr);
  else if (role == "answer")
    answer(address, connections);
  else
    burst(address, connections, argv[5]);
  return 0;
}
