// The options of the bare device's programs. Errors: a word to stderr, or usage(), and status 1
// or 2.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "device_end.h"

namespace vireo::bench {
namespace {

uint32_t number(std::string_view text) {
  uint32_t v = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || v > 400'000'000) die(fmt::format("not a number: {}", text));
    v = v * 10 + static_cast<uint32_t>(c - '0');
  }
  return v;
}

XdpMode mode_named(std::string_view text) {
  if (text == "auto") return XdpMode::kAuto;
  if (text == "zerocopy") return XdpMode::kZeroCopy;
  if (text == "native") return XdpMode::kNative;
  if (text == "generic") return XdpMode::kGeneric;
  die("--mode auto|zerocopy|native|generic");
}

IpAddr address(std::string_view text) {
  const auto a = IpAddr::parse(text);
  if (!a || !a->is_v4()) die(fmt::format("not an IPv4 address: {}", text));
  return *a;
}

}  // namespace

Options parse(int argc, char** argv, void (*usage)()) {
  Options o;
  o.command = argv[1];
  if (o.command.ends_with("server") || o.command.ends_with("sink")) std::swap(o.local, o.remote);
  for (int i = 2; i < argc; ++i) {
    const std::string_view name = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 >= argc) usage();
      return argv[++i];
    };
    if (name == "--if") {
      o.ifname = value();
    } else if (name == "--local") {
      o.local = address(value());
    } else if (name == "--remote") {
      o.remote = address(value());
    } else if (name == "--peer-mac") {
      auto& m = o.peer_mac;
      const std::string text(value());
      if (std::sscanf(text.c_str(), "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &m[0], &m[1], &m[2], &m[3],
                      &m[4], &m[5]) != 6)
        die("--peer-mac aa:bb:cc:dd:ee:ff");
    } else if (name == "--size") {
      o.size = number(value());
    } else if (name == "--shm") {
      o.shm = value();
    } else if (name == "--seconds") {
      o.seconds = std::atof(std::string(value()).c_str());
    } else if (name == "--batch") {
      o.batch = std::max(1U, number(value()));
    } else if (name == "--warmup") {
      o.warmup = number(value());
    } else if (name == "--count") {
      o.count = number(value());
    } else if (name == "--cpu") {
      o.cpu = static_cast<int>(number(value()));
    } else if (name == "--peer-cpu") {
      o.peer_cpu = static_cast<int>(number(value()));
    } else if (name == "--mode") {
      o.xdp.mode = mode_named(value());
    } else if (name == "--tags") {
      o.xdp.tags = true;
    } else if (name == "--busy-poll") {
      o.xdp.busy_poll_us = number(value());
    } else if (name == "--copy") {
      o.copy = number(value());
    } else if (name == "--ack") {
      o.ack = number(value());
    } else if (name == "--open") {
      o.open = std::max(1U, number(value()));
    } else if (name == "--lines") {
      o.lines = number(value());
    } else if (name == "--json") {
      o.json = true;
    } else {
      usage();
    }
  }
  if (o.count == 0) die("--count 1 or more");
  return o;
}

}  // namespace vireo::bench
