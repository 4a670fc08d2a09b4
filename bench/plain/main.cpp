// Programs of plain sockets for bench/run: either side of each measurement, with no word of the
// stack beneath. Prints one line of JSON at its end; servers end by SIGTERM.
//
//   plain CASE server|client ADDRESS PORT [--NAME VALUE]...
//   plain exec [NAME=VALUE]... -- COMMAND...     as env(1), and notes when: for the case `first`
#include <arpa/inet.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "sockets.h"

namespace plain {
namespace {

using Case = void (*)(const Options&);
constexpr std::pair<std::string_view, Case> kCases[] = {
    {"round_trip", round_trip}, {"stream", stream}, {"datagrams", datagrams},
    {"connects", connects},     {"echo", echo},     {"messages", messages},
    {"paced", paced},           {"first", first},
};
constexpr std::pair<std::string_view, Way> kWays[] = {
    {"block", Way::kBlock},   {"spin", Way::kSpin},   {"poll", Way::kPoll},
    {"select", Way::kSelect}, {"epoll", Way::kEpoll},
};

[[noreturn]] void usage() {
  std::fprintf(
      stderr,
      "usage: plain CASE server|client ADDRESS PORT [--proto tcp|udp] [--way WAY] [--seconds S]\n"
      "         [--size BYTES] [--batch N] [--count N] [--ports N] [--rate PER_SECOND]\n"
      "         [--no-delay 1] [--sizes FILE] [--seed N]\n"
      "       plain exec [NAME=VALUE]... -- COMMAND...\n"
      "  CASE:");
  for (const auto& [name, function] : kCases) std::fprintf(stderr, " %s", name.data());
  std::fprintf(stderr, "\n  WAY: ");
  for (const auto& [name, way] : kWays) std::fprintf(stderr, " %s", name.data());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

template <class T, size_t N>
T named(const std::pair<std::string_view, T> (&table)[N], std::string_view wanted) {
  for (const auto& [name, value] : table)
    if (name == wanted) return value;
  usage();
}

uint32_t number(const char* text) {
  char* end = nullptr;
  const unsigned long v = std::strtoul(text, &end, 10);
  if (*text == '\0' || *end != '\0' || v > 1U << 30) usage();
  return static_cast<uint32_t>(v);
}

Options parse(int argc, char** argv) {
  if (argc < 5 || argc % 2 == 0) usage();
  Options o;
  o.name = argv[1];
  const std::string_view role = argv[2];
  if (role != "server" && role != "client") usage();
  o.is_server = role == "server";
  o.address.sin_family = AF_INET;
  o.address.sin_port = htons(static_cast<uint16_t>(number(argv[4])));
  if (inet_pton(AF_INET, argv[3], &o.address.sin_addr) != 1) usage();
  for (int i = 5; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--proto") {
      o.tcp = std::string_view(value) != "udp";
    } else if (name == "--way") {
      o.way = named(kWays, value);
    } else if (name == "--seconds") {
      o.seconds = std::atof(value);
    } else if (name == "--size") {
      o.size = number(value);
    } else if (name == "--batch") {
      o.batch = number(value);
    } else if (name == "--count") {
      o.count = number(value);
    } else if (name == "--ports") {
      o.ports = number(value);
    } else if (name == "--rate") {
      o.rate = std::atof(value);
    } else if (name == "--no-delay") {
      o.no_delay = number(value) != 0;
    } else if (name == "--sizes") {
      o.sizes = value;
    } else if (name == "--seed") {
      o.seed = number(value);
    } else {
      usage();
    }
  }
  if (o.size == 0 || o.count == 0 || o.batch == 0 || o.batch > 1024 || o.ports == 0) usage();
  return o;
}

[[noreturn]] void exec(char** argument) {
  for (; *argument != nullptr && std::string_view(*argument) != "--"; ++argument)
    if (putenv(*argument) != 0) fail("putenv");
  if (*argument == nullptr || argument[1] == nullptr) usage();
  setenv("PLAIN_EXEC_NS", std::to_string(monotonic_ns()).c_str(), 1);
  execvp(argument[1], argument + 1);
  fail(argument[1]);
}

}  // namespace
}  // namespace plain

int main(int argc, char** argv) {
  using namespace plain;
  if (argc > 1 && std::string_view(argv[1]) == "exec") exec(argv + 2);
  const Options o = parse(argc, argv);
  struct sigaction action{};  // no SA_RESTART: a blocked call must return
  action.sa_handler = [](int) { g_stop = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  named(kCases, o.name)(o);
  return 0;
}
