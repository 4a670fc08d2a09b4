// librdmacm.so.1 as far as a program of raw packets asks it: which device and port lead to an
// address. Connections are RDMA's own and are not here.
// Source: rdma_create_event_channel(3), rdma_resolve_addr(3), rdma_get_cm_event(3).
// Departures: the answer is there when rdma_resolve_addr() returns, for no neighbour is asked; an
// id with an event not yet acknowledged is not destroyed (EBUSY) where the real one waits; a route
// has no path record, as Ethernet has no subnet manager; groups are joined by flow rules, so
// rdma_join_multicast(3) is there and refuses (EOPNOTSUPP).
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "core/fd.h"
#include "dev/shm/kernel_calls.h"
#include "tests/apparatus/softnic/kernel_calls.h"

using namespace vireo;

namespace {

struct Channel : rdma_event_channel {
  std::mutex lock;
  std::deque<rdma_cm_event*> events;
  UniqueFd counter;
};
struct Id : rdma_cm_id {
  unsigned unacknowledged = 0;  ///< guard: the channel's lock
};
Channel& of(rdma_event_channel* c) { return *static_cast<Channel*>(c); }

int refuse(int error) {
  errno = error;
  return -1;
}

socklen_t size_of(const sockaddr* a) {
  return a->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

bool same_address(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

/// The kernel's choice of source for `dst`. @return errno.
int find_source(const sockaddr* bound, const sockaddr* dst, sockaddr_storage& src) {
  const UniqueFd fd(kernel::socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC));
  if (!fd) return errno;
  if (bound != nullptr && syscall(SYS_bind, fd.get(), bound, size_of(bound)) != 0) return errno;
  sockaddr_storage to{};
  std::memcpy(&to, dst, size_of(dst));
  auto& port = reinterpret_cast<sockaddr_in&>(to).sin_port;  // both families have it there
  if (port == 0) port = htons(1);                            // connect(2) wants one
  if (syscall(SYS_connect, fd.get(), &to, size_of(dst)) != 0) return errno;
  socklen_t length = sizeof src;
  return syscall(SYS_getsockname, fd.get(), &src, &length) == 0 ? 0 : errno;
}

uint32_t interface_of(const sockaddr* address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return 0;
  uint32_t index = 0;
  for (const ifaddrs* i = all; i != nullptr && index == 0; i = i->ifa_next)
    if (same_address(i->ifa_addr, address)) index = if_nametoindex(i->ifa_name);
  freeifaddrs(all);
  return index;
}

/// Devices opened by the first id that needed them, and kept, as librdmacm does: ids share them.
struct Opened {
  std::mutex lock;
  std::vector<ibv_context*> contexts;
};
Opened& opened() {
  static auto* one = new Opened;
  return *one;
}

ibv_context* context_of(ibv_device* device) {
  Opened& o = opened();
  const std::lock_guard hold(o.lock);
  for (ibv_context* c : o.contexts)
    if (c->device == device) return c;
  ibv_context* c = ibv_open_device(device);
  if (c != nullptr) o.contexts.push_back(c);
  return c;
}

/// The device and port whose GID bears the interface. @return errno.
int find_device(uint32_t ifindex, rdma_cm_id& id) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return errno;
  int error = ENODEV;
  for (int i = 0; i < count && error != 0; ++i) {
    ibv_context* c = context_of(list[i]);
    std::array<ibv_gid_entry, 8> entries;
    const ssize_t n = c != nullptr ? ibv_query_gid_table(c, entries.data(), entries.size(), 0) : 0;
    for (ssize_t e = 0; e < n; ++e)
      if (entries[static_cast<size_t>(e)].ndev_ifindex == ifindex && ifindex != 0) {
        id.verbs = c;
        id.port_num = static_cast<uint8_t>(entries[static_cast<size_t>(e)].port_num);
        error = 0;
      }
  }
  ibv_free_device_list(list);
  return error;
}

void tell(rdma_cm_id& id, rdma_cm_event_type type, int status) {
  Channel& channel = of(id.channel);
  auto* event = new rdma_cm_event{};
  event->id = &id;
  event->event = type;
  event->status = status;
  const std::lock_guard hold(channel.lock);
  if (channel.events.empty()) kernel::add_to_counter(channel.fd);
  channel.events.push_back(event);
}

}  // namespace

