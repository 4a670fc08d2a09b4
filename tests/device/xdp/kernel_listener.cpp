// Connections that are given to the kernel's listener: accept(2) returns them with what was agreed,
// the kernel answers their peer, and nothing stays at the interface.
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/syscall.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "core/bpf_constant.h"
#include "end.h"
#include "lab.h"
#include "raw_port.h"
#include "sides.h"

namespace vireo::test {
namespace {

constexpr uint16_t kListens = 8080;
constexpr uint8_t kAckFlag = 0x10;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class KernelsListener : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
    ASSERT_TRUE(s_.is_open) << s_.end.error.where;
    if (const auto ready = s_.device().prepare_listener(); !ready && ready.error().code == ENOTSUP)
      GTEST_SKIP() << "needs Linux 6.9";
    ASSERT_TRUE(run("ip addr add 192.168.250.1/24 dev " + s_.veth.name(0)));
    ASSERT_TRUE(run("ip addr add fd76:1::1/64 nodad dev " + s_.veth.name(0)));
  }

  bool v6() const { return GetParam(); }
  IpAddr host() const { return *IpAddr::parse(v6() ? "fd76:1::1" : "192.168.250.1"); }
  IpAddr peer() const { return *IpAddr::parse(v6() ? "fd76:1::2" : "192.168.250.2"); }

  /// Of the peer: the kernel keeps the connections of the tests before.
  uint16_t port(int n) const { return static_cast<uint16_t>(first_port_ + n); }
  /// A listener of the kernel's that does not block.
  UniqueFd listener(int backlog = 8) const {
    UniqueFd fd(socket(v6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_storage name;
    const socklen_t n = Endpoint{host(), kListens, 0}.to_sockaddr(name, v6() ? AF_INET6 : AF_INET);
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&name), n), 0);
    EXPECT_EQ(listen(fd.get(), backlog), 0);
    return fd;
  }
  /// What the peer says, beginning at 1001, after a SYN-ACK with the number 5000.
  Bytes segment(uint16_t port, std::string_view text = "", uint32_t at = 0,
                uint8_t flags = kAckFlag) const {
    FrameSpec spec;
    std::swap(spec.from_mac, spec.to_mac);
    spec.proto = IpProto::kTcp;
    spec.from = {peer(), port, 0};
    spec.to = {host(), kListens, 0};
    spec.seq = 1001 + at;
    spec.ack = 5001;
    spec.flags = flags;
    spec.window = 500;
    return build_frame(spec, bytes_of(text));
  }
  int give(uint16_t port, Handshake agreed = {.peer_mss = 1460}) {
    const Bytes ack = segment(port);
    Opening o{.ack = ack, .agreed = agreed};
    o.error = -1;
    const auto given = s_.device().give_to_listener({&o, 1});
    EXPECT_TRUE(given) << given.error().where << ": " << given.error().code;
    return o.error;
  }
  static std::string read_of(int fd) {
    char text[64];
    const ssize_t n = recv(fd, text, sizeof text, MSG_DONTWAIT);
    return n < 0 ? "errno " + std::to_string(errno) : std::string(text, static_cast<size_t>(n));
  }
  /// Programs at the interface's ingress.
  uint32_t programs_there() const {
    bpf_attr a{};
    a.query.target_fd = s_.veth.index(0).value();
    a.query.attach_type = 46;  // BPF_TCX_INGRESS
    EXPECT_EQ(syscall(SYS_bpf, BPF_PROG_QUERY, &a, sizeof a), 0);
    return a.query.prog_cnt;
  }

  Sides s_{XdpMode::kNative};
  static inline int ports_taken = 4000;
  const int first_port_ = ports_taken += 100;
};

