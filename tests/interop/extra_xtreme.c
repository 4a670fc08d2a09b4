/* SocketXtreme: an echo of TCP and UDP that only polls a ring, and a client of it by a non-blocking
 * connect.
 *
 *   extra_xtreme off IP PORT                    without VMA_SOCKETXTREME: the calls fail
 *   extra_xtreme serve IP PORT CONNECTIONS      until so many connections have ended; says "ready",
 * then waits for a line extra_xtreme connect PEER PORT              to an echo: EPOLLOUT, a packet,
 * the end
 */
#include "extra_common.h"

enum { kRoom = 16, kMost = 1024 };

static struct vma_api_t* g_api;
static struct vma_completion_t g_all[kRoom];

/* Polls for at most some seconds. */
static int completions(int ring) {
  const time_t until = time(NULL) + 10;
  while (time(NULL) <= until) {
    const int n = g_api->socketxtreme_poll(ring, g_all, kRoom, 0);
    CHECK(n >= 0);
    if (n > 0) return n;
  }
  puts("nothing for 10 s");
  exit(1);
}

static void off(const char* ip, int port) {
  struct vma_packet_desc_t none = {0};
  struct vma_buff_t buffer = {0};
  int ring;
  CHECK(g_api->get_socket_rings_fds(bound(SOCK_DGRAM, ip, port), &ring, 1) == 1);
  CHECK(g_api->socketxtreme_poll(ring, g_all, kRoom, 0) == -1 && errno == EOPNOTSUPP);
  CHECK(g_api->socketxtreme_free_vma_packets(&none, 1) == -1 && errno == EOPNOTSUPP);
  CHECK(g_api->socketxtreme_ref_vma_buff(&buffer) == -1 && errno == EOPNOTSUPP);
  CHECK(g_api->socketxtreme_free_vma_buff(&buffer) == -1 && errno == EOPNOTSUPP);
}

/* Holds a buffer beyond its packet, now and then. */
static void release(struct vma_packet_desc_t* packet, int holds) {
  struct vma_buff_t* b = packet->buff_lst;
  if (!holds) {
    CHECK(g_api->socketxtreme_free_vma_packets(packet, 1) == 0);
    return;
  }
  const unsigned char first = *(const unsigned char*)b->payload;
  CHECK(g_api->socketxtreme_ref_vma_buff(b) == 2);
  CHECK(g_api->socketxtreme_free_vma_packets(packet, 1) == 0);
  CHECK(*(const unsigned char*)b->payload == first);
  CHECK(g_api->socketxtreme_free_vma_buff(b) == 0);
  CHECK(g_api->socketxtreme_free_vma_buff(b) == -1 && errno == EINVAL); /* nobody has it since */
}

