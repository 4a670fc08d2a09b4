// The calls of libibverbs on devices, contexts and ports.
// Source: ibv_get_device_list(3), ibv_open_device(3), ibv_query_device(3), ibv_query_port(3),
// ibv_query_gid(3), ibv_get_async_event(3).
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/high_fd.h"
#include "dev/shm/kernel_calls.h"
#include "tests/apparatus/softnic/clock.h"
#include "tests/apparatus/softnic/kernel_calls.h"
#include "tests/apparatus/softnic/lacks.h"
#include "tests/apparatus/softnic/nic.h"
#include "tests/apparatus/softnic/strict.h"

#undef ibv_get_device_list
#undef ibv_query_port

using namespace vireo;
using namespace vireo::softnic;

namespace {

constexpr uint32_t kMaxWr = 32'768;  // libvma takes 16,000 of them for granted

Nic& nic_of(ibv_device* d) { return *static_cast<Nic*>(d); }

ibv_device_attr attributes(const Nic& n) {
  ibv_device_attr a{};
  std::strncpy(a.fw_ver, "1.0.0", sizeof a.fw_ver - 1);
  a.node_guid = a.sys_image_guid = n.guid();
  a.max_mr_size = UINT64_MAX;
  a.page_size_cap = 4096;
  a.max_qp = 1024;
  a.max_qp_wr = kMaxWr;
  a.device_cap_flags = IBV_DEVICE_RAW_IP_CSUM | IBV_DEVICE_MANAGED_FLOW_STEERING |
                       IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
                       IBV_DEVICE_CURR_QP_STATE_MOD;
  if (lacks("checksums")) a.device_cap_flags &= ~uint32_t{IBV_DEVICE_RAW_IP_CSUM};
  a.max_sge = 32;
  a.max_cq = 2048;
  a.max_cqe = 1 << 17;
  a.max_mr = 1 << 16;
  a.max_pd = 1024;
  a.atomic_cap = IBV_ATOMIC_NONE;
  a.max_raw_ethy_qp = a.max_qp;
  a.max_pkeys = 1;
  a.phys_port_cnt = 1;
  return a;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof attr->orig_attr) return EINVAL;
  ibv_device_attr_ex a{};
  a.orig_attr = attributes(*of(context).nic);
  a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
  if (!lacks("tso")) {
    a.tso_caps.max_tso = kMaxSegmented;
    a.tso_caps.supported_qpts = 1U << IBV_QPT_RAW_PACKET;
  }
  if (!lacks("checksums")) a.raw_packet_caps = IBV_RAW_PACKET_CAP_IP_CSUM;
  if (!lacks("stamps")) {
    a.completion_timestamp_mask = kClockMask;
    a.hca_core_clock = kClockKhz;
  }
  if (!lacks("striding")) {
    a.rss_caps.supported_qpts = 1U << IBV_QPT_RAW_PACKET;
    a.rss_caps.max_rwq_indirection_tables = 1024;
    a.rss_caps.max_rwq_indirection_table_size = 1;
    a.rss_caps.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
    a.max_wq_type_rq = 1024;
  }
  a.phys_port_cnt_ex = 1;
  std::memcpy(attr, &a, std::min(size, sizeof a));
  return 0;
}

int query_port(ibv_context* context, uint8_t number, ibv_port_attr* attr, size_t size) {
  if (number != 1) return EINVAL;
  Nic& n = *of(context).nic;
  const std::lock_guard hold(n.port.lock);
  ibv_port_attr a{};
  const bool up = !n.port.faults.link_down && !n.port.faults.removed;
  a.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  a.max_mtu = IBV_MTU_4096;
  // As RoCE counts: the largest of the enumeration that an Ethernet packet of this MTU holds.
  a.active_mtu = n.mtu > 4096 ? IBV_MTU_4096 : n.mtu > 2048 ? IBV_MTU_2048 : IBV_MTU_1024;
  a.gid_tbl_len = 1;
  a.max_msg_sz = 1U << 30;
  a.pkey_tbl_len = 1;
  a.active_width = 2;   // 4x
  a.active_speed = 32;  // EDR: 25 Gbit/s a lane
  a.phys_state = up ? 5 : 3;
  a.link_layer = IBV_LINK_LAYER_ETHERNET;
  std::memcpy(attr, &a, std::min(size, sizeof a));
  return 0;
}

std::atomic<bool> g_is_fork_safe{false};
/// Memory has been registered: ibv_fork_init(3) is to come before.
bool is_fork_late() {
  const auto all = every_device();
  return std::any_of(all.begin(), all.end(), [](Nic* n) {
    const std::lock_guard hold(n->port.lock);
    return n->port.memory.count() > 0;
  });
}

void name_entry(const Nic& n, ibv_gid_entry& e) {
  e = {};
  e.gid = n.gid();
  e.port_num = 1;
  e.gid_type = IBV_GID_TYPE_ROCE_V2;
  e.ndev_ifindex = n.ifindex;
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const auto all = devices();
  auto** list = static_cast<ibv_device**>(std::calloc(all.size() + 1, sizeof(ibv_device*)));
  if (list == nullptr) return nullptr;
  std::copy(all.begin(), all.end(), list);
  if (count != nullptr) *count = static_cast<int>(all.size());
  return list;
}
void ibv_free_device_list(ibv_device** list) { std::free(list); }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }
int ibv_get_device_index(ibv_device* device) { return static_cast<int>(nic_of(device).index); }
__be64 ibv_get_device_guid(ibv_device* device) { return nic_of(device).guid(); }

