#include "dev/xdp/copy_queue.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/high_fd.h"
#include "dev/xdp/quiet_libbpf.h"
#include "dev/xdp/unfinished.h"

namespace vireo::xdp {
namespace {

/// Of the ring. A feed of 200,000 small frames a second fills it in 60 ms.
constexpr uint32_t kRingBytes = 4U << 20;
constexpr uint32_t kRecordHead = BPF_RINGBUF_HDR_SZ;

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Result<std::unique_ptr<CopyQueue>> CopyQueue::open(PacketPool& pool,
                                                   std::shared_ptr<Steering> steering,
                                                   bool is_virtual) {
  const QuietLibbpf quiet;
  const int ring = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "vireo_copies", 0, 0, kRingBytes, nullptr);
  if (ring < 0) return fail(-ring, "ring for copied frames");
  std::unique_ptr<CopyQueue> made(new CopyQueue(pool, std::move(steering), is_virtual));
  made->ring_.reset(to_high_number(ring));
  if (auto ok = made->map(); !ok) return std::unexpected(ok.error());
  if (auto ok = made->steering_->set_ring(made->ring_.get()); !ok)
    return std::unexpected(ok.error());
  return made;
}

/// A page that we write, and behind it one of the kernel's with the records.
Result<void> CopyQueue::map() {
  const size_t page = page_bytes();
  void* const ours = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, ring_.get(), 0);
  if (ours == MAP_FAILED) return fail_errno("ring for copied frames");
  consumer_page_ = Mapping(ours, page);
  const size_t bytes = page + 2 * size_t{kRingBytes};
  void* const theirs =
      mmap(nullptr, bytes, PROT_READ, MAP_SHARED, ring_.get(), static_cast<off_t>(page));
  if (theirs == MAP_FAILED) return fail_errno("ring for copied frames");
  producer_pages_ = Mapping(theirs, bytes);
  consumer_ = static_cast<std::atomic<uint64_t>*>(ours);
  producer_ = static_cast<const std::atomic<uint64_t>*>(theirs);
  records_ = static_cast<const std::byte*>(theirs) + page;
  return {};
}

/// In a forked child the ring is the parent's.
CopyQueue::~CopyQueue() {
  if (producer_pages_.base() != nullptr) steering_->clear_ring();
}

unsigned CopyQueue::rx_burst(std::span<RxDesc> out) noexcept {
  const uint64_t written = producer_->load(std::memory_order_acquire);
  if (taken_ == written) [[likely]]
    return 0;
  unsigned n = 0;
  while (n < out.size() && taken_ < written) {
    const std::byte* const record = records_ + taken_ % kRingBytes;
    const uint32_t head =
        reinterpret_cast<const std::atomic<uint32_t>*>(record)->load(std::memory_order_acquire);
    if ((head & BPF_RINGBUF_BUSY_BIT) != 0) break;
    if ((head & BPF_RINGBUF_DISCARD_BIT) == 0) {
      if (!take(record + kRecordHead, out[n])) break;
      ++n;
    }
    const uint32_t bytes = (head & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT)) + kRecordHead;
    taken_ += (bytes + 7) / 8 * 8;
  }
  consumer_->store(taken_, std::memory_order_release);
  since_sleep_ += n;
  return n;
}

/// A wake-up interrupts the processor that receives, once for each ring: a feed to several
/// processes that have to share a processor is held up by that, not by the copies.
bool CopyQueue::comes_in_bulk() noexcept { return std::exchange(since_sleep_, 0) > 1; }

/// @return false: there is no empty buffer; the record stays.
bool CopyQueue::take(const std::byte* record, RxDesc& out) noexcept {
  steer_copy copy;
  std::memcpy(&copy, record, sizeof copy);
  PacketBuf* const p = pool_.take_for_rx();
  if (p == nullptr) return false;
  const auto length =
      static_cast<uint32_t>(std::min<uint64_t>(copy.length, STEER_COPY_MOST - sizeof copy));
  p->data_at = static_cast<uint16_t>(
      std::min(uint32_t{PacketPool::kHeadroom}, pool_.frame_bytes() - length));
  p->length = static_cast<uint16_t>(length);
  std::memcpy(p->data(), record + sizeof copy, length);
  out.packet.reset(p);
  out.flags = is_virtual_ && is_unfinished(p->data(), length) ? RxFlags::kL4Ok : RxFlags::kNone;
  out.tag = FlowTag();
  return true;
}

/// The program looks whether we sleep after it has made room for a record, which we look for after
/// we have said so: one of the two sees the other.
Result<bool> CopyQueue::arm() noexcept {
  steering_->reader_sleeps().store(1, std::memory_order_seq_cst);
  return producer_->load(std::memory_order_seq_cst) == taken_;
}

void CopyQueue::wake_ack() noexcept {
  steering_->reader_sleeps().store(0, std::memory_order_relaxed);
}

QueueLosses CopyQueue::losses() const noexcept {
  return {.rx_ring_full = steering_->reader_lost()};
}

}  // namespace vireo::xdp
