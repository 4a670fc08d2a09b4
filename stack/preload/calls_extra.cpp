// The functions of the extra API by their C signatures. A program reaches them by the table only.
#include <cstring>

#include "core/user_memory.h"
#include "stack/extra/completions.h"
#include "stack/extra/fd_stats.h"
#include "stack/extra/include/vireo_extra.h"
#include "stack/extra/network_header.h"
#include "stack/extra/receive_callback.h"
#include "stack/extra/socket_rings.h"
#include "stack/extra/zero_copy.h"
#include "stack/preload/call.h"
#include "stack/preload/extra_api.h"
#include "stack/preload/process_stack.h"
#include "stack/sock/dummy_send.h"
#include "stack/sock/thread_choice.h"

namespace vireo::preload {
namespace {

static_assert(kDummySend == VMA_SND_FLAGS_DUMMY);

int fails(int error) noexcept {
  errno = error;
  return -1;
}

/// Runs f(Handle) for a socket of Vireo's; others are no sockets of the API (EINVAL).
template <class F>
int for_socket(int fd, Restart restart, F&& f) noexcept {
  const Handle h = find_socket(fd);
  if (!h) return fails(EINVAL);
  return call(restart, h, [&] { return f(h); });
}

// ---- receiving

int register_recv_callback(int fd, vma_recv_callback_t callback, void* context) noexcept {
  return for_socket(fd, Restart::kNever, [&](Handle h) -> Result<int> {
    if (auto ok = extra::set_receive_callback(h, callback, context); !ok)
      return std::unexpected(ok.error());
    return 0;
  });
}

int recvfrom_zcopy(int fd, void* buffer, size_t len, int* flags, sockaddr* from,
                   socklen_t* from_len) noexcept {
  if (!is_writable(flags)) return fails(EFAULT);
  const Handle h = find_socket(fd);
  if (!h) {  // as recvfrom(2), which gives a copy
    const bool is_forced = (*flags & MSG_VMA_ZCOPY_FORCE) != 0;
    *flags &= ~(MSG_VMA_ZCOPY | MSG_VMA_ZCOPY_FORCE);
    if (is_forced) return fails(EIO);
    return static_cast<int>(preload::libc().recvfrom(fd, buffer, len, *flags, from, from_len));
  }
  int used = 0;
  const int n = call(Restart::kReceiving, h, [&] {
    used = *flags;
    return extra::recv_zero_copy(h, buffer, len, used, from, from_len);
  });
  *flags = used;
  return n;
}

int free_packets(int fd, vma_packet_t* packets, size_t count) noexcept {
  return for_socket(fd, Restart::kNever,
                    [&](Handle h) { return extra::free_packets(h, packets, count); });
}

// ---- SocketXtreme

/// Runs f(Stack&) if the settings ask for it.
template <class F>
int with_xtreme(F&& f) noexcept {
  Stack* const stack = get_stack();
  if (stack == nullptr || !stack->settings().socketxtreme) return fails(EOPNOTSUPP);
  return call(Restart::kNever, {}, [&] { return f(*stack); });
}

int socketxtreme_poll(int fd, vma_completion_t* out, unsigned n, int) noexcept {
  return with_xtreme([&](Stack&) { return extra::poll_completions(fd, {out, n}); });
}
int socketxtreme_free_vma_packets(vma_packet_desc_t* packets, int n) noexcept {
  return with_xtreme([&](Stack& s) -> Result<int> {
    if (packets == nullptr || n < 0) return fail(EINVAL, "packets");
    return extra::free_completed(s, {packets, static_cast<size_t>(n)});
  });
}
int socketxtreme_ref_vma_buff(vma_buff_t* buffer) noexcept {
  return with_xtreme([&](Stack& s) { return extra::hold_buffer(s, buffer); });
}
int socketxtreme_free_vma_buff(vma_buff_t* buffer) noexcept {
  return with_xtreme([&](Stack& s) { return extra::free_buffer(s, buffer); });
}

// ---- what is carried

int add_conf_rule(const char* line) noexcept {
  Stack* const stack = get_stack();
  if (stack == nullptr) return fails(ENOMEM);
  return call(Restart::kNever, {}, [&]() -> Result<int> {
    // As far as it can be read: a rule is short.
    constexpr size_t kMost = 1024;
    size_t n = 0;
    while (n < kMost && is_readable(line + n, 1) && line[n] != '\0') ++n;
    if (n == kMost || !is_readable(line + n, 1)) return fail(EFAULT, "rule");
    if (!stack->add_rule({line, n})) return fail(EINVAL, "rule");
    return 0;
  });
}

int thread_offload(int offload, pthread_t thread) noexcept {
  return call(Restart::kNever, {}, [&]() -> Result<int> {
    thread_choice::set(thread, offload != 0);
    return 0;
  });
}

// ---- what there is

int get_socket_rings_num(int fd) noexcept {
  return for_socket(fd, Restart::kNever,
                    [](Handle h) -> Result<int> { return extra::count_rings(h); });
}

int get_socket_rings_fds(int fd, int* out, int size) noexcept {
  if (out == nullptr || size <= 0) return fails(EINVAL);
  return for_socket(fd, Restart::kNever, [&](Handle h) -> Result<int> {
    if (!is_writable(out, sizeof(int))) return fail(EFAULT, "rings");
    return extra::socket_rings(h, {out, static_cast<size_t>(size)});
  });
}

int get_socket_tx_ring_fd(int fd, sockaddr* to, socklen_t len) noexcept {
  return for_socket(fd, Restart::kNever, [&](Handle h) { return extra::sending_ring(h, to, len); });
}

int get_socket_network_header(int fd, void* out, uint16_t* len) noexcept {
  return for_socket(fd, Restart::kNever, [&](Handle h) -> Result<int> {
    if (!is_writable(len, sizeof *len)) return fail(EFAULT, "header");
    const auto n = extra::network_header(h, out, *len);
    if (!n) return std::unexpected(n.error());
    *len = static_cast<uint16_t>(*n);
    return 0;
  });
}

int dump_fd_stats(int fd, int level) noexcept {
  Stack* const stack = process_stack();
  if (stack == nullptr) return 0;  // no socket was made
  return call(Restart::kNever, {}, [&]() -> Result<int> {
    extra::log_fd_stats(*stack, fd, level);
    return 0;
  });
}

// ---- not in the mask

int add_ring_profile(vma_ring_type_attr*, int*) noexcept { return fails(EOPNOTSUPP); }
int get_ring_direct_descriptors(int, vma_mlx_hw_device_data*) noexcept { return fails(EOPNOTSUPP); }
int register_memory_on_ring(int, void*, size_t, uint32_t*) noexcept { return fails(EOPNOTSUPP); }
int deregister_memory_on_ring(int, void*, size_t) noexcept { return fails(EOPNOTSUPP); }
int modify_ring(vma_modify_ring_attr*) noexcept { return fails(EOPNOTSUPP); }

/// Packet memory has to be what a device can use, so the program's own allocator is refused. Other
/// control messages are ignored, as in libvma.
int extra_ioctl(void* first, size_t len) noexcept {
  return call(Restart::kNever, {}, [&]() -> Result<int> {
    const auto* const begin = static_cast<const std::byte*>(first);
    for (size_t at = 0; first != nullptr && at + sizeof(cmsghdr) <= len;) {
      if (!is_readable(begin + at, sizeof(cmsghdr))) return fail(EFAULT, "ioctl");
      cmsghdr message;
      std::memcpy(&message, begin + at, sizeof message);
      if (message.cmsg_len < sizeof(cmsghdr)) return fail(EINVAL, "ioctl");
      if (message.cmsg_type == CMSG_VMA_IOCTL_USER_ALLOC) {
        const bool is_whole = message.cmsg_len - CMSG_LEN(0) == sizeof(vma_cmsg_ioctl_user_alloc_t);
        return fail(is_whole ? EOPNOTSUPP : EINVAL, "ioctl");
      }
      at += CMSG_ALIGN(message.cmsg_len);
    }
    return 0;
  });
}

// The program may write to it, as it may to libvma's.
constinit vma_api_t g_api = {
    .register_recv_callback = register_recv_callback,
    .recvfrom_zcopy = recvfrom_zcopy,
    .free_packets = free_packets,
    .add_conf_rule = add_conf_rule,
    .thread_offload = thread_offload,
    .socketxtreme_poll = socketxtreme_poll,
    .get_socket_rings_num = get_socket_rings_num,
    .get_socket_rings_fds = get_socket_rings_fds,
    .get_socket_tx_ring_fd = get_socket_tx_ring_fd,
    .socketxtreme_free_vma_packets = socketxtreme_free_vma_packets,
    .socketxtreme_ref_vma_buff = socketxtreme_ref_vma_buff,
    .socketxtreme_free_vma_buff = socketxtreme_free_vma_buff,
    .dump_fd_stats = dump_fd_stats,
    .vma_add_ring_profile = add_ring_profile,
    .get_socket_network_header = get_socket_network_header,
    .get_ring_direct_descriptors = get_ring_direct_descriptors,
    .register_memory_on_ring = register_memory_on_ring,
    .deregister_memory_on_ring = deregister_memory_on_ring,
    .vma_modify_ring = modify_ring,
    .vma_extra_supported_mask =
        VMA_EXTRA_API_REGISTER_RECV_CALLBACK | VMA_EXTRA_API_RECVFROM_ZCOPY |
        VMA_EXTRA_API_FREE_PACKETS | VMA_EXTRA_API_SOCKETXTREME_POLL |
        VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS | VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF |
        VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF | VMA_EXTRA_API_ADD_CONF_RULE |
        VMA_EXTRA_API_THREAD_OFFLOAD | VMA_EXTRA_API_DUMP_FD_STATS |
        VMA_EXTRA_API_GET_SOCKET_RINGS_NUM | VMA_EXTRA_API_GET_SOCKET_RINGS_FDS |
        VMA_EXTRA_API_GET_SOCKET_TX_RING_FD | VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER |
        VMA_EXTRA_API_IOCTL,
    .ioctl = extra_ioctl,
};

}  // namespace

bool give_extra_api(void* value, socklen_t* len) noexcept {
  if (!is_readable(len) || *len < sizeof(vma_api_t*) || !is_writable(len) ||
      !is_writable(value, sizeof(vma_api_t*)))
    return false;
  vma_api_t* const api = &g_api;
  std::memcpy(value, &api, sizeof api);
  *len = sizeof api;
  return true;
}

}  // namespace vireo::preload
