/* Sends that send nothing, over TCP and UDP to an echo.
 *
 *   extra_dummy PEER PORT       says "ready", and after each line from the harness: sends dummies,
 * says "warm"; sends in earnest, says "done"
 */
#include "extra_common.h"

enum { kTimes = 2000 };

static void exchange(int fd, const char* text) {
  char got[64] = "";
  CHECK(send(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
  CHECK(recv(fd, got, sizeof got, 0) == (ssize_t)strlen(text) && strcmp(got, text) == 0);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const struct sockaddr_in to = address(argv[1], atoi(argv[2]));
  const int tcp = connected(SOCK_STREAM, argv[1], atoi(argv[2])),
            udp = connected(SOCK_DGRAM, argv[1], atoi(argv[2]));
  const int sender = socket(AF_INET, SOCK_DGRAM, 0);
  static char large[3000];
  struct iovec v[2] = {{large, 10}, {large, 20}};
  struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
  char got[8];
  exchange(tcp, "before");
  exchange(udp, "before");
  CHECK(sendto(sender, "s", 1, 0, (const struct sockaddr*)&to, sizeof to) == 1 &&
        recv(sender, got, 8, 0) == 1);
  say("ready");
  await_line();
  for (int i = 0; i < kTimes; ++i) {
    const size_t n = (size_t)i % sizeof large;
    CHECK(send(tcp, large, n, VMA_SND_FLAGS_DUMMY) == (ssize_t)n);
    CHECK(send(udp, large, n, VMA_SND_FLAGS_DUMMY | MSG_DONTWAIT) == (ssize_t)n);
    CHECK(sendto(sender, large, n, VMA_SND_FLAGS_DUMMY, (const struct sockaddr*)&to, sizeof to) ==
          (ssize_t)n);
    CHECK(sendmsg(i % 2 ? tcp : udp, &m, VMA_SND_FLAGS_DUMMY) == 30);
  }
  /* What a send would refuse. None raises SIGPIPE. */
  const int kernels = socket(AF_INET, SOCK_DGRAM, 0),
            shut = connected(SOCK_STREAM, argv[1], atoi(argv[2]));
  CHECK(send(kernels, "x", 1, VMA_SND_FLAGS_DUMMY) == -1 && errno == EINVAL);
  CHECK(send(sender, "x", 1, VMA_SND_FLAGS_DUMMY) == -1 && errno == EDESTADDRREQ);
  CHECK(send(tcp, "x", 1, VMA_SND_FLAGS_DUMMY) == 1);
  CHECK(shutdown(shut, SHUT_WR) == 0);
  CHECK(send(shut, "x", 1, VMA_SND_FLAGS_DUMMY) == -1 && errno == EPIPE);
  CHECK(recv(tcp, got, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  say("warm");
  await_line();
  exchange(tcp, "after");
  exchange(udp, "after");
  say("done");
  return 0;
}
