// Several queues, interfaces and processes around one device: who gets what, who is refused and
// why, and what is left when a process dies.
#include <bpf/bpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "child.h"
#include "core/own_fds.h"
#include "dev/xdp/device.h"
#include "dev/xdp/xsk.h"
#include "end.h"
#include "lab.h"
#include "raw_port.h"

namespace vireo::test {
namespace {

class XdpSharing : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  }
};

/// What the kernel keeps for a device.
struct Objects {
  uint32_t program = 0;
  uint32_t maps[16] = {};
};

Objects objects_of(const Device& d) {
  Objects o;
  bpf_prog_info info{};
  info.nr_map_ids = 16;
  info.map_ids = reinterpret_cast<uint64_t>(o.maps);
  uint32_t length = sizeof info;
  const int fd = static_cast<const xdp::XdpDevice&>(d).steering().program_fd();
  if (bpf_obj_get_info_by_fd(fd, &info, &length) == 0) o.program = info.id;
  return o;
}

bool exists(const char* kind, uint32_t id) {
  return run("bpftool " + std::string(kind) + " show id " + std::to_string(id));
}

/// Waits for the kernel's deferred freeing.
bool all_gone(const Objects& o) {
  for (int tries = 0; tries < 100; ++tries) {
    bool any = exists("prog", o.program);
    for (const uint32_t id : o.maps) any = any || (id != 0 && exists("map", id));
    if (!any) return true;
    usleep(50'000);
  }
  return false;
}

TEST_F(XdpSharing, ASecondProcessFindsTheInterfaceBusy) {
  const Veth veth;
  ASSERT_TRUE(veth.made());
  for (const XdpMode mode : {XdpMode::kAuto, XdpMode::kNative, XdpMode::kGeneric}) {
    Child holder([&](Child& self) {
      End end(veth.index(0), {.mode = mode});
      self.report(end.device != nullptr);
      self.wait();
      return 0;
    });
    ASSERT_TRUE(holder.hear<bool>());
    for (const XdpMode second : {XdpMode::kAuto, XdpMode::kNative, XdpMode::kGeneric}) {
      const End end(veth.index(0), {.mode = second});
      ASSERT_EQ(end.device, nullptr);
      EXPECT_EQ(end.error.code, EBUSY);
      EXPECT_NE(std::string_view(end.error.where).find("XDP program"), std::string_view::npos)
          << end.error.where;
    }
    holder.go();
    EXPECT_EQ(holder.join(), 0);
  }
  const End end(veth.index(0));
  EXPECT_NE(end.device, nullptr) << end.error.where;
}

TEST_F(XdpSharing, AQueueIsOpenedOnce) {
  const Veth veth;
  End end(veth.index(0));
  ASSERT_TRUE(end.device);
  ASSERT_TRUE(end.open_queue());
  EXPECT_FALSE(end.open_queue());
  EXPECT_EQ(end.error.code, EBUSY);
  EXPECT_NE(std::string_view(end.error.where).find("queue"), std::string_view::npos);
  end.queues.clear();
  EXPECT_TRUE(end.open_queue()) << end.error.where;
}

uint32_t count_own_fds() {
  uint32_t n = 0;
  for (uint32_t fd = next_own_fd(0); fd < kMaxOwnFds; fd = next_own_fd(fd + 1)) ++n;
  return n;
}

/// The process may open one descriptor more, while this lives.
class OneDescriptorLeft {
 public:
  OneDescriptorLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{256, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd; (fd = dup(STDERR_FILENO)) >= 0;) taken_.emplace_back(fd);
    taken_.pop_back();
  }
  ~OneDescriptorLeft() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<UniqueFd> taken_;
};

bool sends(End& from, Queue& to) {
  const PacketRef p(from.pool->take());
  const Bytes frame = udp_frame(0, 1);
  std::memcpy(p->data(), frame.data(), frame.size());
  p->length = static_cast<uint16_t>(frame.size());
  const PacketSlice body{p.get(), p->data_at, p->length};
  return from.queues[0]->tx({{}, {&body, 1}, 0}, Doorbell::kNow) && next_packet(to) == frame;
}

TEST_F(XdpSharing, WhereFramesAreCopiedASecondSocketSends) {
  const Veth veth;
  End a(veth.index(0));
  End b(veth.index(1));
  ASSERT_TRUE(a.device && b.device && b.open_queue() && b.steer(kAddress[1]));
  const uint32_t before = count_own_fds();
  ASSERT_TRUE(a.open_queue());
  EXPECT_EQ(count_own_fds(), before + 2);
  EXPECT_TRUE(sends(a, *b.queues[0]));
  a.queues.clear();
  EXPECT_EQ(count_own_fds(), before);
}

