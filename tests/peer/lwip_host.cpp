#include "tests/peer/lwip_host.h"

#include <cstdlib>
#include <cstring>

#include "lwip/init.h"
#include "lwip/netif.h"
#include "lwip/priv/tcp_priv.h"
#include "lwip/tcp.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"

namespace vireo::test {
namespace {

Host* g_clock = nullptr;  ///< whose time lwIP lives in

eth_addr mac(const net::Mac& m) {
  eth_addr a;
  std::memcpy(a.addr, m.data(), sizeof a.addr);
  return a;
}

}  // namespace
}  // namespace vireo::test

/// In place of the library's own, which asks the system: lwIP's clock in milliseconds.
extern "C" __attribute__((visibility("default"))) u32_t sys_now() {
  using vireo::test::g_clock;
  return g_clock == nullptr ? 0 : static_cast<u32_t>(g_clock->now().ns() / 1'000'000);
}

namespace vireo::test {

/// What lwIP calls.
struct LwipCalls {
  static err_t init(netif* n) {
    n->name[0] = 'v', n->name[1] = 'r';
    n->mtu = 1500;
    n->hwaddr_len = 6;
    std::memcpy(n->hwaddr, kRouterMac.data(), 6);
    n->flags = NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
    n->output = output;
    n->linkoutput = send;
    return ERR_OK;
  }
  /// All addresses are the one host's.
  static err_t output(netif* n, pbuf* p, const ip4_addr_t*) {
    const eth_addr from = mac(kRouterMac), to = mac(kHostMac);
    return ethernet_output(n, p, &from, &to, ETHTYPE_IP);
  }
  static err_t send(netif* n, pbuf* p) {
    std::vector<std::byte> frame(p->tot_len);
    pbuf_copy_partial(p, frame.data(), p->tot_len, 0);
    static_cast<LwipHost*>(n->state)->peer_.link().inject(MemEnd::kB, frame);
    return ERR_OK;
  }
  static err_t accepted(void* host, tcp_pcb* pcb, err_t e) {
    auto& h = *static_cast<LwipHost*>(host);
    if (pcb == nullptr) return e;
    LwipConn& c = *h.conns_.emplace_back(std::make_unique<LwipConn>());
    c.pcb = pcb;
    c.connected = true;
    h.attach(c);
    h.waiting_.push_back(&c);
    return ERR_OK;
  }
  static err_t connected(void* conn, tcp_pcb*, err_t) {
    static_cast<LwipConn*>(conn)->connected = true;
    return ERR_OK;
  }
  static err_t received(void* conn, tcp_pcb* pcb, pbuf* p, err_t) {
    auto& c = *static_cast<LwipConn*>(conn);
    if (p == nullptr) {
      c.ended = true;
      return ERR_OK;
    }
    const size_t had = c.received.size();
    c.received.resize(had + p->tot_len);
    pbuf_copy_partial(p, c.received.data() + had, p->tot_len, 0);
    if (c.reads)
      tcp_recved(pcb, p->tot_len);
    else
      c.unread += p->tot_len;
    pbuf_free(p);
    return ERR_OK;
  }
  static void failed(void* conn, err_t e) {  // lwIP has freed the pcb
    auto& c = *static_cast<LwipConn*>(conn);
    c.pcb = nullptr;
    c.error = e;
  }
};

LwipHost::LwipHost(Host& peer, unsigned seed) : peer_(peer), netif_(std::make_unique<netif>()) {
  std::srand(seed);  // its random numbers are rand()'s
  g_clock = &peer;
  static const bool is_ready = (lwip_init(), true);
  (void)is_ready;
  sys_restart_timeouts();  // the clock of another host ran elsewhere
  ip4_addr_t here, mask, way;
  IP4_ADDR(&here, 10, 9, 9, 9);
  IP4_ADDR(&mask, 255, 255, 255, 0);
  IP4_ADDR(&way, 10, 9, 9, 1);
  std::memset(netif_.get(), 0, sizeof(netif));
  VIREO_ASSERT(netif_add(netif_.get(), &here, &mask, &way, this, LwipCalls::init, ethernet_input) !=
               nullptr);
  netif_set_default(netif_.get());
  netif_set_up(netif_.get());
}

LwipHost::~LwipHost() {
  for (auto& c : conns_)
    if (c->pcb != nullptr) abort(*c);
  if (listener_ != nullptr) tcp_close(listener_);
  while (tcp_active_pcbs != nullptr) tcp_abort(tcp_active_pcbs);
  while (tcp_tw_pcbs != nullptr) tcp_abort(tcp_tw_pcbs);
  netif_remove(netif_.get());
  g_clock = nullptr;
}

void LwipHost::attach(LwipConn& c) {
  tcp_arg(c.pcb, &c);
  tcp_recv(c.pcb, LwipCalls::received);
  tcp_err(c.pcb, LwipCalls::failed);
}

void LwipHost::listen(uint16_t port) {
  tcp_pcb* const pcb = tcp_new();
  VIREO_ASSERT(tcp_bind(pcb, IP4_ADDR_ANY, port) == ERR_OK);
  listener_ = tcp_listen(pcb);
  tcp_arg(listener_, this);
  tcp_accept(listener_, LwipCalls::accepted);
}

LwipConn* LwipHost::accept() {
  if (waiting_.empty()) return nullptr;
  LwipConn* const c = waiting_.front();
  waiting_.erase(waiting_.begin());
  return c;
}

LwipConn& LwipHost::connect(uint16_t port) {
  LwipConn& c = *conns_.emplace_back(std::make_unique<LwipConn>());
  c.pcb = tcp_new();
  attach(c);
  ip_addr_t to = IPADDR4_INIT_BYTES(10, 0, 0, 1);
  VIREO_ASSERT(tcp_connect(c.pcb, &to, port, LwipCalls::connected) == ERR_OK);
  return c;
}

size_t LwipHost::write(LwipConn& c, std::string_view bytes) {
  if (c.pcb == nullptr || !c.connected) return 0;
  size_t taken = 0;
  while (taken < bytes.size()) {
    const auto n = std::min<size_t>(
        {bytes.size() - taken, static_cast<size_t>(tcp_sndbuf(c.pcb)), size_t{8192}});
    if (n == 0 || tcp_write(c.pcb, bytes.data() + taken, static_cast<u16_t>(n),
                            TCP_WRITE_FLAG_COPY) != ERR_OK)
      break;
    taken += n;
  }
  if (taken != 0) tcp_output(c.pcb);
  return taken;
}

void LwipHost::half_close(LwipConn& c) { VIREO_ASSERT(tcp_shutdown(c.pcb, 0, 1) == ERR_OK); }

void LwipHost::close(LwipConn& c) {
  tcp_arg(c.pcb, nullptr);
  tcp_recv(c.pcb, nullptr);
  tcp_err(c.pcb, nullptr);
  VIREO_ASSERT(tcp_close(c.pcb) == ERR_OK);
  c.pcb = nullptr;
}

void LwipHost::abort(LwipConn& c) {
  tcp_err(c.pcb, nullptr);
  tcp_abort(c.pcb);
  c.pcb = nullptr;
}

void LwipHost::resume(LwipConn& c) {
  c.reads = true;
  while (c.pcb != nullptr && c.unread != 0) {
    const auto n = static_cast<u16_t>(std::min(c.unread, 0xffffU));
    c.unread -= n;
    tcp_recved(c.pcb, n);
  }
}

bool LwipHost::turn() {
  auto frames = std::exchange(peer_.link().kernel_frames(MemEnd::kB), {});
  for (const auto& frame : frames) {
    pbuf* const p = pbuf_alloc(PBUF_RAW, static_cast<u16_t>(frame.size()), PBUF_RAM);
    VIREO_ASSERT(p != nullptr);
    pbuf_take(p, frame.data(), static_cast<u16_t>(frame.size()));
    if (netif_->input(p, netif_.get()) != ERR_OK) pbuf_free(p);
  }
  peer_.link().kernel_frames(MemEnd::kA).clear();  // its ARP
  sys_check_timeouts();
  return !frames.empty();
}

Instant LwipHost::next_deadline() const {
  const u32_t ms = sys_timeouts_sleeptime();
  return ms == SYS_TIMEOUTS_SLEEPTIME_INFINITE ? Instant::never() : peer_.now() + Duration::ms(ms);
}

}  // namespace vireo::test
