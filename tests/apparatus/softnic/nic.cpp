#include "tests/apparatus/softnic/nic.h"

#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "dev/shm/kernel_calls.h"
#include "tests/apparatus/softnic/fork.h"
#include "tests/apparatus/softnic/kernel_calls.h"

namespace vireo::softnic {
namespace {

constexpr std::string_view kInterfaceWire = "xdp";

struct Devices {
  std::mutex lock;
  std::mutex lock_step;  ///< of both ports
  std::vector<std::unique_ptr<Nic>> all;
  std::vector<std::unique_ptr<std::mutex>> locks;
};
/// Never destroyed: contexts may end after static destructors. None: this process has asked for
/// none yet.
constinit std::atomic<Devices*> g_known{nullptr};
constinit std::atomic<uint32_t> g_mtu{1500};

Devices& known() {
  Devices* d = g_known.load(std::memory_order_acquire);  // pairs with the exchange below
  if (d != nullptr) return *d;
  auto* const made = new Devices;
  if (!g_known.compare_exchange_strong(d, made, std::memory_order_acq_rel)) {
    delete made;
    return *d;
  }
  static constinit std::atomic<bool> is_told{false};  // a child need not ask again for its children
  if (!is_told.exchange(true)) forget_in_children();
  return *made;
}

/// Index, MAC and MTU of the interface; left alone if there is none of that name.
void ask_interface(Nic& nic) {
  const UniqueFd fd(kernel::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC));
  const auto ask = [&](unsigned long what, ifreq& r) {
    r = {};
    nic.interface.copy(r.ifr_name, IFNAMSIZ - 1);
    return syscall(SYS_ioctl, fd.get(), what, &r) == 0;
  };
  ifreq r;
  if (ask(SIOCGIFINDEX, r)) nic.ifindex = static_cast<uint32_t>(r.ifr_ifindex);
  if (ask(SIOCGIFHWADDR, r)) std::memcpy(nic.mac.data(), r.ifr_hwaddr.sa_data, 6);
  if (ask(SIOCGIFMTU, r)) nic.mtu = static_cast<uint32_t>(r.ifr_mtu);
}

Nic& device(Devices& d, uint32_t index, std::string_view wire, std::string_view interface) {
  for (const auto& n : d.all)
    if (n->index == index && n->wire == wire && n->interface == interface) return *n;
  std::mutex* lock = &d.lock_step;
  if (!wire.empty()) lock = d.locks.emplace_back(std::make_unique<std::mutex>()).get();
  Nic& n = *d.all.emplace_back(std::make_unique<Nic>(*lock));
  n.index = index;
  n.wire = wire;
  n.interface = interface;
  n.node_type = IBV_NODE_CA;
  n.transport_type = IBV_TRANSPORT_IB;
  std::snprintf(n.name, sizeof n.name, "softnic%u", index);
  std::snprintf(n.dev_name, sizeof n.dev_name, "uverbs%u", index);
  n.mac = {0x02, 0x73, 0x6f, 0x66, 0x74, static_cast<uint8_t>(index)};
  n.port.tell = [&n](ibv_event_type type) { n.tell(type); };
  return n;
}

}  // namespace

std::vector<Nic*> devices() {
  Devices& d = known();
  const std::lock_guard hold(d.lock);
  std::vector<Nic*> out;
  const char* names = std::getenv("SOFTNIC_WIRE");
  if (names == nullptr || *names == '\0') {
    for (uint32_t i : {0U, 1U}) out.push_back(&device(d, i, "", ""));
    for (uint32_t i : {0U, 1U}) out[i]->peer = out[1 - i];
  } else {
    for (std::string_view rest = names; !rest.empty();) {
      const auto one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      const size_t at = std::min(one.find('@'), one.size());
      out.push_back(&device(d, static_cast<uint32_t>(out.size()), one.substr(0, at),
                            one.substr(std::min(at + 1, one.size()))));
    }
  }
  for (Nic* n : out) {
    if (n->port.is_plugged()) continue;
    n->mtu = g_mtu.load(std::memory_order_relaxed);
    if (!n->interface.empty()) ask_interface(*n);
  }
  return out;
}

Nic* in_this_process(Nic& n) {
  const auto all = every_device();
  if (std::find(all.begin(), all.end(), &n) != all.end()) return &n;
  for (Nic* own : devices())
    if (own->index == n.index && own->wire == n.wire && own->interface == n.interface) return own;
  return nullptr;
}

void forget_devices() { g_known.store(nullptr, std::memory_order_relaxed); }

std::vector<Nic*> every_device() {
  Devices& d = known();
  const std::lock_guard hold(d.lock);
  std::vector<Nic*> out;
  for (const auto& n : d.all) out.push_back(n.get());
  return out;
}

void set_mtu(uint32_t mtu) {
  Devices& d = known();
  const std::lock_guard hold(d.lock);
  g_mtu.store(mtu, std::memory_order_relaxed);
  for (const auto& n : d.all)
    if (n->interface.empty()) n->mtu = mtu;
}

int Nic::plug() {
  if (port.is_plugged()) return 0;
  if (peer != nullptr) {
    LocalWire w = make_local_wire(mtu);
    port.plug(std::move(w.end[0]), &peer->port, mtu);
    peer->port.plug(std::move(w.end[1]), &port, mtu);
    return 0;
  }
  const auto join = [this] {
    return wire == kInterfaceWire ? open_interface(ifindex) : join_shared_wire(wire, mtu);
  };
  auto end = join();
  if (end == nullptr) return errno;
  port.plug(std::move(end), nullptr, mtu);
  port.rejoin = join;
  return 0;
}

void Nic::unplug() {
  const auto in_use = [](const Nic& n) {
    return std::any_of(n.contexts.begin(), n.contexts.end(),
                       [](const Context* c) { return !c->qps.empty(); });
  };
  if (in_use(*this) || (peer != nullptr && in_use(*peer))) return;
  port.unplug();
  port.rejoin = nullptr;
  if (peer != nullptr) peer->port.unplug();
}

void Context::tell(const ibv_async_event& e) {
  if (events.empty()) kernel::add_to_counter(counter.get());
  events.push_back(e);
}

void Nic::tell(ibv_event_type type) {
  ibv_async_event e{};
  e.event_type = type;
  e.element.port_num = 1;
  for (Context* c : contexts) c->tell(e);
}

void Nic::tell_of_queues() {
  ibv_async_event e{};
  e.event_type = IBV_EVENT_WQ_FATAL;
  for (Context* c : contexts) {
    if (c->wqs.empty()) continue;
    e.element.wq = c->wqs.front().get();
    c->tell(e);
  }
}

uint64_t Nic::guid() const {
  // Modified EUI-64 of the MAC (RFC 4291 appendix A).
  const uint8_t bytes[8] = {
      static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  uint64_t v;
  std::memcpy(&v, bytes, sizeof v);
  return v;
}

union ibv_gid Nic::gid() const {
  union ibv_gid g{};
  g.raw[0] = 0xfe;
  g.raw[1] = 0x80;
  g.global.interface_id = guid();
  return g;
}

}  // namespace vireo::softnic
