#include "dev/xdp/xsk.h"

#include <sys/mman.h>

#include <cstring>
#include <ctime>

#include "core/high_fd.h"
#include "core/log.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

/// Tries, about a millisecond apart, while a queue is being freed.
constexpr int kBindTries = 200;
std::unexpected<Err> refused(long result, const char* where) {
  return fail(static_cast<int>(-result), where);
}

/// Maps a ring, which lasts as long as `to`.
Result<RingMemory> map_ring(Mapping& to, int fd, uint64_t page_offset, const xdp_ring_offset& ring,
                            uint32_t entries, size_t entry_bytes) {
  const size_t length = ring.desc + entries * entry_bytes;
  const long at = sys(SYS_mmap, 0, static_cast<long>(length), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, fd, static_cast<long>(page_offset));
  if (at < 0 && at > -4096) return refused(at, "mmap of an AF_XDP ring");
  to = Mapping(reinterpret_cast<void*>(at), length);
  return RingMemory{to.base(), to.length(), ring, entries};
}

Result<xdp_mmap_offsets> ring_offsets(int fd) {
  xdp_mmap_offsets at{};
  unsigned length = sizeof at;
  if (const long r = get_option(fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length); r < 0)
    return refused(r, "XDP_MMAP_OFFSETS");
  if (length != sizeof at) return fail(ENOTSUP, "AF_XDP of a kernel before 5.4");
  return at;
}

Result<UniqueFd> xdp_socket() {
  const long fd = sys(SYS_socket, AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd == -EPERM) return fail(EPERM, "AF_XDP socket (needs CAP_NET_RAW)");
  if (fd == -EAFNOSUPPORT)
    return fail(ENOTSUP, "AF_XDP socket (kernel built without CONFIG_XDP_SOCKETS)");
  if (fd < 0) return refused(fd, "AF_XDP socket");
  return UniqueFd(static_cast<int>(fd));
}

}  // namespace

Mapping::Mapping(void* base, size_t length)
    : base_(base), length_(length), owner_(static_cast<pid_t>(sys(SYS_getpid))) {
  madvise(base, length, MADV_DONTFORK);
}

Mapping::~Mapping() {
  // In a forked child something else may be mapped there.
  if (base_ != nullptr && sys(SYS_getpid) == owner_) munmap(base_, length_);
}

Result<bool> kernel_has_multi_buffer() {
  const auto fd = xdp_socket();
  if (!fd) return std::unexpected(fd.error());
  // The kernel checks flags before the interface: unknown flags give EINVAL, a missing interface
  // ENODEV.
  sockaddr_xdp nowhere{};
  nowhere.sxdp_family = AF_XDP;
  nowhere.sxdp_flags = kBindUseSg;
  return sys(SYS_bind, fd->get(), reinterpret_cast<long>(&nowhere), sizeof nowhere) != -EINVAL;
}

Result<XskView> XskView::map(int rx_fd, int tx_fd, const RingSizes& own, const RingSizes& queue) {
  const auto at = ring_offsets(rx_fd);
  if (!at) return std::unexpected(at.error());
  XskView v;
  const auto r = map_ring(v.maps_[0], rx_fd, XDP_PGOFF_RX_RING, at->rx, own.rx, sizeof(xdp_desc));
  if (!r) return std::unexpected(r.error());
  const auto t = map_ring(v.maps_[1], tx_fd, XDP_PGOFF_TX_RING, at->tx, own.tx, sizeof(xdp_desc));
  if (!t) return std::unexpected(t.error());
  const auto f =
      map_ring(v.maps_[2], rx_fd, XDP_UMEM_PGOFF_FILL_RING, at->fr, queue.fill, sizeof(uint64_t));
  if (!f) return std::unexpected(f.error());
  const auto c = map_ring(v.maps_[3], rx_fd, XDP_UMEM_PGOFF_COMPLETION_RING, at->cr, queue.tx,
                          sizeof(uint64_t));
  if (!c) return std::unexpected(c.error());
  v.rx = ConsumerRing<xdp_desc>(*r);
  v.tx = ProducerRing<xdp_desc>(*t);
  v.fill = ProducerRing<uint64_t>(*f);
  v.completion = ConsumerRing<uint64_t>(*c);
  return v;
}

