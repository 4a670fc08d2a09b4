#include "stack/filter/sessions.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/fd.h"
#include "stack/net/messages.h"

namespace vireo::filter {
namespace {

constexpr size_t kReceiveBytes = 64 * 1024;

bool exists(const std::string& path) {
  return ::syscall(SYS_faccessat, AT_FDCWD, path.c_str(), F_OK) == 0;
}

/// Empty if it cannot be read.
std::string contents(const std::string& path) {
  const UniqueFd fd(
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC)));
  std::string all;
  std::vector<char> piece(kReceiveBytes);
  for (;;) {
    const long n = fd ? ::syscall(SYS_read, fd.get(), piece.data(), piece.size()) : 0;
    if (n <= 0) return all;
    all.append(piece.data(), static_cast<size_t>(n));
  }
}

}  // namespace

Session::Session(net::RtnetlinkSocket s) : socket_(std::move(s)), buffer_(kReceiveBytes) {}

Result<Session> Session::open(int protocol, uint32_t group) {
  auto s = net::RtnetlinkSocket::open(0, protocol);
  if (!s) return std::unexpected(s.error());
  if (auto ok = s->join(group); !ok) return std::unexpected(ok.error());
  return Session(std::move(*s));
}

Result<std::span<const std::byte>> Session::receive() {
  for (;;) {
    const auto got = socket_.receive(buffer_);
    if (got) return *got;
    if (got.error().code != ENOBUFS) return std::unexpected(got.error());
    told_ = true;  // more than the socket's buffer held
  }
}

Result<void> Session::dump(const net::Request& question,
                           const std::function<void(const nlmsghdr&)>& take) {
  const auto bytes = question.bytes();
  nlmsghdr asked;
  std::memcpy(&asked, bytes.data(), sizeof asked);
  if (auto sent = socket_.send(bytes); !sent) return sent;
  for (;;) {
    // The kernel produces the reply as it is read: there is always a part of it until the end.
    const auto got = receive();
    if (!got && got.error().code == EAGAIN) return fail(EBUSY, "end of a dump");
    if (!got) return std::unexpected(got.error());
    std::span<const std::byte> left = *got;
    while (left.size() >= sizeof(nlmsghdr)) {
      const auto* m = reinterpret_cast<const nlmsghdr*>(left.data());
      if (m->nlmsg_len < sizeof *m || m->nlmsg_len > left.size()) break;
      left = left.subspan(std::min<size_t>(NLMSG_ALIGN(m->nlmsg_len), left.size()));
      if (m->nlmsg_pid != socket_.port() || m->nlmsg_seq != asked.nlmsg_seq) {
        told_ = true;
        continue;
      }
      if (m->nlmsg_type == NLMSG_DONE) return {};
      if (m->nlmsg_type == NLMSG_ERROR) {
        const int error = net::parse_error(*m);
        return error == 0 ? Result<void>() : fail(error, "netlink");
      }
      take(*m);
    }
  }
}

bool Session::was_told() {
  while (receive()) told_ = true;
  return std::exchange(told_, false);
}

bool is_absent(const char* module) {
  if (exists(fmt::format("/sys/module/{}", module))) return false;
  if (!exists("/proc/modules")) return false;  // everything is built in
  utsname u{};
  ::uname(&u);
  const std::string built_in = contents(fmt::format("/lib/modules/{}/modules.builtin", u.release));
  // Without that list the kernel is asked.
  return !built_in.empty() && built_in.find(fmt::format("/{}.ko", module)) == std::string::npos;
}

}  // namespace vireo::filter
