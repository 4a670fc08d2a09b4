/* Table, options, rules, threads and rings of the extra API.
 *
 *   extra_calls absent                      without Vireo: there is no table
 *   extra_calls options IP PORT             options, and the errors of calls that need a socket of
 * Vireo's extra_calls rules IP PORT               a rule added at run time, for sockets bound
 * afterwards extra_calls threads PEER PORT           a thread whose sockets are the kernel's
 *   extra_calls rings IP PORT PEER PORT     rings, their descriptor, the headers of a connected
 * socket
 */
#include "extra_common.h"

static int is_option(const void* expected, int fd, int name, socklen_t size) {
  char got[64];
  socklen_t len = size;
  return getsockopt(fd, SOL_SOCKET, name, got, &len) == 0 && len == size &&
         memcmp(got, expected, size) == 0;
}

static void options(const char* ip, int port) {
  struct vma_api_t* api = api_with(VMA_EXTRA_API_IOCTL | VMA_EXTRA_API_DUMP_FD_STATS);
  CHECK(vma_get_api() == api);
  struct vma_api_t* short_of_room = NULL;
  socklen_t few = 4;
  CHECK(getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &short_of_room, &few) == -1 && errno == EBADF);

  for (int type = SOCK_STREAM; type <= SOCK_DGRAM; ++type) {
    const int fd = bound(type, ip, port);
    const uint64_t own = (uint64_t)fd, data = 0x123456789abcdefULL;
    uint32_t tag = 0;
    CHECK(is_option(&own, fd, SO_VMA_USER_DATA, sizeof own));
    CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, sizeof data) == 0);
    CHECK(is_option(&data, fd, SO_VMA_USER_DATA, sizeof data));
    CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, 4) == -1 && errno == EINVAL);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, NULL, sizeof data) == -1 && errno == EFAULT);
    CHECK(is_option(&tag, fd, SO_VMA_FLOW_TAG, sizeof tag));
    CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag) == -1 && errno == EINVAL);
    tag = 77;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag) == 0);
    CHECK(is_option(&tag, fd, SO_VMA_FLOW_TAG, sizeof tag));

    struct vma_ring_alloc_logic_attr logic = {.ring_alloc_logic = RING_LOGIC_PER_THREAD};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic) == -1 &&
          errno == EINVAL);
    logic.comp_mask = VMA_RING_ALLOC_MASK_RING_INGRESS;
    logic.ingress = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic - 1) == -1 &&
          errno == EINVAL);
    struct iovec memory = {NULL, 0};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &memory, sizeof memory) == -1 &&
          errno == EOPNOTSUPP);
    CHECK(setsockopt(fd, SOL_SOCKET, 2805, &tag, sizeof tag) == -1 && errno == ENOPROTOOPT);
    close(fd);
  }

  const int udp = bound(SOCK_DGRAM, ip, port);
  char c;
  CHECK(setsockopt(udp, SOL_SOCKET, SO_VMA_SHUTDOWN_RX, &c, 1) == 0);
  CHECK(recv(udp, &c, 1, 0) == 0); /* as after shutdown(2) */
  close(udp);

  const int tcp = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(api->dump_fd_stats(tcp, 1) == 0);
  struct vma_rate_limit_t limit = {.rate = 8000, .max_burst_sz = 9000, .typical_pkt_sz = 64},
                          got = {0};
  uint32_t bytes = 0;
  socklen_t len = sizeof got;
  CHECK(setsockopt(tcp, SOL_SOCKET, SO_MAX_PACING_RATE, &limit, sizeof limit) == 0);
  CHECK(getsockopt(tcp, SOL_SOCKET, SO_MAX_PACING_RATE, &got, &len) == 0 && len == sizeof got);
  CHECK(got.rate == 8000 && got.max_burst_sz == 9000 && got.typical_pkt_sz == 64);
  len = sizeof bytes;
  CHECK(getsockopt(tcp, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes, &len) == 0 && bytes == 1000000);
  close(tcp);

  /* What fails, and how. */
  struct vma_modify_ring_attr modify = {0};
  uint32_t key;
  int number;
  CHECK(api->register_memory_on_ring(0, &key, sizeof key, &key) == -1 && errno == EOPNOTSUPP);
  CHECK(api->deregister_memory_on_ring(0, &key, sizeof key) == -1 && errno == EOPNOTSUPP);
  CHECK(api->vma_modify_ring(&modify) == -1 && errno == EOPNOTSUPP);
  CHECK(api->vma_add_ring_profile(NULL, &number) == -1 && errno == EOPNOTSUPP);
  CHECK(api->get_ring_direct_descriptors(0, NULL) == -1 && errno == EOPNOTSUPP);
  CHECK(api->get_socket_rings_num(0) == -1 && errno == EINVAL);
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(struct vma_cmsg_ioctl_user_alloc_t))];
  } message;
  memset(&message, 0, sizeof message);
  message.head.cmsg_level = SOL_SOCKET;
  message.head.cmsg_type = CMSG_VMA_IOCTL_USER_ALLOC;
  message.head.cmsg_len = CMSG_LEN(sizeof(struct vma_cmsg_ioctl_user_alloc_t)) - 1;
  CHECK(api->ioctl(&message, message.head.cmsg_len) == -1 && errno == EINVAL);
  message.head.cmsg_len = CMSG_LEN(sizeof(struct vma_cmsg_ioctl_user_alloc_t));
  CHECK(api->ioctl(&message, message.head.cmsg_len) == -1 && errno == EOPNOTSUPP);
  message.head.cmsg_type = 1;
  CHECK(api->ioctl(&message, message.head.cmsg_len) == 0);
}