Result<Xsk> Xsk::make() {
  auto fd = xdp_socket();
  if (!fd) return std::unexpected(fd.error());
  Xsk x;
  x.fd_ = to_high_number(std::move(*fd));
  return x;
}

Result<Xsk> Xsk::open_registering(std::span<std::byte> memory, uint32_t chunk_bytes,
                                  uint16_t bind_flags, IfIndex ifindex, QueueId queue,
                                  const RingSizes& sizes) {
  auto x = make();
  if (!x) return x;
  xdp_umem_reg reg{};
  reg.addr = reinterpret_cast<uint64_t>(memory.data());
  reg.len = memory.size();
  reg.chunk_size = chunk_bytes;
  const long r = set_option(x->fd(), SOL_XDP, XDP_UMEM_REG, &reg, sizeof reg);
  if (r == -ENOBUFS)
    return fail(ENOMEM, "RLIMIT_MEMLOCK is below the packet memory (XDP_UMEM_REG)");
  if (r < 0) return refused(r, "registration of the packet memory (XDP_UMEM_REG)");
  if (auto ok = x->start(ifindex, queue, bind_flags, -1, sizes); !ok)
    return std::unexpected(ok.error());
  return x;
}

Result<Xsk> Xsk::open_shared(int other, IfIndex ifindex, QueueId queue, const RingSizes& sizes) {
  auto x = make();
  if (!x) return x;
  if (auto ok = x->start(ifindex, queue, XDP_SHARED_UMEM, other, sizes); !ok)
    return std::unexpected(ok.error());
  return x;
}

Result<Xsk> Xsk::open_beside(int other, IfIndex ifindex, QueueId queue, const RingSizes& sizes,
                             const RingSizes& other_sizes) {
  auto x = make();
  if (!x) return x;
  auto ok = x->map_own_rings(sizes);
  if (ok) ok = x->bind(ifindex, queue, XDP_SHARED_UMEM, other);
  if (ok) ok = x->map_queue_rings(other_sizes);  // of the queue, which the bound socket has
  if (!ok) return std::unexpected(ok.error());
  x->finish(ifindex, queue, sizes.tx);
  return x;
}

Result<void> Xsk::start(IfIndex ifindex, QueueId queue, uint16_t flags, int other,
                        const RingSizes& sizes) {
  if (auto ok = map_own_rings(sizes); !ok) return ok;
  if (auto ok = make_ring(XDP_UMEM_FILL_RING, sizes.fill); !ok) return ok;
  if (auto ok = make_ring(XDP_UMEM_COMPLETION_RING, sizes.tx); !ok) return ok;
  if (auto ok = map_queue_rings(sizes); !ok) return ok;
  if (auto ok = bind(ifindex, queue, flags, other); !ok) return ok;
  finish(ifindex, queue, sizes.tx);
  return {};
}

void Xsk::finish(IfIndex ifindex, QueueId queue, uint32_t tx_entries) {
  if (zero_copy_) return;
  if (auto ok = part_sending(ifindex, queue, tx_entries); !ok)
    log<LogLevel::kInfo>("one AF_XDP socket sends and receives, which is slower: {}: {}",
                         ok.error().where, std::strerror(ok.error().code));
}

Result<void> Xsk::make_ring(int option, uint32_t entries) {
  if (const long r = set_option(fd(), SOL_XDP, option, &entries, sizeof entries); r < 0)
    return refused(r, "size of an AF_XDP ring");
  return {};
}

/// RX and TX.
Result<void> Xsk::map_own_rings(const RingSizes& sizes) {
  if (auto ok = make_ring(XDP_RX_RING, sizes.rx); !ok) return ok;
  if (auto ok = make_ring(XDP_TX_RING, sizes.tx); !ok) return ok;
  const auto at = ring_offsets(fd());
  if (!at) return std::unexpected(at.error());
  const auto r =
      map_ring(maps_[kRxMap], fd(), XDP_PGOFF_RX_RING, at->rx, sizes.rx, sizeof(xdp_desc));
  if (!r) return std::unexpected(r.error());
  const auto t =
      map_ring(maps_[kTxMap], fd(), XDP_PGOFF_TX_RING, at->tx, sizes.tx, sizeof(xdp_desc));
  if (!t) return std::unexpected(t.error());
  rx = ConsumerRing<xdp_desc>(*r);
  tx = ProducerRing<xdp_desc>(*t);
  return {};
}