TEST_P(KernelsListener, AcceptsWhatItIsGiven) {
  const UniqueFd l = listener();
  ASSERT_EQ(give(port(0), {.peer_mss = 1300,
                           .scales = true,
                           .sack = true,
                           .timestamps = true,
                           .ecn = true,
                           .our_shift = 6,
                           .peer_shift = 9,
                           .our_time = 700'000,
                           .peer_time = 900'000}),
            0);
  ASSERT_TRUE(s_.device().give_to_kernel(segment(port(0), "hello ")));
  ASSERT_TRUE(s_.device().give_to_kernel(segment(port(0), "world", 6)));
  ASSERT_TRUE(s_.device().give_to_kernel(segment(port(0), "", 11, kAckFlag | 1)));
  sockaddr_storage from{};
  socklen_t n = sizeof from;
  const UniqueFd c(accept(l.get(), reinterpret_cast<sockaddr*>(&from), &n));
  ASSERT_TRUE(c) << errno;
  EXPECT_EQ(*Endpoint::from_sockaddr(reinterpret_cast<sockaddr*>(&from), n),
            (Endpoint{peer(), port(0), 0}));
  EXPECT_EQ(read_of(c.get()), "hello world");
  EXPECT_EQ(read_of(c.get()), "") << "the peer has closed";
  tcp_info info{};
  n = sizeof info;
  ASSERT_EQ(getsockopt(c.get(), IPPROTO_TCP, TCP_INFO, &info, &n), 0);
  EXPECT_EQ(info.tcpi_options & 15, 1 | 2 | 4 | 8) << "timestamps, SACK, window scaling, ECN";
  EXPECT_EQ(info.tcpi_snd_wscale, 9);
  EXPECT_EQ(info.tcpi_rcv_wscale, 6);
  EXPECT_LE(info.tcpi_snd_mss, 1300U);
  EXPECT_EQ(accept(l.get(), nullptr, nullptr), -1) << "one";
}

TEST_P(KernelsListener, AcceptsPlainOnesAndSeveral) {
  const UniqueFd l = listener();
  Bytes acks[3];
  Opening all[3];
  for (uint16_t i = 0; i < 3; ++i) {
    acks[i] = segment(port(i));
    all[i] = {.ack = acks[i], .agreed = {.peer_mss = 1220}, .error = -1};
  }
  ASSERT_TRUE(s_.device().give_to_listener(all));
  for (const Opening& o : all) {
    EXPECT_EQ(o.error, 0);
    const UniqueFd c(accept(l.get(), nullptr, nullptr));
    ASSERT_TRUE(c);
    tcp_info info{};
    socklen_t n = sizeof info;
    ASSERT_EQ(getsockopt(c.get(), IPPROTO_TCP, TCP_INFO, &info, &n), 0);
    EXPECT_EQ(info.tcpi_options & 15, 0);
    EXPECT_EQ(info.tcpi_state, BPF_TCP_ESTABLISHED);
  }
}

TEST_P(KernelsListener, AnswersThePeerAsTheSame) {
  const UniqueFd l = listener();
  ASSERT_EQ(give(port(0)), 0);
  ASSERT_TRUE(s_.device().give_to_kernel(segment(port(0), "?")));
  const UniqueFd c(accept(l.get(), nullptr, nullptr));
  ASSERT_TRUE(c);
  ASSERT_EQ(send(c.get(), "yes", 3, 0), 3);
  for (;;) {
    const auto frame = s_.wire.receive(1000);
    ASSERT_TRUE(frame) << "no answer came";
    const size_t tcp = v6() ? 54 : 34;
    if (frame->size() < tcp + 23 || std::to_integer<int>((*frame)[tcp + 13]) == kAckFlag) continue;
    EXPECT_EQ(to_integer<int>((*frame)[tcp + 7]), 5001 & 255) << "SEG.SEQ continues ours";
    EXPECT_EQ(to_integer<int>((*frame)[tcp + 11]), 1002 & 255);
    break;
  }
}

TEST_P(KernelsListener, SaysWhyNot) {
  EXPECT_EQ(give(port(0)), ECONNREFUSED);
  const UniqueFd l = listener();
  EXPECT_EQ(give(port(0)), 0);
  EXPECT_EQ(give(port(0)), EEXIST);
  EXPECT_EQ(give(port(1), {.peer_mss = 1460, .scales = true, .peer_shift = 15}), EINVAL);
  const UniqueFd c(accept(l.get(), nullptr, nullptr));
  EXPECT_TRUE(c);
  EXPECT_EQ(accept(l.get(), nullptr, nullptr), -1);
}

TEST_P(KernelsListener, LeavesNothing) {
  const UniqueFd l = listener();
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  (void)give(port(0));
  const auto before = descriptors();
  for (uint16_t i = 1; i < 20; ++i) (void)give(port(i));
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(programs_there(), 0U);
}

TEST_P(KernelsListener, NotInAnotherNamespace) {
  std::thread([&] {
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    const Bytes ack = segment(port(0));
    Opening o{.ack = ack, .agreed = {}};
    const auto given = s_.device().give_to_listener({&o, 1});
    EXPECT_FALSE(given);
    EXPECT_EQ(given.error().code, EPERM);
  }).join();
}

TEST_P(KernelsListener, DoesNotWaitForEachWhereAnotherDecides) {
  // A program before ours that lets no other see the frames (TCX_PASS).
  const UniqueFd program(load_constant_program(BPF_PROG_TYPE_SCHED_CLS, 0, "decides"));
  bpf_attr a{};
  a.link_create.prog_fd = static_cast<uint32_t>(program.get());
  a.link_create.target_ifindex = s_.veth.index(0).value();
  a.link_create.attach_type = 46;  // BPF_TCX_INGRESS
  const UniqueFd link(static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &a, sizeof a)));
  ASSERT_TRUE(link);
  const UniqueFd l = listener();
  std::vector<Bytes> acks;
  std::vector<Opening> all;
  for (int i = 0; i < 100; ++i) acks.push_back(segment(port(i)));
  for (const Bytes& ack : acks) all.push_back({.ack = ack, .agreed = {}, .error = -1});
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(s_.device().give_to_listener(all));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(400));
  for (const Opening& o : all) EXPECT_EQ(o.error, ETIMEDOUT);
  EXPECT_EQ(accept(l.get(), nullptr, nullptr), -1);
}

TEST_P(KernelsListener, TakesNoOtherFrames) {
  // An ACK without a note, while the program is not there and just after it was.
  const UniqueFd l = listener();
  ASSERT_EQ(give(port(0)), 0);
  ASSERT_TRUE(s_.device().give_to_kernel(segment(port(1))));
  const UniqueFd c(accept(l.get(), nullptr, nullptr));
  EXPECT_TRUE(c);
  EXPECT_EQ(accept(l.get(), nullptr, nullptr), -1) << "that was answered by a reset";
}

INSTANTIATE_TEST_SUITE_P(Families, KernelsListener, testing::Bool(),
                         [](const auto& i) { return i.param ? "IPv6" : "IPv4"; });

TEST(KernelsListenerInGenericMode, CannotBeReached) {
  if (!enter_own_namespace()) GTEST_SKIP() << "needs root";
  Sides s(XdpMode::kGeneric);
  ASSERT_TRUE(s.is_open) << s.end.error.where;
  const auto ready = s.device().prepare_listener();
  EXPECT_FALSE(ready);
  EXPECT_EQ(ready.error().code, ENOTSUP);
}

}  // namespace
}  // namespace vireo::test
