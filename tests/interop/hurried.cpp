// Sends numbered messages as fast as it can, one by one, with TCP_NODELAY; then calls nothing that
// has to do with sockets for a while, and closes. main(ADDRESS PORT MESSAGES).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[2])));
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1 ||
      setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
      connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    std::perror("connect");
    return 1;
  }
  const auto messages = static_cast<uint64_t>(std::atol(argv[3]));
  for (uint64_t i = 0; i < messages; ++i) {
    const uint64_t message[8] = {i, i, i, i, i, i, i, i};
    if (send(s, message, sizeof message, 0) != sizeof message) {
      std::perror("send");
      return 1;
    }
  }
  const timespec silence{1, 0};
  nanosleep(&silence, nullptr);
  return close(s);
}