TEST_F(XdpSharing, WithoutRoomForASecondDescriptorOneSocketDoesBoth) {
  const Veth veth;
  End a(veth.index(0));
  End b(veth.index(1));
  ASSERT_TRUE(a.device && b.device && b.open_queue() && b.steer(kAddress[1]));
  const uint32_t before = count_own_fds();
  {
    const OneDescriptorLeft tight;
    ASSERT_TRUE(a.open_queue()) << a.error.where;
  }
  EXPECT_EQ(count_own_fds(), before + 1);
  EXPECT_TRUE(sends(a, *b.queues[0]));
}

TEST_F(XdpSharing, AQueueTakenByAnotherSocketIsBusy) {
  const Veth veth;
  auto memory = Arena::create(1, false);
  ASSERT_TRUE(memory);
  auto stranger = xdp::Xsk::open_registering(memory->bytes(), 2048, XDP_COPY, veth.index(0),
                                             QueueId(0), {.rx = 64, .tx = 64});
  ASSERT_TRUE(stranger) << stranger.error().where;
  End end(veth.index(0));
  ASSERT_TRUE(end.device) << end.error.where;
  EXPECT_FALSE(end.open_queue());
  EXPECT_EQ(end.error.code, EBUSY);
}

TEST_F(XdpSharing, AKilledProcessLeavesNothingAndItsFlowsAreTheKernels) {
  const Veth veth;
  const RawPort wire(veth.index(1));
  const RawPort kernel(veth.index(0));
  for (int round = 0; round < 3; ++round) {
    Child victim([&](Child& self) {
      End end(veth.index(0));
      if (!end.device || !end.open_queue() || !end.steer(kAddress[0])) return 1;
      self.report(objects_of(*end.device));
      (void)next_packet(*end.queues[0]);
      self.report(true);
      self.wait();
      return 0;
    });
    const auto objects = victim.hear<Objects>();
    ASSERT_NE(objects.program, 0U);
    ASSERT_NE(objects.maps[0], 0U);
    EXPECT_TRUE(exists("prog", objects.program));
    EXPECT_TRUE(exists("map", objects.maps[0]));
    ASSERT_TRUE(wire.send(udp_frame(1, 1)));
    ASSERT_TRUE(victim.hear<bool>()) << "the flow was not carried";
    EXPECT_FALSE(kernel.receive(20));
    victim.kill_now();
    ASSERT_TRUE(wire.send(udp_frame(1, 2)));
    const auto passed = kernel.receive(1000);
    ASSERT_TRUE(passed) << "the flow did not fall back to the kernel at once";
    EXPECT_EQ(*passed, udp_frame(1, 2));
    EXPECT_TRUE(all_gone(objects));
  }
}

TEST_F(XdpSharing, AForkedChildMayEndItsCopiesAndDisturbsNothing) {
  const Veth veth;
  const RawPort wire(veth.index(1));
  auto end = std::make_unique<End>(veth.index(0));
  ASSERT_TRUE(end->device && end->open_queue() && end->steer(kAddress[0])) << end->error.where;
  const Objects objects = objects_of(*end->device);
  Child child([&](Child& self) {
    for (FlowRule& r : end->rules) r.abandon();
    end->rules.clear();
    end->queues.clear();
    end->device.reset();
    self.report(end->pool->free_count() == end->pool->size());
    self.wait();
    return 0;
  });
  EXPECT_TRUE(child.hear<bool>()) << "the child's books did not close";
  for (uint32_t i = 0; i < 300; ++i) {
    ASSERT_TRUE(wire.send(udp_frame(1, i)));
    ASSERT_EQ(next_packet(*end->queues[0]), udp_frame(1, i)) << "the parent lost its flow";
  }
  end.reset();
  EXPECT_TRUE(all_gone(objects)) << "the child that lives on still holds them";
  child.go();
  EXPECT_EQ(child.join(), 0);
}

