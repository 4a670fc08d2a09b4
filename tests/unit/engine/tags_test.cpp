// Tags of flow rules: a frame that bears the one of its flow's own rule is found without a search
// in the demux, and never goes to another flow that has the tag by now.
#include "tests/device/frames.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

/// A connection of the program's to a peer.
struct Dialled {
  Dialled(Host& host, const char* address, uint16_t port, uint16_t from,
          const char* from_address = nullptr)
      : h(host), server(host, address, port, from) {
    if (from_address != nullptr) server.there.addr = ip(from_address);
    const auto route = h.engine().next_hops().route({.dst = server.here.addr, .src = {}});
    EXPECT_TRUE(route);
    const auto f = h.engine().tcp().connect(*route, server.there, server.here, {{.mss = 1400}}, {},
                                            &owner, owner.stats, h.now());
    EXPECT_TRUE(f);
    owner.flow = *f;
    h.settle();
    const auto syn = server.hear();
    EXPECT_TRUE(syn && syn->is(kSyn));
    server.ts_ecr = syn->options.ts_val;
    server.irs = syn->seq;
    server.ack = syn->seq + 1;
    server.nxt = server.iss + 1;
    server.say(kSyn | kAck, server.iss, server.ack, {.options = server.syn_options()});
    EXPECT_EQ(owner.state(), tcp::State::kEstablished);
    server.hear_all();
  }
  ~Dialled() {
    if (owner.flow != nullptr) close();
  }
  void close() { h.close(owner, true), owner.flow = nullptr; }
  Host& h;
  Conn owner;
  Peer server;
};

/// Searches while each connection in turn hears a segment, ten times.
uint64_t searches_in_turn(Host& h, const char* const (&peers)[3]) {
  std::vector<std::unique_ptr<Dialled>> all;
  for (const char* p : peers)
    all.push_back(std::make_unique<Dialled>(h, p, 80, static_cast<uint16_t>(40'000 + all.size())));
  h.pass(Duration::ms(100));
  const uint64_t before = h.engine().demux_searches();
  for (int round = 0; round < 10; ++round)
    for (auto& d : all) {
      d->server.say(kAck | kPsh, "message");
      EXPECT_EQ(h.read(d->owner), "message");
    }
  return h.engine().demux_searches() - before;
}

TEST(Tags, SpareTheSearch) {
  Host h;
  EXPECT_EQ(searches_in_turn(h, {"11.0.0.7", "11.0.0.8", "11.0.0.9"}), 0u);
  EXPECT_EQ(searches_in_turn(h, {"fd00::7", "fd00::8", "fd00::9"}), 0u);
}

TEST(Tags, WithoutThemEachChangeIsASearch) {
  Host h({.device = {.tags = false}});
  EXPECT_EQ(searches_in_turn(h, {"11.0.0.7", "11.0.0.8", "11.0.0.9"}), 30u);
  EXPECT_EQ(searches_in_turn(h, {"fd00::7", "fd00::8", "fd00::9"}), 30u);
}

/// The rule of a flow that is over still brings its frames, whose tag is another flow's by now.
FlowRule stale_rule(Host& h, IpProto proto, const Endpoint& local, const Endpoint& remote,
                    FlowTag tag) {
  Port& port = *h.engine().ports().all().front();
  auto rule =
      port.device->steer({proto, !local.addr.is_v4(), VlanId(), local, remote}, tag, port.queue());
  EXPECT_TRUE(rule);
  return rule ? std::move(*rule) : FlowRule();
}

TEST(Tags, OfAConnectionThatIsOver) {
  for (const bool v6 : {false, true}) {
    Host h;
    Dialled next(h, v6 ? "fd00::8" : "11.0.0.8", 80, 40'000);
    Peer late = next.server;
    late.here.addr = ip(v6 ? "fd00::7" : "11.0.0.7");
    const FlowRule rule = stale_rule(h, IpProto::kTcp, late.there, late.here, next.owner.flow->tag);
    const uint64_t strangers = h.stats().rx_unknown_flow.get();
    late.say(kAck | kPsh, "as the next one expects it");
    EXPECT_EQ(h.stats().rx_unknown_flow.get(), strangers + 1);
    EXPECT_EQ(h.read(next.owner), "");
    next.server.say(kAck | kPsh, "its own");
    EXPECT_EQ(h.read(next.owner), "its own");
  }
}

/// As they lie in a frame, the addresses of one version can be the tails of the other's.
TEST(Tags, OfAFlowOfTheOtherVersion) {
  Host h;
  Dialled next(h, "fd00::b00:7", 80, 40'000, "fd00::a00:1");
  Peer late = next.server;
  late.here.addr = ip("11.0.0.7");
  late.there.addr = ip("10.0.0.1");
  const FlowRule rule = stale_rule(h, IpProto::kTcp, late.there, late.here, next.owner.flow->tag);
  late.say(kAck | kPsh, "as the next one expects it");
  EXPECT_EQ(h.stats().rx_unknown_flow.get(), 1u);
  EXPECT_EQ(h.read(next.owner), "");
}

class Datagrams {
 public:
  Datagrams(Host& host, const char* peer, uint16_t port)
      : h_(host), spec_{.from = {ip(peer), 5000, 0}, .to = {host.address(), port, 0}} {
    const auto u = h_.engine().udp().open(spec_.to, spec_.from, false, this, stats_);
    EXPECT_TRUE(u);
    flow_ = *u;
  }
  ~Datagrams() { h_.engine().udp().close(*flow_); }
  FlowTag tag() const { return flow_->tag; }
  const FrameSpec& spec() const { return spec_; }
  bool has_heard() const { return !flow_->queue.empty(); }
  void hear() {
    h_.inject(build_frame(spec_, Bytes(64)));
    ASSERT_TRUE(has_heard());
    UdpFlows::received(*flow_, *flow_->queue.front());
    flow_->queue.pop_front();
  }

 private:
  Host& h_;
  FrameSpec spec_;
  UdpFlow* flow_ = nullptr;
  SocketStats stats_;
};

TEST(Tags, SpareConnectedDatagramSocketsTheSearch) {
  for (const bool tags : {true, false}) {
    Host h({.device = {.tags = tags}});
    Datagrams a(h, "11.0.0.7", 7000), b(h, "11.0.0.8", 7000);
    a.hear(), b.hear();
    const uint64_t before = h.engine().demux_searches();
    for (int round = 0; round < 10; ++round) a.hear(), b.hear();
    EXPECT_EQ(h.engine().demux_searches() - before, tags ? 0u : 20u);
  }
}

TEST(Tags, OfADatagramSocketThatIsClosed) {
  Host h;
  Datagrams next(h, "11.0.0.8", 7000);
  FrameSpec late = next.spec();
  late.from.addr = ip("11.0.0.7");
  const FlowRule rule = stale_rule(h, IpProto::kUdp, late.to, late.from, next.tag());
  h.inject(build_frame(late, Bytes(64)));
  EXPECT_FALSE(next.has_heard());
  EXPECT_EQ(h.stats().rx_unknown_flow.get(), 1u);
}

}  // namespace
}  // namespace vireo::test
