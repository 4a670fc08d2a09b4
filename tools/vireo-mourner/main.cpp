// vireo-mourner: makes the kernel reset the connections of a killed program.
// Started by libvireo.so with the first carried TCP connection of a process (stack/sock/mourner.h
// describes what it keeps open); not meant to be started by users. Descriptors: 0 a pipe that ends
// with the program, 1 its last will, 2 and 3 raw sockets for IPv4 and IPv6.
#include <linux/capability.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/clock.h"
#include "core/last_will.h"
#include "tools/vireo-mourner/has_xdp.h"
#include "tools/vireo-mourner/probe.h"

namespace vireo {
namespace {

constexpr RawSockets kSockets{.v4 = 2, .v6 = 3};

/// Probes per peer, as probes and answers can be lost.
constexpr unsigned kRounds = 3;
/// Linux answers such segments of a connection once in 500 ms (net.ipv4.tcp_invalid_ratelimit).
constexpr Duration kBetweenRounds = Duration::ms(550);
/// At most 256 per millisecond: 100 000 connections take a second or two, and no peer or switch is
/// flooded.
constexpr unsigned kBurst = 256;
constexpr Duration kBetweenBursts = Duration::ms(1);
/// Time for the kernel to detach the steering program, which it does when it ends the process.
constexpr Duration kXdpPatience = Duration::ms(500);

void sleep_for(Duration d) {
  const timespec t{d.s(), d.ns() % 1'000'000'000};
  ::nanosleep(&t, nullptr);
}

void drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2]{};
  ::syscall(SYS_capset, &header, none);
}

/// @return false: descriptor 0 is not usable; the library did not start us.
bool await_end() {
  for (;;) {
    pollfd p{0, 0, 0};
    if (::poll(&p, 1, -1) < 0 && errno != EINTR) return false;
    if ((p.revents & POLLNVAL) != 0) return false;
    if ((p.revents & (POLLHUP | POLLERR)) != 0) return true;
  }
}

const LastWill* read_will() {
  struct stat s;
  if (::fstat(1, &s) != 0 || s.st_size < static_cast<off_t>(sizeof(LastWill))) return nullptr;
  void* at = ::mmap(nullptr, sizeof(LastWill), PROT_READ, MAP_SHARED | MAP_NORESERVE, 1, 0);
  if (at == MAP_FAILED) return nullptr;
  const auto* will = static_cast<const LastWill*>(at);
  return will->magic == kLastWillMagic ? will : nullptr;
}

bool any_open(const LastWill& will, uint32_t used) {
  for (uint32_t i = 0; i < used; ++i)
    if (will.entries[i].open.load(std::memory_order_acquire) != 0) return true;
  return false;
}

void await_xdp_gone(const LastWill& will) {
  const Instant until = Clock::now_from_kernel() + kXdpPatience;
  for (const auto& port : will.ports) {
    const uint32_t ifindex = port.load(std::memory_order_acquire);
    while (ifindex != 0 && has_xdp(ifindex) && Clock::now_from_kernel() < until)
      sleep_for(Duration::ms(2));
  }
}

void ask_all(const LastWill& will, uint32_t used, unsigned round) {
  unsigned in_burst = 0;
  for (uint32_t i = 0; i < used; ++i) {
    const LastWillEntry& e = will.entries[i];
    if (e.open.load(std::memory_order_acquire) == 0) continue;
    const bool is_sent = send_probe(kSockets, e, round, Clock::now_from_kernel());
    if (is_sent && ++in_burst < kBurst) continue;
    sleep_for(kBetweenBursts);
    in_burst = 0;
    if (!is_sent) (void)send_probe(kSockets, e, round, Clock::now_from_kernel());
  }
}

int mourn() {
  drop_capabilities();
  if (!await_end()) return 2;
  const LastWill* will = read_will();
  if (will == nullptr) return 2;
  const uint32_t used = std::min(will->used.load(std::memory_order_acquire), kLastWillEntries);
  if (!any_open(*will, used)) return 0;
  await_xdp_gone(*will);
  for (unsigned round = 0; round < kRounds; ++round) {
    const Instant start = Clock::now_from_kernel();
    ask_all(*will, used, round);
    const Duration took = Clock::now_from_kernel() - start;
    if (round + 1 < kRounds && took < kBetweenRounds) sleep_for(kBetweenRounds - took);
  }
  return 0;
}

}  // namespace
}  // namespace vireo

int main() { return vireo::mourn(); }
