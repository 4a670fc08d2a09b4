// rdma_cm as programs of raw packets use it: a destination's device, by way of an event.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace {

/// A device whose interface is loopback, and a channel.
class RdmaCm : public testing::Test {
 protected:
  RdmaCm() {
    setenv("SOFTNIC_WIRE", "rdmacm@lo", 1);
    channel_ = rdma_create_event_channel();
    fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
    EXPECT_EQ(rdma_create_id(channel_, &id_, this, RDMA_PS_UDP), 0);
  }
  ~RdmaCm() override {
    EXPECT_EQ(rdma_destroy_id(id_), 0);
    rdma_destroy_event_channel(channel_);
    unsetenv("SOFTNIC_WIRE");
  }
  int resolve(const char* address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    inet_pton(AF_INET, address, &to.sin_addr);
    return rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&to), 2000);
  }
  bool is_readable() {
    const int set = epoll_create1(0);
    epoll_event e{};
    e.events = EPOLLIN;
    epoll_ctl(set, EPOLL_CTL_ADD, channel_->fd, &e);
    const bool readable = epoll_wait(set, &e, 1, 0) == 1;
    close(set);
    return readable;
  }
  rdma_event_channel* channel_;
  rdma_cm_id* id_ = nullptr;
};

TEST_F(RdmaCm, AnAddressIsResolvedToDeviceAndPort) {
  EXPECT_FALSE(is_readable());
  ASSERT_EQ(resolve("127.0.0.1"), 0);
  EXPECT_TRUE(is_readable());
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_STREQ(rdma_event_str(event->event), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_EQ(event->status, 0);
  EXPECT_EQ(event->id, id_);
  EXPECT_EQ(id_->context, this);
  ASSERT_NE(id_->verbs, nullptr);
  EXPECT_STREQ(ibv_get_device_name(id_->verbs->device), "softnic0");
  EXPECT_EQ(id_->port_num, 1);
  EXPECT_EQ(id_->route.addr.src_sin.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_FALSE(is_readable());
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
}

TEST_F(RdmaCm, ARouteIsResolvedAfterTheAddress) {
  EXPECT_EQ(rdma_resolve_route(id_, 2000), -1);
  EXPECT_EQ(errno, EINVAL) << "where to?";
  ASSERT_EQ(resolve("127.0.0.1"), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  ASSERT_EQ(rdma_resolve_route(id_, 2000), 0);
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(event->status, 0);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
}

TEST_F(RdmaCm, GroupsAreNotJoinedByIds) {
  sockaddr_in group{};
  group.sin_family = AF_INET;
  inet_pton(AF_INET, "239.1.2.3", &group.sin_addr);
  EXPECT_EQ(rdma_join_multicast(id_, reinterpret_cast<sockaddr*>(&group), nullptr), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(rdma_leave_multicast(id_, reinterpret_cast<sockaddr*>(&group)), -1);
  EXPECT_EQ(errno, EINVAL);
}

// Not in the header: librdmacm has it for those who look for it by name.
extern "C" int rdma_lib_reset(void);

TEST_F(RdmaCm, AResetForgetsTheDevicesThatWereOpened) {
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(resolve("127.0.0.1"), 0);
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  ibv_context* const parents = id_->verbs;
  ASSERT_EQ(rdma_lib_reset(), 0);
  ASSERT_EQ(resolve("127.0.0.1"), 0);
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  EXPECT_NE(id_->verbs, nullptr);
  EXPECT_NE(id_->verbs, parents);
  ibv_close_device(parents);
}

TEST_F(RdmaCm, AnEmptyChannelSaysEagain) {
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(RdmaCm, AnInterfaceWithoutADeviceIsAnErrorEvent) {
  setenv("SOFTNIC_WIRE", "rdmacm", 1);
  ASSERT_EQ(resolve("127.0.0.1"), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_ERROR);
  EXPECT_EQ(event->status, -ENODEV);
  EXPECT_EQ(id_->verbs, nullptr);
  rdma_ack_cm_event(event);
}

TEST_F(RdmaCm, AnIdLivesUntilItsEventsAreAcknowledged) {
  ASSERT_EQ(resolve("127.0.0.1"), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(rdma_destroy_id(id_), -1);
  EXPECT_EQ(errno, EBUSY);
  rdma_ack_cm_event(event);
}

TEST_F(RdmaCm, AnEventNobodyReadGoesWithItsId) {
  rdma_cm_id* other = nullptr;
  ASSERT_EQ(rdma_create_id(channel_, &other, nullptr, RDMA_PS_UDP), 0);
  std::swap(other, id_);
  ASSERT_EQ(resolve("127.0.0.1"), 0);
  std::swap(other, id_);
  EXPECT_TRUE(is_readable());
  EXPECT_EQ(rdma_destroy_id(other), 0);
  EXPECT_FALSE(is_readable());
}

}  // namespace
