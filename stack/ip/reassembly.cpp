#include "stack/ip/reassembly.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/checksum.h"

namespace vireo::ip {
namespace {

using wire::Ecn;
using wire::Fragment;
using wire::ParsedFrame;

constexpr uint8_t bit_of(Ecn e) { return static_cast<uint8_t>(1U << static_cast<unsigned>(e)); }

Ecn ecn_of(const ParsedFrame& f) { return f.is_v6 ? f.ipv6().ecn() : f.ipv4().ecn(); }

constexpr uint32_t kMaxL4Header = 60;  ///< TCP's

uint64_t end_of(const PacketBuf& p) { return p.offset + p.length; }

bool header_is_good(const ParsedFrame& f) noexcept {
  return f.is_v6 || checksum::is_good(checksum::sum(f.frame + f.l3_at, f.ipv4().header_bytes()));
}

}  // namespace

PacketChain Reassembly::add(const ParsedFrame& f, uint32_t wire, PacketChain frame,
                            Instant now) noexcept {
  const auto what = wire::parse_fragment(f);
  if (!what || !header_is_good(f)) {
    ++fails_;
    return {};
  }
  const IpAddr src = f.src();
  Key key{.src = src, .dst = f.dst(), .id = what->id};
  if (!f.is_v6) key.proto = what->proto;
  if (f.is_v6 && (src.is_link_local() || key.dst.is_link_local() || key.dst.is_multicast()))
    key.wire = wire;

  if (frame.bytes() > what->data_at + uint32_t{what->bytes})  // Ethernet's padding
    frame.trim_back(frame.bytes() - what->data_at - what->bytes);
  frame.trim_front(what->data_at);
  uint32_t at = what->offset;
  for (PacketBuf* b = frame.front(); b != nullptr; b = b->next) {
    b->offset = at;
    at += b->length;
  }

  const uint32_t more = frame.buffers();
  const int64_t hw_time = frame.front()->hw_time;
  // An atomic fragment (RFC 6946) is independent of others with its id.
  Packet alone;
  alone.key = key;
  const bool is_alone = what->offset == 0 && !what->more;
  Packet& p = is_alone ? alone : place_of(key, now);
  if (at != what->end() || p.data.buffers() + more > kMaxBuffers) {
    drop(p);
    return {};
  }
  switch (put(p, *what, std::move(frame))) {
    case Put::kTaken:
      break;
    case Put::kRepeated:
      return {};
    case Put::kOverlaps:
      drop(p);
      return {};
  }
  buffers_ += more;
  p.hw_time = hw_time;
  p.ecn_seen |= bit_of(ecn_of(f));
  if (what->offset == 0) {
    p.l3_at = f.l3_at;
    p.headers = what->data_at;
    p.proto = what->proto;
  }
  if (p.end != 0 && p.data.bytes() == p.end) return take_whole(p);
  while (buffers_ > most_buffers_) drop(*oldest(nullptr));
  return {};
}

/// The entry of a packet that has fragments already, or an unused one.
Reassembly::Packet& Reassembly::place_of(const Key& key, Instant now) noexcept {
  const auto is_it = [&](const Packet& p) { return !p.data.empty() && p.key == key; };
  if (!is_it(packets_[last_])) {
    Packet* place = nullptr;
    unsigned of_source = 0;
    for (Packet& p : packets_) {
      if (is_it(p)) {
        place = &p;
        break;
      }
      if (p.data.empty())
        place = &p;
      else if (p.key.src == key.src)
        ++of_source;
    }
    if (place == nullptr || (!is_it(*place) && of_source >= kOfOneSource)) {
      place = oldest(of_source >= kOfOneSource ? &key.src : nullptr);
      drop(*place);
    }
    last_ = static_cast<unsigned>(place - packets_.data());
  }
  Packet& p = packets_[last_];
  if (is_it(p)) {
    if (begun_ - p.number <= kMaxBetween) return p;
    drop(p);
  }
  p.key = key;
  p.number = ++begun_;
  p.expires = now + (key.src.is_v4() ? kExpiryV4 : kExpiryV6);
  first_expiry_ = std::min(first_expiry_, p.expires);
  return p;
}

/// Of all packets, or of those of one source. Null: none.
Reassembly::Packet* Reassembly::oldest(const IpAddr* source) noexcept {
  Packet* found = nullptr;
  for (Packet& p : packets_)
    if (!p.data.empty() && (source == nullptr || p.key.src == *source) &&
        (found == nullptr || p.number < found->number))
      found = &p;
  return found;
}

void Reassembly::refuse() noexcept {
  if (Packet* const p = oldest(nullptr)) drop(*p);
  ++fails_;
}

/// Inserts the data at its place in the packet.
Reassembly::Put Reassembly::put(Packet& p, const Fragment& what, PacketChain data) noexcept {
  const uint64_t last = p.data.empty() ? 0 : end_of(*p.data.back());
  if (!what.more) {
    if (what.end() < last || (p.end != 0 && p.end != what.end())) return Put::kOverlaps;
  } else if (p.end != 0 && what.end() > p.end) {
    return Put::kOverlaps;
  }
  if (what.offset >= last) {
    p.data.append(std::move(data));
  } else {
    // `covered`: end of the data without a gap from what begins no later.
    uint64_t covered = 0;
    const PacketBuf* next = p.data.front();
    for (; next != nullptr && next->offset <= what.offset; next = next->next)
      covered = end_of(*next);
    if (covered > what.offset) {
      for (; next != nullptr && next->offset == covered; next = next->next) covered = end_of(*next);
      return covered >= what.end() ? Put::kRepeated : Put::kOverlaps;
    }
    if (next != nullptr && next->offset < what.end()) return Put::kOverlaps;
    PacketChain before;
    while (p.data.front() != next) before.push_back(p.data.pop_front());
    before.append(std::move(data));
    before.append(std::move(p.data));
    p.data = std::move(before);
  }
  if (!what.more) p.end = what.end();
  return Put::kTaken;
}

void Reassembly::drop(Packet& p) noexcept {
  buffers_ -= p.data.buffers();
  ++fails_;
  p = Packet{};
}

/// With the headers of the first fragment, which are in front of its data in the buffer.
PacketChain Reassembly::take_whole(Packet& p) noexcept {
  constexpr uint32_t kFragmentHeader = sizeof(wire::Ipv6FragmentHeader);
  const bool v6 = !p.key.src.is_v4();
  // RFC 3168 §5.3; Linux: ip_frag_ecn_table. One marked fragment marks the packet; fragments with
  // and without ECN support must not be mixed.
  const uint8_t seen = p.ecn_seen;
  const bool is_mixed = (seen & bit_of(Ecn::kNotEct)) != 0 && seen != bit_of(Ecn::kNotEct);
  const bool is_marked = (seen & bit_of(Ecn::kCe)) != 0;
  const uint32_t l4_at = p.headers - (v6 ? kFragmentHeader : 0);
  const uint32_t length = p.end + (v6 ? 0 : l4_at - p.l3_at);  // for the IP header
  if (is_mixed || length > UINT16_MAX) {
    drop(p);
    return {};
  }
  buffers_ -= p.data.buffers();
  PacketChain whole;
  PacketRef first = p.data.pop_front();
  first->data_at = static_cast<uint16_t>(first->data_at - l4_at);
  first->length = static_cast<uint16_t>(first->length + l4_at);
  std::byte* const frame = first->data();
  if (v6) std::memmove(frame, frame - kFragmentHeader, l4_at);
  std::byte* const l3 = frame + p.l3_at;
  if (v6) {
    auto& ip = *reinterpret_cast<wire::Ipv6Header*>(l3);
    ip.payload_length = static_cast<uint16_t>(length);
    ip.next_header = p.proto;
    if (is_marked) ip.version_class_flow = ip.version_class_flow | uint32_t{3} << 20;
  } else {
    auto& ip = *reinterpret_cast<wire::Ipv4Header*>(l3);
    ip.total_length = static_cast<uint16_t>(length);
    ip.fragment = uint16_t{0};
    if (is_marked) ip.tos |= static_cast<uint8_t>(Ecn::kCe);
  }
  first->hw_time = p.hw_time;
  whole.push_back(std::move(first));
  // The parser needs all headers in one buffer.
  while (whole.bytes() < l4_at + kMaxL4Header && !p.data.empty()) {
    const PacketBuf& next = *p.data.front();
    const uint32_t n = std::min<uint32_t>(next.length, l4_at + kMaxL4Header - whole.bytes());
    if (!whole.extend_back({next.data(), n})) break;
    p.data.trim_front(n);
  }
  whole.append(std::move(p.data));
  p = Packet{};
  return whole;
}

void Reassembly::expire(Instant now) noexcept {
  if (now < first_expiry_) return;
  first_expiry_ = Instant::never();
  for (Packet& p : packets_) {
    if (p.data.empty()) continue;
    if (p.expires <= now)
      drop(p);
    else
      first_expiry_ = std::min(first_expiry_, p.expires);
  }
}

}  // namespace vireo::ip
