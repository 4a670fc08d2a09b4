// Frames through an AF_XDP queue where the contract's suite does not reach: packets of several
// frames beside the kernel's sockets, lost frames counted, a link that goes down.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "child.h"
#include "core/log.h"
#include "end.h"
#include "lab.h"
#include "raw_port.h"

namespace vireo::test {
namespace {

class XdpTraffic : public ::testing::TestWithParam<XdpMode> {
 protected:
  void SetUp() override {
    if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  }
};

TEST_P(XdpTraffic, PacketsOfSeveralFramesFromTheKernel) {
  const Veth veth({.mtu = 9000});
  ASSERT_TRUE(veth.made());
  End end(veth.index(0), {.mode = GetParam(), .rx_frames = 256});
  ASSERT_TRUE(end.device && end.open_queue() && end.steer(kAddress[0])) << end.error.where;
  ASSERT_TRUE(end.device->caps().multi_frame);
  EXPECT_EQ(end.device->caps().mtu, 9000U);
  const RawPort wire(veth.index(1));
  for (const size_t payload : {60U, 1700U, 1760U, 1800U, 3600U, 5000U, 8972U}) {
    ASSERT_TRUE(wire.send(udp_frame(1, 7, payload))) << payload;
    ASSERT_EQ(next_packet(*end.queues[0]), udp_frame(1, 7, payload)) << payload;
  }
  // A burst ends with a packet, not in the midst of one.
  const uint32_t free_before = end.pool->free_count();
  for (uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(wire.send(udp_frame(1, i, 8972)));
  unsigned packets = 0;
  for (int tries = 0; tries < 1000 && packets < 8; ++tries) {
    RxDesc in[16];
    const unsigned n = end.queues[0]->rx_burst(in);
    if (n > 0) {
      EXPECT_FALSE(has(in[n - 1].flags, RxFlags::kMore));
    }
    for (const RxDesc& d : std::span(in).first(n)) packets += has(d.flags, RxFlags::kMore) ? 0 : 1;
    end.queues[0]->rx_refill();
    usleep(1000);
  }
  EXPECT_EQ(packets, 8U);
  end.queues[0]->rx_refill();
  EXPECT_EQ(end.pool->free_count(), free_before);
}

TEST_P(XdpTraffic, PacketsOfSeveralFramesToTheKernel) {
  const Veth veth({.mtu = 9000});
  End end(veth.index(0), {.mode = GetParam(), .tx_frames = 64});
  ASSERT_TRUE(end.device && end.open_queue()) << end.error.where;
  Queue& q = *end.queues[0];
  const RawPort wire(veth.index(1));
  const uint32_t free_before = end.pool->free_count();
  uint32_t number = 0;
  for (int round = 0; round < 50; ++round) {
    for (const size_t pieces : {2U, 5U, 16U, 40U}) {  // the last are copied together
      const Bytes whole = udp_frame(0, ++number, 8972);
      std::vector<PacketRef> held;
      std::vector<PacketSlice> body;
      const size_t head = 42;
      for (size_t at = head; at < whole.size();) {
        const size_t n =
            std::min({whole.size() - at, (whole.size() - head) / pieces + 1, size_t{1700}});
        PacketRef p(end.pool->take());
        p->length = static_cast<uint16_t>(n);
        std::memcpy(p->data(), whole.data() + at, n);
        body.push_back({p.get(), p->data_at, p->length});
        held.push_back(std::move(p));
        at += n;
      }
      ASSERT_TRUE(q.tx({std::span(whole).first(head), body}, Doorbell::kNow));
      // Once more while the first copy may be under way: the head goes into a frame of its own.
      ASSERT_TRUE(q.tx({std::span(whole).first(head), body}, Doorbell::kNow));
      held.clear();
      ASSERT_EQ(wire.receive(1000).value_or(Bytes()), whole) << pieces;
      ASSERT_EQ(wire.receive(1000).value_or(Bytes()), whole) << pieces;
      for (int tries = 0; tries < 1000 && end.pool->free_count() < free_before; ++tries) {
        if (q.tx_reap() == 0) usleep(1000);
      }
      ASSERT_EQ(end.pool->free_count(), free_before);
    }
  }
}

TEST_P(XdpTraffic, ChainedFramesThatDoNotFitTakeNothing) {
  const Veth veth({.mtu = 9000});
  End end(veth.index(0), {.mode = GetParam(), .tx_frames = 8});
  ASSERT_TRUE(end.device && end.open_queue());
  const Bytes whole = udp_frame(0, 1, 8972);
  std::vector<PacketRef> held;
  std::vector<PacketSlice> body;
  for (size_t at = 42; at < whole.size(); at += 1700) {
    PacketRef p(end.pool->take());
    p->length = static_cast<uint16_t>(std::min<size_t>(1700, whole.size() - at));
    std::memcpy(p->data(), whole.data() + at, p->length);
    body.push_back({p.get(), p->data_at, p->length});
    held.push_back(std::move(p));
  }
  Queue& q = *end.queues[0];
  const TxFrame frame{std::span(whole).first(42), body};
  ASSERT_TRUE(q.tx(frame, Doorbell::kLater));
  const uint32_t free_before = end.pool->free_count();
  EXPECT_FALSE(q.tx(frame, Doorbell::kLater)) << "6 and 7 descriptors in a ring of 8";
  EXPECT_EQ(end.pool->free_count(), free_before);
  for (const PacketRef& p : held) EXPECT_EQ(p->device_refs, 1);
  q.tx_flush();
  const RawPort wire(veth.index(1));
  for (int tries = 0; tries < 1000 && q.tx_reap() == 0; ++tries) usleep(1000);
  EXPECT_TRUE(q.tx(frame, Doorbell::kNow));
  EXPECT_EQ(wire.receive(1000).value_or(Bytes()), whole);
}

TEST_P(XdpTraffic, LostFramesAreCounted) {
  const Veth veth;
  End end(veth.index(0), {.mode = GetParam(), .rx_frames = 32});
  ASSERT_TRUE(end.device && end.open_queue() && end.steer(kAddress[0]));
  const RawPort wire(veth.index(1));
  for (uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(wire.send(udp_frame(1, i)));
  uint32_t came = 0;
  while (came < 32 && !next_packet(*end.queues[0]).empty()) ++came;
  EXPECT_EQ(came, 32U);
  const QueueLosses losses = end.queues[0]->losses();
  EXPECT_EQ(losses.rx_ring_full + losses.rx_no_frame, 68U);
  EXPECT_GE(losses.rx_starved, losses.rx_no_frame);
  ASSERT_TRUE(wire.send(udp_frame(1, 1000)));
  EXPECT_EQ(next_packet(*end.queues[0]), udp_frame(1, 1000));
}

TEST_P(XdpTraffic, FramesSentOnALinkThatIsDownLeaveWhenItIsUp) {
  const Veth veth;
  End end(veth.index(0), {.mode = GetParam(), .tx_frames = 8});
  ASSERT_TRUE(end.device && end.open_queue());
  Queue& q = *end.queues[0];
  ASSERT_TRUE(run("ip link set " + veth.name(0) + " down"));
  EXPECT_TRUE(q.alive()) << "down is not gone";
  uint32_t sent = 0;
  while (sent < 100 && q.tx({udp_frame(0, sent), {}}, Doorbell::kNow)) ++sent;
  EXPECT_EQ(sent, 8U);
  const auto armed = q.arm();
  ASSERT_TRUE(armed);
  EXPECT_TRUE(*armed) << "there is nothing to do but sleep";
  const RawPort wire(veth.index(1));
  ASSERT_TRUE(run("ip link set " + veth.name(0) + " up"));
  usleep(100'000);
  q.tx_flush();
  for (uint32_t i = 0; i < sent; ++i)
    ASSERT_EQ(wire.receive(1000).value_or(Bytes()), udp_frame(0, i));
  for (int tries = 0; tries < 1000 && q.tx_reap() == 0; ++tries) usleep(1000);
  EXPECT_TRUE(q.tx({udp_frame(0, 9), {}}, Doorbell::kNow));
}

TEST_P(XdpTraffic, ManyFramesWithOneDoorbell) {
  // More than the kernel sends for one kick (32), in one flush.
  const Veth veth;
  End end(veth.index(0), {.mode = GetParam(), .rx_frames = 512, .tx_frames = 512}, 2048);
  End peer(veth.index(1), {.mode = GetParam(), .rx_frames = 512, .tx_frames = 512}, 2048);
  ASSERT_TRUE(end.device && end.open_queue() && peer.device && peer.open_queue() &&
              peer.steer(kAddress[1]));
  uint32_t next = 0;
  for (uint32_t round = 0; round < 20; ++round) {
    uint32_t n = 0;
    while (end.queues[0]->tx({udp_frame(0, round * 1000 + n), {}}, Doorbell::kLater)) ++n;
    EXPECT_EQ(n, 512U);
    end.queues[0]->tx_flush();
    for (uint32_t i = 0; i < n; ++i, ++next)
      ASSERT_EQ(next_packet(*peer.queues[0]), udp_frame(0, round * 1000 + i))
          << "round " << round << ", frame " << i;
    for (int tries = 0; tries < 1000 && n > 0; ++tries) n -= end.queues[0]->tx_reap();
    ASSERT_EQ(n, 0U);
  }
}

/// What the log says meanwhile.
class Logged {
 public:
  Logged() : file_(memfd_create("log", MFD_CLOEXEC)), before_(LogSink::fd.exchange(file_.get())) {}
  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;
  ~Logged() { LogSink::fd = before_; }
  std::string text() const {
    std::string t(4096, '\0');
    t.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(file_.get(), t.data(), t.size(), 0))));
    return t;
  }

 private:
  UniqueFd file_;
  int before_;
};

TEST_P(XdpTraffic, BusyPollingThatTheKernelDoesNotDoIsSaidOnce) {
  const Veth veth;
  End end(veth.index(0), {.mode = GetParam(), .busy_poll_us = 20});
  ASSERT_TRUE(end.device && end.open_queue() && end.steer(kAddress[0]));
  const RawPort wire(veth.index(1));
  const Logged log;
  RxDesc none[1];
  for (int i = 0; i < 3; ++i) ASSERT_EQ(end.queues[0]->rx_burst(none), 0U);
  EXPECT_EQ(log.text(), "") << "before the first frame nobody knows";
  for (uint32_t round = 0; round < 3; ++round) {
    ASSERT_TRUE(wire.send(udp_frame(1, round)));
    ASSERT_EQ(next_packet(*end.queues[0]), udp_frame(1, round));
    ASSERT_EQ(end.queues[0]->rx_burst(none), 0U);
  }
  int napi = 0;
  socklen_t length = sizeof napi;
  ASSERT_EQ(getsockopt(end.queues[0]->wait_fd(), SOL_SOCKET, SO_INCOMING_NAPI_ID, &napi, &length),
            0);
  const std::string said = log.text();
  EXPECT_EQ(std::ranges::count(said, '\n'), napi == 0 ? 1 : 0) << said;
  EXPECT_EQ(said.contains("VIREO_XDP_BUSY_POLL"), napi == 0) << said;
}

INSTANTIATE_TEST_SUITE_P(Mode, XdpTraffic, ::testing::Values(XdpMode::kNative, XdpMode::kGeneric),
                         [](const auto& i) {
                           return std::string(i.param == XdpMode::kNative ? "native" : "generic");
                         });

}  // namespace
}  // namespace vireo::test
