// Vireo's table ends where RLIMIT_NOFILE did at the first socket. Who raises the limit later gets
// numbers beyond it, which can name nothing of ours: main(ADDRESS PORT), as semantics.h. Raising it
// takes CAP_SYS_RESOURCE; here whoever asks is told a lower one.
#include "semantics.h"

#include <dirent.h>

namespace {

constexpr rlim_t kTable = 1024, kLater = 4096;

int open_numbers() {
  int n = 0;
  DIR* const all = opendir("/proc/self/fd");
  while (readdir(all) != nullptr) ++n;
  closedir(all);
  return n;
}
std::string error_of(int r) { return r < 0 ? strerrorname_np(errno) : std::to_string(r); }

}  // namespace

extern "C" int getrlimit(__rlimit_resource_t what, rlimit* limit) noexcept {
  const int r = prlimit(0, static_cast<__rlimit_resource>(what), nullptr, limit);
  if (r == 0 && what == RLIMIT_NOFILE) *limit = {kTable, kTable};
  return r;
}

int main(int, char** argv) {
  const rlimit files{kLater, kLater};
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) std::perror("setrlimit");
  g_to.sin_family = AF_INET;
  g_to.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[2])));
  inet_pton(AF_INET, argv[1], &g_to.sin_addr);
  const int l = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  socklen_t n = sizeof a;
  if (bind(l, reinterpret_cast<sockaddr*>(&a), n) != 0 || listen(l, 4) != 0) std::perror("listen");
  getsockname(l, reinterpret_cast<sockaddr*>(&a), &n);
  fcntl(l, F_SETFL, O_NONBLOCK);
  asked(("dial " + std::to_string(ntohs(a.sin_port)) + "\n").c_str());
  polled_until(l, POLLIN);

  int last = 0;
  while (last < static_cast<int>(kTable) + 100) last = open("/dev/null", O_RDONLY);
  const std::string once = error_of(accept(l, nullptr, nullptr));
  const int before = open_numbers();
  std::printf("accept: %s, %s\n", once.c_str(), error_of(accept(l, nullptr, nullptr)).c_str());
  std::printf("open: %s\n", open_numbers() == before ? "the same" : "others");
  close(500);
  const int s = accept(l, nullptr, nullptr);
  std::printf("accepted: %s\n", read_some(s, 7, MSG_WAITALL).c_str());
  std::printf("dup: %s\n", error_of(dup(s)).c_str());
  std::printf("dup2: %s\n", error_of(dup2(s, static_cast<int>(kTable) + 500)).c_str());
  std::printf("open: %s\n", open_numbers() == before ? "the same" : "others");
  return 0;
}
