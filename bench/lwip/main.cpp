// lwIP (Debian's library) as a contestant of bench/run: on AF_XDP or on a shared-memory wire, by
// its raw API, which is a library's and no socket's. Prints one line of JSON at its end.
//
//   lwip_end tcp-server|tcp-client|udp-server|udp-client     one message there and back
//   lwip_end connect-server|connect-client                   connect, exchange, close
//   lwip_end tcp-sink|tcp-source|udp-sink|udp-source         one way
#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <utility>

#include "host.h"

namespace {

using vireo::bench::Options;

constexpr std::pair<std::string_view, void (*)(const Options&)> kRoles[] = {
    {"tcp-server", vireo::bench::tcp_server},
    {"tcp-client", vireo::bench::tcp_client},
    {"udp-server", vireo::bench::udp_server},
    {"udp-client", vireo::bench::udp_client},
    {"tcp-sink", vireo::bench::tcp_sink},
    {"tcp-source", vireo::bench::tcp_source},
    {"connect-server", vireo::bench::connect_server},
    {"connect-client", vireo::bench::connect_client},
    {"udp-sink", vireo::bench::udp_sink},
    {"udp-source", vireo::bench::udp_source},
};

[[noreturn]] void usage() {
  fmt::print(stderr, "lwip_end ROLE\n{}  ROLE:", vireo::bench::kDeviceOptions);
  for (const auto& [name, run] : kRoles) fmt::print(stderr, " {}", name);
  fmt::print(stderr, "\n");
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace vireo;
  if (argc < 2) usage();
  Options o = bench::parse(argc, argv, usage);
  if (o.size == 0 || o.seconds <= 0) bench::die("--size and --seconds, above 0");
  o.xdp.rx_frames = o.xdp.tx_frames = 2048;
  std::signal(SIGTERM, [](int) { bench::g_stop = 1; });
  bench::pin(o.cpu);
  Clock::calibrate();
  for (const auto& [name, run] : kRoles)
    if (name == o.command) {
      run(o);
      return 0;
    }
  usage();
}
