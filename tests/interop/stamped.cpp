// Numbered messages with time stamps, to be compared with a capture; stamps_capture.py runs it.
//
//   stamped peer udp|tcp ADDRESS PORT COUNT INTERVAL_US      sends COUNT, then receives COUNT
//   stamped program udp|tcp ADDRESS PORT COUNT INTERVAL_US   receives COUNT, then sends COUNT
//   stamped witness MILLISECONDS                             what the machine takes from a spinner
//
// A message has kBytes, the first eight of which are its number. The program prints a line for each
// time: "rx|sched|software|ack NUMBER NS", and "begun|returned NUMBER NS" around the call that
// sends. A report must have the number twice: in the payload and as OPT_ID counts it. The witness
// prints the ns of each gap in its own sight of the clock. Errors end it with a text.
#include <sys/time.h>  // errqueue.h needs it

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <array>
#include <cinttypes>
#include <ctime>
#include <string_view>
#include <vector>

#include "../integrity/endpoint.h"

namespace {

using endpoint::Address;
using endpoint::fail;
using endpoint::must;

constexpr size_t kBytes = 64;
constexpr uint64_t kHello = UINT64_MAX;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kPatience = 5 * kSecond;
constexpr uint32_t kOptIdTcp = 1U << 16;  // SOF_TIMESTAMPING_OPT_ID_TCP, newer than the headers
constexpr int64_t kGap = 1000;            // ns; a witness looks at the clock much more often

using Message = std::array<unsigned char, kBytes>;

int64_t now(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

void spin_until(int64_t then) {
  while (now(CLOCK_MONOTONIC) < then) {
  }
}

[[noreturn]] void wrong(const char* what, uint64_t got, uint64_t due) {
  std::fprintf(stderr, "%s: %" PRIu64 ", not %" PRIu64 "\n", what, got, due);
  std::exit(1);
}

uint64_t number_of(const unsigned char* message) {
  uint64_t number = 0;
  std::memcpy(&number, message, sizeof number);
  return number;
}

void send_one(int fd, uint64_t number) {
  Message message{};
  std::memcpy(message.data(), &number, sizeof number);
  if (send(fd, message.data(), kBytes, 0) != static_cast<ssize_t>(kBytes)) fail("send");
}

void set(int fd, int level, int option, int value, const char* name) {
  must(setsockopt(fd, level, option, &value, sizeof value), name);
}

void limit_waits(int fd) {
  const timeval t{kPatience / kSecond, 0};
  must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), "SO_RCVTIMEO");
}

struct Plan {
  bool is_stream;
  Address address;
  uint64_t count;
  int64_t interval;  ///< ns

  explicit Plan(char** argv)
      : is_stream(std::string_view(argv[2]) == "tcp"),
        address(argv[3], argv[4]),
        count(std::strtoull(argv[5], nullptr, 10)),
        interval(std::atol(argv[6]) * 1000) {}
};

// ---- the peer

int peer(const Plan& plan) {
  int fd = endpoint::bound(plan.address, plan.is_stream ? SOCK_STREAM : SOCK_DGRAM);
  // Has the kernel stamp frames where they come in, so that the capture has that time.
  set(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS");
  if (plan.is_stream) must(listen(fd, 1), "listen");
  std::puts("ready");
  std::fflush(stdout);
  Message message{};
  if (plan.is_stream) {
    fd = must(accept(fd, nullptr, nullptr), "accept");
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
    limit_waits(fd);
  } else {
    Address other = plan.address;
    limit_waits(fd);
    if (recvfrom(fd, message.data(), kBytes, 0, reinterpret_cast<sockaddr*>(&other.storage),
                 &other.size) != static_cast<ssize_t>(kBytes))
      fail("hello");
    must(connect(fd, other.get(), other.size), "connect");
  }
  int64_t due = now(CLOCK_MONOTONIC) + 20 * plan.interval;
  for (uint64_t i = 0; i < plan.count; ++i, due += plan.interval) {
    spin_until(due);
    send_one(fd, i);
  }
  for (uint64_t i = 0; i < plan.count; ++i) {
    if (recv(fd, message.data(), kBytes, plan.is_stream ? MSG_WAITALL : 0) !=
        static_cast<ssize_t>(kBytes))
      fail("recv");
    if (number_of(message.data()) != i) wrong("number", number_of(message.data()), i);
    if (plan.is_stream) set(fd, IPPROTO_TCP, TCP_QUICKACK, 1, "TCP_QUICKACK");
  }
  return 0;
}

// ---- the program

struct Times {
  int64_t rx = 0, begun = 0, returned = 0, sched = 0, software = 0, ack = 0;
};

/// The first time of the ancillary data, ns; 0: none. `id`: of a report.
int64_t stamp_of(const msghdr& got, uint32_t& kind, uint32_t& id) {
  int64_t at = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&got); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&got), c)) {
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPING) {
      timespec t{};
      std::memcpy(&t, CMSG_DATA(c), sizeof t);
      at = t.tv_sec * kSecond + t.tv_nsec;
    } else if ((c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
               (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR)) {
      sock_extended_err e{};
      std::memcpy(&e, CMSG_DATA(c), sizeof e);
      if (e.ee_errno != ENOMSG || e.ee_origin != SO_EE_ORIGIN_TIMESTAMPING)
        wrong("a report's origin", e.ee_origin, SO_EE_ORIGIN_TIMESTAMPING);
      kind = e.ee_info;
      id = e.ee_data;
    }
  }
  return at;
}

