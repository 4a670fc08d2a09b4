// Strays: frames of a flow that is the kernel's since a moment ago. Its rules have gone, but some
// frames had passed them: they wait in a ring, or a processor is just putting them there. They are
// given to the kernel, as if the interface had received them now.
#include <algorithm>
#include <atomic>

#include "core/checksum.h"
#include "stack/engine/hub.h"
#include "stack/ip/fragmentation.h"
#include "stack/wire/parse.h"

namespace vireo {
namespace {

using wire::ParsedFrame;

/// How long frames may still come. Not longer: later ones are of a new flow of the key.
constexpr Duration kStrayTime = Duration::ms(100);
/// A device shows frames when its processor has handled a batch of them: how long none must come.
constexpr Duration kQuiet = Duration::us(100);
constexpr unsigned kMaxTurns = 4096;

bool covers(const FlowKey& k, const ParsedFrame& f) {
  return k.proto == f.proto && k.local.port == f.dst_port &&
         (k.local.addr.is_unspecified() || k.local.addr == f.dst()) &&
         (!k.is_exact() || (k.remote.port == f.src_port && k.remote.addr == f.src()));
}

void write_sum(std::byte* to, be16 sum) { std::memcpy(to, &sum, sizeof sum); }

/// The checksums of a frame that never was on a wire may be missing, and so is that of the header
/// of a reassembled packet. All of them were good, or are not needed.
void write_checksums(const ParsedFrame& f, std::byte* frame) {
  if (!f.is_v6) {
    std::byte* const ip = frame + f.l3_at;
    write_sum(ip + offsetof(wire::Ipv4Header, checksum), be16(uint16_t{0}));
    write_sum(ip + offsetof(wire::Ipv4Header, checksum),
              checksum::finish(checksum::sum(ip, f.ipv4().header_bytes())));
  }
  const bool is_udp = f.proto == IpProto::kUdp;
  if (is_udp && f.udp().checksum.raw() == 0) return;
  std::byte* const field =
      frame + f.l4_at +
      (is_udp ? offsetof(wire::UdpHeader, checksum) : offsetof(wire::TcpHeader, checksum));
  write_sum(field, be16(uint16_t{0}));
  const uint64_t sum = uint64_t{wire::pseudo_header_sum(f)} + checksum::sum(f.l4());
  write_sum(field, is_udp ? checksum::finish_udp(sum) : checksum::finish(sum));
}

/// The frame in one piece.
std::vector<std::byte> whole(const ParsedFrame& f, const PacketChain& payload) {
  std::vector<std::byte> frame(f.frame, f.frame + f.payload_at);
  for (const PacketBuf* p = payload.front(); p != nullptr; p = p->next)
    frame.insert(frame.end(), p->data(), p->data() + p->length);
  return frame;
}

bool give(Device& device, const ParsedFrame& f) {
  /// A multiple of 8. With any headers it is less than a page.
  constexpr uint32_t kFragmentBytes = 2048;
  const auto given = device.give_to_kernel({f.frame, f.frame_bytes});
  if (given || given.error().code != EMSGSIZE) return given.has_value();
  static std::atomic<uint32_t> id{0};
  const auto fragments =
      ip::cut_packet(f, id.fetch_add(1, std::memory_order_relaxed), kFragmentBytes);
  return !fragments.empty() && std::ranges::all_of(fragments, [&](const auto& fragment) {
    return device.give_to_kernel(fragment).has_value();
  });
}

}  // namespace

void Steering::expect_strays(const FlowKey& key, Instant now, Groups groups) {
  strays_.push_back({key, now + kStrayTime, groups});
  hub().wakeups.count_flow();  // the helper looks
}

bool Steering::take_stray(Port& port, const ParsedFrame& f, const PacketChain& payload,
                          Instant now) noexcept {
  const auto is_its = [&](const Stray& s) {
    const bool is_taken = s.groups == Groups::kToo || !f.dst().is_multicast();
    return is_taken && s.until > now && covers(s.key, f);
  };
  if (std::ranges::none_of(strays_, is_its)) return false;
  (void)give_to_kernel(port, f, payload);
  return true;
}

bool Steering::give_to_kernel(Port& port, const ParsedFrame& f,
                              const PacketChain& payload) noexcept {
  if (port.dead) return false;
  auto frame = whole(f, payload);
  const ParsedFrame again = wire::parse_frame(frame);
  if (!again) return false;
  write_checksums(again, frame.data());
  if (!give(*port.device, again)) return false;
  hub().stats.given_to_kernel.add();
  return true;
}

void Steering::give_strays(Instant now) noexcept {
  Instant quiet_since = Clock::now();
  for (unsigned i = 0; i < kMaxTurns; ++i) {
    if (hub().turn.run(now))
      quiet_since = Clock::now();
    else if (Clock::now() - quiet_since > kQuiet)
      break;
  }
  hub().turn.publish_deadline(now);
}

void Steering::expire_strays(Instant now) noexcept {
  for (; !strays_.empty() && strays_.front().until <= now; strays_.pop_front())
    hub().wakeups.uncount_flow();
}

}  // namespace vireo