// What a library does in a child: the objects are left as they lie.
TEST_F(XdpSharing, AForkedChildThatClosesDescriptorsKeepsNothingFromOthers) {
  const Veth veth;
  auto end = std::make_unique<End>(veth.index(0));
  ASSERT_TRUE(end->device && end->open_queue() && end->steer(kAddress[0])) << end->error.where;
  const Objects objects = objects_of(*end->device);
  Child child([&](Child& self) {
    close_own_fds();
    self.report(true);
    self.wait();
    return 0;
  });
  EXPECT_TRUE(child.hear<bool>());
  end.reset();
  EXPECT_TRUE(all_gone(objects)) << "the child that lives on still holds them";
  End next(veth.index(0));
  ASSERT_TRUE(next.device) << next.error.where;
  EXPECT_TRUE(next.open_queue()) << next.error.where;
  child.go();
  EXPECT_EQ(child.join(), 0);
}

TEST_F(XdpSharing, EveryQueueOfAnInterfaceOnOneArena) {
  constexpr uint32_t kQueues = 4;
  const Veth veth({.queues = kQueues});
  End ours(veth.index(0));
  End peer(veth.index(1));
  ASSERT_TRUE(ours.device && peer.device) << ours.error.where << peer.error.where;
  ASSERT_EQ(ours.device->caps().queues, kQueues);
  for (uint32_t q = 0; q < kQueues; ++q) {
    ASSERT_TRUE(ours.open_queue(q)) << ours.error.where;
    ASSERT_TRUE(peer.open_queue(q)) << peer.error.where;
  }
  EXPECT_FALSE(ours.open_queue(kQueues));
  EXPECT_EQ(ours.error.code, EINVAL);
  ASSERT_TRUE(ours.steer(kAddress[0]));
  // A veth delivers on the queue that it was sent from.
  for (uint32_t i = 0; i < 40; ++i) {
    const uint32_t q = i % kQueues;
    ASSERT_TRUE(peer.queues[q]->tx({udp_frame(1, i), {}}, Doorbell::kNow));
    ASSERT_EQ(next_packet(*ours.queues[q]), udp_frame(1, i)) << "queue " << q;
    peer.queues[q]->tx_reap();
  }
  // A queue that is closed leaves its frames to the kernel, and the others go on, the first one
  // included.
  const RawPort kernel(veth.index(0));
  ours.queues[0].reset();
  ASSERT_TRUE(peer.queues[0]->tx({udp_frame(1, 50), {}}, Doorbell::kNow));
  EXPECT_TRUE(kernel.receive(1000));
  ASSERT_TRUE(peer.queues[1]->tx({udp_frame(1, 51), {}}, Doorbell::kNow));
  EXPECT_EQ(next_packet(*ours.queues[1]), udp_frame(1, 51));
  auto again = ours.device->open_queue(QueueId(0), *ours.pool);
  ASSERT_TRUE(again) << again.error().where;
  ASSERT_TRUE(peer.queues[0]->tx({udp_frame(1, 52), {}}, Doorbell::kNow));
  EXPECT_EQ(next_packet(**again), udp_frame(1, 52));
}

/// Opens both interfaces of `veth` on one arena, with `memlock` bytes allowed to be pinned.
int open_both(const Veth& veth, size_t arena_bytes, size_t memlock, bool say) {
  const rlimit limit{memlock, memlock};
  auto arena = Arena::create(arena_bytes, false);
  if (!arena || setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || !drop_capabilities({CAP_IPC_LOCK}))
    return 10;
  PacketPool pool(arena->bytes(), 2048);
  auto a = open_xdp(veth.index(0), *arena, {});
  auto b = open_xdp(veth.index(1), *arena, {});
  if (!a || !b) return 11;
  auto qa = (*a)->open_queue(QueueId(0), pool);
  if (!qa) {
    if (say) std::fprintf(stderr, "%s\n", qa.error().where);
    return qa.error().code == ENOMEM &&
                   std::string_view(qa.error().where).starts_with("RLIMIT_MEMLOCK")
               ? 12
               : 13;
  }
  rlimit now{};
  getrlimit(RLIMIT_MEMLOCK, &now);
  if (now.rlim_cur != memlock) return 14;
  auto qb = (*b)->open_queue(QueueId(0), pool);
  return qb ? 0 : 15;
}

TEST_F(XdpSharing, InterfacesOnOneArenaPinItOnce) {
  constexpr size_t kArena = size_t{4} << 20;
  const Veth veth;
  // Room for one and a half.
  Child enough([&](Child&) { return open_both(veth, kArena, kArena * 3 / 2, true); });
  EXPECT_EQ(enough.join(), 0);
}

TEST_F(XdpSharing, ATooSmallMemlockLimitIsNamed) {
  const Veth veth;
  Child child([&](Child&) { return open_both(veth, size_t{4} << 20, 65536, false); });
  EXPECT_EQ(child.join(), 12);
}

