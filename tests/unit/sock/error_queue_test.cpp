// The error queue alone: order, charge, and ranges of MSG_ZEROCOPY. What a program sees of it is in
// tests/interop/stamps.py.
#include <gtest/gtest.h>

#include <cerrno>
#include <ctime>

#include <linux/errqueue.h>  // behind <ctime>, whose timespec it needs

#include "stack/sock/error_queue.h"
#include "stack/sock/send_reports.h"

namespace vireo {
namespace {

constexpr uint64_t kRoom = 1 << 20;

ErrorReport stamp(uint32_t id, uint32_t bytes = 0) {
  ErrorReport r{.error = ENOMSG, .origin = SO_EE_ORIGIN_TIMESTAMPING, .data = id, .bytes = nullptr};
  r.length = bytes;
  if (bytes != 0) r.bytes = std::make_unique<std::byte[]>(bytes);
  return r;
}

TEST(ErrorQueue, OldestFirst) {
  ErrorQueue q;
  bool more = true;
  EXPECT_FALSE(q.pop(more));
  EXPECT_FALSE(more);
  for (uint32_t round = 0; round < 3; ++round) {  // over the end of the ring, and longer than it
    const uint32_t n = 5 + 20 * round;
    for (uint32_t i = 0; i < n; ++i) ASSERT_TRUE(q.push(stamp(i), kRoom));
    for (uint32_t i = 0; i < n; ++i) {
      const auto r = q.pop(more);
      ASSERT_TRUE(r);
      EXPECT_EQ(r->data, i);
      EXPECT_EQ(more, i + 1 < n);
    }
    EXPECT_FALSE(q.pop(more));
  }
}

TEST(ErrorQueue, TheReceiveBufferIsTheLimit) {
  ErrorQueue q;
  constexpr uint64_t kFour = 4 * ErrorReport::kLeast + 1;
  bool more = false;
  for (int round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(q.push(stamp(i), kFour));
    EXPECT_FALSE(q.push(stamp(4), kFour));
    EXPECT_EQ(q.pop(more)->data, 0U);
    EXPECT_TRUE(q.push(stamp(5), kFour)) << "what was read is free again";
    for (const uint32_t id : {1U, 2U, 3U, 5U}) EXPECT_EQ(q.pop(more)->data, id);
  }
  EXPECT_FALSE(q.push(stamp(0, 5000), kFour)) << "payload is charged";
  EXPECT_TRUE(q.push(stamp(0, 1000), kFour));
  q.clear();
  EXPECT_TRUE(q.push(stamp(0, 1000), kFour));
}

TEST(ErrorQueue, CopiesInARowAreOneReport) {
  ErrorQueue q;
  bool more = false;
  for (uint32_t id = 0; id < 3; ++id) EXPECT_TRUE(q.complete_copy(id));
  ASSERT_TRUE(q.push(stamp(7), kRoom));
  for (uint32_t id = 3; id < 5; ++id) EXPECT_TRUE(q.complete_copy(id));
  const auto first = q.pop(more);
  ASSERT_TRUE(first && more);
  EXPECT_EQ(first->origin, SO_EE_ORIGIN_ZEROCOPY);
  EXPECT_EQ(first->code, SO_EE_CODE_ZEROCOPY_COPIED);
  EXPECT_EQ(first->error, 0U);
  EXPECT_EQ(first->info, 0U);
  EXPECT_EQ(first->data, 2U);
  EXPECT_EQ(q.pop(more)->data, 7U);
  const auto second = q.pop(more);
  EXPECT_EQ(second->info, 3U) << "not joined over another report";
  EXPECT_EQ(second->data, 4U);
  EXPECT_FALSE(q.pop(more));
}

TEST(ErrorQueue, ARangeCrossesTheEndOfTheNumbers) {
  ErrorQueue q;
  bool more = false;
  for (const uint32_t id : {0xfffffffeU, 0xffffffffU, 0U, 1U}) EXPECT_TRUE(q.complete_copy(id));
  const auto r = q.pop(more);
  EXPECT_EQ(r->info, 0xfffffffeU);
  EXPECT_EQ(r->data, 1U);
  EXPECT_FALSE(more);
}

TEST(ErrorQueue, NumbersOfDatagramsThatTheKernelSends) {
  DatagramIds ids;
  ids.note_kernels(ids.next++);  // 0 is 0
  ids.next += 5;                 // Vireo's: 1 to 5
  ids.note_kernels(ids.next++);  // the kernel's 1 is 6
  ids.note_kernels(ids.next++);
  EXPECT_EQ(ids.ours(0), 0U);
  EXPECT_EQ(ids.ours(1), 6U);
  EXPECT_EQ(ids.ours(2), 7U);
  EXPECT_EQ(ids.ours(1), 6U) << "a datagram has several reports";
  for (uint32_t i = 0; i < 5000; ++i) ids.note_kernels(ids.next++);
  EXPECT_LT(ids.differing.size(), 5000U) << "unread ones do not add up";
  EXPECT_EQ(ids.ours(5002), 5007U);
}

}  // namespace
}  // namespace vireo
