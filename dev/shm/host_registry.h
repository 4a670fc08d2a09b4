// Finds wires by name on this host. A name has two seats, host and joiner: the first process sits
// as host and makes the wire, the second joins, a third is refused. In /dev/shm/vireo-<uid>/ a wire
// has
//
//   <name>.lock   byte 0 locked while seats change, 1 and 2 as long as host and joiner live
//                 (F_OFD_SETLK, fcntl(2))
//   <name>.wire   the memory, until the joiner has mapped it
//   <name>.bell   Unix socket of the host, to which the joiner connects: the doorbell, and the
//                 news that a peer died
//
// Locks end with their process, so what a killed process left is recognised and removed by the next
// that looks. Owner: ShmDevice. Thread: any at open. Like every device, not to be used by a forked
// child.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/fd.h"
#include "core/result.h"

namespace vireo {

/// A mapped wire file. Not inherited by fork.
class WireMapping {
 public:
  WireMapping() = default;
  explicit WireMapping(std::span<std::byte> bytes) : bytes_(bytes) {}
  WireMapping(WireMapping&& o) noexcept { std::swap(bytes_, o.bytes_); }
  WireMapping& operator=(WireMapping&& o) noexcept {
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~WireMapping();
  std::byte* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  std::span<std::byte> bytes_;
};

/// One end of a named wire. Ends when it is destroyed; a host that nobody joined takes its files
/// away.
struct WireSeat {
  bool host = false;
  WireMapping wire;
  UniqueFd lock;
  UniqueFd bell;  ///< host: listening socket; joiner: connected one. Non-blocking
  std::string name;

  WireSeat() = default;
  WireSeat(WireSeat&&) noexcept = default;
  WireSeat& operator=(WireSeat&&) noexcept = default;
  ~WireSeat();
};

/// Sits down at wire `name` (letters, digits, `.`, `_`, `-`, at most 64). The host lays the wire
/// out with `slots` (a power of two) and `mtu`; a joiner takes what it finds. Errors: EBUSY both
/// seats are taken, EINVAL the name, EPROTO a wire of another version, EPERM the directory is
/// another user's, ENOSPC, and those of open(2), bind(2).
Result<WireSeat> take_seat(std::string_view name, uint32_t slots, uint32_t mtu);

/// Removes the files of wires that have no living end. @return how many wires.
unsigned clean_stale_wires();

}  // namespace vireo