extern "C" {

rdma_event_channel* rdma_create_event_channel(void) {
  auto channel = std::make_unique<Channel>();
  channel->counter.reset(kernel::eventfd());
  if (!channel->counter) return nullptr;
  channel->fd = channel->counter.get();
  (void)kernel::fcntl(channel->fd, F_SETFL, nullptr);  // blocking, until the program says otherwise
  return channel.release();
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
  for (rdma_cm_event* e : of(channel).events) delete e;
  delete &of(channel);
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space space) {
  if (channel == nullptr) return refuse(EOPNOTSUPP);  // ids that wait by themselves
  auto* made = new Id{};
  made->channel = channel;
  made->context = context;
  made->ps = space;
  *id = made;
  return 0;
}

int rdma_destroy_id(rdma_cm_id* id) {
  Channel& channel = of(id->channel);
  {
    const std::lock_guard hold(channel.lock);
    if (static_cast<Id*>(id)->unacknowledged > 0) return refuse(EBUSY);
    const bool had = !channel.events.empty();
    std::erase_if(channel.events, [id](rdma_cm_event* e) {
      if (e->id != id) return false;
      delete e;
      return true;
    });
    if (had && channel.events.empty()) (void)kernel::read_counter(channel.fd);
  }
  delete static_cast<Id*>(id);
  return 0;
}

int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  std::memcpy(&id->route.addr.src_storage, address, size_of(address));
  const uint32_t ifindex = interface_of(address);
  if (ifindex == 0) return 0;  // any address: the route will tell
  const int error = find_device(ifindex, *id);
  return error == 0 ? 0 : refuse(error);
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr* src, sockaddr* dst, int) {
  if (dst == nullptr || (dst->sa_family != AF_INET && dst->sa_family != AF_INET6))
    return refuse(EINVAL);
  const sockaddr* bound = src;
  if (bound == nullptr && id->route.addr.src_addr.sa_family != 0) bound = &id->route.addr.src_addr;
  sockaddr_storage from{};
  int error = find_source(bound, dst, from);
  if (error == 0) error = find_device(interface_of(reinterpret_cast<const sockaddr*>(&from)), *id);
  if (error == 0) {
    id->route.addr.src_storage = from;
    std::memcpy(&id->route.addr.dst_storage, dst, size_of(dst));
  }
  tell(*id, error == 0 ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR, -error);
  return 0;
}

int rdma_resolve_route(rdma_cm_id* id, int) {
  if (id->verbs == nullptr || id->route.addr.dst_addr.sa_family == 0) return refuse(EINVAL);
  tell(*id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
  return 0;
}

int rdma_join_multicast(rdma_cm_id*, sockaddr*, void*) { return refuse(EOPNOTSUPP); }
int rdma_leave_multicast(rdma_cm_id*, sockaddr*) { return refuse(EINVAL); }  // of none joined

// For the child of a fork: the parent's devices are not its own. Ids and channels are the caller's
// to forget.
int rdma_lib_reset(void);  // in no header
int rdma_lib_reset(void) {
  std::construct_at(&opened().lock);  // a thread of the parent's may have left it locked
  opened().contexts.clear();
  return 0;
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  Channel& c = of(channel);
  for (;;) {
    {
      const std::lock_guard hold(c.lock);
      if (!c.events.empty()) {
        *event = c.events.front();
        c.events.pop_front();
        ++static_cast<Id*>((*event)->id)->unacknowledged;
        if (c.events.empty()) (void)kernel::read_counter(c.fd);
        return 0;
      }
    }
    if ((kernel::fcntl(c.fd, F_GETFL, nullptr) & O_NONBLOCK) != 0) return refuse(EAGAIN);
    kernel::wait_readable(c.fd);
  }
}

int rdma_ack_cm_event(rdma_cm_event* event) {
  if (event == nullptr) return refuse(EINVAL);
  {
    const std::lock_guard hold(of(event->id->channel).lock);
    --static_cast<Id*>(event->id)->unacknowledged;
  }
  delete event;
  return 0;
}

const char* rdma_event_str(rdma_cm_event_type event) {
  static constexpr std::array<const char*, 16> kNames{
      "RDMA_CM_EVENT_ADDR_RESOLVED",   "RDMA_CM_EVENT_ADDR_ERROR",
      "RDMA_CM_EVENT_ROUTE_RESOLVED",  "RDMA_CM_EVENT_ROUTE_ERROR",
      "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
      "RDMA_CM_EVENT_CONNECT_ERROR",   "RDMA_CM_EVENT_UNREACHABLE",
      "RDMA_CM_EVENT_REJECTED",        "RDMA_CM_EVENT_ESTABLISHED",
      "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
      "RDMA_CM_EVENT_MULTICAST_JOIN",  "RDMA_CM_EVENT_MULTICAST_ERROR",
      "RDMA_CM_EVENT_ADDR_CHANGE",     "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
  return static_cast<size_t>(event) < kNames.size() ? kNames[static_cast<size_t>(event)]
                                                    : "UNKNOWN EVENT";
}

}  // extern "C"
