// Passive opens through the engine: records, backlog, repetition, errors. What the wire shows is
// RFC 9293 §3.10.7.2 and §3.10.7.4, and Linux where that is silent (tcp_conn_request,
// tcp_check_req).
#include <gtest/gtest.h>

#include "tests/unit/engine/host.h"

namespace vireo::test {
namespace {

TEST(Listen, AConnectionCostsARecordUntilItsThirdSegment) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  EXPECT_EQ(l.listener->syn_count, 1u);
  EXPECT_EQ(h.engine().live_flows(), 1u) << "the listener";
  EXPECT_EQ(h.engine().pool().free_count() + 256, h.engine().pool().size()) << "no buffer held";
  const auto answer = p.hear();
  ASSERT_TRUE(answer && answer->is(kSyn | kAck));
  EXPECT_EQ(answer->ack, p.iss + 1);
  EXPECT_EQ(answer->options.mss, 1460);
  EXPECT_TRUE(answer->options.sack_permitted && answer->options.has_timestamps &&
              answer->options.has_window_scale);
  EXPECT_EQ(answer->options.ts_ecr, p.ts_val);
  EXPECT_EQ(h.accept(l), nullptr);
  EXPECT_EQ(l.told, 0u);

  p.irs = answer->seq;
  p.ack = p.irs + 1;
  p.say(kAck);
  EXPECT_EQ(l.told, 1u);
  EXPECT_EQ(l.listener->syn_count, 0u);
  Conn* c = h.accept(l);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->state(), tcp::State::kEstablished);
  EXPECT_EQ(c->flow->key.remote, p.here);
  EXPECT_EQ(h.write(*c, "hello"), 5u);
  const auto data = p.hear();
  ASSERT_TRUE(data);
  EXPECT_EQ(data->data, "hello");
  EXPECT_EQ(data->seq, p.irs + 1);
}

TEST(Listen, BothFamilies) {
  Host h;
  Listening& l = h.listen(80, 16, {}, true);
  for (const char* from : {"11.0.0.7", "fd00:1::7"}) {
    Peer p(h, from, 4000, 80);
    ASSERT_TRUE(p.connect()) << from;
    Conn* c = h.accept(l);
    ASSERT_NE(c, nullptr);
    p.say(kAck | kPsh, "ping");
    EXPECT_EQ(h.read(*c), "ping");
  }
}

TEST(Listen, WhereAPortIsBoundIsFoundAnew) {
  Host h;
  uint16_t from = 4000;
  const auto knock = [&] {
    Peer p(h, "11.0.0.7", from++, 80);
    p.syn();
    const auto answer = p.hear();
    return answer ? answer->flags & ~kPsh : SegFlags::kNone;
  };
  EXPECT_EQ(knock(), SegFlags::kNone);
  for (int i = 0; i < 3; ++i) {
    Listening& l = h.listen(80);
    EXPECT_EQ(knock(), kSyn | kAck);
    EXPECT_EQ(knock(), kSyn | kAck);
    h.close(l);
    EXPECT_EQ(knock(), SegFlags::kNone) << "and nobody's memory is looked at";
  }
  // Several by one key: the last that leaves takes it along.
  const ListenOptions shared{.reuse_port = true};
  Listening& one = h.listen(80, 16, {}, false, shared);
  Listening& two = h.listen(80, 16, {}, false, shared);
  EXPECT_EQ(knock(), kSyn | kAck);
  h.close(one);
  EXPECT_EQ(knock(), kSyn | kAck);
  h.close(two);
  EXPECT_EQ(knock(), SegFlags::kNone);
}

TEST(Listen, WhatWasNegotiatedHolds) {
  Host h;
  Listening& l = h.listen(80);
  for (const bool rich : {true, false}) {
    Peer p(h, "11.0.0.7", rich ? 4000 : 4001, 80);
    if (!rich) p.sack = p.timestamps = false, p.wscale = -1, p.mss = 0;
    ASSERT_TRUE(p.connect());
    Conn* c = h.accept(l);
    const tcp::Info i = tcp::info(c->tcb());
    EXPECT_EQ(i.timestamps, rich);
    EXPECT_EQ(i.sack, rich);
    EXPECT_EQ(i.wscale, rich);
    EXPECT_EQ(i.snd_mss, rich ? 1448u : 536u);
    EXPECT_EQ(i.snd_wnd, rich ? 65535u << 7 : 65535u);
  }
}

