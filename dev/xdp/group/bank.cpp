#include "dev/xdp/group/bank.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/fd_messages.h"
#include "core/high_fd.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

using Numbers = std::vector<uint64_t>;

bool contains(const Numbers& all, uint64_t n) { return std::ranges::find(all, n) != all.end(); }

// The kernel doubles it, and counts 768 bytes for a message: room for 2700, 42 for each member.
constexpr int kQueueBytes = 1 << 20;
// Left free, so that a message can always be copied.
constexpr int kSpareBytes = 8192;

std::unexpected<Err> refused(long result, const char* where) {
  return fail(static_cast<int>(-result), where);
}

std::unexpected<Err> no_room(long result) {
  if (result == -ETOOMANYREFS)
    return fail(ENOBUFS, "deposits of this user have more descriptors than RLIMIT_NOFILE");
  if (result == -EAGAIN)
    return fail(ENOBUFS, "deposits of the group need more than net.core.wmem_max");
  return refused(result, "deposit with the group");
}

}  // namespace

/// As it lies in the queue: all have the same size, so that an index is an offset.
struct Bank::Message {
  uint64_t number = 0;
  Deposit what;

  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(this, 1)); }
};

Result<Bank::Ends> Bank::create() {
  int pair[2];
  if (const long r = sys(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                         reinterpret_cast<long>(pair));
      r < 0)
    return refused(r, "socket pair of the group");
  Ends ends{to_high_number(UniqueFd(pair[0])), to_high_number(UniqueFd(pair[1]))};
  // The first needs CAP_NET_ADMIN, the second goes up to net.core.wmem_max.
  if (set_option(ends.tail.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kQueueBytes, sizeof kQueueBytes) < 0)
    set_option(ends.tail.get(), SOL_SOCKET, SO_SNDBUF, &kQueueBytes, sizeof kQueueBytes);
  return ends;
}

/// The kernel limits what a user has in flight, so a copy could be refused, and then nothing could
/// be withdrawn. So a deposit is first sent the other way, where it only takes up that room.
Result<void> Bank::deposit(uint64_t number, const Deposit& d, std::span<const int> fds) noexcept {
  if (fds.size() > kMaxSentFds) return fail(EINVAL, "more descriptors than a deposit can have");
  drop_probe();
  if (!has_room()) return no_room(-EAGAIN);
  Message m{number, d};
  long r = send_message(head_, m.bytes(), fds);
  if (r == 0) r = send_message(tail_, m.bytes(), fds);
  drop_probe();
  if (r < 0) return no_room(r);
  return {};
}

Result<void> Bank::for_each(const Which& which, const Visit& visit) const noexcept {
  Numbers seen;
  Message m;
  for (size_t i = 0; peek(i, m); ++i) {
    if (contains(seen, m.number) || !which(m.what)) continue;
    seen.push_back(m.number);
    std::array<UniqueFd, kMaxSentFds> fds;
    const auto got = receive_message(head_, m.bytes(), fds, MSG_PEEK);
    if (got.bytes < 0) return refused(got.bytes, "descriptors of a deposit (RLIMIT_NOFILE)");
    for (UniqueFd& fd : fds) fd = to_high_number(std::move(fd));
    visit(m.what, std::span(fds).first(got.fds));
  }
  return {};
}

Result<void> Bank::withdraw(const Which& which) noexcept {
  drop_probe();
  Numbers seen;
  std::vector<bool> keep;
  size_t last = 0;  // behind it nothing is removed
  Message m;
  for (size_t i = 0; peek(i, m); ++i) {
    keep.push_back(!contains(seen, m.number) && !which(m.what));
    if (!keep.back()) last = i + 1;
    seen.push_back(m.number);
  }
  for (size_t i = 0; i < last; ++i) {
    if (!keep[i]) {
      drop_head();
    } else if (auto moved = move_head_to_tail(); !moved) {
      return moved;
    }
  }
  return {};
}

bool Bank::peek(size_t index, Message& m) const noexcept {
  const auto offset = static_cast<int>(index * sizeof m);
  set_option(head_, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset);
  if (receive_message(head_, m.bytes(), {}, MSG_PEEK).bytes != sizeof m) return false;
  // A look advances the offset, and there shall be another at this message.
  set_option(head_, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset);
  return true;
}

bool Bank::has_room() const noexcept {
  int limit = 0, used = 0;
  unsigned length = sizeof limit;
  return get_option(tail_, SOL_SOCKET, SO_SNDBUF, &limit, &length) == 0 &&
         sys(SYS_ioctl, tail_, SIOCOUTQ, reinterpret_cast<long>(&used)) == 0 &&
         used + kSpareBytes < limit;
}

void Bank::drop_head() noexcept {
  Message m;
  receive_message(head_, m.bytes(), {}, 0);
}

Result<void> Bank::move_head_to_tail() noexcept {
  Message m;
  peek(0, m);
  std::array<UniqueFd, kMaxSentFds> fds;
  const auto got = receive_message(head_, m.bytes(), fds, MSG_PEEK);
  if (got.bytes < 0) return refused(got.bytes, "descriptors of a deposit (RLIMIT_NOFILE)");
  std::array<int, kMaxSentFds> numbers{};
  std::ranges::transform(fds, numbers.begin(), &UniqueFd::get);
  if (const long r = send_message(tail_, m.bytes(), std::span(numbers).first(got.fds)); r < 0)
    return no_room(r);
  drop_head();
  return {};
}

void Bank::drop_probe() noexcept {
  Message m;
  while (receive_message(tail_, m.bytes(), {}, 0).bytes > 0) continue;
}

}  // namespace vireo::xdp
