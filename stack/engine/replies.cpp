// Replies to segments without a connection.
#include "stack/engine/hub.h"

namespace vireo {

void Replies::refuse(const Incoming& in, const tcp::Segment& s, Instant now) noexcept {
  hub().stats.rx_unknown_flow.add();
  tcp::Plan plan;
  if (!tcp::reset_for(s, in.frame.payload_bytes, plan) ||
      hub().host.link_to_answer(in) == nullptr || !resets_.allow(now))
    return;
  // A SYN came by a rule: of a listener that other processes, or the kernel, still have.
  if ((s.flags & (tcp::SegFlags::kSyn | tcp::SegFlags::kAck)) == tcp::SegFlags::kSyn &&
      hub().steering.give_to_kernel(in.port, in.frame, s.payload))
    return;
  reply(in, plan);
  hub().stats.resets_sent.add();
}

void Replies::reply(const Incoming& in, const tcp::Plan& plan) noexcept {
  const wire::ParsedFrame& to = in.frame;
  const auto& e = *reinterpret_cast<const wire::EthernetHeader*>(in.eth);
  send(in.port,
       wire::HeaderTemplate::build({.src_mac = e.dst,
                                    .dst_mac = e.src,
                                    .vlan = to.tags != 0 ? to.vlan() : VlanId(),
                                    .proto = IpProto::kTcp,
                                    .src = to.dst(),
                                    .dst = to.src(),
                                    .src_port = to.dst_port,
                                    .dst_port = to.src_port}),
       plan);
}

void Replies::send(Port& port, const wire::HeaderTemplate& header, const tcp::Plan& plan) noexcept {
  alignas(16) std::byte head[wire::HeaderTemplate::kMaxBytes];
  const size_t n = header.emit_tcp(head, {.seq = plan.seq.value(),
                                          .ack = plan.ack.value(),
                                          .flags = static_cast<uint8_t>(plan.flags),
                                          .window = plan.window,
                                          .options = {plan.options, plan.options_length}});
  const Doorbell bell = hub().doorbells.bell_of_turn();
  if (!port.queue().tx({{head, n}, {}, 0}, bell)) return;
  if (bell == Doorbell::kLater) {
    hub().doorbells.leave_unrung(1);
    hub().doorbells.ring_if_many();
  }
  hub().stats.tx_packets.add();
  hub().stats.tx_bytes.add(n);
}

}  // namespace vireo