TEST(Listen, TheRoundTripIsMeasuredFromTheSynAck) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.timestamps = false;
  p.syn();
  const auto answer = p.hear();
  h.pass(Duration::us(730));
  p.ack = answer->seq + 1;
  p.say(kAck);
  const tcp::Info i = tcp::info(h.accept(l)->tcb());
  EXPECT_GE(i.srtt, Duration::us(730));
  EXPECT_LE(i.srtt, Duration::us(740));
}

// libvma 4751690: data and FIN on the third segment.
TEST(Listen, ThirdSegmentMayCarryDataAndFin) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  p.ack = p.hear()->seq + 1;
  p.say(kAck | kPsh | kFin, "request");
  Conn* c = h.accept(l);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->state(), tcp::State::kCloseWait);
  EXPECT_EQ(h.read(*c), "request");
  EXPECT_TRUE(tcp::peer_closed(c->tcb()));
  const auto answer = p.hear();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->ack, p.nxt);
}

// The bare ACK was lost: the first data completes the handshake (Linux tcp_check_req).
TEST(Listen, DataWithoutTheBareAckOpens) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  p.ack = p.hear()->seq + 1;
  p.nxt = p.nxt + 3;  // "abc" comes later
  p.say(kAck, "def");
  Conn* c = h.accept(l);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(h.read(*c), "");
  p.nxt = p.iss + 1;
  p.say(kAck, "abc");
  EXPECT_EQ(h.read(*c), "abcdef");
}

// seastar #91, gVisor 0b81b32c9: data or unknown options on the SYN change nothing; ECN is agreed
// to.
TEST(Listen, SynWithDataEcnAndUnknownOptions) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.more_options = {34, 10, 1, 2, 3, 4, 5, 6, 7, 8};
  p.sack = false, p.wscale = -1;
  p.nxt = p.iss + 1;
  p.say(kSyn | SegFlags::kEce | SegFlags::kCwr, p.iss, Seq32(0),
        {.data = "early", .options = p.syn_options()});
  const auto answer = p.hear();
  ASSERT_TRUE(answer && answer->is(kSyn | kAck | SegFlags::kEce)) << "RFC 3168 6.1.1: ECE alone";
  EXPECT_EQ(answer->ack, p.iss + 1) << "only the SYN is acknowledged";
  p.ack = answer->seq + 1;
  p.say(kAck, "early");
  EXPECT_EQ(h.read(*h.accept(l)), "early");
}

TEST(Listen, SynAckIsRepeatedWithBackoffThenForgotten) {
  Host h;
  tcp::Config c;
  c.synack_retries = 3;
  Listening& l = h.listen(80, 16, c);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  const Instant start = h.now();
  const auto first = p.hear();
  std::vector<int64_t> at;
  for (int ms = 0; ms < 20'000; ms += 100) {
    h.pass(Duration::ms(100));
    while (auto again = p.hear()) {
      EXPECT_TRUE(again->is(kSyn | kAck));
      EXPECT_EQ(again->seq, first->seq);
      at.push_back((h.now() - start).ms());
    }
    EXPECT_EQ(l.listener->syn_count, ms < 14'900 ? 1u : 0u);
  }
  EXPECT_EQ(at, (std::vector<int64_t>{1000, 3000, 7000}));
  EXPECT_EQ(l.listener->syn_count, 0u);
  EXPECT_EQ(l.listener->young_count, 0u);
}

TEST(Listen, ARepeatedSynIsAnsweredAtMostTwiceASecond) {
  Host h;
  h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  const auto first = p.hear();
  p.syn();
  const auto again = p.hear();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->seq, first->seq);
  for (int i = 0; i < 20; ++i) {
    p.syn();
    h.pass(Duration::ms(10));
  }
  EXPECT_FALSE(p.hear());
  h.pass(Duration::ms(310));
  p.syn();
  EXPECT_TRUE(p.hear());
}