ibv_context* ibv_open_device(ibv_device* device) {
  Nic* const own = in_this_process(nic_of(device));
  if (own == nullptr) {
    errno = ENODEV;
    return nullptr;
  }
  Nic& n = *own;
  const std::lock_guard hold(n.port.lock);
  if (n.port.faults.removed) {
    errno = EIO;
    return nullptr;
  }
  UniqueFd counter(to_high_number(kernel::eventfd()));
  if (!counter) return nullptr;
  // As the kernel's: blocking until the program makes it otherwise.
  (void)kernel::fcntl(counter.get(), F_SETFL, nullptr);
  auto* c = new Context{};
  c->nic = &n;
  c->owner = getpid();
  c->counter = std::move(counter);
  c->sz = sizeof(verbs_context);
  c->context.device = &n;
  c->context.cmd_fd = -1;
  c->context.async_fd = c->counter.get();
  c->context.num_comp_vectors = 1;
  pthread_mutex_init(&c->context.mutex, nullptr);
  c->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  c->query_device_ex = query_device_ex;
  c->query_port = query_port;
  fill_operations(*c);
  n.contexts.push_back(c);
  return &c->context;
}

int ibv_close_device(ibv_context* context) {
  Context& c = of(context);
  if (c.owner != getpid()) return 0;  // a parent's: its descriptors are closed here
  Nic& n = *c.nic;
  {
    const std::lock_guard hold(n.port.lock);
    destroy_firmware_objects(c);
    while (!c.qps.empty()) destroy(c, *c.qps.back());
    for (const auto& wq : c.wqs) n.port.detach(*wq);
    for (const auto& cq : c.cqs) n.port.detach(*cq);
    for (const auto& channel : c.channels) n.port.detach(*channel);
    std::erase(n.contexts, &c);
    if (n.contexts.empty()) n.port.faults.removed = false;
  }
  delete &c;
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  *attr = attributes(*of(context).nic);
  return 0;
}

int ibv_query_port(ibv_context* context, uint8_t number, _compat_ibv_port_attr* attr) {
  // What programs were built with before the structure grew.
  return query_port(context, number, reinterpret_cast<ibv_port_attr*>(attr),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* context, uint8_t port, int index, union ibv_gid* gid) {
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *gid = of(context).nic->gid();
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t flags, size_t size) {
  if (port != 1 || index != 0 || flags != 0 || size < sizeof *entry) return EINVAL;
  name_entry(*of(context).nic, *entry);
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t most,
                             uint32_t flags, size_t size) {
  if (flags != 0 || size < sizeof *entries) return -EINVAL;
  if (most == 0) return -EINVAL;
  name_entry(*of(context).nic, entries[0]);
  return 1;
}

/// Private to rdma-core, but ibv_devinfo uses it. 0: InfiniBand or RoCE v1, 1: RoCE v2.
int ibv_query_gid_type(ibv_context*, uint8_t port, unsigned index, int* type) {
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *type = 1;
  return 0;
}

int ibv_query_pkey(ibv_context*, uint8_t port, int index, __be16* pkey) {
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = 0xffff;
  return 0;
}
int ibv_get_pkey_index(ibv_context*, uint8_t port, __be16 pkey) {
  return port == 1 && pkey == 0xffff ? 0 : -1;
}

const char* ibv_get_sysfs_path(void) { return "/sys"; }

int ibv_read_sysfs_file(const char* dir, const char* file, char* buffer, size_t size) {
  const std::string path = std::string(dir) + "/" + file;
  const UniqueFd fd(
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC)));
  if (!fd || size == 0) return -1;
  const auto n = syscall(SYS_read, fd.get(), buffer, size);
  if (n <= 0) return -1;
  const auto end = static_cast<size_t>(n);
  if (buffer[end - 1] == '\n') {
    buffer[end - 1] = '\0';
    return static_cast<int>(n - 1);
  }
  if (end == size) return -1;
  buffer[end] = '\0';
  return static_cast<int>(n);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  Context& c = of(context);
  for (;;) {
    {
      const std::lock_guard hold(c.nic->port.lock);
      if (!c.events.empty()) {
        *event = c.events.front();
        c.events.pop_front();
        if (c.events.empty()) (void)kernel::read_counter(c.counter.get());
        return 0;
      }
    }
    if ((kernel::fcntl(c.context.async_fd, F_GETFL, nullptr) & O_NONBLOCK) != 0) {
      errno = EAGAIN;
      return -1;
    }
    kernel::wait_readable(c.context.async_fd);
  }
}
void ibv_ack_async_event(ibv_async_event*) {}  // those of ports and devices need none

// No page is pinned, so a fork needs no care; but it answers as on a kernel where one does.
int ibv_fork_init(void) {
  if (is_fork_late() && !g_is_fork_safe) return EINVAL;
  g_is_fork_safe = true;
  return 0;
}
enum ibv_fork_status ibv_is_fork_initialized(void) {
  return g_is_fork_safe ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}
int ibv_dontfork_range(void*, size_t) { return 0; }
int ibv_dofork_range(void*, size_t) { return 0; }

}  // extern "C"
