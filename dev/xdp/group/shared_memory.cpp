#include "dev/xdp/group/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/clock.h"
#include "core/high_fd.h"

namespace vireo::xdp {
namespace {

constexpr size_t kOwnersAt = (sizeof(SharedHead) + 4095) / 4096 * 4096;

size_t bytes_for(uint32_t frames) { return kOwnersAt + size_t{frames} * (1 + sizeof(uint16_t)); }

}  // namespace

Result<UniqueFd> SharedMemory::create(size_t packet_bytes, uint32_t frame_bytes) {
  UniqueFd fd = to_high_number(UniqueFd(memfd_create("vireo-group", MFD_CLOEXEC)));
  if (!fd) return fail_errno("memory of the group (memfd_create)");
  const auto frames = static_cast<uint32_t>(packet_bytes / frame_bytes);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes_for(frames))) != 0)
    return fail_errno("memory of the group");
  auto m = map(fd.get());
  if (!m) return std::unexpected(m.error());
  m->head().packet_bytes = packet_bytes;
  m->head().frame_bytes = frame_bytes;
  m->head().frames = frames;
  return fd;
}

Result<SharedMemory> SharedMemory::map(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return fail_errno("memory of the group");
  const auto size = static_cast<size_t>(info.st_size);
  if (size < bytes_for(0)) return fail(EPROTO, "memory of the group");
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return fail_errno("memory of the group (mmap)");
  madvise(at, size, MADV_DONTDUMP);
  SharedMemory m;
  m.map_ = Mapping(at, size);
  if (size < bytes_for(m.head().frames)) return fail(EPROTO, "memory of the group");
  return m;
}

FrameOwners SharedMemory::owners(unsigned slot) const {
  std::byte* const at = static_cast<std::byte*>(map_.base()) + kOwnersAt;
  const uint32_t n = head().frames;
  return {.owner = {reinterpret_cast<uint8_t*>(at + n * sizeof(uint16_t)), n},
          .in_flight = {reinterpret_cast<uint16_t*>(at), n},
          .me = FrameOwners::of_member(slot)};
}

uint32_t SharedMemory::count(uint8_t owner) const {
  return static_cast<uint32_t>(std::ranges::count(owners(0).owner, owner));
}

uint32_t SharedMemory::grant(unsigned slot, uint32_t most, uint32_t least) const {
  const uint32_t unused = count(FrameOwners::kNobody);
  const bool is_first = unused == head().frames;
  const uint32_t n = std::min(most, is_first ? unused : std::max(unused / 8, least));
  if (n < least || n > unused) return 0;
  give(slot, n, [](uint32_t) {});
  return n;
}

void SharedMemory::take_back(unsigned slot) const {
  const FrameOwners o = owners(slot);
  for (size_t i = 0; i < o.owner.size(); ++i)
    if (o.owner[i] == o.me)
      o.owner[i] = o.in_flight[i] == 0 ? FrameOwners::kNobody : FrameOwners::kGone;
}

void SharedMemory::take_back_queue(unsigned queue) const {
  for (uint8_t& owner : owners(0).owner)
    if (owner == FrameOwners::of_queue(queue)) owner = FrameOwners::kNobody;
}

Result<unsigned> SharedMemory::queue_of(IfIndex ifindex, QueueId queue) const {
  const int64_t now = Clock::now_from_kernel().ns();
  SharedQueue* const all = head().queues;
  SharedQueue* unused = nullptr;
  for (unsigned i = 0; i < SharedHead::kMaxQueues; ++i) {
    SharedQueue& q = all[i];
    if (q.users.load() != 0 && q.ifindex == ifindex.value() && q.queue == queue.value()) return i;
    if (unused == nullptr && q.users.load() == 0 && q.unused_from <= now) unused = &q;
  }
  if (unused == nullptr) return fail(ENOSPC, "queues that processes share are used up");
  const auto number = static_cast<unsigned>(unused - all);
  take_back_queue(number);  // of its last use
  unused->fill_target.store(0);
  unused->filling = {};
  unused->completing = {};
  unused->ifindex = ifindex.value();
  unused->queue = queue.value();
  return number;
}

SharedInterface* SharedMemory::interface_of(IfIndex ifindex) const {
  SharedInterface* unused = nullptr;
  for (SharedInterface& i : head().interfaces) {
    if (i.users.load() != 0 && i.ifindex == ifindex.value()) return &i;
    if (i.users.load() == 0 && unused == nullptr) unused = &i;
  }
  if (unused != nullptr) unused->ifindex = ifindex.value();
  return unused;
}

}  // namespace vireo::xdp
