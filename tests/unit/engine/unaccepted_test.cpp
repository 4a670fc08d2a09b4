// What a listener has not accepted when it becomes the kernel's: connections of the accept queue go
// to the kernel's listener with all that the peer said; half-open ones follow when their handshake
// is complete; nobody is reset, and nothing stays here.
#include <cerrno>

#include "stack/wire/parse.h"
#include "tests/device/frames.h"
#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

class Unaccepted : public testing::Test {
 protected:
  void SetUp() override {
    h.close(h.listen(9));  // opens the interface
    buffers = h.engine().pool().free_count();
  }
  std::vector<MemOpening>& given() { return h.link().openings(MemEnd::kA); }
  std::vector<Bytes>& frames() { return h.link().kernel_frames(MemEnd::kA); }
  void leave(Listening& l) {
    h.engine().acquire();
    h.engine().listeners().give_to_kernel(*l.listener, h.now());
    h.engine().unlock();
    l.listener = nullptr;
    h.settle();
  }
  /// The third segment of the handshake whose SYN-ACK the peer hears.
  static void answer(Peer& p, const std::string& data = "") {
    const auto heard = p.hear();
    ASSERT_TRUE(heard && heard->is(kSyn | kAck));
    p.irs = heard->seq;
    p.ack = p.irs + 1;
    p.say(kAck, data);
  }
  static std::string text_of(const Bytes& frame) {
    const wire::ParsedFrame f = wire::parse_frame(frame);
    if (!f) return wire::parse_error_name(f.error);
    EXPECT_TRUE(checksums_hold(frame));
    return {reinterpret_cast<const char*>(f.payload().data()), f.payload().size()};
  }

  // Every frame comes to us: as if its rule had been read just before it went.
  Host h{{.to_host = {.mtu = 9000},
          .device = {.promiscuous = true, .mtu = 9000, .checksums = Checksum::kNotNeeded}}};
  size_t buffers = 0;  ///< with no connection
};

TEST_F(Unaccepted, ConnectionsGoWithWhatWasAgreedAndWhatCame) {
  for (const bool v6 : {false, true}) {
    Listening& l = h.listen(80, 16, {}, v6);
    Peer p(h, v6 ? "fd00:1::7" : "11.0.0.7", 4000, 80);
    p.wscale = 9;
    p.mss = 1400;
    ASSERT_TRUE(p.connect());
    const std::string all(6000, 'x');
    for (size_t at = 0; at < all.size(); at += 1000) p.say(kAck, all.substr(at, 1000));
    p.say(kAck | kFin);
    p.hear_all();
    leave(l);

    ASSERT_EQ(given().size(), 1U);
    const auto [ack, agreed] = given()[0];
    EXPECT_EQ(text_of(ack), "");
    const wire::ParsedFrame f = wire::parse_frame(ack);
    ASSERT_TRUE(f);
    EXPECT_EQ(f.src(), p.here.addr);
    EXPECT_EQ(f.dst(), h.address(v6));
    EXPECT_EQ(f.tcp().seq(), p.iss + 1);
    EXPECT_EQ(f.tcp().ack(), p.irs + 1);
    EXPECT_EQ(uint16_t{f.tcp().window}, 65535);
    EXPECT_TRUE(agreed.scales && agreed.sack && agreed.timestamps);
    EXPECT_EQ(agreed.peer_shift, 9);
    EXPECT_EQ(agreed.peer_mss, 1400);
    EXPECT_EQ(agreed.peer_time, p.ts_val);
    EXPECT_GE(static_cast<int32_t>(agreed.our_time - p.ts_ecr), 0);

    std::string came;
    ASSERT_FALSE(frames().empty());
    for (const Bytes& frame : frames()) {
      const wire::ParsedFrame g = wire::parse_frame(frame);
      EXPECT_EQ(g.tcp().seq(), p.iss + 1 + static_cast<uint32_t>(came.size()));
      EXPECT_LE(frame.size(), 3072U);
      came += text_of(frame);
    }
    EXPECT_EQ(came, all);
    EXPECT_TRUE(has(wire::parse_frame(frames().back()).tcp().flags(), wire::TcpFlags::kFin));
    EXPECT_EQ(p.hear_all().size(), 0U) << "no reset";
    given().clear();
    frames().clear();
    h.pass(Duration::s(70));
    EXPECT_EQ(h.engine().live_flows(), 0U);
    EXPECT_EQ(h.link().rules(MemEnd::kA), 0U);
    EXPECT_EQ(h.engine().pool().free_count(), buffers);
  }
  EXPECT_EQ(h.stats().unaccepted_given.get(), 2U);
}

TEST_F(Unaccepted, WhatComesAfterwardsIsTheKernels) {
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  ASSERT_TRUE(p.connect());
  p.hear_all();
  leave(l);
  frames().clear();
  p.say(kAck, "request");
  ASSERT_EQ(frames().size(), 1U);
  EXPECT_EQ(text_of(frames()[0]), "request");
  EXPECT_EQ(p.hear_all().size(), 0U);
}

TEST_F(Unaccepted, NoRuleStays) {
  Listening& l = h.listen(80);
  const auto peers = make_peers(h, 10);
  for (const auto& p : peers) ASSERT_TRUE(p->connect());
  leave(l);
  EXPECT_EQ(given().size(), 10U);
  EXPECT_EQ(h.link().rules(MemEnd::kA), 0U);
}

