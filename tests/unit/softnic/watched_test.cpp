// A doorbell on a page that tells of stores is a call: what it asks for is done when the store is.
#include <poll.h>
#include <time.h>

#include <thread>

#include "direct_end.h"

namespace softnic_test {
namespace {

class Watched : public testing::Test {
 protected:
  DirectEnd a{0, {.by_hand = false}}, b{1, {.by_hand = false}};
  std::vector<std::byte> frame_ = udp_frame(7000, 100);

  void SetUp() override {
    ASSERT_TRUE(softnic_is_watched(a.device));
    a.take_all();
    b.take_all();
  }
  /// An element for the frame, covered by the record. @return what is to be rung.
  uint64_t put() {
    std::memcpy(a.slot(0), frame_.data() + 42, frame_.size() - 42);
    const auto body = a.segment(0, static_cast<uint32_t>(frame_.size() - 42));
    const uint16_t index = a.put(std::span(frame_).first(42), body);
    a.write_record();
    uint64_t word;
    std::memcpy(&word, a.block(index), sizeof word);
    return word;
  }
  uint64_t* bell() const { return static_cast<uint64_t*>(a.qp.bf.reg); }
  void send() { __atomic_store_n(bell(), put(), __ATOMIC_RELEASE); }
  static void nap() {
    const timespec t{0, 1'000'000};
    nanosleep(&t, nullptr);
  }
};

TEST_F(Watched, AStoreIsACall) {
  for (unsigned i = 0; i < 300; ++i) {
    b.receive(i % 8);
    send();
    ASSERT_EQ(a.sends.poll().size(), 1U) << i;
    ASSERT_EQ(b.receives.poll().size(), 1U) << i;
  }
}

TEST_F(Watched, InEveryThread) {
  b.receive(0);
  size_t done = 0;
  std::thread([&] {
    send();
    done = a.sends.poll().size();
  }).join();
  EXPECT_EQ(done, 1U);
  EXPECT_EQ(b.receives.poll().size(), 1U);
}

// The element at 0 is rung again, with the same word.
TEST_F(Watched, AfterAReset) {
  b.receive(0);
  send();
  ASSERT_EQ(a.sends.poll().size(), 1U);
  for (const ibv_qp_state to : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
    ASSERT_EQ(a.move(to), 0);
  a.produced = 0;
  b.receive(1);
  send();
  EXPECT_EQ(a.sends.poll().size(), 1U);
  EXPECT_EQ(b.receives.poll().size(), 2U);
}

TEST_F(Watched, ArmingIsACall) {
  pollfd readable{a.channel->fd, POLLIN, 0};
  a.receive(0);
  a.receives.arm(0);
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
  softnic_inject(a.device, frame_.data(), frame_.size());
  EXPECT_EQ(::poll(&readable, 1, 0), 1);
  ibv_cq* cq;
  void* cookie;
  EXPECT_EQ(ibv_get_cq_event(a.channel, &cq, &cookie), 0);
  ibv_ack_cq_events(cq, 1);
}

/// As mlx5dv.h has it where there are no BlueFlame buffers.
TEST_F(Watched, WithoutBlueFlame) { EXPECT_EQ(a.qp.bf.size, 0U); }

TEST_F(Watched, ByWhateverStoreACompilerMakes) {
  unsigned got = 0;
  b.receive(0);
  const auto expect_done = [&](const char* how) {
    EXPECT_EQ(a.sends.poll().size(), 1U) << how;
    EXPECT_EQ(b.receives.poll().size(), 1U) << how;
    EXPECT_TRUE(softnic_is_watched(a.device)) << how;
    b.receive(++got % 8);
  };
#define STORES(how, base, source)                                        \
  {                                                                      \
    const uint64_t rung = put();                                         \
    char* const bell_at = reinterpret_cast<char*>(bell());               \
    register const uint64_t word asm(source) = rung;                     \
    register char* const at asm(base) = bell_at;                         \
    asm volatile(how ::"r"(at), "r"(word), "a"(uint64_t{3}) : "memory"); \
    expect_done(how);                                                    \
  }
  STORES("mov %1, (%0)", "rdi", "rdx")
  STORES("mov %1, (%0)", "r12", "r9")  // these two bases are written in another way
  STORES("mov %1, (%0)", "r13", "rsi")
  STORES("add $8, %0\n mov %1, -8(%0)\n sub $8, %0", "rbx", "r15")
  STORES("sub $0x1000, %0\n mov %1, 0x1000(%0)\n add $0x1000, %0", "rcx", "r8")
  STORES("sub $0x28, %0\n mov %1, 0x10(%0, %2, 8)\n add $0x28, %0", "r14", "r11")
  STORES("movnti %1, (%0)", "r10", "rdx")
#undef STORES
}

// The page is open from then on, and the device's thread looks now and then.
TEST_F(Watched, AStoreThatIsNotUnderstood) {
  b.receive(0);
  uint64_t word = put();
  asm volatile("xchg %1, (%0)" ::"r"(bell()), "r"(word) : "memory");
  EXPECT_FALSE(softnic_is_watched(a.device));
  for (int i = 0; i < 10'000 && !b.receives.has(); ++i) nap();
  EXPECT_EQ(b.receives.poll().size(), 1U);
}

TEST_F(Watched, OtherFaultsAreTheProgramsOwn) {
  EXPECT_DEATH(*static_cast<volatile std::byte*>(a.channel->fd < 0 ? a.slot(0) : nullptr) = {}, "");
}

}  // namespace
}  // namespace softnic_test