TEST(Listen, OnlyAnExactResetEndsAHalfOpenConnection) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  p.hear();
  p.say(kRst, p.iss + 2, Seq32(0));
  EXPECT_EQ(l.listener->syn_count, 1u) << "RFC 5961 3.2: not exactly the next";
  const auto challenge = p.hear();
  ASSERT_TRUE(challenge && challenge->is(kAck));
  EXPECT_EQ(challenge->ack, p.iss + 1);
  p.say(kRst, p.iss + 1, Seq32(0));
  EXPECT_EQ(l.listener->syn_count, 0u);
  EXPECT_FALSE(p.hear());
  EXPECT_EQ(l.told, 0u);
}

// RFC 5927 §4.1: an ICMP error counts if it quotes our SYN-ACK.
TEST(Listen, AnIcmpErrorThatQuotesTheSynAckEndsIt) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  const Seq32 iss = p.hear()->seq;
  h.inject(icmp_error_frame(p.there, p.here, iss + 1, 3, 1));
  h.inject(icmp_error_frame(p.there, p.here, iss, 3, 4, 600));
  EXPECT_EQ(l.listener->syn_count, 1u) << "another number; too big, which a SYN-ACK is not";
  h.inject(icmp_error_frame(p.there, p.here, iss, 3, 1));
  EXPECT_EQ(l.listener->syn_count, 0u);
}

TEST(Listen, AForeignAckIsResetAndTheRecordStays) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  const auto answer = p.hear();
  p.say(kAck, p.nxt, answer->seq + 77);
  const auto reset = p.hear();
  ASSERT_TRUE(reset && reset->is(kRst));
  EXPECT_EQ(reset->seq, answer->seq + 77) << "SEQ=SEG.ACK";
  EXPECT_EQ(l.listener->syn_count, 1u);
  p.ack = answer->seq + 1;
  p.say(kAck);
  EXPECT_NE(h.accept(l), nullptr);
}

// A client that lost its memory and came back by the same port.
TEST(Listen, AnotherSynOfTheSameTupleIsChallengedAndResetsTheOldOne) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  p.hear();
  p.iss = Seq32(77'000'000);
  p.syn();
  const auto challenge = p.hear();
  ASSERT_TRUE(challenge && challenge->is(kAck));
  p.say(kRst, challenge->ack, Seq32(0));
  EXPECT_TRUE(p.connect());
  EXPECT_NE(h.accept(l), nullptr);
}

TEST(Listen, NonsenseInListenIsDropped) {
  Host h;
  h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.say(kSyn | kFin, Seq32(1), Seq32(0));
  p.say(SegFlags::kNone, Seq32(1), Seq32(0), {.data = "x"});
  p.say(kFin, Seq32(1), Seq32(0));
  p.say(kRst, Seq32(1), Seq32(0));
  p.say(kRst | kAck, Seq32(1), Seq32(2));
  p.say(kSyn, Seq32(1), Seq32(0), {.bad_checksum = true});
  EXPECT_EQ(h.heard().size(), 0u);
  p.say(kAck, Seq32(1), Seq32(2));
  EXPECT_TRUE(p.hear()->is(kRst)) << "RFC 9293 3.10.7.2: an ACK in LISTEN";
  p.say(kSyn | kAck, Seq32(1), Seq32(2));
  EXPECT_TRUE(p.hear()->is(kRst));
}

// ---- backlog: listen(2), gVisor #11535 and #11536

TEST(Listen, AFullAcceptQueueIgnoresTheThirdSegment) {  // TCP.md 4.42
  Host h;
  Listening& l = h.listen(80, 1);
  std::vector<std::unique_ptr<Peer>> peers;
  for (uint16_t i = 0; i < 3; ++i)
    peers.push_back(std::make_unique<Peer>(h, "11.0.0.7", 4000 + i, 80));
  for (auto& p : peers) {
    p->syn();
    p->ack = p->hear()->seq + 1;
  }
  for (auto& p : peers) p->say(kAck);
  EXPECT_EQ(l.listener->ready_count, 2u) << "Linux: one more than the backlog";
  EXPECT_EQ(l.listener->syn_count, 1u);
  EXPECT_GE(h.stats().listen_overflows.get(), 1u);
  // A new SYN is dropped meanwhile.
  Peer late(h, "11.0.0.8", 5000, 80);
  late.syn();
  EXPECT_FALSE(late.hear());
  h.heard().clear();
  // The SYN-ACK comes again, and once there is room its ACK opens.
  h.pass(Duration::ms(1010));
  const auto again = peers[2]->hear();
  ASSERT_TRUE(again && again->is(kSyn | kAck));
  EXPECT_NE(h.accept(l), nullptr);
  peers[2]->say(kAck, "data");
  EXPECT_NE(h.accept(l), nullptr);
  Conn* third = h.accept(l);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(h.read(*third), "data");
  late.syn();
  EXPECT_TRUE(late.hear());
}

