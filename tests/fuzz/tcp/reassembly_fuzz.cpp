// Reassembly against a map of bytes: the first copy of a byte wins, nothing held is given up, what
// is not refused is held, a refusal has a reason (RFC 9293 §3.10.7.4, RFC 2018 §4, RFC 2883 §4).
#include <algorithm>
#include <cstring>
#include <vector>

#include "stack/tcp/reassembly.h"
#include "tests/fuzz/tcp/bytes.h"
#include "tests/fuzz/tcp/fuzzers.h"

namespace vireo::fuzz {

namespace {

using tcp::Reassembly;

constexpr uint32_t kSpace = 4096;  ///< offsets in use
constexpr uint32_t kFrameBytes = 2048;
constexpr uint32_t kFrames = 160;

struct Model {
  std::vector<bool> held = std::vector<bool>(kSpace);
  std::vector<std::byte> value = std::vector<std::byte>(kSpace);
  std::vector<uint32_t> arrived = std::vector<uint32_t>(kSpace);  ///< the latest copy, from 1

  uint32_t latest(const Reassembly::Range& r) const {
    return *std::max_element(arrived.begin() + static_cast<ptrdiff_t>(r.begin),
                             arrived.begin() + static_cast<ptrdiff_t>(r.end));
  }
};

/// Each copy of a byte differs, so that the winner shows.
std::byte copy_byte(uint32_t offset, uint32_t copy) {
  return stream_byte(copy & 1, offset + copy * 7919ULL);
}

/// Payload [at, at + length) in up to three frames; shorter if the pool is empty.
PacketChain payload(PacketPool& pool, Bytes& in, uint32_t at, uint32_t length, uint32_t copy) {
  PacketChain chain;
  const uint32_t pieces = 1 + in.below(3);
  for (uint32_t done = 0; done < length;) {
    PacketRef b(pool.take());
    if (!b) break;
    b->data_at = static_cast<uint16_t>(in.below(300));
    const uint32_t n =
        std::min({length - done, length / pieces + 1, kFrameBytes - uint32_t{b->data_at}});
    for (uint32_t i = 0; i < n; ++i) b->data()[i] = copy_byte(at + done + i, copy);
    b->length = static_cast<uint16_t>(n);
    chain.push_back(std::move(b));
    done += n;
  }
  return chain;
}

void compare(const Reassembly& r, const Model& m) {
  StreamOffset last = 0;
  uint64_t bytes = 0;
  uint32_t buffers = 0;
  uint64_t model_bytes = 0;
  for (const bool h : m.held) model_bytes += h ? 1 : 0;
  for (uint32_t i = 0; i < r.count(); ++i) {
    const Reassembly::Range& range = r.at(i);
    require(range.begin < range.end && (i == 0 || range.begin > last), "ranges touch or overlap");
    StreamOffset at = range.begin;
    for (const PacketBuf* b = range.data.front(); b != nullptr; b = b->next) {
      require(b->length > 0 && b->data_at + b->length <= kFrameBytes, "a frame out of bounds");
      for (uint32_t k = 0; k < b->length; ++k, ++at) {
        require(at < kSpace && m.held[at], "holds what never came");
        require(b->data()[k] == m.value[at], "the first copy of a byte did not win");
      }
    }
    require(at == range.end && range.data.bytes() == range.end - range.begin, "a range's sum");
    bytes += range.end - range.begin;
    buffers += range.data.buffers();
    last = range.end;
  }
  require(bytes == r.bytes() && bytes == model_bytes, "a byte held is missing");
  require(buffers == r.buffers(), "the count of frames");
  require(r.empty() || r.first_begin() == r.at(0).begin, "first_begin()");
  require(r.last_end() == last, "last_end()");
}

void insert(Reassembly& r, Model& m, PacketPool& pool, Bytes& in, uint32_t copy) {
  const uint8_t shape = in.u8();
  uint32_t at = 1 + in.u16() % (kSpace - 1);
  uint32_t length = 1 + ((shape & 1) != 0 ? in.below(8) : in.u16() % 2000);
  if ((shape & 6) == 6 && r.count() > 0) at = static_cast<uint32_t>(r.last_end()) + in.below(3);
  if ((shape & 24) == 24) {  // many small ranges
    at = 2 + in.u8() * 4 % kSpace;
    length = 1 + in.below(2);
  }
  if (at >= kSpace) return;
  length = std::min(length, kSpace - at);
  PacketChain data = payload(pool, in, at, length, copy);
  length = data.bytes();
  if (length == 0) return;
  const uint32_t ranges = r.count();
  const uint32_t frames = pool.free_count();
  uint32_t cuts = 0;  // before each range that the segment reaches into: a frame for what follows
  for (uint32_t i = 0; i < ranges; ++i)
    cuts += r.at(i).begin > at && r.at(i).begin < at + length ? 1 : 0;
  const auto result = r.insert(at, std::move(data), (shape & 128) != 0);

  // What the Reassembly holds now of this segment; the rest of the model stays as it was.
  std::vector<bool> now(kSpace);
  for (uint32_t i = 0; i < r.count(); ++i)
    for (StreamOffset o = r.at(i).begin; o < r.at(i).end; ++o) {
      require(o < kSpace, "a range beyond the last byte");
      now[o] = true;
    }
  uint32_t first_held = kSpace;
  bool refused = false;
  for (uint32_t i = at; i < at + length; ++i) {
    if (m.held[i]) {
      first_held = std::min(first_held, i);
      continue;
    }
    refused |= !now[i];
    if (!now[i]) continue;
    m.held[i] = true;
    m.value[i] = copy_byte(i, copy);
  }
  for (uint32_t i = at; i < at + length && now[i]; ++i) m.arrived[i] = copy + 1;
  require(!refused || result.dropped, "refused and not said so");
  if (refused)
    require(ranges + 1 >= Reassembly::kMaxRanges || r.count() == Reassembly::kMaxRanges ||
                frames < cuts,
            "refused without a reason");
  if (result.duplicate) {
    require(result.dup_begin < result.dup_end && result.dup_begin == first_held,
            "a duplicate elsewhere than the first byte that was held");
    require(result.dup_end <= at + length, "a duplicate beyond the segment");
  } else {
    require(first_held == kSpace || result.dropped, "a duplicate is not reported");
  }
  if (!refused) {  // RFC 2018 §4: the first block contains the segment that triggered the ACK
    const Reassembly::Range* blocks[4];
    const unsigned n = r.recent(blocks);
    require(n == std::min<uint32_t>(4, r.count()), "SACK blocks are missing");
    require(blocks[0]->begin <= at && at < blocks[0]->end, "the first SACK block is another's");
    for (unsigned i = 1; i < n; ++i)
      require(m.latest(*blocks[i]) < m.latest(*blocks[i - 1]), "SACK blocks not by latest arrival");
  }
}

}  // namespace

int fuzz_reassembly(const uint8_t* data, size_t size) {
  Bytes in(data, size);
  static std::vector<std::byte> memory(kFrames * kFrameBytes);
  PacketPool pool(memory, kFrameBytes);
  std::vector<PacketRef> hogged;  // a pool that others use too
  for (uint32_t n = in.flag() ? in.below(kFrames) : 0; n > 0; --n) hogged.emplace_back(pool.take());
  {
    Reassembly r;
    Model m;
    for (uint32_t copy = 0; copy < 500 && !in.empty(); ++copy) {
      if (in.u8() % 16 != 0) {
        insert(r, m, pool, in, copy);
      } else if (!r.empty()) {  // the hole before the first range was filled
        const StreamOffset begin = r.at(0).begin;
        const PacketChain taken = r.pop_first();
        StreamOffset at = begin;
        for (const PacketBuf* b = taken.front(); b != nullptr; b = b->next)
          for (uint32_t k = 0; k < b->length; ++k, ++at) {
            require(m.held[at] && b->data()[k] == m.value[at], "a wrong byte is taken out");
            m.held[at] = false;
          }
      }
      compare(r, m);
    }
  }
  hogged.clear();
  require(pool.free_count() == pool.size(), "a frame was leaked");
  return 0;
}

}  // namespace vireo::fuzz
