// Reads the options of a kernel socket that Vireo has not seen made.
#include <netinet/tcp.h>

#include <array>
#include <cstddef>
#include <span>

#include "core/fd.h"
#include "stack/sock/options/call.h"
#include "stack/sock/options/options.h"

namespace vireo {
namespace {

/// The answer of getsockopt(2). What is longer, as a filter may be, fails.
struct Answer {
  alignas(8) std::array<std::byte, 64> bytes{};
  socklen_t len = sizeof bytes;
  bool is_given;

  Answer(int fd, const SocketOption& row)
      : is_given(libc().getsockopt(fd, row.level, row.name, bytes.data(), &len) == 0) {}
  bool operator==(const Answer&) const = default;
};

/// Its value is no choice: the time, which matters to sockets under repair only, and whether the
/// buffers' sizes were set.
bool says_nothing(const SocketOption& row) {
  return (row.level == IPPROTO_TCP && row.name == TCP_TIMESTAMP) ||
         (row.level == SOL_SOCKET && row.name == SO_BUF_LOCK);
}

}  // namespace

void take_options(File& f, int fd) {
  const int domain = f.domain.load(std::memory_order_relaxed);
  const UniqueFd fresh(libc().socket(domain, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fresh) {
    f.forced = {Carriage::kOption, kNoOption};
    return;
  }
  const Handle h{&f, f.generation.load(std::memory_order_relaxed), fd};
  const auto for_each_set = [&](auto&& do_it) {
    for (const OptionLevel* level : option_levels()) {
      if (level->level == (domain == AF_INET6 ? IPPROTO_IP : IPPROTO_IPV6)) continue;
      for (const SocketOption& row : level->rows) {
        if (row.tcp == OptionClass::kKernels || says_nothing(row)) continue;
        const Answer its(fd, row);
        if (its == Answer(fresh.get(), row)) continue;
        do_it(row,
              SetCall{h, &row, row.level, row.name, its.bytes.data(), its.is_given ? its.len : 0});
      }
    }
  };
  // These change the File's options themselves.
  for_each_set([&](const SocketOption& row, const SetCall& c) {
    // The kernel has begun to number calls with MSG_ZEROCOPY.
    const bool is_numbered = row.level == SOL_SOCKET && row.name == SO_ZEROCOPY;
    if (row.tcp == OptionClass::kLeaves || row.tcp == OptionClass::kRefused || is_numbered)
      f.forced = {Carriage::kOption, id_of(&row)};
    else if (row.how.set != nullptr && row.how.kept == nullptr)
      (void)row.how.set(c);
  });
  SocketOptions o = *f.tcp.options;
  for_each_set([&](const SocketOption& row, const SetCall& c) {
    if (c.len == 0) return;
    if (row.how.keep != nullptr)
      row.how.keep(c, o);
    else if (row.how.kept != nullptr)
      row.how.kept(o) = c.as_int();
  });
  if (!replace_options(f, o)) f.forced = {Carriage::kOption, kNoOption};
}

}  // namespace vireo
