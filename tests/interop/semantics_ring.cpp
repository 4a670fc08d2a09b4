// A script of socket calls as semantics.cpp: what io_uring(7) does with sockets that there were
// before the ring, and with those that come after.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "semantics.h"

namespace {

/// One request at a time, its answer waited for.
class Ring {
 public:
  Ring() {
    io_uring_params p{};
    errno = 0;
    fd_ = static_cast<int>(syscall(SYS_io_uring_setup, 4, &p));
    if (fd_ < 0) return;
    sq_ = map(p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    cq_ = map(p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
    sqes_ =
        reinterpret_cast<io_uring_sqe*>(map(p.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
    p_ = p;
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() { close(fd_); }

  int fd() const { return fd_; }
  /// @return as the call, with errno.
  long ask(unsigned op, int fd, const void* at, unsigned bytes) {
    const unsigned mask = *word(sq_, p_.sq_off.ring_mask), tail = *word(sq_, p_.sq_off.tail);
    io_uring_sqe& e = sqes_[tail & mask];
    e = {};
    e.opcode = static_cast<__u8>(op);
    e.fd = fd;
    e.addr = reinterpret_cast<__u64>(at);
    e.len = bytes;
    word(sq_, p_.sq_off.array)[tail & mask] = tail & mask;
    __atomic_store_n(word(sq_, p_.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, fd_, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0) < 0) return -1;
    const unsigned head = *word(cq_, p_.cq_off.head);
    const auto* all = reinterpret_cast<io_uring_cqe*>(cq_ + p_.cq_off.cqes);
    const long r = all[head & *word(cq_, p_.cq_off.ring_mask)].res;
    __atomic_store_n(word(cq_, p_.cq_off.head), head + 1, __ATOMIC_RELEASE);
    if (r < 0) errno = static_cast<int>(-r);
    return r < 0 ? -1 : r;
  }

 private:
  char* map(size_t bytes, off_t at) {
    return static_cast<char*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, at));
  }
  static unsigned* word(char* at, unsigned offset) {
    return reinterpret_cast<unsigned*>(at + offset);
  }
  int fd_ = -1;
  char* sq_ = nullptr;
  char* cq_ = nullptr;
  io_uring_sqe* sqes_ = nullptr;
  io_uring_params p_{};
};

void rings() {
  const int before = asked("echo\n");
  send(before, "hello", 5, 0);
  char b[100] = {};
  tried("echo", [&] { return recv(before, b, 5, MSG_WAITALL); });
  const int l = socket(AF_INET, SOCK_STREAM, 0);
  tried("listen", [&] { return listen(l, 5); });
  sockaddr_in name{};
  socklen_t n = sizeof name;
  getsockname(l, reinterpret_cast<sockaddr*>(&name), &n);
  const int u = socket(AF_INET, SOCK_DGRAM, 0);
  connect(u, to(), sizeof g_to);
  tried("ask", [&] { return send(u, "1", 1, 0); });
  tried("answer", [&] { return recv(u, b, sizeof b, 0); });

  Ring ring;
  tried("a ring", [&] { return ring.fd() >= 0 ? 0 : -1; });
  if (ring.fd() < 0) return;
  tried("send", [&] { return ring.ask(IORING_OP_SEND, before, "by ring", 7); });
  tried("recv", [&] { return ring.ask(IORING_OP_RECV, before, b, sizeof b); });
  note("text", std::string(b, 7));
  tried("send beside it", [&] { return send(before, "by call", 7, 0); });
  tried("read", [&] { return ring.ask(IORING_OP_READ, before, b, sizeof b); });
  tried("a datagram", [&] { return ring.ask(IORING_OP_SEND, u, "1", 1); });
  tried("its answer", [&] { return ring.ask(IORING_OP_RECV, u, b, sizeof b); });
  const int helper = asked(("dial " + std::to_string(ntohs(name.sin_port)) + "\n").c_str());
  long c = -1;
  tried("accept", [&] { return (c = ring.ask(IORING_OP_ACCEPT, l, nullptr, 0)) >= 0 ? 0 : -1; });
  tried("what it says", [&] { return ring.ask(IORING_OP_RECV, static_cast<int>(c), b, sizeof b); });
  const int after = asked("echo\n");
  tried("send on a new one", [&] { return ring.ask(IORING_OP_SEND, after, "new", 3); });
  tried("recv", [&] { return ring.ask(IORING_OP_RECV, after, b, sizeof b); });
  tried("close", [&] { return ring.ask(IORING_OP_CLOSE, after, nullptr, 0); });
  for (const int fd : {before, l, u, static_cast<int>(c), helper}) close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  const Part all[] = {{"rings", rings}};
  return run_script(argc, argv, all);
}
