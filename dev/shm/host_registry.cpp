#include "dev/shm/host_registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "core/high_fd.h"
#include "dev/shm/kernel_calls.h"
#include "dev/shm/wire.h"

namespace vireo {
namespace {

constexpr off_t kSetupByte = 0, kHostByte = 1, kJoinerByte = 2;
constexpr size_t kMaxName = 64;

std::string directory() { return "/dev/shm/vireo-" + std::to_string(geteuid()); }

std::string path_of(std::string_view name, const char* suffix) {
  return directory() + "/" + std::string(name) + suffix;
}

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name[0] != '.' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

Result<void> make_directory() {
  const std::string dir = directory();
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("shm registry directory");
  struct stat st;
  if (lstat(dir.c_str(), &st) != 0) return fail_errno("shm registry directory");
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) != 0)
    return fail(EPERM, "shm registry directory is not ours");
  return {};
}

bool lock_byte(int fd, off_t byte, short type, bool wait) {
  struct flock l = {};
  l.l_type = type;
  l.l_whence = SEEK_SET;
  l.l_start = byte;
  l.l_len = 1;
  int rc;
  do {
    rc = kernel::fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l);
  } while (rc != 0 && errno == EINTR);
  return rc == 0;
}

bool is_locked(int fd, off_t byte) {
  struct flock l = {};
  l.l_type = F_WRLCK;
  l.l_whence = SEEK_SET;
  l.l_start = byte;
  l.l_len = 1;
  return kernel::fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

/// Opens the lock file of `name` with the set-up byte locked, and makes sure that the file still
/// has that name.
Result<UniqueFd> open_locked(std::string_view name) {
  const std::string path = path_of(name, ".lock");
  for (;;) {
    UniqueFd fd(
        to_high_number(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)));
    if (!fd) return fail_errno("shm wire lock");
    if (!lock_byte(fd.get(), kSetupByte, F_WRLCK, true)) return fail_errno("shm wire lock");
    struct stat ours, named;
    if (fstat(fd.get(), &ours) == 0 && stat(path.c_str(), &named) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
      return fd;
  }
}

void unlock_setup(int fd) { lock_byte(fd, kSetupByte, F_UNLCK, false); }

void remove_files(std::string_view name) {
  for (const char* suffix : {".wire", ".bell", ".lock"}) unlink(path_of(name, suffix).c_str());
}

Result<WireMapping> map(int fd, size_t size) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (p == MAP_FAILED) return fail_errno("shm wire mmap");
  madvise(p, size, MADV_DONTFORK);
  return WireMapping({static_cast<std::byte*>(p), size});
}

Result<WireMapping> create_wire(std::string_view name, uint32_t slots, uint32_t mtu) {
  const std::string path = path_of(name, ".wire");
  unlink(path.c_str());  // left by a host that died alone
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno("shm wire create");
  const uint32_t stride = slot_stride(mtu);
  const size_t size = wire_bytes(slots, stride);
  // Allocated now: a full /dev/shm fails here, not by SIGBUS later.
  if (fallocate(fd.get(), 0, 0, static_cast<off_t>(size)) != 0)
    return fail_errno("shm wire memory");
  auto wire = map(fd.get(), size);
  if (!wire) return wire;
  auto* header = new (wire->data()) WireHeader;
  header->slots = slots;
  header->stride = stride;
  header->mtu = mtu;
  header->version = kWireVersion;
  header->magic = kWireMagic;
  return wire;
}