static void rules(const char* ip, int port) {
  struct vma_api_t* api = api_with(VMA_EXTRA_API_ADD_CONF_RULE);
  char line[128];
  snprintf(line, sizeof line, "use os udp_receiver %s:%d", ip, port);
  const int before = bound(SOCK_DGRAM, ip, port); /* decided already */
  CHECK(api->add_conf_rule(line) == 0);
  close(before);
  const int kernels = bound(SOCK_DGRAM, ip, port), ours = bound(SOCK_DGRAM, ip, port + 1);
  CHECK(api->add_conf_rule("use nothing at all") == -1 && errno == EINVAL);
  CHECK(api->add_conf_rule(NULL) == -1 && errno == EFAULT);
  CHECK(api->get_socket_rings_num(kernels) == 0);
  CHECK(api->get_socket_rings_num(ours) == 1);
  snprintf(line, sizeof line, "use vma udp_receiver %s:%d", ip, port);
  CHECK(api->add_conf_rule(line) == 0); /* comes first now */
  close(kernels);
  CHECK(api->get_socket_rings_num(bound(SOCK_DGRAM, ip, port)) == 1);
}

static struct vma_api_t* g_api;
static const char* g_peer;
static int g_port;
/* @return the rings of a connection of this thread. */
static void* connects(void* unused) {
  (void)unused;
  return (void*)(intptr_t)g_api->get_socket_rings_num(connected(SOCK_STREAM, g_peer, g_port));
}
static int rings_of_thread(int is_carried) {
  pthread_t thread;
  void* rings;
  pthread_attr_t own;
  CHECK(pthread_attr_init(&own) == 0);
  CHECK(g_api->thread_offload(is_carried, pthread_self()) == 0);
  const int here = g_api->get_socket_rings_num(connected(SOCK_STREAM, g_peer, g_port));
  CHECK(pthread_create(&thread, &own, connects, NULL) == 0 && pthread_join(thread, &rings) == 0);
  CHECK((intptr_t)rings == !getenv("NOT_BY_DEFAULT")); /* the other thread has its own choice */
  return here;
}

