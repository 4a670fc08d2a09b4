// Many idle connections as a program has them: through the socket layer's accept(), so that all
// that Vireo keeps for one is counted. Memory of each, time to make one, what an echo on one of
// them costs. VIREO_SCALE=1000000 chooses the number; 16 000 by default. Not more than the hard
// RLIMIT_NOFILE, or fs.nr_open for root: a carried connection has a number of the kernel's, which
// is a dup of one socket, eight bytes and two bits of the kernel's memory.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <vector>

#include "stack/sock/calls.h"
#include "stack/sock/stack.h"
#include "stack/wire/parse.h"
#include "tests/apparatus/mem/mem_link.h"
#include "tests/scale/meters.h"
#include "tests/scale/steps.h"
#include "tests/unit/engine/host.h"
#include "tests/unit/engine/tables.h"

namespace vireo::test {
namespace {

/// All that is kept for one: its flow, its place in the demux, its File, its descriptor's slot.
constexpr double kMaxBytes = 1023;
constexpr uint16_t kPort = 4080;

/// A Stack whose one interface is a MemLink; what a peer says and hears is made by hand.
class Server {
 public:
  Server() : link_(1, {}, {}, clock_), stack_(parts()) {
    const auto engine = stack_.engine();
    VIREO_ASSERT(engine.has_value());
    engine_ = *engine;
    stack_.mirror()->store().publish(tables({}));
    auto fd = sock::socket(stack_, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    VIREO_ASSERT(fd.has_value());
    fd_ = *fd;
    const int on = 1;
    EXPECT_TRUE(sock::setsockopt(listener(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(kPort);
    EXPECT_TRUE(sock::bind(listener(), reinterpret_cast<sockaddr*>(&at), sizeof at));
    EXPECT_TRUE(sock::listen(listener(), 16));
    EXPECT_EQ(listener()->mode.load(), Mode::kListening);
  }
  ~Server() { (void)sock::close(listener()); }

  Engine& engine() { return *engine_; }
  int accept() {
    const auto fd = sock::accept(listener(), nullptr, nullptr, 0);
    return fd ? *fd : -fd.error().code;
  }
  /// The engine hears it if `turn`.
  void say(std::span<const std::byte> frame, bool turn = true) {
    link_.inject(MemEnd::kB, frame);
    link_.step(Clock::now());
    if (!turn) return;
    this->turn();
  }
  void turn() {
    sock::poll_engine(*engine_);
    link_.step(Clock::now());
  }
  /// Until nothing is due soon: the timers of handshakes, which are over, are looked at once.
  void settle() {
    const Instant end = Clock::now() + Duration::s(20);
    do turn();
    while (engine_->next_deadline() < Clock::now() + Duration::ms(500) && Clock::now() < end);
  }
  std::vector<std::vector<std::byte>> heard() {
    link_.step(Clock::now());
    return std::exchange(link_.kernel_frames(MemEnd::kB), {});
  }

 private:
  Handle listener() const { return fd_table().find(fd_); }
  Stack::Parts parts() {
#define X(call) g_libc.call = ::call;
    VIREO_LIBC_CALLS(X)
#undef X
    Settings s;
    s.config_file = "/dev/null";
    s.stats_dir = "";
    s.rx_poll = 0;
    s.arena_bytes = Bytes(16 << 20);
    s.mem_alloc_type = MemAlloc::kAnonymous;
    DeviceOpener opener = [this](const net::Link&, Arena&) -> Carried<std::unique_ptr<Device>> {
      return link_.release(MemEnd::kA);
    };
    return {s, std::move(opener), false};
  }

  VirtualClock clock_{Clock::now()};
  MemLink link_;
  Stack stack_;
  Engine* engine_ = nullptr;
  int fd_ = -1;
};

/// One out there, by its number.
struct Caller {
  explicit Caller(uint32_t n)
      : here{IpAddr::v4(be32(0x0b000000 + n / 50'000)), static_cast<uint16_t>(1024 + n % 50'000),
             0},
        iss(n * 2654435761u) {}
  Endpoint here;
  Endpoint there{ip("10.0.0.1"), kPort, 0};
  Seq32 iss;

  std::vector<uint8_t> timestamps(uint32_t echo) const {
    std::array<uint8_t, 40> out{};
    wire::TcpOptionWriter w(out);
    w.timestamps(5'000'000, echo);
    return {out.begin(), out.begin() + w.size()};
  }
};

/// What a caller must know to speak again.
struct Idle {
  int fd = -1;
  Seq32 irs;
  uint32_t clock = 0;
};

Idle connect(Server& s, uint32_t n) {
  const Caller c(n);
  std::vector<uint8_t> options{2, 4, 5, 180, 1, 1, 4, 2};
  const auto ts = c.timestamps(0);
  options.insert(options.end(), ts.begin(), ts.end());
  options.insert(options.end(), {1, 3, 3, 7});
  s.say(tcp_frame(c.here, c.there, kSyn, c.iss, Seq32(0), {.options = options}));
  Idle idle;
  for (const auto& bytes : s.heard()) {
    const wire::ParsedFrame f = wire::parse_frame(bytes);
    if (!f || f.proto != IpProto::kTcp) continue;
    idle.irs = f.tcp().seq();
    idle.clock = wire::parse_tcp_options(f.tcp().options(), true).ts_val;
  }
  s.say(tcp_frame(c.here, c.there, kAck, c.iss + 1, idle.irs + 1,
                  {.options = c.timestamps(idle.clock)}));
  idle.fd = s.accept();
  return idle;
}

/// A byte there and back on a connection that was not used before. @return instructions of the
/// calls of the program's that did it.
uint64_t echo(Server& s, uint32_t n, const Idle& idle) {
  const Caller c(n);
  s.say(tcp_frame(c.here, c.there, kAck | kPsh, c.iss + 1, idle.irs + 1,
                  {.data = "x", .options = c.timestamps(idle.clock)}),
        false);
  const Handle h = fd_table().find(idle.fd);
  char byte = 0;
  const iovec v{&byte, 1};
  begin_steps();
  const auto got = sock::recv(h, {&v, 1}, 0);
  const auto sent = sock::send(h, {&v, 1}, 0);
  const uint64_t steps = end_steps();
  EXPECT_TRUE(got && *got == 1 && byte == 'x');
  EXPECT_TRUE(sent && *sent == 1);
  const auto heard = s.heard();
  EXPECT_FALSE(heard.empty());
  if (!heard.empty()) {
    const wire::ParsedFrame f = wire::parse_frame(heard.back());
    EXPECT_EQ(f.payload().size(), 1U);
  }
  s.say(tcp_frame(c.here, c.there, kAck, c.iss + 2, idle.irs + 2,
                  {.options = c.timestamps(idle.clock)}));
  return steps;
}

uint64_t median(std::vector<uint64_t> v) {
  std::ranges::nth_element(v, v.begin() + static_cast<ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

/// Room for so many descriptors, or fewer. @return for how many there is.
uint32_t make_room(uint32_t wish) {
  constexpr uint32_t kOthers = 256;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  uint64_t most = limit.rlim_max;
  std::ifstream("/proc/sys/fs/nr_open") >> most;
  for (const uint64_t hard : {most, uint64_t{limit.rlim_max}}) {
    const rlimit room{hard, hard};
    if (::setrlimit(RLIMIT_NOFILE, &room) != 0) continue;
    return static_cast<uint32_t>(std::min<uint64_t>(wish, hard - kOthers));
  }
  return 0;
}

TEST(Scale, IdleSockets) {
  const uint32_t count = make_room(scale(16'000));
  ASSERT_GE(count, 512U);
  Server server;
  Engine& e = server.engine();
  std::vector<Idle> idle(count);  // zeroed, so resident already
  for (uint32_t n = 0; n < 64; ++n) {
    idle[n] = connect(server, n);
    ASSERT_GE(idle[n].fd, 0);
  }
  server.settle();  // idle for as long as the others will be
  std::vector<uint64_t> few;
  for (uint32_t n = 0; n < 9; ++n) few.push_back(echo(server, n, idle[n]));
  server.settle();
  const uint32_t frames = e.pool().free_count();  // the rest is in the device's rings
  ASSERT_TRUE(fd_table().find(idle[0].fd)->is_carried());
  const size_t heap_before = heap(), resident_before = resident();
  const int64_t start = cpu_ns();
  for (uint32_t n = 64; n < count; ++n) {
    idle[n] = connect(server, n);
    ASSERT_GE(idle[n].fd, 0) << n;
  }
  const double made = count - 64;
  const double us = static_cast<double>(cpu_ns() - start) / 1e3 / made;
  const double mapped = sizeof(File) + sizeof(uint64_t);  // FdTable's two arrays, not of the heap
  const double bytes = static_cast<double>(heap() - heap_before) / made + mapped;
  const double pages = static_cast<double>(resident() - resident_before) / made;
  server.settle();
  EXPECT_EQ(e.census().connections, count);
  EXPECT_EQ(e.pool().free_count(), frames) << "an idle connection has a buffer";

  std::vector<uint64_t> many;
  for (uint32_t i = 0; i < 9; ++i) {
    const uint32_t n = 64 + i * ((count - 64) / 9);
    many.push_back(echo(server, n, idle[n]));
  }
  std::printf(
      "%u accepted sockets: %.0f bytes each (%.0f resident), %.2f us to make one with its peer; an "
      "echo is %lu instructions, %lu among few\n",
      count, bytes, pages, us, median(many), median(few));
  EXPECT_LE(bytes, kMaxBytes);
  if (kIsMeasured) {
    EXPECT_LE(pages, 1.03 * kMaxBytes) << "whole pages, and the gaps between blocks";
    EXPECT_LE(static_cast<double>(median(many)), 1.1 * static_cast<double>(median(few)));
  }

  const linger hard{1, 0};  // a reset, so that nothing waits for the peer
  for (const Idle& i : idle) {
    const Handle h = fd_table().find(i.fd);
    EXPECT_TRUE(sock::setsockopt(h, SOL_SOCKET, SO_LINGER, &hard, sizeof hard));
    EXPECT_TRUE(sock::close(h));
    if (i.fd % 64 == 0) server.turn();
    (void)server.heard();
  }
  server.settle();
  EXPECT_EQ(e.census(), (Census{.listeners = 1, .demux_keys = e.census().demux_keys}));
  EXPECT_EQ(e.pool().free_count(), frames);
}

}  // namespace
}  // namespace vireo::test