static void serve(const char* ip, int port, int expected) {
  static int accepted[kMost]; /* by descriptor: 1 open, 2 ended */
  size_t packets = 0, datagrams = 0;
  int ring = -1, other = -1, connections = 0, ended = 0;
  const int listener = listening(ip, port), udp = bound(SOCK_DGRAM, ip, port);
  const uint64_t name = 0xabcdef0123456789ULL;
  CHECK(setsockopt(udp, SOL_SOCKET, SO_VMA_USER_DATA, &name, sizeof name) == 0);
  CHECK(g_api->get_socket_rings_fds(listener, &ring, 1) == 1 && ring >= 0);
  CHECK(g_api->get_socket_rings_fds(udp, &other, 1) == 1 && other == ring);
  CHECK(g_api->socketxtreme_poll(ring, NULL, 1, 0) == -1 && errno == EINVAL);
  CHECK(g_api->socketxtreme_poll(ring, g_all, 0, 0) == -1 && errno == EINVAL);
  CHECK(g_api->socketxtreme_poll(0, g_all, 1, 0) == -1 && errno == EBADFD);
  CHECK(g_api->socketxtreme_free_vma_packets(NULL, 1) == -1 && errno == EINVAL);
  CHECK(g_api->socketxtreme_ref_vma_buff(NULL) == -1 && errno == EINVAL);
  say("ready");
  while (ended < expected) {
    const int n = completions(ring);
    for (int i = 0; i < n; ++i) {
      struct vma_completion_t* c = &g_all[i];
      CHECK(c->events != 0);
      if (c->user_data == name) {
        CHECK((c->events & ~(uint64_t)EPOLLOUT) == VMA_SOCKETXTREME_PACKET &&
              c->packet.num_bufs == 1);
        CHECK(sendto(udp, c->packet.buff_lst->payload, c->packet.total_len, 0,
                     (struct sockaddr*)&c->src, sizeof c->src) == c->packet.total_len);
        release(&c->packet, ++datagrams % 3 == 0);
        continue;
      }
      const int fd = (int)c->user_data;
      CHECK(fd > 2 && fd < kMost && fd != listener);
      if (c->events & VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED) {
        CHECK(c->listen_fd == listener && c->src.sin_family == AF_INET && c->src.sin_port != 0 &&
              accepted[fd] != 1);
        const int on = 1;
        CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
        accepted[fd] = 1;
        ++connections;
        continue;
      }
      CHECK(accepted[fd] == 1);
      if (c->events & VMA_SOCKETXTREME_PACKET) {
        CHECK(c->packet.num_bufs == 1 && c->packet.buff_lst->next == NULL &&
              c->packet.buff_lst->len == c->packet.total_len);
        CHECK(send(fd, c->packet.buff_lst->payload, c->packet.total_len, 0) == c->packet.total_len);
        release(&c->packet, ++packets % 3 == 0);
      }
      if (c->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        CHECK((c->events & VMA_SOCKETXTREME_PACKET) == 0);
        CHECK(close(fd) == 0);
        accepted[fd] = 2;
        ++ended;
      }
    }
  }
  CHECK(connections == expected);
  printf("%d connections, %zu packets, %zu datagrams\n", connections, packets, datagrams);
  say("empty");
  await_line();
}

static void client(const char* peer, int port) {
  const struct sockaddr_in to = address(peer, port);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  /* The answer may be there at once. */
  CHECK(connect(fd, (const struct sockaddr*)&to, sizeof to) == 0 || errno == EINPROGRESS);
  int ring;
  CHECK(g_api->get_socket_rings_fds(fd, &ring, 1) == 1);
  CHECK(completions(ring) == 1 && g_all[0].events == EPOLLOUT &&
        g_all[0].user_data == (uint64_t)fd);
  CHECK(send(fd, "hello", 5, 0) == 5);
  while (completions(ring) == 1 && (g_all[0].events & VMA_SOCKETXTREME_PACKET) == 0) continue;
  CHECK(g_all[0].packet.total_len == 5 &&
        memcmp(g_all[0].packet.buff_lst->payload, "hello", 5) == 0);
  CHECK(g_all[0].src.sin_port == to.sin_port && g_all[0].src.sin_addr.s_addr == to.sin_addr.s_addr);
  struct vma_packet_desc_t kept = g_all[0].packet;
  CHECK(shutdown(fd, SHUT_WR) == 0);
  while (completions(ring) == 1 && (g_all[0].events & EPOLLRDHUP) == 0) continue;
  CHECK(close(fd) == 0);
  CHECK(memcmp(kept.buff_lst->payload, "hello", 5) == 0); /* outlives the socket */
  CHECK(g_api->socketxtreme_free_vma_packets(&kept, 1) == 0);
  CHECK(g_api->socketxtreme_free_vma_packets(&kept, 1) == -1 && errno == EINVAL);
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  g_api =
      api_with(VMA_EXTRA_API_SOCKETXTREME_POLL | VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS |
               VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF | VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF);
  if (strcmp(argv[1], "off") == 0) off(argv[2], atoi(argv[3]));
  if (strcmp(argv[1], "serve") == 0) serve(argv[2], atoi(argv[3]), atoi(argv[4]));
  if (strcmp(argv[1], "connect") == 0) client(argv[2], atoi(argv[3]));
  say("done");
  return 0;
}
