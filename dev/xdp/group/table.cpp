#include "dev/xdp/group/table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cstddef>

#include "core/high_fd.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

constexpr size_t kTableBytes = 4096;
constexpr int kControlByte = kGroupSlots;  // after those of the slots

struct flock one_byte(short type, unsigned byte) {
  struct flock l{};
  l.l_type = type;
  l.l_whence = SEEK_SET;
  l.l_start = static_cast<off_t>(byte);
  l.l_len = 1;
  return l;
}

bool set_lock(int fd, short type, unsigned byte) {
  struct flock l = one_byte(type, byte);
  return sys(SYS_fcntl, fd, F_SETLK, reinterpret_cast<long>(&l)) == 0;
}

}  // namespace

Result<UniqueFd> Table::create() {
  const long made =
      sys(SYS_memfd_create, reinterpret_cast<long>("vireo-group"), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made < 0) return fail(static_cast<int>(-made), "memfd of the group");
  UniqueFd memfd(static_cast<int>(made));
  if (const long r = sys(SYS_ftruncate, memfd.get(), kTableBytes); r < 0)
    return fail(static_cast<int>(-r), "size of the group's memfd");
  const FlowHashKey secret = FlowHashKey::random();
  if (sys(SYS_pwrite64, memfd.get(), reinterpret_cast<long>(&secret), sizeof secret,
          offsetof(Memory, secret)) != sizeof secret)
    return fail(EIO, "the group's secret");
  // Or a member could make the others' accesses fail.
  sys(SYS_fcntl, memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return to_high_number(std::move(memfd));
}

Result<Table> Table::map(int memfd) {
  static_assert(sizeof(Memory) <= kTableBytes);
  struct stat is{};
  if (sys(SYS_fstat, memfd, reinterpret_cast<long>(&is)) < 0 || is.st_size != kTableBytes)
    return fail(EPROTO, "size of the group's memfd");
  const long at = sys(SYS_mmap, 0, kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (at < 0 && at > -4096) return fail(static_cast<int>(-at), "mmap of the group's memfd");
  auto* const memory = reinterpret_cast<Memory*>(at);
  madvise(memory, kTableBytes, MADV_DONTFORK);
  return Table(memfd, memory);
}

Table::~Table() {
  if (memory_ != nullptr) munmap(memory_, kTableBytes);
}

// A single store changes a member's state, so that a member killed anywhere leaves a valid table.
// seq_cst throughout: setup.

uint64_t Table::used() const noexcept { return memory_->used.load(); }

pid_t Table::pid(unsigned slot) const noexcept { return memory_->pids[slot].load(); }

Result<unsigned> Table::take_slot() noexcept {
  for (uint64_t left = ~used(); left != 0; left &= left - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(left));
    // Held though free: of a process that is ending.
    if (!set_lock(memfd_, F_WRLCK, slot)) continue;
    memory_->pids[slot].store(static_cast<pid_t>(sys(SYS_getpid)));
    memory_->used.fetch_or(uint64_t{1} << slot);
    return slot;
  }
  return fail(EBUSY, "the group has as many members as it can have");
}

void Table::free_slot(unsigned slot) noexcept {
  memory_->used.fetch_and(~(uint64_t{1} << slot));
  set_lock(memfd_, F_UNLCK, slot);
}

bool Table::is_held_by_other(unsigned slot) const noexcept {
  struct flock l = one_byte(F_WRLCK, slot);
  // Without an answer nobody is taken for dead.
  return sys(SYS_fcntl, memfd_, F_GETLK, reinterpret_cast<long>(&l)) != 0 || l.l_type != F_UNLCK;
}

bool Table::try_lock() noexcept { return set_lock(memfd_, F_WRLCK, kControlByte); }

void Table::unlock() noexcept { set_lock(memfd_, F_UNLCK, kControlByte); }

uint64_t Table::next_number() noexcept { return memory_->last_number.fetch_add(1) + 1; }

}  // namespace vireo::xdp
