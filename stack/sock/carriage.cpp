// Carried or not: the checks that need no device, and the record of the decision.
#include "stack/sock/carriage.h"

#include "core/carriage.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "stack/sock/calls.h"
#include "stack/sock/options/table.h"
#include "stack/sock/stack.h"
#include "stack/sock/uring.h"

namespace vireo {
namespace {

/// Programs that wait for a connection and leave it, not yet accepted, to another program.
bool activates_others(std::string_view program) noexcept {
  constexpr std::string_view kThey[] = {"systemd", "systemd-socket-activate", "inetd", "xinetd"};
  return std::ranges::find(kThey, program) != std::end(kThey);
}

}  // namespace

Carried<void> may_carry(Stack& stack, Role role, Forced forced, const Endpoint& local,
                        const Endpoint& remote) {
  const Settings& s = stack.settings();
  const bool is_wanted = s.offloaded_sockets || forced.why == Carriage::kCarried;
  if (!is_wanted || s.device == DeviceChoice::kOff)
    return std::unexpected(Refusal{Carriage::kDisabled, 0, "switched off"});
  if (forced.to_kernel()) return std::unexpected(refusal_of(forced, "socket"));
  if (sock::has_ring()) return std::unexpected(Refusal{Carriage::kOption, 0, "io_uring"});
  if (stack.rules().lookup(stack.program(), s.application_id, role, local, remote) ==
      Transport::kKernel)
    return std::unexpected(Refusal{Carriage::kRule, 0, "rules file"});
  if (role == Role::kTcpServer && activates_others(stack.program()))
    return std::unexpected(Refusal{Carriage::kInherited, 0, "socket activation"});
  const bool client =
      role == Role::kTcpClient || role == Role::kUdpConnect || role == Role::kUdpSender;
  if (client && (remote.addr.is_loopback() || remote.addr.is_unspecified()))
    return std::unexpected(Refusal{Carriage::kLoopback, 0, "loopback"});
  if (client && remote.addr.is_limited_broadcast())
    return std::unexpected(Refusal{Carriage::kBroadcast, 0, "broadcast"});
  if (local.addr.is_loopback())
    return std::unexpected(Refusal{Carriage::kLoopback, 0, "bound to loopback"});
  return {};
}

Refusal refusal_of(Forced forced, const char* by) noexcept {
  const SocketOption* const option =
      forced.why == Carriage::kOption ? option_of(forced.option) : nullptr;
  return {forced.why, 0, option != nullptr ? option->text : by};
}

void record_address(SocketStats& s, const Endpoint& local, const Endpoint& remote) {
  // Odd while the slot changes: see stats_layout.h. unlisted() (generation 0) is never read.
  const uint32_t g = s.generation.load(std::memory_order_relaxed);
  if (g == 0) return;
  s.generation.store(g + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // pairs with the reader's acquire fence
  std::memcpy(s.local_addr, local.addr.bytes().data(), 16);
  std::memcpy(s.remote_addr, remote.addr.bytes().data(), 16);
  s.local_port = local.port;
  s.remote_port = remote.port;
  s.generation.store(g + 2, std::memory_order_release);
}

namespace {

void record(SocketStats& s, const Refusal& r, const Engine* e = nullptr) {
  const uint32_t g = s.generation.load(std::memory_order_relaxed);
  if (g == 0) return;
  s.generation.store(g + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // as above
  s.carriage = r.why;
  s.err = r.err;
  s.ring = e == nullptr ? uint8_t{0} : static_cast<uint8_t>(e->id().value());
  std::strncpy(s.detail, r.where, sizeof s.detail - 1);
  s.generation.store(g + 2, std::memory_order_release);
}

}  // namespace

void record_carried(File& f, const Endpoint& local, const Endpoint& remote) {
  record(*f.stats, {Carriage::kCarried, 0, ""}, f.engine.load(std::memory_order_relaxed));
  record_address(*f.stats, local, remote);
  f.stack->host_filter().say_if_unread();
  f.stack->counters().count_carried();
}

void record_kernel(File& f, const Refusal& why) {
  record(*f.stats, why);
  f.stack->counters().count_kernel(why);
}

}  // namespace vireo