// gVisor #11536: the third segment lacks the timestamps that were agreed on, as after a middle box.
TEST(Listen, AThirdSegmentWithoutTimestampsOpens) {  // TCP.md 4.42
  Host h;
  Listening& l = h.listen(80, 1);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  const auto syn_ack = p.hear();
  ASSERT_TRUE(syn_ack && syn_ack->options.has_timestamps);
  p.say(kAck, p.iss + 1, syn_ack->seq + 1);
  EXPECT_NE(h.accept(l), nullptr);
}

TEST(Listen, AbortOnOverflowResets) {
  Host h;
  Listening& l = h.listen(80, 0, {}, false, {.abort_on_overflow = true});
  Peer a(h, "11.0.0.7", 4000, 80), b(h, "11.0.0.7", 4001, 80);
  a.syn(), b.syn();
  a.ack = a.hear()->seq + 1, b.ack = b.hear()->seq + 1;
  a.say(kAck), b.say(kAck);
  const auto reset = b.hear();
  ASSERT_TRUE(reset && reset->is(kRst));
  EXPECT_EQ(l.listener->ready_count, 1u);
  EXPECT_EQ(l.listener->syn_count, 0u);
}

TEST(Listen, ClosingForgetsHalfOpenAndResetsUnaccepted) {
  Host h;
  Listening& l = h.listen(80);
  Peer half(h, "11.0.0.7", 4000, 80), whole(h, "11.0.0.7", 4001, 80);
  half.syn();
  half.ack = half.hear()->seq + 1;
  ASSERT_TRUE(whole.connect());
  h.close(l);
  const auto reset = whole.hear();
  ASSERT_TRUE(reset && has(reset->flags, kRst));
  h.pass(Duration::s(2));
  EXPECT_FALSE(half.hear()) << "no SYN-ACK of a listener that is gone";
  EXPECT_EQ(h.engine().live_flows(), 0u);
}

TEST(Listen, AnUnacceptedConnectionThatDiesShowsItsError) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  ASSERT_TRUE(p.connect());
  p.say(kRst, p.nxt, Seq32(0));
  Conn* c = h.accept(l);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(tcp::error(c->tcb()), ECONNRESET);
}

// ---- SYN cookies: RFC 4987 §3.6

TEST(Cookies, ServeWhoComesWhenTheQueueIsFull) {
  Host h;
  Listening& l = h.listen(80, 8);
  for (uint16_t i = 0; i < 20; ++i) Peer(h, "12.0.0.1", 4000 + i, 80).syn();
  EXPECT_EQ(l.listener->syn_count, 8u);
  EXPECT_EQ(h.stats().syn_cookies_sent.get(), 12u);
  Peer p(h, "11.0.0.7", 4000, 80);
  ASSERT_TRUE(p.connect());
  EXPECT_EQ(l.listener->syn_count, 8u) << "nothing is kept of it";
  Conn* c = h.accept(l);
  ASSERT_NE(c, nullptr);
  const tcp::Info i = tcp::info(c->tcb());
  EXPECT_TRUE(i.timestamps && i.sack && i.wscale);
  EXPECT_EQ(i.snd_wscale, 7);
  EXPECT_EQ(i.snd_mss, 1448u);
  p.say(kAck | kPsh, "ping");
  EXPECT_EQ(h.read(*c), "ping");
  EXPECT_EQ(h.write(*c, "pong"), 4u);
  EXPECT_EQ(h.stats().syn_cookies_received.get(), 1u);
}

TEST(Cookies, AreOnlyAcceptedAfterAnOverflow) {
  Host h;
  Listening& l = h.listen(80, 8);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.syn();
  p.ack = p.hear()->seq + 1;
  h.pass(Duration::s(70));  // the record is gone, and no cookie was ever sent
  h.heard().clear();
  p.say(kAck);
  EXPECT_TRUE(p.hear()->is(kRst));
  EXPECT_EQ(h.accept(l), nullptr);
  EXPECT_EQ(h.stats().syn_cookies_failed.get(), 0u) << "not even looked at";
}

