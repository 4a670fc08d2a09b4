// Packets in and out of the Host, and its clock.
#include <algorithm>
#include <cstring>

#include "stack/net/netlink.h"
#include "tests/packetdrill/host.h"
#include "tests/packetdrill/network.h"

namespace vireo::packetdrill {
namespace {

constexpr Duration kPatience = Duration::s(600);  ///< virtual time without a packet: none comes

}  // namespace

void Host::packet_in(std::span<const uint8_t> packet) {
  const Turns::Turn turn(turns_);
  if (!link_) return;
  const auto send = [&](std::span<const uint8_t> p) {
    const auto header = frame_header(p[0] >> 4 == 6);
    Bytes frame(header.begin(), header.end());
    frame.insert(frame.end(), p.begin(), p.end());
    link_->inject(MemEnd::kB, std::as_bytes(std::span(frame)));
  };
  const auto s = read_segment(packet);
  if (s && s->end > kMtu) {  // as from a device that merges
    for (const Bytes& piece : cut(packet, *s, kMtu)) send(piece);
  } else {
    send(packet);
  }
  settle();
}

void Host::run_engine() {
  if (Engine* const e = engine())
    while (sock::poll_engine(*e)) {
    }
  collect();
}

/// After anything that happened: the engine has done its part, and so have calls that waited.
void Host::settle() {
  if (stack_ && stack_->mirror() != nullptr) stack_->mirror()->process();
  run_engine();
  if (turns_.let_go_on()) {
    run_engine();
    turns_.let_others_settle();
  }
}

/// What has left the device joins what leaves the host.
void Host::collect() {
  if (!link_) return;
  auto& frames = link_->kernel_frames(MemEnd::kB);
  for (const auto& f : frames) {
    const size_t header = frame_header(false).size();
    const auto* const ip = reinterpret_cast<const uint8_t*>(f.data()) + header;
    const uint8_t version = *ip >> 4;
    if (version == 4 || version == 6) leave(Bytes(ip, ip + f.size() - header));
  }
  frames.clear();
}

void Host::leave(Bytes packet) {
  Leaving l{.bytes = std::move(packet), .at = clock().now()};
  if (const auto s = read_segment(l.bytes)) {
    const auto end = s->seq + static_cast<uint32_t>(s->bytes());
    const auto [sent, first] = sent_.try_emplace({s->from_port, s->to_port}, end);
    l.again = !first && static_cast<int32_t>(s->seq - sent->second) < 0 && (s->flags & kSyn) == 0;
    if ((s->flags & kSyn) != 0 || static_cast<int32_t>(end - sent->second) > 0) sent->second = end;
    if (merge_) l.most = most_at_once(*s);
  }
  leaving_.push_back(std::move(l));
}

/// As Linux hands packets to the device: not more than half the window in one.
size_t Host::most_at_once(const Segment& s) {
  size_t most = 0;
  engine()->tcp().for_each([&](TcpFlow& f) {
    if (f.key.local.port != s.from_port || f.key.remote.port != s.to_port) return;
    const tcp::Info i = tcp::info(f.tcb);
    most = std::min<size_t>(65'000 / i.snd_mss, std::max(i.snd_cwnd / 2, 1U)) * i.snd_mss;
  });
  return most;
}

Instant Host::deadline() {
  Engine* const e = engine();
  return std::min(turns_.next_wake(), e == nullptr ? Instant::never() : e->next_deadline());
}

void Host::advance(Instant to) {
  while (clock().now() < to) {
    const Instant next = std::max(std::min(to, deadline()), clock().now() + Duration::ns(1));
    if (link_)
      link_->step(next);
    else
      clock().advance_to(next);
    settle();
  }
}

void Host::packet_out(void* packet, size_t* n, long long* usecs) {
  const Turns::Turn turn(turns_);
  turns_.let_others_settle();
  const Instant end = clock().now() + kPatience;
  while (leaving_.empty() && deadline() <= end)
    advance(std::max(deadline(), clock().now() + Duration::us(1)));
  if (leaving_.empty()) {
    // There is no way to say "nothing comes", so what comes is no packet: the script fails here.
    std::memset(packet, 0x45, 1);
    *n = 1;
    *usecs = (clock().now() - start_).us();
    return;
  }
  Leaving first = std::move(leaving_.front());
  leaving_.pop_front();
  if (auto s = read_segment(first.bytes)) {
    while (!leaving_.empty()) {
      const Leaving& next = leaving_.front();
      const auto t = read_segment(next.bytes);
      if (!t || next.at != first.at || next.again != first.again ||
          s->bytes() + t->bytes() > first.most || !continues(first.bytes, *s, next.bytes, *t))
        break;
      join(first.bytes, *s, next.bytes, *t);
      if (!first.again) first.bytes[s->tcp + 13] |= kPsh;  // as Linux marks what it sends as one
      leaving_.pop_front();
    }
    packetdrill::finish(first.bytes, *s);
  }
  *n = std::min(*n, first.bytes.size());
  std::memcpy(packet, first.bytes.data(), *n);
  *usecs = (first.at - start_).us();
}

void Host::sleep(Duration d) {
  const Turns::Turn turn(turns_);
  turns_.let_others_settle();
  advance(clock().now() + d);
}

timeval Host::time() {
  const Turns::Turn turn(turns_);
  const Duration t = clock().now() - start_;
  advance(clock().now() + Duration::us(1));
  return {.tv_sec = t.s(), .tv_usec = t.us() % 1'000'000};
}

}  // namespace vireo::packetdrill