/// FILL and COMPLETION.
Result<void> Xsk::map_queue_rings(const RingSizes& sizes) {
  const auto at = ring_offsets(fd());
  if (!at) return std::unexpected(at.error());
  const auto f = map_ring(maps_[kFillMap], fd(), XDP_UMEM_PGOFF_FILL_RING, at->fr, sizes.fill,
                          sizeof(uint64_t));
  if (!f) return std::unexpected(f.error());
  const auto c = map_ring(maps_[kCompletionMap], fd(), XDP_UMEM_PGOFF_COMPLETION_RING, at->cr,
                          sizes.tx, sizeof(uint64_t));
  if (!c) return std::unexpected(c.error());
  fill = ProducerRing<uint64_t>(*f);
  completion = ConsumerRing<uint64_t>(*c);
  return {};
}

Result<void> Xsk::bind(IfIndex ifindex, QueueId queue, uint16_t flags, int other) {
  sockaddr_xdp to{};
  to.sxdp_family = AF_XDP;
  to.sxdp_flags = flags;
  to.sxdp_ifindex = ifindex.value();
  to.sxdp_queue_id = queue.value();
  if (other >= 0) to.sxdp_shared_umem_fd = static_cast<uint32_t>(other);
  // The kernel frees a queue some time after its last socket was closed; a restarted program must
  // not find its predecessor's queue busy.
  long r = -EBUSY;
  for (int tries = 0; r == -EBUSY && tries < kBindTries; ++tries) {
    if (tries > 0) {
      const timespec pause{0, 1'000'000};
      sys(SYS_nanosleep, reinterpret_cast<long>(&pause));
    }
    r = sys(SYS_bind, fd(), reinterpret_cast<long>(&to), sizeof to);
  }
  if (r == -EBUSY) return fail(EBUSY, "queue is taken by another AF_XDP socket");
  if (r == -EOPNOTSUPP) return fail(ENOTSUP, "driver lacks the AF_XDP mode asked for (bind)");
  if (r < 0) return refused(r, "bind of the AF_XDP socket");
  xdp_options options{};
  unsigned length = sizeof options;
  if (get_option(fd(), SOL_XDP, XDP_OPTIONS, &options, &length) == 0)
    zero_copy_ = (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
  return {};
}

/// In copy mode the peer's processor often runs our receive path (with veth; RPS may do the same)
/// and writes to the socket for each frame, while we send by it. Its cache lines moved between the
/// cores, which cost a tenth of a round trip and of a frame's time in a stream. So a second socket
/// of the same queue is used for TX; the TX ring of the first stays empty.
Result<void> Xsk::part_sending(IfIndex ifindex, QueueId queue, uint32_t entries) {
  auto sender = make();
  if (!sender) return std::unexpected(sender.error());
  const int fd = sender->fd();
  if (const long r = set_option(fd, SOL_XDP, XDP_TX_RING, &entries, sizeof entries); r < 0)
    return refused(r, "size of an AF_XDP ring");
  const auto at = ring_offsets(fd);
  if (!at) return std::unexpected(at.error());
  Mapping map;
  const auto ring = map_ring(map, fd, XDP_PGOFF_TX_RING, at->tx, entries, sizeof(xdp_desc));
  if (!ring) return std::unexpected(ring.error());
  if (auto ok = sender->bind(ifindex, queue, XDP_SHARED_UMEM, fd_.get()); !ok) return ok;
  maps_[kTxMap] = std::move(map);
  tx = ProducerRing<xdp_desc>(*ring);
  tx_fd_ = std::move(sender->fd_);
  return {};
}

}  // namespace vireo::xdp
