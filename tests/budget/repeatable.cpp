#include "tests/budget/repeatable.h"

#include <sys/syscall.h>

#include <cstdarg>
#include <cstdlib>
#include <utility>

#include "tests/apparatus/mem/prng.h"

namespace vireo::test {
namespace {

VirtualClock g_clock;

/// As a NIC, and AF_XDP, have it: a frame leaves after the call that sent it, not within.
MemDeviceOptions device() { return {.tx_time = Duration::us(1)}; }

void run(const std::string& command) {
  if (std::system(command.c_str()) != 0)  // NOLINT: a test's own constant commands
    ADD_FAILURE() << command;
}

void (*g_at_next_frame)() = nullptr;

/// The device's own queue, which tells of frames that are handed to it.
class ToldQueue final : public Queue {
 public:
  explicit ToldQueue(std::unique_ptr<Queue> queue) : queue_(std::move(queue)) {}
  Queue& real() { return *queue_; }

  unsigned rx_burst(std::span<RxDesc> out) noexcept override { return queue_->rx_burst(out); }
  RxLevel rx_level() const noexcept override { return queue_->rx_level(); }
  void rx_refill() noexcept override { queue_->rx_refill(); }
  bool tx(const TxFrame& frame, Doorbell bell) noexcept override {
    if (auto* const call = std::exchange(g_at_next_frame, nullptr); call != nullptr) call();
    return queue_->tx(frame, bell);
  }
  void tx_flush() noexcept override { queue_->tx_flush(); }
  unsigned tx_reap() noexcept override { return queue_->tx_reap(); }
  Result<bool> arm() noexcept override { return queue_->arm(); }
  int wait_fd() const noexcept override { return queue_->wait_fd(); }
  bool alive() noexcept override { return queue_->alive(); }

 private:
  std::unique_ptr<Queue> queue_;
};

class ToldDevice final : public Device {
 public:
  explicit ToldDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {
    caps_ = device_->caps();
  }
  Result<std::unique_ptr<Queue>> open_queue(QueueId id, PacketPool& pool) override {
    auto queue = device_->open_queue(id, pool);
    if (!queue) return queue;
    return std::make_unique<ToldQueue>(std::move(*queue));
  }
  Result<FlowRule> steer(const FlowKey& key, FlowTag tag, Queue& to) override {
    return device_->steer(key, tag, static_cast<ToldQueue&>(to).real());
  }

 private:
  void unsteer(uint64_t) noexcept override {}  // rules are the device's own
  std::unique_ptr<Device> device_;
};

std::string mac(int host) { return "02:00:00:00:00:0" + std::to_string(host); }

}  // namespace

MemLink& wire() {
  static MemLink link(1, {}, {}, g_clock, device());
  return link;
}

void pass(Duration d) { wire().step(g_clock.now() + d); }

void at_next_frame(void (*call)()) { g_at_next_frame = call; }

void turn(Host& h) { sock::poll_engine(*h.stack().engine_if_any()); }

Stack::Parts parts_of_host(int which) {
  const int other = 3 - which;
  run("ip link set eth0 address " + mac(which));
  run("ip neigh replace 10.77.0." + std::to_string(other) + " lladdr " + mac(other) +
      " nud permanent dev eth0");
  Settings s;
  s.socketxtreme = true;
  s.config_file = "/dev/null";
  s.arena_bytes = Bytes(16 << 20);
  s.mem_alloc_type = MemAlloc::kAnonymous;
  s.tcp_timewait = Duration::s(1);
  const MemEnd end = which == 1 ? MemEnd::kA : MemEnd::kB;
  return {s,
          [end](const net::Link&, Arena&) -> Carried<std::unique_ptr<Device>> {
            return std::make_unique<ToldDevice>(wire().release(end));
          },
          false};
}

}  // namespace vireo::test

// NOLINTBEGIN: names that the linker makes
extern "C" {

int __real_clock_gettime(clockid_t, timespec*);
int __wrap_clock_gettime(clockid_t clock, timespec* t) {
  if (clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, t);
  const int64_t ns = vireo::test::g_clock.now().ns();
  *t = {ns / 1'000'000'000, ns % 1'000'000'000};
  return 0;
}

/// Clock::calibrate(): left undone, the time is clock_gettime's.
void __wrap__ZN5vireo5Clock9calibrateEv() {}

long __real_syscall(long number, ...);
/// As libc's own it takes six, however many there are.
__attribute__((no_sanitize("address"))) long __wrap_syscall(long number, ...) {
  va_list args;
  va_start(args, number);
  long a[6];
  for (long& x : a) x = va_arg(args, long);
  va_end(args);
  if (number != SYS_getrandom) return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  static vireo::Prng fixed(1);
  auto* bytes = reinterpret_cast<unsigned char*>(a[0]);
  for (long i = 0; i < a[1]; ++i) bytes[i] = static_cast<unsigned char>(fixed.next());
  return a[1];
}
}
// NOLINTEND
