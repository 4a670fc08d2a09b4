/* What the programs of extra.py share. Each prints a line for what it found, and stops at what is
 * wrong. */
#ifndef EXTRA_COMMON_H
#define EXTRA_COMMON_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mellanox/vma_extra.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      printf("%s:%d: %s: errno %d (%s)\n", __FILE__, __LINE__, #condition, errno, \
             strerror(errno));                                                    \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

static inline void say(const char* what) {
  puts(what);
  fflush(stdout);
}
/* Waits for a line of the harness. */
static inline void await_line(void) {
  char line[64];
  if (fgets(line, sizeof line, stdin) == NULL) exit(2);
}
static inline struct sockaddr_in address(const char* ip, int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  CHECK(inet_pton(AF_INET, ip, &a.sin_addr) == 1);
  return a;
}
static inline int bound(int type, const char* ip, int port) {
  const struct sockaddr_in a = address(ip, port);
  const int on = 1;
  int fd = socket(AF_INET, type, 0);
  CHECK(fd >= 0);
  CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 || type == SOCK_DGRAM);
  CHECK(bind(fd, (const struct sockaddr*)&a, sizeof a) == 0);
  return fd;
}
static inline int listening(const char* ip, int port) {
  int fd = bound(SOCK_STREAM, ip, port);
  CHECK(listen(fd, 16) == 0);
  return fd;
}
static inline int connected(int type, const char* ip, int port) {
  const struct sockaddr_in a = address(ip, port);
  int fd = socket(AF_INET, type, 0);
  CHECK(fd >= 0);
  CHECK(connect(fd, (const struct sockaddr*)&a, sizeof a) == 0);
  return fd;
}
static inline struct vma_api_t* api_with(uint64_t mask) {
  struct vma_api_t* api = vma_get_api();
  CHECK(api != NULL);
  CHECK((api->vma_extra_supported_mask & mask) == mask);
  return api;
}
/* The byte at a place of a stream or of a datagram. */
static inline unsigned char pattern(uint64_t at) { return (unsigned char)(at * 2654435761u >> 11); }

#endif
