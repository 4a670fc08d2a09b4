// An AF_XDP socket that only receives, and the packet memory that several of them share on one
// queue: the members of a group as the steering program sees them. Owner: the test. Thread: the
// test's. Source: af_xdp.rst.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "../frames.h"
#include "core/fd.h"
#include "core/types.h"
#include "dev/xdp/ring.h"
#include "dev/xdp/steer_layout.h"
#include "dev/xdp/uapi.h"

namespace vireo::test {

/// Shared also with forked children.
class PacketMemory {
 public:
  static constexpr uint32_t kFrames = 512, kFrameBytes = 2048;
  PacketMemory()
      : base_(static_cast<std::byte*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~PacketMemory() { munmap(base_, kBytes); }
  PacketMemory(const PacketMemory&) = delete;
  PacketMemory& operator=(const PacketMemory&) = delete;
  std::byte* base() const { return base_; }
  static constexpr size_t kBytes = size_t{kFrames} * kFrameBytes;

 private:
  std::byte* base_;
};

class BareSocket {
 public:
  struct Got {
    Bytes frame;
    uint32_t tag = 0;  ///< 0: none
  };

  /// `first`: the socket that registered the memory and has its FILL ring; null: this one does.
  BareSocket(const PacketMemory& memory, IfIndex ifindex, const BareSocket* first)
      : memory_(memory), fd_(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0)) {
    is_open_ = set(XDP_RX_RING, kEntries);
    if (first == nullptr) is_open_ = is_open_ && registers();
    xdp_mmap_offsets at{};
    unsigned length = sizeof at;
    is_open_ = is_open_ && xdp::get_option(fd(), SOL_XDP, XDP_MMAP_OFFSETS, &at, &length) == 0;
    if (!is_open_) return;
    rx_ = xdp::ConsumerRing<xdp_desc>(mapped(XDP_PGOFF_RX_RING, at.rx, kEntries, sizeof(xdp_desc)));
    if (first == nullptr) {
      fill_.emplace(
          mapped(XDP_UMEM_PGOFF_FILL_RING, at.fr, PacketMemory::kFrames, sizeof(uint64_t)));
      for (uint32_t i = 0; i < PacketMemory::kFrames - 1; ++i)
        fill_->slot(i) = uint64_t{i} * PacketMemory::kFrameBytes;
      fill_->publish(PacketMemory::kFrames - 1);
    }
    sockaddr_xdp to{};
    to.sxdp_family = AF_XDP;
    to.sxdp_flags = first == nullptr ? XDP_COPY : XDP_SHARED_UMEM;
    to.sxdp_ifindex = ifindex.value();
    if (first != nullptr) to.sxdp_shared_umem_fd = static_cast<uint32_t>(first->fd());
    is_open_ = ::bind(fd(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  BareSocket(const BareSocket&) = delete;
  BareSocket& operator=(const BareSocket&) = delete;
  ~BareSocket() {
    for (const auto& m : maps_) munmap(m.base, m.length);
  }

  bool is_open() const { return is_open_; }
  int fd() const { return fd_.get(); }

  std::optional<Got> receive() {
    if (rx_.ready_now() == 0) return std::nullopt;
    const xdp_desc d = rx_.front(0);
    const std::byte* const at = memory_.base() + d.addr;
    Got got{{at, at + d.len}};
    steer_meta meta;
    std::memcpy(&meta, at - sizeof meta, sizeof meta);
    if (meta.magic == STEER_META_MAGIC) got.tag = meta.tag;
    std::memset(const_cast<std::byte*>(at) - sizeof meta, 0, sizeof meta);
    rx_.release(1);
    BareSocket& filler = fills_ != nullptr ? *fills_ : *this;
    if (filler.fill_) {
      filler.fill_->slot(0) = d.addr - d.addr % PacketMemory::kFrameBytes;
      filler.fill_->publish(1);
    }
    return got;
  }
  /// What this one receives is filled in again. Not in a child, which would fill by a copy.
  void give_back_to(BareSocket& first) { fills_ = &first; }

 private:
  static constexpr uint32_t kEntries = 64;

  bool set(int option, uint32_t value) const {
    return xdp::set_option(fd(), SOL_XDP, option, &value, sizeof value) == 0;
  }
  bool registers() const {
    xdp_umem_reg reg{};
    reg.addr = reinterpret_cast<uint64_t>(memory_.base());
    reg.len = PacketMemory::kBytes;
    reg.chunk_size = PacketMemory::kFrameBytes;
    return xdp::set_option(fd(), SOL_XDP, XDP_UMEM_REG, &reg, sizeof reg) == 0 &&
           set(XDP_UMEM_FILL_RING, PacketMemory::kFrames) &&
           set(XDP_UMEM_COMPLETION_RING, kEntries);
  }
  xdp::RingMemory mapped(uint64_t page_offset, const xdp_ring_offset& at, uint32_t entries,
                         size_t entry_bytes) {
    const size_t length = at.desc + entries * entry_bytes;
    void* base = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd(),
                      static_cast<off_t>(page_offset));
    is_open_ = is_open_ && base != MAP_FAILED;
    maps_.push_back({base, length, at, entries});
    return maps_.back();
  }

  const PacketMemory& memory_;
  UniqueFd fd_;
  std::vector<xdp::RingMemory> maps_;
  xdp::ConsumerRing<xdp_desc> rx_;
  std::optional<xdp::ProducerRing<uint64_t>> fill_;
  BareSocket* fills_ = nullptr;
  bool is_open_ = false;
};

}  // namespace vireo::test