TEST_F(Unaccepted, AHandshakeWhoseEndIsInTheRing) {
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  const auto heard = p.hear();
  ASSERT_TRUE(heard);
  p.say(kAck, p.iss + 1, heard->seq + 1, {.options = p.options(), .poll_now = false});
  leave(l);
  EXPECT_EQ(given().size(), 1U);
  EXPECT_EQ(p.hear_all().size(), 0U);
}

TEST_F(Unaccepted, ASynInTheRing) {
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.say(kSyn, p.iss, Seq32(), {.options = p.syn_options(), .poll_now = false});
  p.nxt = p.iss + 1;
  leave(l);
  answer(p);
  h.settle();
  EXPECT_EQ(given().size(), 1U);
  EXPECT_EQ(p.hear_all().size(), 0U);
}

TEST_F(Unaccepted, HalfOpenOnesFollow) {
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80), silent(h, "11.0.0.7", 4001, 80), late(h, "11.0.0.7", 4002, 80);
  p.syn();
  silent.syn();
  leave(l);
  EXPECT_EQ(given().size(), 0U);
  EXPECT_EQ(h.link().rules(MemEnd::kA), 2U) << "one for each, none for the listener";
  late.syn();
  EXPECT_FALSE(late.hear()) << "the kernel's listener answers";
  ASSERT_EQ(frames().size(), 1U) << "which has got the SYN";
  h.pass(Duration::ms(30));
  answer(p, "data with the ACK");
  h.settle();
  ASSERT_EQ(given().size(), 1U);
  ASSERT_EQ(frames().size(), 2U);
  EXPECT_EQ(text_of(frames()[1]), "data with the ACK");
  EXPECT_EQ(l.told, 0U) << "the program has closed it";
  for (const Heard& heard : p.hear_all()) EXPECT_TRUE(heard.is(kAck)) << "no reset";
  EXPECT_TRUE(h.engine().listeners().is_leaving());

  silent.hear_all();
  h.pass(Duration::ms(1100));
  const auto again = silent.hear();
  ASSERT_TRUE(again) << "the SYN-ACK is sent again";
  EXPECT_TRUE(again->is(kSyn | kAck));
  h.pass(Duration::s(3));
  EXPECT_FALSE(h.engine().listeners().is_leaving());
  h.pass(Duration::s(70));
  EXPECT_EQ(h.link().rules(MemEnd::kA), 0U);
  EXPECT_EQ(h.engine().live_flows(), 0U);
  EXPECT_EQ(h.engine().pool().free_count(), buffers);
}

TEST_F(Unaccepted, AnAckThatWasNotEnoughIsAskedForAgain) {
  Listening& l = h.listen(80, 16, {}, false, {.defer_accept = 5});
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  answer(p);
  EXPECT_EQ(l.listener->syn_count, 1U) << "deferred: it waits for data";
  leave(l);
  const auto again = p.hear();
  ASSERT_TRUE(again && again->is(kSyn | kAck));
  p.say(kAck);
  h.settle();
  EXPECT_EQ(given().size(), 1U);
  EXPECT_FALSE(h.engine().listeners().is_leaving());
}

TEST_F(Unaccepted, AFloodIsNotKept) {
  Listening& l = h.listen(80, 1000);
  for (uint16_t i = 0; i < 400; ++i) Peer(h, "11.0.0.7", static_cast<uint16_t>(4000 + i), 80).syn();
  leave(l);
  EXPECT_EQ(h.link().rules(MemEnd::kA), 256U);
  h.pass(Duration::s(4));
  EXPECT_EQ(h.link().rules(MemEnd::kA), 0U);
  EXPECT_EQ(h.engine().live_flows(), 0U);
}

TEST_F(Unaccepted, WhatCannotBeGivenIsReset) {
  Listening& l = h.listen(80);
  Peer refused(h, "11.0.0.7", 4000, 80);
  ASSERT_TRUE(refused.connect());
  refused.hear_all();
  h.link().refuse_openings(MemEnd::kA, ECONNREFUSED);
  leave(l);
  const auto reset = refused.hear();
  ASSERT_TRUE(reset);
  EXPECT_TRUE(has(reset->flags, kRst));

  h.link().refuse_openings(MemEnd::kA, 0);
  Listening& again = h.listen(80);
  Peer full(h, "11.0.0.7", 4001, 80);
  ASSERT_TRUE(full.connect());
  for (int i = 0; i < 41; ++i) full.say(kAck, std::string(1024, 'x'));
  full.hear_all();
  leave(again);
  EXPECT_EQ(given().size(), 0U) << "the kernel's receive buffer may be too small";
  const auto too_much = full.hear();
  ASSERT_TRUE(too_much);
  EXPECT_TRUE(has(too_much->flags, kRst));
  h.pass(Duration::s(70));
  EXPECT_EQ(h.engine().live_flows(), 0U);
  EXPECT_EQ(h.engine().pool().free_count(), buffers);
}

TEST_F(Unaccepted, AListenerOfItsOwnIsClosedAsOnLinux) {
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  ASSERT_TRUE(p.connect());
  p.hear_all();
  h.close(l);
  EXPECT_EQ(given().size(), 0U);
  const auto reset = p.hear();
  ASSERT_TRUE(reset);
  EXPECT_TRUE(has(reset->flags, kRst));
}

TEST_F(Unaccepted, AcceptedOnesStay) {
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  ASSERT_TRUE(p.connect());
  Conn* const c = h.accept(l);
  leave(l);
  p.say(kAck | kPsh, "still here");
  EXPECT_EQ(h.read(*c), "still here");
  EXPECT_EQ(given().size(), 0U);
}

}  // namespace
}  // namespace vireo::test
