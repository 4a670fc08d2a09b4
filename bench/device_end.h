// What the programs of the bare device share: one open end, on AF_XDP or on a shared-memory wire,
// and the frame that goes over it. Owner and thread: the program, one.
#pragma once

#include <array>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/arena.h"
#include "core/clock.h"
#include "dev/device.h"
#include "dev/xdp/xdp.h"

namespace vireo::bench {

inline constexpr uint16_t kPort = 11111;

struct Options {
  std::string command;
  std::string ifname;
  std::string shm;  ///< name of a shared-memory wire; empty: AF_XDP
  IpAddr local = *IpAddr::parse("10.99.0.1");
  IpAddr remote = *IpAddr::parse("10.99.0.2");
  std::array<uint8_t, 6> peer_mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  uint32_t size = 64;  ///< bytes of the frame, Ethernet header included, FCS not
  uint32_t warmup = 20'000;
  uint32_t count = 200'000;
  double seconds = 0;  ///< of a stream, or of a ping-pong in the place of `count`
  uint32_t batch = 1;  ///< frames of a stream for each doorbell
  int cpu = -1;
  int peer_cpu = -1;   ///< of the server that `pair` starts
  uint32_t copy = 0;   ///< bytes of a program's buffer that a stream's frames are filled from and
                       ///< emptied into; 0: nobody looks at them
  uint32_t ack = 0;    ///< the sink answers each so many frames of a stream; 0: none
  uint32_t open = 1;   ///< connections that a ping-pong's frames belong to, at random
  uint32_t lines = 0;  ///< cache lines of each that both ends change at each frame
  bool json = false;
  XdpOptions xdp{.rx_frames = 256, .tx_frames = 256};
};

/// Ethernet, IPv4, UDP and a number: the fields that the programs need.
struct Frame {
  uint8_t to_mac[6], from_mac[6];
  be16 ether_type = 0x0800;
  uint8_t version_ihl = 0x45, tos = 0;
  be16 ip_length, id = 0, fragment = 0x4000;
  uint8_t ttl = 64, proto = 17;
  be16 ip_sum;
  be32 from, to;
  be16 from_port, to_port, udp_length, udp_sum = 0;  // 0: none, RFC 768
  be32 number;
};
static_assert(sizeof(Frame) == 46);

inline constexpr std::string_view kDeviceOptions =
    "  [--if NAME | --shm NAME] [--local IP] [--remote IP] [--peer-mac MAC]\n"
    "  [--size BYTES] [--seconds S] [--batch N] [--cpu N] [--mode auto|zerocopy|native|generic]\n"
    "  [--tags] [--busy-poll US] [--json]\n"
    "  of a stream: [--copy BYTES] [--ack N]  of a ping-pong: [--open N] [--lines N]\n";
/// Of argv[1], the command, and kDeviceOptions. Errors: `usage`, which does not return, or die().
Options parse(int argc, char** argv, void (*usage)());

/// The flow of the frames that frame_to_peer() makes.
FlowKey frames_flow(const Options& o);

/// One open end: its memory, device, queue and rule.
struct End {
  End(const Options& o, const FlowKey& key);
  Arena arena;
  PacketPool pool;
  std::unique_ptr<Device> device;
  std::unique_ptr<Queue> queue;
  FlowRule rule;
};

extern volatile std::sig_atomic_t g_stop;  ///< set by SIGTERM

[[noreturn]] void die(std::string_view what);
void pin(int cpu);
/// The fields of a frame of `o.size` bytes to the peer, `number` 0.
Frame frame_to_peer(const Options& o);
/// "xdp native-copy" or "shm", as the device calls itself.
std::string_view wire_of(const Options& o, const End& end);

/// Sends frames of one size as fast as they are taken, for `o.seconds`.
void source(const Options& o);
/// Counts what arrives after the first tenth of `o.seconds`, until SIGTERM.
void sink(const Options& o);
/// The frames of connections that carry one byte there and back, `o.batch` at a time.
void connect_client(const Options& o);
/// Answers them, until SIGTERM.
void connect_server(const Options& o);

}  // namespace vireo::bench