TEST(Cookies, AreRefusedAfterTwoMinutes) {
  Host h;
  Listening& l = h.listen(80, 8);
  for (uint16_t i = 0; i < 8; ++i) Peer(h, "12.0.0.1", 4000 + i, 80).syn();
  Peer old(h, "11.0.0.7", 4000, 80), fresh(h, "11.0.0.7", 4001, 80);
  old.syn();
  old.ack = old.hear()->seq + 1;
  ASSERT_EQ(h.stats().syn_cookies_sent.get(), 1u);
  h.pass(Duration::s(121));
  for (uint16_t i = 0; i < 8; ++i) Peer(h, "12.0.0.1", 4000 + i, 80).syn();
  fresh.syn();  // overflowed again: cookies are looked at
  fresh.ack = fresh.hear()->seq + 1;
  h.heard().clear();
  old.say(kAck);
  EXPECT_TRUE(old.hear()->is(kRst));
  EXPECT_EQ(h.stats().syn_cookies_failed.get(), 1u);
  fresh.say(kAck);
  EXPECT_NE(h.accept(l), nullptr);
}

// gVisor cdd3b866f: an ACK of a connection that exists is never taken for a cookie.
TEST(Cookies, AnExistingConnectionIsFoundFirst) {
  Host h;
  Listening& l = h.listen(80, 16, {}, false, {.syncookies = 2});
  Peer p(h, "11.0.0.7", 4000, 80);
  ASSERT_TRUE(p.connect());
  ASSERT_NE(h.accept(l), nullptr);
  p.say(kAck);
  EXPECT_EQ(h.accept(l), nullptr);
  EXPECT_EQ(h.stats().syn_cookies_received.get(), 1u);
}

TEST(Cookies, SwitchedOffDropsInstead) {
  Host h;
  Listening& l = h.listen(80, 8, {}, false, {.syncookies = 0});
  for (uint16_t i = 0; i < 20; ++i) Peer(h, "12.0.0.1", 4000 + i, 80).syn();
  EXPECT_EQ(h.heard().size(), 8u);
  EXPECT_EQ(l.listener->syn_count, 8u);
  EXPECT_EQ(h.stats().syn_cookies_sent.get(), 0u);
}

