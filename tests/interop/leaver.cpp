// Enters a network namespace of its own by its very first call, then asks the address and port of
// its arguments for a connection. Prints the errno of that: there is no network.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
  if (unshare(CLONE_NEWNET) != 0) return 2;
  if (argc != 3) return 3;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<in_port_t>(std::atoi(argv[2])));
  inet_pton(AF_INET, argv[1], &to.sin_addr);
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  const int r = connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  std::puts(r == 0 ? "connected" : strerrorname_np(errno));
  return 0;
}
