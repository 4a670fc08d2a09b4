// Where processes find their group: a name of abstract AF_UNIX sockets, which the network namespace
// scopes. bind(2) is atomic: who gets the name founds the group. The others connect and receive the
// group's descriptors. All members have the listening socket, so that any may answer, and the name
// is taken until the last one is gone. One message, from the member, is all that is sent: a process
// that joins cannot hold up who answers. Owner: none. Thread: any. Source: unix(7).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "core/clock.h"
#include "core/fd.h"
#include "core/result.h"

namespace vireo::xdp {

/// What the members of a group share, each with its own numbers.
enum SharedFd { kListenerFd, kTableFd, kMemoryFd, kBankTailFd, kBankHeadFd, kSharedFds };
using SharedFds = std::array<UniqueFd, kSharedFds>;

/// The group as processes have to agree on it.
struct GroupId {
  std::string_view name;
  uid_t uid = 0;
  uint32_t version = 0;
};

/// Joins the group; or, if there is none, binds the name: then only the listener is there, and
/// others wait until it listens. Errors: ETIMEDOUT, EBUSY the name is another user's or program's,
/// ENOTSUP another version, EMFILE, EINVAL the name is too long.
Result<SharedFds> find_group(const GroupId& id, Instant deadline) noexcept;

/// From now on others can join.
Result<void> start_listening(int listener) noexcept;

/// Answers processes of `uid` that want to join, without blocking. @return false: there was no free
/// descriptor, try again later.
bool answer_joiners(uid_t uid, uint32_t version, const SharedFds& fds) noexcept;

}  // namespace vireo::xdp
