// From the ring to the protocol: per frame one parse, one look-up, one call into TCP or UDP; the
// socket layer is told at the end of the burst.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <vector>

#include "dev/device.h"
#include "stack/engine/flow.h"
#include "stack/engine/incoming.h"
#include "stack/engine/part.h"
#include "stack/engine/port.h"
#include "stack/ip/reassembly.h"
#include "stack/tcp/tcp.h"
#include "stack/wire/parse.h"
#include "stack/wire/plain.h"

namespace vireo {

struct Hub;

namespace tcp {
struct PlainSegment;  // stack/tcp/fast_path/predicted.h
}

class Receive : Part {
 public:
  /// Frames taken from a queue at a time.
  static constexpr unsigned kBurst = 16;

  /// `max_fragments`: buffers of incomplete packets.
  explicit Receive(uint32_t max_fragments) : reassembly_(max_fragments) {}

  /// The array for Queue::rx_burst().
  RxDesc (&burst() noexcept)[kBurst] { return burst_; }
  /// Handles the first `n` frames of a queue, which are in burst(), and perhaps more from the
  /// queue. @return frames.
  unsigned take(Port& port, Queue& queue, unsigned n, Instant now) noexcept {
    if (n == 0) return 0;
    if (n != 1 || !is_single(burst_[0].flags)) [[unlikely]]
      return take_many(port, queue, n, now);
    if (!take_plain(burst_[0], true, now)) [[unlikely]]
      take_frame(port, burst_[0], {}, now);
    return 1;
  }

  /// Frames from the ring into burst(), with the time of their arrival if anyone asks for it:
  /// Ports::ask_arrivals(). @return how many.
  unsigned take_burst(Queue& queue) noexcept;

  /// Drops cached look-ups: a key may have another flow now, or other interfaces.
  void forget_bindings() noexcept {
    last4_.binding = nullptr;
    last6_.binding = nullptr;
  }
  /// The life of `f` ends.
  void forget(const TcpFlow& f) noexcept {
    if (last4_.flow == &f) last4_.flow = nullptr;
    if (last6_.flow == &f) last6_.flow = nullptr;
  }
  /// Releases all buffers held here.
  void clear() noexcept;

  // ---- fragments
  void forget_fragments() noexcept { reassembly_.clear(); }
  void expire_fragments(Instant now) noexcept;
  Instant first_expiry() const noexcept { return reassembly_.first_expiry(); }

 private:
  /// The flows of the last frames of one IP version: the connection, and the binding of the last
  /// datagram.
  template <bool kV6>
  struct Last {
    TcpFlow* flow = nullptr;
    wire::PlainPath<kV6> path;
    UdpBinding* binding = nullptr;  ///< valid while the demux has version demux_version
    wire::PlainPath<kV6> datagram_path;
    uint32_t demux_version = 0;
  };
  template <bool kV6>
  Last<kV6>& last() noexcept {
    if constexpr (kV6)
      return last6_;
    else
      return last4_;
  }

  // receive.cpp
  unsigned take_many(Port& port, Queue& queue, unsigned n, Instant now) noexcept;
  void take_buffer(Port& port, RxDesc& desc, bool alone, Instant now) noexcept;
  void take_frame(Port& port, RxDesc& desc, PacketChain rest, Instant now) noexcept;
  bool make_whole(const Port& port, wire::ParsedFrame& f, PacketRef& first, PacketChain& rest,
                  Instant now) noexcept;
  void take_tcp(Port& port, const wire::ParsedFrame& frame, const std::byte* eth,
                PacketChain packet, uint32_t segments, Instant now) noexcept;
  void take_icmp(const wire::ParsedFrame& frame, Instant now) noexcept;

  // receive_udp.cpp
  void take_udp(Port& port, const wire::ParsedFrame& frame, PacketChain packet,
                Instant now) noexcept;
  UdpFlow* member_for(const std::vector<UdpFlow*>& flows, IfIndex device,
                      const wire::ParsedFrame& f) const noexcept;
  void take_by_device(UdpBinding* binding, const net::Link& link, const wire::ParsedFrame& f,
                      PacketChain packet) noexcept;

  // fast_path/receive_predicted.cpp
  bool take_plain(RxDesc& desc, bool alone, Instant now) noexcept;
  bool take_plain6(RxDesc& desc, bool alone, Instant now) noexcept;
  template <bool kV6>
  bool take_plain_as(RxDesc& desc, bool alone, Instant now) noexcept;
  template <bool kV6>
  bool take_segment(RxDesc& desc, const wire::PlainIp<kV6>& ip, bool alone, Instant now) noexcept;
  template <bool kV6>
  bool take_if_predicted(RxDesc& desc, wire::PlainTcp<kV6> s, TcpFlow& f, bool alone,
                         Instant now) noexcept;
  template <bool kAnswersSingle, bool kV6>
  bool take_predicted(RxDesc& desc, const wire::PlainTcp<kV6>& s, TcpFlow& f,
                      const tcp::PlainSegment& segment, bool alone, Instant now) noexcept;
  template <bool kV6>
  bool take_datagram(RxDesc& desc, const wire::PlainIp<kV6>& ip, bool alone) noexcept;
  template <bool kV6>
  TcpFlow* find_flow(wire::PlainTcp<kV6> s, FlowTag tag) noexcept;
  template <bool kV6>
  UdpBinding* find_binding(wire::PlainUdp<kV6> u, FlowTag tag) noexcept;

  Hub& hub() const noexcept;
  Last<false> last4_;
  Last<true> last6_;
  RxDesc burst_[kBurst];
  PacketRef partial_;  ///< a packet whose other buffers have not arrived
  RxFlags partial_flags_ = RxFlags::kNone;
  PacketChain partial_rest_;
  ip::Reassembly reassembly_;
};

}  // namespace vireo