TEST_F(XdpSharing, AMissingCapabilityIsNamed) {
  const Veth veth;
  const auto refused = [&](std::initializer_list<unsigned> gone, const char* named) {
    Child child([&](Child&) {
      const IfIndex ifindex = veth.index(0);
      int quiet[2];
      if (!drop_capabilities(gone) || pipe(quiet) != 0) return 10;
      dup2(quiet[1], 2);
      close(quiet[1]);
      const End end(ifindex);
      close(2);
      char text[64];
      if (end.device) return 1;
      if (end.error.code != EPERM) return 2;
      if (std::string_view(end.error.where).find(named) == std::string_view::npos) return 3;
      return read(quiet[0], text, sizeof text) == 0 ? 0 : 4;  // nothing was printed
    });
    return child.join();
  };
  EXPECT_EQ(refused({CAP_NET_RAW}, "CAP_NET_RAW"), 0);
  EXPECT_EQ(refused({CAP_BPF, CAP_SYS_ADMIN}, "CAP_BPF"), 0);
  EXPECT_EQ(refused({CAP_NET_ADMIN, CAP_SYS_ADMIN}, "CAP_NET_ADMIN"), 0);
}

TEST_F(XdpSharing, OddWishesAreRefused) {
  const Veth veth;
  const End nowhere(IfIndex(987654));
  EXPECT_EQ(nowhere.error.code, ENODEV);
  const End zero_copy(veth.index(0), {.mode = XdpMode::kZeroCopy});
  End end(veth.index(1));
  ASSERT_TRUE(end.device);
  auto other = Arena::create(size_t{2} << 20, false);
  PacketPool stranger(other->bytes(), 2048);
  const auto q = end.device->open_queue(QueueId(0), stranger);
  ASSERT_FALSE(q);
  EXPECT_EQ(q.error().code, EINVAL);
  if (zero_copy.device) {  // a veth has it not; said when a queue is bound
    const auto zq = zero_copy.device->open_queue(QueueId(0), *zero_copy.pool);
    ASSERT_FALSE(zq);
    EXPECT_EQ(zq.error().code, ENOTSUP) << zq.error().where;
  }
  ASSERT_TRUE(end.open_queue());
  FlowKey k;
  k.local = {kAddress[0], 80, 0};
  k.v6 = true;  // an IPv4 address
  EXPECT_EQ(end.device->steer(k, FlowTag(1), *end.queues[0]).error().code, EINVAL);
  k.v6 = false;
  k.proto = IpProto::kIcmp;
  EXPECT_EQ(end.device->steer(k, FlowTag(1), *end.queues[0]).error().code, ENOTSUP);
  k.proto = IpProto::kTcp;
  k.remote = {kAddress[1], 0, 0};  // half a remote
  EXPECT_EQ(end.device->steer(k, FlowTag(1), *end.queues[0]).error().code, EINVAL);
}

TEST_F(XdpSharing, AFullTableSaysSo) {
  const Veth veth;
  End end(veth.index(0), {.max_listeners = 8});
  ASSERT_TRUE(end.device && end.open_queue());
  uint16_t port = 1;
  while (port < 1000 && end.steer(kAddress[0], port)) ++port;
  EXPECT_GE(port, 8);
  EXPECT_EQ(end.error.code, ENOSPC);
  end.rules.clear();
  EXPECT_TRUE(end.steer(kAddress[0], 5));
}

TEST_F(XdpSharing, DescriptorsEndAtExec) {
  const auto open_fds = [] {
    std::vector<int> fds;
    for (const auto& e : std::filesystem::directory_iterator("/proc/self/fd"))
      fds.push_back(std::stoi(e.path().filename().string()));
    return fds;
  };
  const Veth veth;
  const auto before = open_fds();
  End end(veth.index(0));
  ASSERT_TRUE(end.device && end.open_queue());
  int seen = 0;
  for (const int fd : open_fds()) {
    if (std::find(before.begin(), before.end(), fd) != before.end()) continue;
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0) continue;  // the directory's own
    ++seen;
    EXPECT_NE(flags & FD_CLOEXEC, 0) << fd;
  }
  EXPECT_GE(seen, 8);
}

TEST_F(XdpSharing, OpeningAndClosingLeavesNoDescriptor) {
  const Veth veth;
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = count();
  for (int i = 0; i < 10; ++i) {
    End end(veth.index(0));
    ASSERT_TRUE(end.device && end.open_queue() && end.steer(kAddress[0]));
  }
  EXPECT_EQ(count(), before);
}

}  // namespace
}  // namespace vireo::test
