#include "dev/xdp/group/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <optional>
#include <span>
#include <string>

#include "core/fd_messages.h"
#include "core/high_fd.h"
#include "dev/xdp/group/pause.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

constexpr Duration kRetryDelay = Duration::ms(1);
// For an answer. Then another try, because the member that accepted may have been stopped.
constexpr Duration kAnswerTimeout = Duration::ms(100);
constexpr int kBacklog = 128;
constexpr int kAnswersAtOnce = 32;
constexpr uint32_t kMagic = 0x50524756;  // "VGRP"

/// The answer to a joiner, with the group's descriptors.
struct Answer {
  uint32_t magic = kMagic;
  uint32_t version = 0;

  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(this, 1)); }
};

struct Address {
  sockaddr_un at{};
  unsigned length = 0;
};

std::optional<Address> address_of(const GroupId& id) {
  const std::string name = "vireo-" + std::to_string(id.uid) + "-" + std::string(id.name);
  Address a;
  if (name.size() >= sizeof a.at.sun_path) return std::nullopt;
  a.at.sun_family = AF_UNIX;
  std::memcpy(a.at.sun_path + 1, name.data(), name.size());  // abstract: the first byte is zero
  a.length = static_cast<unsigned>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

long with_address(long call, int fd, const Address& a) {
  return sys(call, fd, reinterpret_cast<long>(&a.at), a.length);
}

/// Whether the process that connected, or listens, is of this user.
bool is_peer_of(uid_t uid, int fd) {
  ucred peer{};
  unsigned length = sizeof peer;
  return get_option(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == uid;
}

/// @return false: not by `deadline`.
bool wait_readable(int fd, Instant deadline) {
  for (;;) {
    const Duration left = std::max(deadline - Clock::now_from_kernel(), Duration());
    const timespec timeout{left.s(), (left - Duration::s(left.s())).ns()};
    pollfd p{fd, POLLIN, 0};
    const long r = sys(SYS_ppoll, reinterpret_cast<long>(&p), 1, reinterpret_cast<long>(&timeout));
    if (r != -EINTR) return r > 0;
  }
}

/// The error EAGAIN: nobody answered, yet or any more.
Result<SharedFds> join(int fd, const GroupId& id, const Address& a, Instant deadline) {
  const auto not_now = fail(EAGAIN, "no answer of the group");
  if (const long r = with_address(SYS_connect, fd, a); r < 0) {
    // Not listening yet, or gone; many wait.
    if (r == -ECONNREFUSED || r == -EAGAIN || r == -EINTR) return not_now;
    return fail(static_cast<int>(-r), "connection to the group");
  }
  if (!is_peer_of(id.uid, fd)) return fail(EBUSY, "another user holds the group's name");
  if (!wait_readable(fd, deadline)) return not_now;
  Answer answer;
  SharedFds fds;
  const Received got = receive_message(fd, answer.bytes(), fds, 0);
  if (got.bytes == -EMFILE)
    return fail(EMFILE, "no descriptors free for the group's (RLIMIT_NOFILE)");
  if (got.bytes <= 0) return not_now;  // ECONNRESET, or the end: a member died or left
  if (got.bytes < static_cast<long>(sizeof answer) || answer.magic != kMagic)
    return fail(EBUSY, "another program holds the group's name");
  if (answer.version != id.version || got.fds != kSharedFds)
    return fail(ENOTSUP, "the group's processes run another version of Vireo");
  for (UniqueFd& one : fds) one = to_high_number(std::move(one));
  return fds;
}

}  // namespace

Result<SharedFds> find_group(const GroupId& id, Instant deadline) noexcept {
  const auto address = address_of(id);
  if (!address) return fail(EINVAL, "length of the group's name");
  for (;;) {
    const long made = sys(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) return fail(static_cast<int>(-made), "socket of the group");
    UniqueFd fd = to_high_number(UniqueFd(static_cast<int>(made)));
    const long bound = with_address(SYS_bind, fd.get(), *address);
    if (bound == 0) {
      SharedFds fds;
      fds[kListenerFd] = std::move(fd);
      return fds;
    }
    if (bound != -EADDRINUSE) return fail(static_cast<int>(-bound), "name of the group");
    const Instant now = Clock::now_from_kernel();
    auto joined = join(fd.get(), id, *address, std::min(deadline, now + kAnswerTimeout));
    if (joined || joined.error().code != EAGAIN) return joined;
    if (Clock::now_from_kernel() >= deadline)
      return fail(ETIMEDOUT, "the group's members do not answer (stopped?)");
    pause_for(kRetryDelay);
  }
}

Result<void> start_listening(int listener) noexcept {
  const long r = sys(SYS_listen, listener, kBacklog);
  if (r < 0) return fail(static_cast<int>(-r), "listening of the group");
  return {};
}

bool answer_joiners(uid_t uid, uint32_t version, const SharedFds& fds) noexcept {
  std::array<int, kSharedFds> numbers;
  std::ranges::transform(fds, numbers.begin(), &UniqueFd::get);
  Answer answer{.version = version};
  for (int n = 0; n < kAnswersAtOnce; ++n) {
    const long fd = sys(SYS_accept4, numbers[kListenerFd], 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return fd != -EMFILE && fd != -ENFILE;
    const UniqueFd joiner(static_cast<int>(fd));
    // Who has given up, or is of another user, sees the end.
    if (is_peer_of(uid, joiner.get())) send_message(joiner.get(), answer.bytes(), numbers);
  }
  return true;
}

}  // namespace vireo::xdp
