#include "host.h"

#include <cstring>
#include <span>
#include <utility>

#include "lwip/init.h"
#include "lwip/timeouts.h"

namespace vireo::bench {
namespace {

constexpr uint32_t kTurnsPerLookAtTimers = 256;  // asking for the time costs as much as a turn
constexpr uint32_t kMaxFrameBytes = 2048;

FlowKey flows_of(const Options& o, IpProto proto, uint16_t port) {
  FlowKey key;
  key.proto = proto;
  key.local = {o.local, port, 0};
  return key;
}

ip_addr_t address(const IpAddr& a) {
  const uint32_t v4 = uint32_t{a.as_v4()};
  ip_addr_t r = IPADDR4_INIT(lwip_htonl(v4));
  return r;
}

}  // namespace

Host::Host(const Options& o, IpProto proto)
    : local(address(o.local)),
      remote(address(o.remote)),
      proto_(proto),
      end_(o, flows_of(o, proto, kPort)) {
  std::memcpy(peer_mac_.addr, o.peer_mac.data(), sizeof peer_mac_.addr);
  lwip_init();
  ip4_addr_t mask, none{};
  IP4_ADDR(&mask, 255, 255, 255, 0);
  if (netif_add(&netif_, ip_2_ip4(&local), &mask, &none, this, init, ethernet_input) == nullptr)
    die("netif_add");
  netif_set_default(&netif_);
  netif_set_up(&netif_);
  // Only now, for what it says of itself in setting up would be believed: the peer's kernel would
  // send to a MAC that nobody has, in runs to come, too. ethernet_input() wants it.
  netif_.flags |= NETIF_FLAG_ETHARP;
}

void Host::steer(const Options& o, uint16_t first, uint16_t last) {
  for (uint32_t port = first; port <= last; ++port) {
    FlowKey key = flows_of(o, proto_, static_cast<uint16_t>(port));
    key.remote = {o.remote, kPort, 0};
    auto rule = end_.device->steer(key, FlowTag(1), *end_.queue);
    if (!rule) die("steering of a local port");
    rules_.push_back(std::move(*rule));
  }
}

err_t Host::init(netif* n) {
  n->name[0] = 'v', n->name[1] = 'r';
  n->mtu = 1500;
  n->hwaddr_len = 6;
  const uint8_t mac[6] = {2, 0, 0, 0, 0, 1};
  std::memcpy(n->hwaddr, mac, sizeof mac);
  n->flags = NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
  n->output = to_peer;
  n->linkoutput = send;
  return ERR_OK;
}

err_t Host::to_peer(netif* n, pbuf* p, const ip4_addr_t*) {
  eth_addr from;
  std::memcpy(from.addr, n->hwaddr, sizeof from.addr);
  return ethernet_output(n, p, &from, &static_cast<Host*>(n->state)->peer_mac_, ETHTYPE_IP);
}

err_t Host::send(netif* n, pbuf* p) {
  Host& h = *static_cast<Host*>(n->state);
  Queue& q = *h.end_.queue;
  std::byte whole[kMaxFrameBytes];
  std::span<const std::byte> bytes(static_cast<const std::byte*>(p->payload), p->len);
  if (p->len != p->tot_len) {
    if (p->tot_len > sizeof whole) return ERR_IF;
    bytes = {whole, pbuf_copy_partial(p, whole, p->tot_len, 0)};
  }
  if (!q.tx({bytes, {}}, Doorbell::kLater)) {
    q.tx_flush();
    q.tx_reap();
    if (!q.tx({bytes, {}}, Doorbell::kLater)) return ERR_MEM;
  }
  h.owes_doorbell_ = true;
  return ERR_OK;
}

void Host::give_back(pbuf* p) {
  auto& r = *reinterpret_cast<Received*>(p);  // its first member's first member
  r.packet.reset();
  r.host->free_.push_back(&r);
}

void Host::take(RxDesc& d) {
  if (free_.empty()) {
    free_.push_back(all_.emplace_back(std::make_unique<Received>()).get());
    free_.back()->host = this;
    free_.back()->buffer.custom_free_function = give_back;
  }
  Received& r = *free_.back();
  free_.pop_back();
  r.packet = std::move(d.packet);
  const auto length = static_cast<u16_t>(r.packet->length);
  pbuf* const p =
      pbuf_alloced_custom(PBUF_RAW, length, PBUF_REF, &r.buffer, r.packet->data(), length);
  if (netif_.input(p, &netif_) != ERR_OK) pbuf_free(p);
}

void Host::turn() {
  RxDesc in[64];
  const unsigned n = end_.queue->rx_burst(in);
  for (RxDesc& d : std::span(in).first(n)) take(d);
  if (++turns_ % kTurnsPerLookAtTimers == 0) sys_check_timeouts();
  flush();
  if (n == 0) return;
  end_.queue->tx_reap();
  end_.queue->rx_refill();
}

void Host::flush() {
  if (!owes_doorbell_) return;
  owes_doorbell_ = false;
  end_.queue->tx_flush();
}

}  // namespace vireo::bench