// TCP.md 3.10 row 2, through the engine.
TEST(Cookies, ForgedAcksOpenNothing) {
  Host h;
  Listening& l = h.listen(80, 8);
  for (uint16_t i = 0; i < 9; ++i) Peer(h, "12.0.0.1", 4000 + i, 80).syn();
  h.forget_heard();
  uint32_t x = 1;
  for (int i = 0; i < 1'000'000; ++i) {
    x = x * 1664525 + 1013904223;
    const uint32_t y = x * 2654435761u;
    Peer p(h, IpAddr::v4(be32(0x0c000000 | (x >> 8))), static_cast<uint16_t>(1024 + (y >> 17)), 80);
    p.say(kAck, Seq32(x), Seq32(y), {.poll_now = i % 64 == 63});
    if (i % 64 == 63) h.forget_heard();
  }
  EXPECT_EQ(h.accept(l), nullptr);
  EXPECT_GT(h.stats().syn_cookies_failed.get(), 990'000u);
  EXPECT_LE(h.stats().resets_sent.get(), 1500u) << "and we are no amplifier";
}

// ---- TCP_DEFER_ACCEPT: tcp(7), Linux tcp_check_req and syn_ack_recalc

TEST(DeferAccept, WaitsForData) {
  Host h;
  Listening& l = h.listen(80, 16, {}, false, {.defer_accept = 3});
  Peer p(h, "11.0.0.7", 4000, 80);
  ASSERT_TRUE(p.connect());
  EXPECT_EQ(h.accept(l), nullptr);
  h.pass(Duration::ms(1500));
  EXPECT_FALSE(p.hear()) << "the peer is not asked again while we wait";
  p.say(kAck | kPsh, "GET");
  Conn* c = h.accept(l);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(h.read(*c), "GET");
}

TEST(DeferAccept, TakesABareAckWhenTheTimeIsOver) {
  Host h;
  Listening& l = h.listen(80, 16, {}, false, {.defer_accept = 3});
  Peer p(h, "11.0.0.7", 4000, 80);
  ASSERT_TRUE(p.connect());
  h.pass(Duration::ms(6900));
  EXPECT_FALSE(p.hear());
  EXPECT_EQ(l.listener->syn_count, 1u);
  h.pass(Duration::ms(200));  // 1 + 2 + 4 s: the last chance
  const auto again = p.hear();
  ASSERT_TRUE(again && again->is(kSyn | kAck));
  p.say(kAck);
  EXPECT_NE(h.accept(l), nullptr);
}

// ---- SO_REUSEPORT

TEST(ReusePort, TheTupleChoosesAmongListeners) {
  Host h;
  std::vector<Listening*> l;
  for (int i = 0; i < 4; ++i) l.push_back(&h.listen(80, 512, {}, false, {.reuse_port = true}));
  for (uint16_t i = 0; i < 400; ++i) {
    Peer p(h, "11.0.0.7", 4000 + i, 80);
    ASSERT_TRUE(p.connect());
  }
  unsigned total = 0;
  for (Listening* x : l) {
    EXPECT_GT(x->listener->ready_count, 60u);
    EXPECT_LT(x->listener->ready_count, 140u);
    total += x->listener->ready_count;
  }
  EXPECT_EQ(total, 400u);
  // One goes: the others serve, the first's rules with them.
  h.close(*l[0]);
  for (uint16_t i = 0; i < 50; ++i) {
    Peer p(h, "11.0.0.8", 4000 + i, 80);
    ASSERT_TRUE(p.connect());
  }
}

TEST(ReusePort, NeedsTheOptionOnAll) {
  Host h;
  h.listen(80);
  SocketStats stats;
  const auto second = h.engine().listeners().listen({IpAddr::any_v4(), 80, 0}, false, 16, {},
                                                    nullptr, stats, {.reuse_port = true});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().err, EADDRINUSE);
}

// ---- TIME_WAIT: RFC 6191, XLIO 2716793

class TimeWait : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Timestamps, TimeWait, testing::Bool());

/// A connection that the host closed first: it waits.
void leave_in_time_wait(Host& h, Listening& l, Peer& p) {
  ASSERT_TRUE(p.connect());
  Conn* c = h.accept(l);
  ASSERT_NE(c, nullptr);
  h.close(*c);
  const auto fin = p.hear();
  ASSERT_TRUE(fin && has(fin->flags, kFin));
  p.ack = p.ack + 1;
  p.say(kAck | kFin);
  const auto last = p.hear();
  ASSERT_TRUE(last && last->is(kAck));
  ASSERT_EQ(h.stats().time_waits.get(), 1u);
}

TEST_P(TimeWait, ANewerSynOpensWithAnIsnAbove) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.timestamps = GetParam();
  leave_in_time_wait(h, l, p);
  const Seq32 before = p.ack;  // the host's snd_nxt
  p.iss = p.nxt + 1000;
  p.ts_val += 1;
  p.syn();
  const auto answer = p.hear();
  ASSERT_TRUE(answer && answer->is(kSyn | kAck));
  EXPECT_GE(answer->seq - before, 65'537);
  p.ack = answer->seq + 1;
  p.say(kAck | kPsh, "again");
  Conn* c = h.accept(l);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(h.read(*c), "again");
}

TEST_P(TimeWait, AnOlderSynIsAnsweredByTheLastAck) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.timestamps = GetParam();
  leave_in_time_wait(h, l, p);
  const Seq32 expected = p.nxt;
  p.iss = p.nxt - 5000;
  p.ts_val -= 1;
  p.syn();
  const auto answer = p.hear();
  ASSERT_TRUE(answer && answer->is(kAck));
  EXPECT_EQ(answer->ack, expected);
  EXPECT_EQ(l.listener->syn_count, 0u);
}