Result<WireMapping> open_wire(std::string_view name) {
  UniqueFd fd(open(path_of(name, ".wire").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail_errno("shm wire open");
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return fail_errno("shm wire size");
  const auto size = static_cast<size_t>(st.st_size);
  if (size < kSlotsAt) return fail(EPROTO, "shm wire is too small");
  auto wire = map(fd.get(), size);
  if (!wire) return wire;
  const auto& h = *reinterpret_cast<const WireHeader*>(wire->data());
  if (h.magic != kWireMagic || h.version != kWireVersion) return fail(EPROTO, "shm wire version");
  if (!std::has_single_bit(h.slots) || h.stride != slot_stride(h.mtu) ||
      size != wire_bytes(h.slots, h.stride))
    return fail(EPROTO, "shm wire layout");
  return wire;
}

sockaddr_un bell_address(std::string_view name) {
  sockaddr_un a = {};
  a.sun_family = AF_UNIX;
  const std::string path = path_of(name, ".bell");
  static_assert(sizeof a.sun_path > kMaxName + sizeof "/dev/shm/vireo-4294967295/.bell");
  std::memcpy(a.sun_path, path.c_str(), path.size() + 1);
  return a;
}

Result<UniqueFd> bell_socket(std::string_view name, bool host) {
  UniqueFd fd(to_high_number(kernel::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)));
  if (!fd) return fail_errno("shm doorbell socket");
  const sockaddr_un a = bell_address(name);
  const auto* address = reinterpret_cast<const sockaddr*>(&a);
  if (!host) {
    if (kernel::connect(fd.get(), address, sizeof a) != 0)
      return fail_errno("shm doorbell connect");
    return fd;
  }
  unlink(a.sun_path);
  if (kernel::bind(fd.get(), address, sizeof a) != 0) return fail_errno("shm doorbell bind");
  if (kernel::listen(fd.get(), 1) != 0) return fail_errno("shm doorbell listen");
  return fd;
}

Result<WireSeat> sit_as_host(WireSeat seat, uint32_t slots, uint32_t mtu) {
  auto wire = create_wire(seat.name, slots, mtu);
  if (!wire) return std::unexpected(wire.error());
  auto bell = bell_socket(seat.name, true);
  if (!bell) return std::unexpected(bell.error());
  seat.wire = std::move(*wire);
  seat.bell = std::move(*bell);
  return seat;
}

Result<WireSeat> sit_as_joiner(WireSeat seat) {
  auto wire = open_wire(seat.name);
  // Once joined, the wire file has no name: the host has lost its peer and has not left yet.
  if (!wire)
    return fail(wire.error().code == ENOENT ? EBUSY : wire.error().code, wire.error().where);
  auto bell = bell_socket(seat.name, false);
  if (!bell) return std::unexpected(bell.error());
  seat.wire = std::move(*wire);
  seat.bell = std::move(*bell);
  unlink(path_of(seat.name, ".wire").c_str());
  unlink(path_of(seat.name, ".bell").c_str());
  return seat;
}

}  // namespace

WireMapping::~WireMapping() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

WireSeat::~WireSeat() {
  if (!lock) return;
  // While the set-up byte is locked no seat is taken; the last to leave removes the files.
  if (lock_byte(lock.get(), kSetupByte, F_WRLCK, true) &&
      !is_locked(lock.get(), host ? kJoinerByte : kHostByte))
    remove_files(name);
  // Unlocked explicitly, because a forked child may keep the open file description, and with it the
  // locks.
  lock_byte(lock.get(), host ? kHostByte : kJoinerByte, F_UNLCK, false);
  unlock_setup(lock.get());
}

Result<WireSeat> take_seat(std::string_view name, uint32_t slots, uint32_t mtu) {
  if (!valid_name(name)) return fail(EINVAL, "shm wire name");
  if (!std::has_single_bit(slots) || mtu < 576 || mtu > 65'000)
    return fail(EINVAL, "shm wire size");
  if (auto made = make_directory(); !made) return std::unexpected(made.error());
  clean_stale_wires();
  auto locked = open_locked(name);
  if (!locked) return std::unexpected(locked.error());
  const int fd = locked->get();
  WireSeat seat;
  seat.name = name;
  seat.host = lock_byte(fd, kHostByte, F_WRLCK, false);
  if (!seat.host && !lock_byte(fd, kJoinerByte, F_WRLCK, false))
    return fail(EBUSY, "shm wire has both its ends");
  auto taken =
      seat.host ? sit_as_host(std::move(seat), slots, mtu) : sit_as_joiner(std::move(seat));
  if (!taken) return taken;  // closing the lock file frees the seat
  unlock_setup(fd);
  taken->lock = std::move(*locked);
  return taken;
}

unsigned clean_stale_wires() {
  DIR* dir = opendir(directory().c_str());
  if (dir == nullptr) return 0;
  constexpr std::string_view kLock = ".lock";
  unsigned cleaned = 0;
  while (const dirent* e = readdir(dir)) {
    std::string_view file = e->d_name;
    if (!file.ends_with(kLock)) continue;
    const std::string name(file.substr(0, file.size() - kLock.size()));
    UniqueFd fd(open(path_of(name, ".lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    // A wire whose seats are changing is not stale.
    if (!fd || !lock_byte(fd.get(), kSetupByte, F_WRLCK, false)) continue;
    if (is_locked(fd.get(), kHostByte) || is_locked(fd.get(), kJoinerByte)) continue;
    remove_files(name);
    ++cleaned;
  }
  closedir(dir);
  return cleaned;
}

}  // namespace vireo
