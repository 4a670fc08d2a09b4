/* A receive callback for UDP: the first byte of a datagram says what becomes of it.
 *
 *   extra_callback recv|poll|select|epoll IP PORT     how it waits; until a datagram "q". Says
 * "ready" first
 *
 * 'r' is received, 'd' dropped, 'h' held; each is answered from within the callback. Then the
 * callback is removed: the next datagram is received whatever it says.
 */
#include "extra_common.h"

enum { kMost = 4096 };

static struct vma_api_t* g_api;
static int g_fd, g_port;
static size_t g_shown, g_dropped, g_held, g_received;
static struct {
  void* id;
  struct iovec piece;
  unsigned char copy[64];
} g_kept[kMost];

/* The number that a datagram carries. */
static size_t number_of(const char* bytes) { return (size_t)atol(bytes + 1); }

static vma_recv_callback_retval_t on_packet(int fd, size_t pieces, struct iovec iov[],
                                            struct vma_info_t* info, void* context) {
  CHECK(fd == g_fd && context == &g_shown && pieces == 1 && iov[0].iov_len == info->payload_sz);
  CHECK(info->struct_sz == sizeof *info && info->packet_id != NULL);
  struct sockaddr_in* from = info->src;
  struct sockaddr_in* to = info->dst;
  CHECK(from->sin_family == AF_INET && from->sin_port != 0 && from->sin_addr.s_addr != 0);
  CHECK(to->sin_port == htons((uint16_t)g_port));
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  CHECK(now.tv_sec - info->sw_timestamp.tv_sec <= 1);
  const char* text = iov[0].iov_base;
  CHECK(number_of(text) == g_shown); /* in their order */
  ++g_shown;
  CHECK(sendto(fd, text, iov[0].iov_len, 0, (struct sockaddr*)from, sizeof *from) ==
        (ssize_t)iov[0].iov_len);
  if (text[0] == 'd') {
    ++g_dropped;
    return VMA_PACKET_DROP;
  }
  if (text[0] == 'h' && g_held < kMost) {
    g_kept[g_held].id = info->packet_id;
    g_kept[g_held].piece = iov[0];
    memcpy(g_kept[g_held].copy, text, iov[0].iov_len);
    ++g_held;
    return VMA_PACKET_HOLD;
  }
  return VMA_PACKET_RECV;
}

/* All but the last `kept`, which must still be there. What is held counts against the receive
 * buffer. */
static void give_back(size_t kept) {
  static size_t done;
  for (; done + kept < g_held; ++done) {
    CHECK(memcmp(g_kept[done].piece.iov_base, g_kept[done].copy, g_kept[done].piece.iov_len) == 0);
    void* head[2] = {g_kept[done].id, NULL};
    CHECK(g_api->free_packets(g_fd, (struct vma_packet_t*)head, 1) == 0);
    CHECK(g_api->free_packets(g_fd, (struct vma_packet_t*)head, 1) == -1 && errno == ENOENT);
  }
}

/* Waits until there is something to receive; "recv": at once. */
static void await(const char* how, int epoll) {
  if (strcmp(how, "poll") == 0) {
    struct pollfd p = {g_fd, POLLIN, 0};
    CHECK(poll(&p, 1, 10000) == 1 && p.revents == POLLIN);
  } else if (strcmp(how, "select") == 0) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(g_fd, &set);
    struct timeval t = {.tv_sec = 10};
    CHECK(select(g_fd + 1, &set, NULL, NULL, &t) == 1);
  } else if (strcmp(how, "epoll") == 0) {
    struct epoll_event e;
    CHECK(epoll_wait(epoll, &e, 1, 10000) == 1 && e.events == EPOLLIN);
  }
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  g_api = api_with(VMA_EXTRA_API_REGISTER_RECV_CALLBACK);
  const int tcp = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(g_api->register_recv_callback(tcp, on_packet, NULL) == -1 && errno == EOPNOTSUPP);
  CHECK(g_api->register_recv_callback(0, on_packet, NULL) == -1 && errno == EINVAL);
  g_port = atoi(argv[3]);
  g_fd = bound(SOCK_DGRAM, argv[2], g_port);
  const int room = 4 << 20; /* none is to be lost while this program is behind */
  CHECK(setsockopt(g_fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) == 0);
  CHECK(g_api->register_recv_callback(g_fd, on_packet, &g_shown) == 0);
  const int epoll = epoll_create1(0);
  struct epoll_event e = {.events = EPOLLIN};
  CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, g_fd, &e) == 0);
  say("ready");
  const int flags = strcmp(argv[1], "recv") == 0 ? 0 : MSG_DONTWAIT;
  size_t last = 0;
  for (;;) {
    char text[64] = "";
    await(argv[1], epoll);
    const ssize_t n = recv(g_fd, text, sizeof text, flags);
    CHECK(n > 0 && (text[0] == 'r' || text[0] == 'q'));
    CHECK(g_received == 0 || number_of(text) > last);
    last = number_of(text);
    ++g_received;
    give_back(16);
    if (text[0] == 'q') break;
  }
  CHECK(g_shown == g_received + g_dropped + g_held);
  char c;
  CHECK(recv(g_fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  give_back(0);
  printf("%zu shown, %zu received, %zu dropped, %zu held\n", g_shown, g_received, g_dropped,
         g_held);
  CHECK(g_api->register_recv_callback(g_fd, NULL, NULL) == 0);
  say("empty");
  CHECK(recv(g_fd, &c, 1, 0) == 1 && c == 'd'); /* nobody asks any more */
  await_line();
  say("done");
  return 0;
}