void receive_all(int fd, const Plan& plan, std::vector<Times>& times) {
  for (uint64_t i = 0; i < plan.count; ++i) {
    Message message{};
    alignas(cmsghdr) char control[256];
    iovec part{message.data(), kBytes};
    msghdr got{};
    got.msg_iov = &part;
    got.msg_iovlen = 1;
    got.msg_control = control;
    got.msg_controllen = sizeof control;
    if (recvmsg(fd, &got, plan.is_stream ? MSG_WAITALL : 0) != static_cast<ssize_t>(kBytes))
      fail("recvmsg");
    if (number_of(message.data()) != i) wrong("number", number_of(message.data()), i);
    uint32_t kind = 0, id = 0;
    times[i].rx = stamp_of(got, kind, id);
  }
}

/// Reads the error queue empty. @return kinds of reports that came for the first time.
unsigned take_reports(int fd, const Plan& plan, std::vector<Times>& times) {
  for (unsigned n = 0;;) {
    unsigned char frame[2048];
    alignas(cmsghdr) char control[512];
    iovec part{frame, sizeof frame};
    msghdr got{};
    got.msg_iov = &part;
    got.msg_iovlen = 1;
    got.msg_control = control;
    got.msg_controllen = sizeof control;
    const ssize_t bytes = recvmsg(fd, &got, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (bytes < 0 && errno == EAGAIN) return n;
    if (bytes < static_cast<ssize_t>(kBytes)) fail("MSG_ERRQUEUE");
    const uint64_t number = number_of(frame + bytes - kBytes);
    if (number >= times.size()) wrong("a report's number", number, times.size());
    uint32_t kind = 0, id = 0;
    const int64_t at = stamp_of(got, kind, id);
    const uint64_t due = plan.is_stream ? (number + 1) * kBytes - 1 : number;
    if (id != due) wrong("OPT_ID", id, due);
    Times& t = times[number];
    int64_t& place = kind == SCM_TSTAMP_SCHED ? t.sched
                     : kind == SCM_TSTAMP_SND ? t.software
                                              : t.ack;
    if (place != 0) continue;  // a segment that was sent again
    place = at;
    ++n;
  }
}

void send_all(int fd, const Plan& plan, std::vector<Times>& times) {
  const uint64_t all = plan.count * (plan.is_stream ? 3 : 2);
  uint64_t reports = 0;
  const auto look = [&] {
    pollfd p{fd, 0, 0};
    if (must(poll(&p, 1, 0), "poll") != 0) reports += take_reports(fd, plan, times);
  };
  int64_t due = now(CLOCK_MONOTONIC) + 20 * plan.interval;
  for (uint64_t i = 0; i < plan.count; ++i, due += plan.interval) {
    while (now(CLOCK_MONOTONIC) < due) look();
    times[i].begun = now(CLOCK_REALTIME);
    send_one(fd, i);
    times[i].returned = now(CLOCK_REALTIME);
  }
  while (reports < all && now(CLOCK_MONOTONIC) < due + kPatience) look();
  if (reports != all) wrong("reports", reports, all);
}

int program(const Plan& plan) {
  const int fd = must(socket(plan.address.storage.ss_family,
                             (plan.is_stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0),
                      "socket");
  constexpr int kArrivals = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
  set(fd, SOL_SOCKET, SO_TIMESTAMPING, kArrivals, "SO_TIMESTAMPING");
  must(connect(fd, plan.address.get(), plan.address.size), "connect");
  limit_waits(fd);
  if (plan.is_stream)
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  else
    send_one(fd, kHello);
  std::vector<Times> times(plan.count);
  receive_all(fd, plan, times);
  constexpr int kDepartures =
      SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_OPT_ID;
  constexpr int kOfStream = SOF_TIMESTAMPING_TX_ACK | static_cast<int>(kOptIdTcp);
  set(fd, SOL_SOCKET, SO_TIMESTAMPING, kArrivals | kDepartures | (plan.is_stream ? kOfStream : 0),
      "SO_TIMESTAMPING");
  send_all(fd, plan, times);
  for (uint64_t i = 0; i < plan.count; ++i) {
    const Times& t = times[i];
    std::printf("rx %" PRIu64 " %" PRId64 "\n", i, t.rx);
    std::printf("begun %" PRIu64 " %" PRId64 "\n", i, t.begun);
    std::printf("returned %" PRIu64 " %" PRId64 "\n", i, t.returned);
    std::printf("sched %" PRIu64 " %" PRId64 "\n", i, t.sched);
    std::printf("software %" PRIu64 " %" PRId64 "\n", i, t.software);
    if (plan.is_stream) std::printf("ack %" PRIu64 " %" PRId64 "\n", i, t.ack);
  }
  return 0;
}

// ---- the witness

int witness(int64_t ns) {
  std::vector<int64_t> gaps;
  gaps.reserve(1 << 16);
  int64_t before = now(CLOCK_MONOTONIC);
  const int64_t end = before + ns;
  while (before < end) {
    const int64_t at = now(CLOCK_MONOTONIC);
    if (at - before > kGap) gaps.push_back(at - before);
    before = at;
  }
  for (const int64_t gap : gaps) std::printf("%" PRId64 "\n", gap);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "witness" && argc == 3) return witness(std::atol(argv[2]) * 1'000'000);
  if (argc != 7) return 2;
  if (role == "peer") return peer(Plan(argv));
  if (role == "program") return program(Plan(argv));
  return 2;
}
