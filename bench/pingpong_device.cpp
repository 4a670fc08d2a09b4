// Bare frames between two AF_XDP queues, or the two ends of a shared-memory wire: what the wire,
// the kernel's XDP path and our rings cost without any protocol. The yardstick for everything built
// on top.
//
//   pingpong_device pair               both ends over a veth pair of its own; needs root
//   pingpong_device server --if vb1 --local 10.0.0.2 --remote 10.0.0.1
//   pingpong_device client --if vb0 --local 10.0.0.1 --remote 10.0.0.2
//   pingpong_device sink|source ...    the same, one way (device_stream.cpp)
//   pingpong_device connect-server|connect-client ...    as connections (device_connects.cpp)
//   with --shm NAME in the place of --if
//
// Each end polls on a core of its own; the client prints the round-trip times in nanoseconds.
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/plain/histogram.h"
#include "device_end.h"

namespace vireo::bench {
namespace {

/// What a protocol knows of its connections: lines of the cache that the frame's are changed in.
class Connections {
 public:
  explicit Connections(const Options& o)
      : open_(o.open), lines_(o.lines), lines_of_all_(size_t{o.open} * o.lines) {}
  /// The connection of a frame, by its number: another one mostly than that of the frame before.
  void change(uint32_t frame) {
    const size_t connection = (uint64_t{frame * 0x9e3779b1U} * open_) >> 32;
    for (Line& l : std::span(lines_of_all_).subspan(connection * lines_, lines_)) ++l.word;
  }