static void rings(const char* ip, int port, const char* peer, int peer_port) {
  struct vma_api_t* api =
      api_with(VMA_EXTRA_API_GET_SOCKET_RINGS_NUM | VMA_EXTRA_API_GET_SOCKET_RINGS_FDS |
               VMA_EXTRA_API_GET_SOCKET_TX_RING_FD | VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER);
  int ring = -7, second = -7;
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(api->get_socket_rings_num(udp) == 0);
  CHECK(api->get_socket_rings_fds(udp, &ring, 1) == 0 && ring == -7);
  CHECK(api->get_socket_rings_fds(udp, NULL, 1) == -1 && errno == EINVAL);
  CHECK(api->get_socket_rings_fds(udp, &ring, 0) == -1 && errno == EINVAL);
  struct sockaddr_in to = address(peer, peer_port), loop = address("127.0.0.1", 9);
  CHECK(api->get_socket_tx_ring_fd(udp, (struct sockaddr*)&to, sizeof to) == -1 &&
        errno == ENODATA);
  const struct sockaddr_in own = address(ip, port);
  CHECK(bind(udp, (const struct sockaddr*)&own, sizeof own) == 0);
  CHECK(api->get_socket_rings_fds(udp, &ring, 1) == 1 && ring >= 0);
  CHECK(api->get_socket_tx_ring_fd(udp, NULL, 0) == -1 && errno == EINVAL);
  CHECK(api->get_socket_tx_ring_fd(udp, (struct sockaddr*)&loop, sizeof loop) == -1 &&
        errno == ENODATA);
  CHECK(api->get_socket_tx_ring_fd(udp, (struct sockaddr*)&to, sizeof to) == ring);

  const int listener = listening(ip, port);
  CHECK(api->get_socket_rings_fds(listener, &second, 1) == 1 && second == ring);
  const int tcp = connected(SOCK_STREAM, peer, peer_port);
  CHECK(api->get_socket_rings_fds(tcp, &second, 1) == 1 && second == ring);

  /* Readable when an answer comes, by poll(2) and by epoll(7), and until it is read. */
  struct pollfd p = {ring, POLLIN, 0};
  CHECK(poll(&p, 1, 0) == 0);
  CHECK(send(tcp, "x", 1, 0) == 1);
  CHECK(poll(&p, 1, 5000) == 1 && p.revents == POLLIN);
  const int epoll = epoll_create1(0);
  struct epoll_event e = {.events = EPOLLIN};
  CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, ring, &e) == 0);
  CHECK(epoll_wait(epoll, &e, 1, 1000) == 1);
  char c;
  CHECK(recv(tcp, &c, 1, MSG_DONTWAIT) == 1 && c == 'x');
  CHECK(poll(&p, 1, 0) == 0);
  CHECK(epoll_wait(epoll, &e, 1, 0) == 0);

  unsigned char header[128];
  uint16_t len = 1;
  CHECK(api->get_socket_network_header(listener, header, &len) == -1 && errno == ENOTCONN);
  CHECK(api->get_socket_network_header(tcp, header, &len) == -1 && errno == ENOBUFS);
  CHECK(api->get_socket_network_header(tcp, NULL, &len) == 0 && len == 54);
  len = sizeof header;
  CHECK(api->get_socket_network_header(tcp, header, &len) == 0 && len == 54);
  CHECK(header[12] == 8 && header[13] == 0 && header[14] == 0x45 && header[23] == 6);
  CHECK(memcmp(header + 30, &to.sin_addr, 4) == 0 && memcmp(header + 36, &to.sin_port, 2) == 0);
  close(ring); /* the program's own fault: another is made */
  CHECK(api->get_socket_rings_fds(tcp, &second, 1) == 1 && second >= 0);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "absent") == 0) {
    CHECK(vma_get_api() == NULL);
  } else if (strcmp(what, "options") == 0 && argc == 4) {
    options(argv[2], atoi(argv[3]));
  } else if (strcmp(what, "rules") == 0 && argc == 4) {
    rules(argv[2], atoi(argv[3]));
  } else if (strcmp(what, "threads") == 0 && argc == 4) {
    g_api = api_with(VMA_EXTRA_API_THREAD_OFFLOAD);
    g_peer = argv[2];
    g_port = atoi(argv[3]);
    CHECK(rings_of_thread(0) == 0);
    CHECK(rings_of_thread(1) == 1);
  } else if (strcmp(what, "rings") == 0 && argc == 6) {
    rings(argv[2], atoi(argv[3]), argv[4], atoi(argv[5]));
  } else {
    return 2;
  }
  say("done");
  return 0;
}
