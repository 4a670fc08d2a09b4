// last_thread ADDRESS PORT: the first thread connects and ends, another says a word and reads the
// echo; then the process has no thread left, and ends with status 0 (pthread_exit(3)).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

void* talk(void* fd) {
  const int s = *static_cast<int*>(fd);
  const timespec later{0, 300'000'000};  // the first thread is gone by then
  nanosleep(&later, nullptr);
  char b[3] = {};
  if (send(s, "yes", 3, 0) == 3 && recv(s, b, 3, MSG_WAITALL) == 3) std::printf("echo: %.3s\n", b);
  std::fflush(stdout);
  return nullptr;
}

}  // namespace

int main(int, char** argv) {
  static int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[2])));
  if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1 ||
      connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
      send(s, "echo\n", 5, 0) != 5) {
    std::perror("connect");
    return 1;
  }
  pthread_t other;
  pthread_create(&other, nullptr, talk, &s);
  pthread_detach(other);
  pthread_exit(nullptr);
}
