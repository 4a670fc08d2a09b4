/* Receives without a copy, and compares every byte with the sender's pattern.
 *
 *   extra_zcopy tcp IP PORT               a connection: keeps some packets for a while, frees all,
 * says "empty" extra_zcopy udp IP PORT               datagrams, until an empty one; the same
 *   extra_zcopy greedy-tcp IP PORT        frees nothing: gets copies then; closes with all of it
 * lent extra_zcopy greedy-udp IP PORT Each says "ready" first and waits for a line before it ends.
 */
#include "extra_common.h"

enum { kKept = 24, kRoom = 4096 };

static struct vma_api_t* g_api;
static uint64_t g_at;           /* of the stream, or in the datagram */
static size_t g_lent, g_copied; /* calls that gave packets, or a copy */

static void compare(const void* bytes, size_t n) {
  const unsigned char* p = bytes;
  for (size_t i = 0; i < n; ++i, ++g_at)
    if (p[i] != pattern(g_at)) {
      printf("byte %llu is %u, not %u\n", (unsigned long long)g_at, p[i], pattern(g_at));
      exit(1);
    }
}

/* Compares what a call gave. @return the packet that it lent. */
static void* take(const char* room, int n, int flags) {
  if ((flags & MSG_VMA_ZCOPY) == 0) {
    ++g_copied;
    compare(room, (size_t)n);
    return NULL;
  }
  ++g_lent;
  const struct vma_packets_t* all = (const void*)room;
  CHECK(all->n_packet_num == 1);
  int bytes = 0;
  for (size_t i = 0; i < all->pkts[0].sz_iov; ++i) {
    struct iovec piece;
    memcpy(&piece, &all->pkts[0].iov[i], sizeof piece);
    compare(piece.iov_base, piece.iov_len);
    bytes += (int)piece.iov_len;
  }
  CHECK(bytes == n);
  return all->pkts[0].packet_id;
}
/* As a program does that has kept the identifier only. */
static int free_one(int fd, void* id) {
  void* head[2] = {id, NULL};
  return g_api->free_packets(fd, (struct vma_packet_t*)head, 1);
}

static void keep(int fd, void* id, size_t i) {
  static void* kept[kKept];
  if (kept[i % kKept] != NULL) CHECK(free_one(fd, kept[i % kKept]) == 0);
  kept[i % kKept] = id;
}

static void errors(int fd) {
  char room[64];
  int flags = 0;
  CHECK(free_one(0, NULL) == -1 && errno == EINVAL);
  CHECK(free_one(fd, NULL) == -1 && errno == ENOENT);
  CHECK(free_one(fd, &fd) == -1 && errno == ENOENT);
  flags = MSG_DONTWAIT;
  CHECK(g_api->recvfrom_zcopy(fd, room, sizeof room, &flags, NULL, NULL) == -1 && errno == EAGAIN);
  CHECK((flags & MSG_VMA_ZCOPY) == 0);
}

static void stream(int fd) {
  char room[kRoom];
  int flags = 0;
  errors(fd);
  say("go");
  struct pollfd p = {fd, POLLIN, 0};
  CHECK(poll(&p, 1, 5000) == 1);
  CHECK(g_api->recvfrom_zcopy(fd, room, 39, &flags, NULL, NULL) == -1 && errno == ENOBUFS);
  /* The header and one piece: a packet has no more of them then. */
  CHECK(g_api->recvfrom_zcopy(fd, room, 40, &flags, NULL, NULL) > 0 &&
        (flags & MSG_VMA_ZCOPY) != 0);
  void* first = ((struct vma_packets_t*)(void*)room)->pkts[0].packet_id;
  (void)take(room, (int)((struct vma_packets_t*)(void*)room)->pkts[0].iov[0].iov_len, flags);
  CHECK(free_one(fd, first) == 0);
  CHECK(free_one(fd, first) == -1 && errno == ENOENT);
  for (size_t i = 0;; ++i) {
    flags = i % 7 == 0 ? MSG_VMA_ZCOPY_FORCE : 0;
    const int n =
        g_api->recvfrom_zcopy(fd, room, 40 + i % 3 * sizeof(struct iovec), &flags, NULL, NULL);
    CHECK(n >= 0);
    if (n == 0) break;
    if (i % 5 == 4) { /* between, an ordinary receive */
      keep(fd, take(room, n, flags), i);
      char some[100];
      const ssize_t m = recv(fd, some, sizeof some, 0);
      CHECK(m >= 0);
      compare(some, (size_t)m);
      continue;
    }
    keep(fd, take(room, n, flags), i);
  }
  for (size_t i = 0; i < kKept; ++i) keep(fd, NULL, i);
  printf("%llu bytes, %zu lent, %zu copied\n", (unsigned long long)g_at, g_lent, g_copied);
}

static void datagrams(int fd) {
  char room[kRoom];
  errors(fd);
  say("go");
  for (size_t i = 0;; ++i) {
    int flags = 0;
    struct sockaddr_in from = {0};
    socklen_t len = sizeof from;
    const int n =
        g_api->recvfrom_zcopy(fd, room, sizeof room, &flags, (struct sockaddr*)&from, &len);
    CHECK(n >= 0 && len == sizeof from && from.sin_family == AF_INET && from.sin_port != 0);
    g_at = 0;
    void* id = take(room, n, flags);
    keep(fd, id, i);
    if (n == 0) break;
    CHECK(g_at == (uint64_t)n);
  }
  for (size_t i = 0; i < kKept; ++i) keep(fd, NULL, i);
  printf("%zu lent, %zu copied\n", g_lent, g_copied);
}

/* Reads until all has been a copy for a while. */
static void greedy(int fd, int is_stream) {
  static char room[65536];
  const size_t size = is_stream ? 40 : sizeof room; /* of a stream one buffer a call */
  struct timeval patience = {.tv_sec = 5};
  CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
  say("go");
  while (g_copied < 20) {
    int flags = 0;
    const int n = g_api->recvfrom_zcopy(fd, room, size, &flags, NULL, NULL);
    CHECK(n > 0);
    if (!is_stream) g_at = 0;
    (void)take(room, n, flags);
  }
  CHECK(g_lent > 20);
  int flags = MSG_VMA_ZCOPY_FORCE;
  struct pollfd p = {fd, POLLIN, 0};
  CHECK(poll(&p, 1, 5000) == 1);
  CHECK(g_api->recvfrom_zcopy(fd, room, sizeof room, &flags, NULL, NULL) == -1 && errno == EIO);
  printf("%zu lent, %zu copied\n", g_lent, g_copied);
  say("full");
  await_line();
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  g_api = api_with(VMA_EXTRA_API_RECVFROM_ZCOPY | VMA_EXTRA_API_FREE_PACKETS);
  const int is_stream = strstr(argv[1], "tcp") != NULL, is_greedy = argv[1][0] == 'g';
  int listener = -1, fd;
  if (is_stream) {
    listener = listening(argv[2], atoi(argv[3]));
    say("ready");
    fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
  } else {
    fd = bound(SOCK_DGRAM, argv[2], atoi(argv[3]));
    const int room = 4 << 20; /* none is to be lost while this program is behind */
    if (!is_greedy) CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) == 0);
    say("ready");
  }
  if (is_greedy) {
    greedy(fd, is_stream);
    CHECK(close(fd) == 0);
    fd = bound(SOCK_DGRAM, argv[2], atoi(argv[3]) + 1); /* keeps the engine in use */
  } else if (is_stream) {
    stream(fd);
  } else {
    datagrams(fd);
  }
  say("empty");
  await_line();
  say("done");
  return 0;
}
