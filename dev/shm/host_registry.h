// Finds wires by name on this host. A name has two seats: the first process becomes the host and
// creates the wire, the second joins, a third is refused. The files of a wire in
// /dev/shm/vireo-<uid>/:
//
//   <name>.lock   byte 0 is locked while seats change, 1 and 2 while host and joiner live
//                 (F_OFD_SETLK, fcntl(2))
//   <name>.wire   the memory, until the joiner has mapped it
//   <name>.bell   the host's Unix socket, to which the joiner connects: doorbell and detection of
//                 a dead peer
//
// The kernel drops the locks of a process that ends, so the next open recognises and removes what a
// killed process left. Owner: ShmDevice. Thread: any at open. Like every device, not to be used by
// a forked child.
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

/// One end of a named wire; the destructor leaves it. A host that nobody joined removes the files.
struct WireSeat {
  bool host = false;
  WireMapping wire;
  UniqueFd lock;
  UniqueFd bell;  ///< host: listening socket; joiner: connected socket; non-blocking
  std::string name;

  WireSeat() = default;
  WireSeat(WireSeat&&) noexcept = default;
  WireSeat& operator=(WireSeat&&) noexcept = default;
  ~WireSeat();
};

/// Takes a seat of wire `name` (letters, digits, `.`, `_`, `-`, at most 64). The host creates the
/// wire with `slots` (a power of two) and `mtu`; a joiner uses the host's values. Errors: EBUSY
/// both seats are taken, EINVAL invalid name or size, EPROTO a wire of another version or layout,
/// EPERM the directory belongs to another user or others may write to it, ENOSPC, and those of
/// open(2), bind(2).
Result<WireSeat> take_seat(std::string_view name, uint32_t slots, uint32_t mtu);

/// Removes the files of wires with no living end. @return how many wires.
unsigned clean_stale_wires();

}  // namespace vireo
