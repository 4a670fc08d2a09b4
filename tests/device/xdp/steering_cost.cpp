// What the steering program costs a frame, by the kernel's own clock (BPF_PROG_TEST_RUN): prints ns
// for each way through it. A program, not a test: figures differ between machines. Needs root.
#include <bpf/bpf.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "dev/xdp/copy_queue.h"
#include "dev/xdp/device.h"
#include "end.h"
#include "group_lab.h"
#include "lab.h"

namespace vireo::test {
namespace {

constexpr int kRepeat = 1'000'000;

struct Run {
  uint32_t ns = 0;
  bool taken = false;
};

Run run_program(const Device& d, const Bytes& frame) {
  Run best{UINT32_MAX, false};
  for (int round = 0; round < 5; ++round) {
    bpf_test_run_opts o{};
    o.sz = sizeof o;
    o.data_in = frame.data();
    o.data_size_in = static_cast<uint32_t>(frame.size());
    o.repeat = kRepeat;
    if (bpf_prog_test_run_opts(static_cast<const xdp::XdpDevice&>(d).steering().program_fd(), &o) !=
        0)
      std::exit(1);
    best = {std::min(best.ns, o.duration), o.retval == 4};  // XDP_REDIRECT
  }
  return best;
}

FlowKey key(const IpAddr& local, const IpAddr& remote, uint16_t remote_port,
            uint16_t port = kPort) {
  FlowKey k;
  k.proto = IpProto::kUdp;
  k.v6 = !local.is_v4();
  k.local = {local, port, 0};
  k.remote = {remote, remote_port, 0};
  return k;
}

void measure(const Veth& veth, bool tags) {
  End end(veth.index(0), {.tags = tags});
  if (!end.device || !end.open_queue()) {
    fmt::print(stderr, "{}\n", end.error.where);
    std::exit(1);
  }
  const Bytes four = udp_frame(1, 1, 22);
  const IpAddr ours6 = *IpAddr::parse("fd76::1");
  const IpAddr peer6 = *IpAddr::parse("fd76::2");
  FrameSpec s;
  s.from = {peer6, 6000, 0};
  s.to = {ours6, kPort, 0};
  s.to_mac = {2, 0, 0, 0, 0, 1};
  const Bytes six = build_frame(s, numbered_payload(1, 22));
  const FlowKey exact4 = key(kAddress[0], kAddress[1], 6000);
  const FlowKey other4 = key(kAddress[0], kAddress[1], 6001);
  const FlowKey local4 = key(kAddress[0], IpAddr::any_v4(), 0);
  const FlowKey wild4 = key(IpAddr::any_v4(), IpAddr::any_v4(), 0);
  const FlowKey exact6 = key(ours6, peer6, 6000);
  const FlowKey wild6 = key(IpAddr(), IpAddr(), 0);
  Bytes arp = four;
  arp[13] = std::byte(6);
  const struct {
    const char* what;
    const Bytes& frame;
    std::vector<FlowKey> keys;
  } ways[] = {{"not IP", arp, {}},
              {"port of no rule", four, {}},
              {"port of another flow", four, {other4}},
              {"exact, IPv4", four, {exact4}},
              {"local, IPv4", four, {local4}},
              {"wildcard, IPv4", four, {wild4}},
              {"wildcard behind exact and local rules",
               four,
               {other4, key(kAddress[1], IpAddr::any_v4(), 0), wild4}},
              {"exact, IPv6", six, {exact6}},
              {"wildcard, IPv6", six, {wild6}}};
  for (const auto& w : ways) {
    for (const FlowKey& k : w.keys) {
      auto r = end.device->steer(k, FlowTag(1), *end.queues[0]);
      if (!r) std::exit(1);
      end.rules.push_back(std::move(*r));
    }
    const Run r = run_program(*end.device, w.frame);
    fmt::print("{:<40}{:<8}{:<8}{:>4} ns\n", w.what, tags ? "tags" : "",
               r.taken ? "ours" : "kernel", r.ns);
    end.rules.clear();
  }
}

/// A port that this process shares, with itself alone.
void measure_shared(const Veth& veth) {
  End end(veth.index(0), {});
  if (!end.device || !end.open_queue()) std::exit(1);
  for (const bool v6 : {false, true}) {
    FrameSpec s;
    s.proto = IpProto::kTcp;
    s.from = {kAddress[v6 ? 3 : 1], 6000, 0};
    s.to = {kAddress[v6 ? 2 : 0], kPort, 0};
    s.to_mac = {2, 0, 0, 0, 0, 1};
    const Bytes data = build_frame(s, numbered_payload(1, 22));
    s.flags = 2;
    const Bytes syn = build_frame(s, {});
    FlowKey k = key(v6 ? IpAddr() : IpAddr::any_v4(), v6 ? IpAddr() : IpAddr::any_v4(), 0);
    k.proto = IpProto::kTcp;
    const auto rule = end.device->share(k, *end.queues[0]);
    if (!rule) std::exit(1);
    const auto show = [&](const char* what, const Bytes& frame) {
      const Run r = run_program(*end.device, frame);
      fmt::print("{:<40}{:<8}{:<8}{:>4} ns\n", fmt::format("shared, IPv{}, {}", v6 ? 6 : 4, what),
                 "", r.taken ? "ours" : "kernel", r.ns);
    };
    end.device->accepting()->store(Device::kAcceptsNow);
    show("no SYN", data);
    show("SYN", syn);
    end.device->accepting()->store(0);
    show("SYN that nobody accepts", syn);
  }
}

/// A datagram of 200 bytes for an end that several members share; without the kernel's, as the runs
/// would add one mark to another.
void measure_copies() {
  constexpr int kAtOnce = 10'000;  // the rings have room for them
  GroupLab lab;
  if (!lab.is_open) std::exit(1);
  const Flow flow{IpProto::kUdp, false};
  FrameSpec f;
  f.from = flow.key(Kind::kExact).remote;
  f.to = flow.key(Kind::kExact).local;
  f.to_mac = kOurMac;
  const Bytes frame = build_frame(f, numbered_payload(1, 200));
  std::vector<std::byte> memory(size_t{64} * 2048);
  PacketPool pool(memory, 2048);
  std::vector<std::shared_ptr<xdp::Steering>> members{lab.a};
  std::vector<std::unique_ptr<Queue>> rings;
  while (members.size() <= 8) {
    const auto& newest = members.back();
    auto ring = xdp::CopyQueue::open(pool, newest, false);
    if (!ring || !newest->share(flow.key(Kind::kLocal))) std::exit(1);
    rings.push_back(std::move(*ring));
    for (steer_copies& c : lab.ports.arrays().copies) c.with_kernel = 0;
    uint32_t best = UINT32_MAX;
    for (int round = 0; round < 20; ++round) {
      bpf_test_run_opts o{};
      o.sz = sizeof o;
      o.data_in = frame.data();
      o.data_size_in = static_cast<uint32_t>(frame.size());
      o.repeat = kAtOnce;
      if (bpf_prog_test_run_opts(lab.a->program_fd(), &o) != 0) std::exit(1);
      best = std::min(best, o.duration);
      std::array<RxDesc, 32> d;
      for (const auto& r : rings)
        while (const unsigned n = r->rx_burst(d))
          for (RxDesc& one : std::span(d).first(n)) one.packet.reset();
    }
    fmt::print("{:<40}{:<8}{:<8}{:>4} ns\n", fmt::format("copies for {}, 200 bytes", rings.size()),
               "", "ours", best);
    members.push_back(lab.joined(static_cast<unsigned>(members.size())));
  }
}

}  // namespace
}  // namespace vireo::test

int main() {
  using namespace vireo::test;
  if (!enter_own_namespace()) return 1;
  {
    const Veth veth;
    measure(veth, false);
    measure(veth, true);
    measure_shared(veth);
  }
  measure_copies();
}
