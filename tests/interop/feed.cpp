// A feed of numbered datagrams to a group, and its subscribers, who check that each arrives once
// and in order.
//   feed send GROUP PORT DEVICE RATE SECONDS BYTES    prints how many it has sent, and the seconds
//   feed receive GROUP PORT DEVICE SOCKETS            prints "ready"; at the end for each socket:
//   got,
//                                                     lost, doubled, disordered
// The feed ends with datagrams of the number kEnd.
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kEnd = UINT64_MAX;
constexpr int kEnds = 20;

[[noreturn]] void die(const char* what) {
  perror(what);
  exit(1);
}

ip_mreqn membership(char** argv) {
  ip_mreqn m{};
  if (inet_pton(AF_INET, argv[2], &m.imr_multiaddr) != 1) die("group");
  m.imr_ifindex = static_cast<int>(if_nametoindex(argv[4]));
  return m;
}

sockaddr_in address(const in_addr& of, const char* port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr = of;
  a.sin_port = htons(static_cast<uint16_t>(atoi(port)));
  return a;
}

int send_all(char** argv) {
  const double rate = atof(argv[5]), seconds = atof(argv[6]);
  std::vector<char> bytes(static_cast<size_t>(atoi(argv[7])));
  const ip_mreqn m = membership(argv);
  const sockaddr_in to = address(m.imr_multiaddr, argv[3]);
  const int s = socket(AF_INET, SOCK_DGRAM, 0);
  if (setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &m, sizeof m) != 0) die("IP_MULTICAST_IF");
  if (connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) die("connect");
  constexpr unsigned kBatch = 16;
  std::vector<std::vector<char>> payloads(kBatch, bytes);
  std::vector<iovec> parts(kBatch);
  std::vector<mmsghdr> batch(kBatch);
  for (unsigned i = 0; i < kBatch; ++i) {
    parts[i] = {payloads[i].data(), bytes.size()};
    batch[i].msg_hdr.msg_iov = &parts[i];
    batch[i].msg_hdr.msg_iovlen = 1;
  }
  const auto begun = Clock::now();
  const auto since = [&] { return std::chrono::duration<double>(Clock::now() - begun).count(); };
  uint64_t n = 0;
  for (double t = 0; (t = since()) < seconds;) {
    const auto due = static_cast<uint64_t>(t * rate);
    if (due < n + kBatch) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      continue;
    }
    for (unsigned i = 0; i < kBatch; ++i) {
      const uint64_t number = n + i;
      memcpy(payloads[i].data(), &number, sizeof number);
    }
    const int sent = sendmmsg(s, batch.data(), kBatch, 0);
    if (sent <= 0) die("sendmmsg");
    n += static_cast<unsigned>(sent);
  }
  const double took = since();
  for (int i = 0; i < kEnds; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    memcpy(bytes.data(), &kEnd, sizeof kEnd);
    (void)!send(s, bytes.data(), bytes.size(), 0);
  }
  printf("sent %lu %.3f\n", n, took);
  return 0;
}

struct Subscriber {
  int fd = -1;
  bool has_ended = false;
  uint64_t next = 0, got = 0, lost = 0, doubled = 0, disordered = 0;

  void take(uint64_t number) {
    if (number == kEnd) {
      has_ended = true;
      return;
    }
    ++got;
    if (number >= next) {
      lost += number - next;
      next = number + 1;
    } else if (number + 1 == next) {
      ++doubled;
    } else {
      ++disordered;
    }
  }
};

int receive_all(char** argv) {
  const ip_mreqn m = membership(argv);
  std::vector<Subscriber> all(static_cast<size_t>(atoi(argv[5])));
  std::vector<pollfd> fds;
  for (Subscriber& s : all) {
    s.fd = socket(AF_INET, SOCK_DGRAM, 0);
    const int on = 1, room = 32 << 20;
    if (setsockopt(s.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) die("SO_REUSEADDR");
    if (setsockopt(s.fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0)
      die("SO_RCVBUFFORCE");
    const sockaddr_in own = address(m.imr_multiaddr, argv[3]);
    if (bind(s.fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) die("bind");
    if (setsockopt(s.fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m) != 0) die("join");
    fds.push_back({s.fd, POLLIN, 0});
  }
  printf("ready\n");
  fflush(stdout);
  for (size_t left = all.size(); left != 0;) {
    if (poll(fds.data(), fds.size(), 20000) <= 0) die("nothing comes");
    for (size_t i = 0; i < all.size(); ++i) {
      if (fds[i].revents == 0) continue;
      uint64_t number = 0;
      for (int turn = 0; turn < 64 && !all[i].has_ended &&
                         recv(all[i].fd, &number, sizeof number, MSG_DONTWAIT) > 0;
           ++turn) {
        all[i].take(number);
        if (!all[i].has_ended) continue;
        fds[i].fd = -1;
        --left;
      }
    }
  }
  for (const Subscriber& s : all)
    printf("got %lu lost %lu doubled %lu disordered %lu\n", s.got, s.lost, s.doubled, s.disordered);
  fflush(stdout);
  sleep(30);  // until it is ended: its counters are read
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 8 && strcmp(argv[1], "send") == 0) return send_all(argv);
  if (argc == 6 && strcmp(argv[1], "receive") == 0) return receive_all(argv);
  return 2;
}