 private:
  struct alignas(64) Line {
    uint64_t word = 0;
  };
  uint32_t open_, lines_;
  std::vector<Line> lines_of_all_;
};

void serve(const Options& o) {
  pin(o.cpu);
  Connections connections(o);
  End end(o, frames_flow(o));
  Queue& q = *end.queue;
  fmt::print(stderr, "ready\n");
  RxDesc in[16];
  uint32_t idle = 0;
  while (g_stop == 0) {
    const unsigned n = q.rx_burst(in);
    if (n == 0) {
      if ((++idle & 0xffff) == 0 && !q.alive()) break;
      continue;
    }
    for (RxDesc& d : std::span(in).first(n)) {
      auto* f = reinterpret_cast<Frame*>(d.packet->data());
      connections.change(f->number);
      std::swap(f->to_mac, f->from_mac);
      std::swap(f->from, f->to);
      std::swap(f->from_port, f->to_port);
      const PacketSlice all{d.packet.get(), d.packet->data_at, d.packet->length};
      while (!q.tx({{}, {&all, 1}}, Doorbell::kNow)) q.tx_reap();
      d.packet.reset();
    }
    q.tx_reap();
    q.rx_refill();
  }
}

struct Times {
  std::vector<uint32_t> ns;
  uint64_t lost = 0;
};

void print(const Options& o, std::string_view mode, Times& t) {
  if (t.ns.empty()) die("no answer at all");
  plain::Histogram histogram;
  for (const uint32_t v : t.ns) histogram.add(v);
  std::sort(t.ns.begin(), t.ns.end());
  uint64_t sum = 0;
  for (const uint32_t v : t.ns) sum += v;
  const auto at = [&](double share) {
    return t.ns[static_cast<size_t>(share * static_cast<double>(t.ns.size() - 1))];
  };
  if (o.json) {
    fmt::print(
        "{{\"bench\":\"pingpong_device\",\"mode\":\"{}\",\"frame_bytes\":{},\"count\":{},\"lost\":{"
        "},\"min_ns\":{},"
        "\"mean_ns\":{},\"median_ns\":{},\"p99_ns\":{},\"p999_ns\":{},\"max_ns\":{},",
        mode, o.size, t.ns.size(), t.lost, t.ns.front(), sum / t.ns.size(), at(0.5), at(0.99),
        at(0.999), t.ns.back());
    std::fflush(stdout);
    histogram.print("round_trip", 1);
    std::printf("}\n");
  } else {
    fmt::print(
        "{}, {} B, {} round trips, {} lost: min {} mean {} median {} p99 {} p99.9 {} max {} ns\n",
        mode, o.size, t.ns.size(), t.lost, t.ns.front(), sum / t.ns.size(), at(0.5), at(0.99),
        at(0.999), t.ns.back());
  }
}

void ping(const Options& o) {
  pin(o.cpu);
  Clock::calibrate();
  End end(o, frames_flow(o));
  Queue& q = *end.queue;

  std::vector<std::byte> bytes(o.size);
  auto* f = new (bytes.data()) Frame(frame_to_peer(o));

  Connections connections(o);
  Times times;
  times.ns.reserve(o.count);
  RxDesc in[16];
  const Duration patience = Duration::ms(200);
  uint32_t lost_in_a_row = 0;
  // The time runs from the first answer: a queue that was just opened may lose a frame.
  const Duration whole = Duration::us(static_cast<int64_t>(o.seconds * 1e6));
  Instant warm = Instant::never(), over = Instant::never();
  const auto is_over = [&] {
    return o.seconds > 0 ? Clock::now() >= over : times.ns.size() >= o.count;
  };
  for (uint32_t i = 0; !is_over(); ++i) {
    f->number = i;
    const Instant start = Clock::now();
    connections.change(i);
    while (!q.tx({bytes, {}}, Doorbell::kNow)) q.tx_reap();
    std::optional<Duration> took;
    bool late = false;
    while (!took && !late) {
      const unsigned n = q.rx_burst(in);
      if (n == 0) {
        late = Clock::now() - start > patience;
        continue;
      }
      const Instant now = Clock::now();
      for (RxDesc& d : std::span(in).first(n)) {
        const auto* r = reinterpret_cast<const Frame*>(d.packet->data());
        if (d.packet->length == o.size && uint32_t{r->number} == i) took = now - start;
        d.packet.reset();
      }
    }
    q.tx_reap();
    q.rx_refill();
    if (!took) {
      ++times.lost;
      if (++lost_in_a_row == 50) die("no answer: is the server there?");
      continue;
    }
    lost_in_a_row = 0;
    if (over == Instant::never()) {
      warm = start + whole / 10;
      over = start + whole;
    }
    if (o.seconds > 0 ? start >= warm : i >= o.warmup)
      times.ns.push_back(static_cast<uint32_t>(took->ns()));
  }
  print(o, wire_of(o, end), times);
}

void shell(const std::string& command) {
  if (std::system(command.c_str()) != 0) die(fmt::format("failed: {}", command));
}

/// Both ends, each in a network namespace that ends with its process.
void pair(Options o) {
  if (unshare(CLONE_NEWNET) != 0) die("needs root for a network namespace");
  int entered[2];
  int go[2];
  if (pipe(entered) != 0 || pipe(go) != 0) die("pipe");
  const pid_t parent = getpid();
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || unshare(CLONE_NEWNET) != 0) _exit(1);
    if (write(entered[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) _exit(1);
    shell("ip link set vr-bench-1 up");
    o.ifname = "vr-bench-1";
    std::swap(o.local, o.remote);
    o.cpu = o.peer_cpu;
    serve(o);
  }
  if (child < 0 || read(entered[0], &byte, 1) != 1) die("fork");
  shell(fmt::format(
      "ip link add vr-bench-0 mtu 1500 type veth peer name vr-bench-1 netns {} mtu 1500", child));
  if (write(go[1], &byte, 1) != 1) die("pipe");
  shell("ip link set vr-bench-0 up");
  usleep(300'000);  // the server opens its queue
  o.ifname = "vr-bench-0";
  ping(o);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

[[noreturn]] void usage() {
  fmt::print(
      "pingpong_device pair|server|client|source|sink|connect-server|connect-client\n"
      "  [--peer-cpu N] [--warmup N] [--count N]\n{}",
      kDeviceOptions);
  std::exit(2);
}

}  // namespace
}  // namespace vireo::bench

int main(int argc, char** argv) {
  using namespace vireo::bench;
  if (argc < 2) usage();
  Options o = parse(argc, argv, usage);
  const bool is_stream = o.command == "source" || o.command == "sink";
  if (o.size <= sizeof(Frame) || o.size > (is_stream ? 9014 : 1514))
    die("--size 47 to 1514, of a stream to 9014");
  if (is_stream) o.xdp.rx_frames = o.xdp.tx_frames = 2048;
  if ((is_stream || o.command == "connect-client") && o.seconds <= 0) o.seconds = 1;
  std::signal(SIGTERM, [](int) { g_stop = 1; });
  if (o.command == "pair") {
    pair(o);
  } else if (o.command == "server") {
    serve(o);
  } else if (o.command == "client") {
    ping(o);
  } else if (o.command == "source") {
    source(o);
  } else if (o.command == "sink") {
    sink(o);
  } else if (o.command == "connect-server") {
    connect_server(o);
  } else if (o.command == "connect-client") {
    connect_client(o);
  } else {
    usage();
  }
}
