// Sends numbered messages as fast as it can, one by one, with TCP_NODELAY; then calls nothing that
// has to do with sockets for a while, and closes. main(ADDRESS PORT MESSAGES WORDS): a message is
// its number so many times, 64 bits each.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 5) return 2;
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
  std::vector<uint64_t> message(static_cast<size_t>(std::atol(argv[4])));
  const auto bytes = static_cast<ssize_t>(message.size() * sizeof message[0]);
  for (uint64_t i = 0; i < messages; ++i) {
    message.assign(message.size(), i);
    if (send(s, message.data(), static_cast<size_t>(bytes), 0) != bytes) {
      std::perror("send");
      return 1;
    }
  }
  const timespec silence{1, 0};
  nanosleep(&silence, nullptr);
  return close(s);
}