TEST_P(TimeWait, IsNotPassedByCookies) {
  Host h;
  Listening& l = h.listen(80, 8);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.timestamps = GetParam();
  leave_in_time_wait(h, l, p);
  for (uint16_t i = 0; i < 20; ++i) Peer(h, "12.0.0.1", 4000 + i, 80).syn();
  const uint64_t cookies = h.stats().syn_cookies_sent.get();
  p.iss = p.nxt + 1;
  p.ts_val += 1;
  ASSERT_TRUE(p.connect()) << "who proved itself gets a record beyond the limit";
  EXPECT_EQ(h.stats().syn_cookies_sent.get(), cookies);
  EXPECT_NE(h.accept(l), nullptr);
}

TEST_P(TimeWait, WithoutAListenerTheEntryStays) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.timestamps = GetParam();
  leave_in_time_wait(h, l, p);
  // Another listener on another port keeps the frames coming (one rule for the interface is gone).
  const Seq32 end = p.nxt;
  h.close(l);
  Listening& again = h.listen(80);
  p.iss = end + 1;
  p.ts_val += 1;
  EXPECT_TRUE(p.connect());
  EXPECT_NE(h.accept(again), nullptr);
}

// TCP.md case 47: tsval wrapped past 2^31 is newer.
TEST(TimeWait, ComparesTimestampsModulo) {
  Host h;
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  p.ts_val = 0xffff'fff0;
  leave_in_time_wait(h, l, p);
  p.iss = p.nxt - 100;  // an older number with a newer clock
  p.ts_val = 5;
  EXPECT_TRUE(p.connect());
  EXPECT_NE(h.accept(l), nullptr);
}

// ---- strangers: RFC 1122 §3.2.1.3, §4.2.3.10; TCP.md 3.10 row 24

TEST(Strangers, AreResetAtALimitedRate) {
  Host h;
  Listening& l = h.listen(80);  // the frames come for its sake
  h.close(l);
  Listening& other = h.listen(81);
  (void)other;
  for (int second = 0; second < 4; ++second) {
    for (uint16_t i = 0; i < 4000; ++i)
      Peer(h, "12.0.0.1", 1024 + i, 81).say(kAck, Seq32(1), Seq32(2), {.poll_now = i % 64 == 63});
    const size_t n = h.forget_heard();
    EXPECT_GE(n, 500u);
    EXPECT_LE(n, 1501u);
    h.pass(Duration::s(1));
  }
}

TEST(Strangers, NobodyAndEverybodyIsNotAnswered) {  // TCP.md 3.10 row 24
  Host h;
  Listening& l = h.listen(80);
  for (const char* from :
       {"0.0.0.0", "255.255.255.255", "224.0.0.1", "127.0.0.1", "10.0.0.1", "10.0.0.255"}) {
    Peer p(h, from, 4000, 80);
    p.say(kSyn, Seq32(1), Seq32(0));
    p.say(kAck, Seq32(1), Seq32(2));
    p.say(SegFlags::kNone, Seq32(1), Seq32(0), {.data = "x"});
  }
  Peer p(h, "11.0.0.7", 4000, 80);
  p.say(kSyn, Seq32(1), Seq32(0), {.group_mac = true});
  p.say(kAck, Seq32(1), Seq32(2), {.group_mac = true});
  for (const char* to : {"10.0.0.255", "255.255.255.255", "224.0.0.5"}) {
    p.there.addr = ip(to);
    p.say(kSyn, Seq32(1), Seq32(0));
    p.say(kAck, Seq32(1), Seq32(2));
  }
  Peer own(h, "fd00::1", 80, 80);
  own.say(kSyn, Seq32(1), Seq32(0));
  h.pass(Duration::s(3));
  EXPECT_EQ(h.heard().size(), 0u);
  EXPECT_EQ(l.listener->syn_count, 0u);
}

// The router's Ethernet address is not known yet: the answer goes back where the SYN came from.
TEST(Listen, DoesNotWaitForANeighbourToAnswer) {
  Host h({.knows_router = false});
  Listening& l = h.listen(80);
  Peer p(h, "11.0.0.7", 4000, 80);
  ASSERT_TRUE(p.connect());
  Conn* c = h.accept(l);
  ASSERT_NE(c, nullptr);
  h.write(*c, "later");
  EXPECT_FALSE(p.hear());
  h.learn_router();
  h.pass(Duration::ms(250));
  const auto data = p.hear();
  ASSERT_TRUE(data);
  EXPECT_EQ(data->data, "later");
}

}  // namespace
}  // namespace vireo::test
