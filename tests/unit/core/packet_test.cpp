#include "core/packet.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "core/arena.h"

namespace vireo {
namespace {

class PacketTest : public testing::Test {
 protected:
  static constexpr uint32_t kFrames = 32;
  PacketRef packet(uint16_t length, uint8_t first = 0) {
    PacketRef p(pool_.take());
    p->length = length;
    for (uint16_t i = 0; i < length; ++i) p->data()[i] = static_cast<std::byte>(first + i);
    return p;
  }
  void TearDown() override { EXPECT_EQ(pool_.free_count(), kFrames) << "a leaked packet"; }
  std::vector<std::byte> memory_ = std::vector<std::byte>(kFrames * 2048);
  PacketPool pool_{memory_, 2048};
};

TEST_F(PacketTest, PoolGivesEachFrameOnce) {
  std::vector<PacketRef> all;
  while (PacketBuf* p = pool_.take()) {
    EXPECT_EQ(p->refs, 1);
    EXPECT_EQ(p->data_at, PacketPool::kHeadroom);
    EXPECT_EQ(p->frame, memory_.data() + p->index * 2048);
    EXPECT_EQ(&pool_.at_frame_offset(p->index * 2048 + 77), p);
    all.emplace_back(p);
  }
  EXPECT_EQ(all.size(), kFrames);
  EXPECT_EQ(all[0]->index, 0U) << "first memory first";
}

TEST_F(PacketTest, LastReferenceReturnsIt) {
  PacketRef a = packet(10);
  PacketBuf* raw = a.get();
  raw->refs = 2;  // a device reads it too
  raw->device_refs = 1;
  a.reset();
  EXPECT_EQ(pool_.free_count(), kFrames - 1);
  raw->device_refs = 0;
  PacketPool::drop(raw);
}

TEST_F(PacketTest, RunsAreLentFromTheEndAndComeBack) {
  PacketPool tray(&pool_);
  EXPECT_EQ(&tray.home(), &pool_);
  EXPECT_EQ(tray.frame_bytes(), 2048U);
  PacketRef in_use = packet(10);  // the first frame
  uint32_t firsts[8];
  ASSERT_EQ(pool_.lend(8, std::span(firsts).first(2), tray), 2U);
  EXPECT_EQ(firsts[0], 24U);
  EXPECT_EQ(firsts[1], 16U);
  EXPECT_EQ(pool_.free_count(), 15U);
  ASSERT_EQ(pool_.lend(8, firsts, tray), 1U) << "a frame of the other is in use";
  EXPECT_EQ(firsts[0], 8U);
  EXPECT_EQ(pool_.lend(8, firsts, tray), 0U);
  std::vector<PacketRef> rest;
  while (PacketBuf* p = pool_.take()) {
    EXPECT_LT(p->index, 8U) << "it is lent";
    rest.emplace_back(p);
  }
  EXPECT_EQ(rest.size(), 7U);
  // Two are in use, one of them is dropped to the other pool.
  PacketBuf* const p = &pool_.at(17);
  p->refs = pool_.at(18).refs = 1;
  PacketPool::drop(p);
  EXPECT_EQ(tray.free_count(), 1U);
  EXPECT_EQ(tray.take(), p);
  PacketPool::drop(p);
  for (const uint32_t first : {8U, 16U, 24U}) pool_.take_back(8, first);
  EXPECT_EQ(pool_.free_count(), 23U);
  PacketPool::drop(&pool_.at(18));
  EXPECT_EQ(pool_.free_count(), 24U) << "its own again";
}

TEST_F(PacketTest, TheLast32ndIsNotLent) {
  PacketPool tray(&pool_);
  uint32_t firsts[32];
  EXPECT_EQ(pool_.lend(1, firsts, tray), 31U);
  for (const uint32_t first : std::span(firsts).first(31)) pool_.take_back(1, first);
}

TEST_F(PacketTest, SpareRunsCountAsFreeAndAreTakenBackBeforeThereAreFew) {
  PacketPool tray(&pool_);
  PacketPool::Spares one{8, {}}, other{4, {}};
  pool_.join(one);
  pool_.join(other);
  one.firsts.resize(2);
  ASSERT_EQ(pool_.lend(8, one.firsts, tray), 2U);
  other.firsts.resize(1);
  ASSERT_EQ(pool_.lend(4, other.firsts, tray), 1U);
  EXPECT_EQ(pool_.free_count(), 12U);
  for (int i = 0; i < 2; ++i) pool_.note_spare(one);
  pool_.note_spare(other);
  EXPECT_EQ(pool_.free_count(), kFrames);
  one.firsts.pop_back();  // one is used, and another is not
  pool_.note_used(one);
  std::vector<PacketRef> all;
  EXPECT_EQ(pool_.free_count(), 24U);
  EXPECT_EQ(pool_.ready_count(), 12U);
  while (PacketBuf* p = pool_.take()) {
    EXPECT_EQ(p->pool, &pool_);
    all.emplace_back(p);
    EXPECT_EQ(pool_.free_count(), 24 - all.size());
  }
  EXPECT_EQ(all.size(), 12U);
  EXPECT_EQ(pool_.rx_count(), 0U) << "none is ready";
  EXPECT_FALSE(pool_.may_send(true)) << "who may takes one without a look";
  pool_.keep_ready();
  EXPECT_GE(pool_.ready_count(), kFrames / 4);
  EXPECT_EQ(pool_.free_count(), 12U);
  for (PacketBuf* p = pool_.take(); p != nullptr; pool_.keep_ready(), p = pool_.take())
    all.emplace_back(p);
  EXPECT_EQ(all.size(), 24U);
  EXPECT_TRUE(one.firsts.empty() && other.firsts.empty());
  all.clear();
  EXPECT_EQ(pool_.free_count(), 24U);
  pool_.take_back(8, 16);
  EXPECT_EQ(pool_.free_count(), kFrames);
  pool_.leave(one);
  pool_.leave(other);
}

std::vector<std::byte> bytes_of(const PacketChain& c) {
  std::vector<std::byte> v;
  uint32_t buffers = 0;
  for (PacketBuf* p = c.front(); p != nullptr; p = p->next, ++buffers)
    v.insert(v.end(), p->data(), p->data() + p->length);
  EXPECT_EQ(v.size(), c.bytes());
  EXPECT_EQ(buffers, c.buffers());
  return v;
}

TEST_F(PacketTest, ChainTrimsEqualVectors) {
  std::mt19937 rng(6);
  for (int round = 0; round < 2000; ++round) {
    PacketChain c;
    std::vector<std::byte> model;
    uint64_t offset = 1000;
    for (unsigned i = 0; i < rng() % 6; ++i) {
      PacketRef p = packet(static_cast<uint16_t>(rng() % 50), static_cast<uint8_t>(rng()));
      p->offset = offset;
      offset += p->length;
      model.insert(model.end(), p->data(), p->data() + p->length);
      c.push_back(std::move(p));
    }
    const auto front = static_cast<uint32_t>(rng() % (model.size() + 1));
    c.trim_front(front);
    model.erase(model.begin(), model.begin() + front);
    ASSERT_EQ(bytes_of(c), model);
    if (!model.empty() && c.front()->length != 0) {
      ASSERT_EQ(c.front()->offset, 1000 + front);
    }
    const auto back = static_cast<uint32_t>(rng() % (model.size() + 1));
    c.trim_back(back);
    model.erase(model.end() - back, model.end());
    ASSERT_EQ(bytes_of(c), model);
    PacketChain d;
    d.push_back(packet(3));
    d.append(std::move(c));
    ASSERT_EQ(d.bytes(), model.size() + 3);
    ASSERT_TRUE(c.empty());  // NOLINT: moved-from is specified
  }
}

TEST(Arena, MapsMovesAndUnmaps) {
  for (bool huge : {false, true}) {
    auto a = Arena::create(3 << 20, huge);
    ASSERT_TRUE(a) << a.error().where;
    EXPECT_EQ(a->bytes().size(), size_t{4} << 20) << "rounded up";
    a->bytes()[0] = std::byte{1};
    a->bytes()[a->bytes().size() - 1] = std::byte{2};
    Arena b = std::move(*a);
    EXPECT_EQ(b.bytes()[0], std::byte{1});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.bytes().data()) % Arena::kHugePageBytes, 0U);
    EXPECT_TRUE(huge || b.pages() != PageKind::kHuge);
  }
}

}  // namespace
}  // namespace vireo
