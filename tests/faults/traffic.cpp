#include "tests/faults/traffic.h"

#include <algorithm>
#include <cstring>

namespace vireo::test {
namespace {

constexpr Duration kPatience = Duration::ms(50);

/// Bytes that tell their place, different for each `kind`.
std::string pattern(uint32_t kind, size_t bytes) {
  std::string s(bytes, '\0');
  uint32_t x = kind * 2'654'435'761U + 1;
  for (char& c : s) {
    x = x * 1'664'525 + 1'013'904'223;
    c = static_cast<char>(x >> 24);
  }
  return s;
}

}  // namespace

bool Load::note(int side, ssize_t result) {
  if (result >= 0) return true;
  if (result != -EAGAIN) errors[side].insert(strerrorname_np(static_cast<int>(-result)));
  return false;
}

// ---- bulk

Bulk::Bulk(World& w, uint16_t port, size_t bytes) : w_(w) {
  std::tie(ends_[0].fd, ends_[1].fd) = w.connection(port);
  for (uint32_t side : {0U, 1U}) ends_[side].out = pattern(side + 1, bytes);
}

bool Bulk::step(int side) {
  End& e = ends_[side];
  const std::string& in = ends_[1 - side].out;
  Api& api = w_.api(side);
  bool any = false;
  if (!failed(side) && !e.shut) {
    const size_t n = std::min<size_t>(e.out.size() - e.sent, 65'536);
    const ssize_t r = n == 0 ? 0 : api.send(e.fd, e.out.data() + e.sent, n, MSG_DONTWAIT);
    if (note(side, r)) {
      any |= r > 0;
      e.sent += static_cast<size_t>(r);
      if (e.sent == e.out.size()) {
        note(side, api.shutdown(e.fd, SHUT_WR));
        e.shut = true;
      }
    }
  }
  if (!failed(side) && !e.eof) {
    char room[65'536];
    const ssize_t r = api.recv(e.fd, room, sizeof room, MSG_DONTWAIT);
    if (note(side, r)) {
      any = true;
      const auto n = static_cast<size_t>(r);
      if (n > in.size() - e.got || std::memcmp(room, in.data() + e.got, n) != 0) ++wrong;
      e.got += n;
      e.eof = n == 0;
      if (e.eof && e.got != in.size()) ++wrong;
    }
  }
  return any;
}

bool Bulk::step() {
  const bool a = step(0), b = step(1);
  return a || b;
}

// ---- questions and answers

PingPong::PingPong(World& w, uint16_t port, unsigned rounds) : w_(w), rounds_(rounds) {
  std::tie(fd_[0], fd_[1]) = w.connection(port);
}

bool PingPong::step() {
  if (done() || failed(0)) return false;
  bool any = false;
  if (!asked_) {
    const std::string ask = pattern(round_, 64);
    const ssize_t r = w_.a().send(fd_[0], ask.data(), ask.size(), MSG_DONTWAIT);
    asked_ = any = note(0, r);
    heard_ = 0;
  }
  char room[64];
  ssize_t r = failed(1) ? -EAGAIN : w_.b().recv(fd_[1], room, sizeof room, MSG_DONTWAIT);
  if (note(1, r)) {
    any = r > 0;
    if (r == 0)
      errors[1].insert("EOF");
    else
      note(1, w_.b().send(fd_[1], room, static_cast<size_t>(r), MSG_DONTWAIT));
  }
  r = w_.a().recv(fd_[0], room, sizeof room, MSG_DONTWAIT);
  if (!note(0, r)) return any;
  const std::string want = pattern(round_, 64);
  const auto n = static_cast<size_t>(r);
  if (n == 0 || heard_ + n > 64 || std::memcmp(room, want.data() + heard_, n) != 0) ++wrong;
  heard_ += n;
  if (heard_ >= 64) {
    ++round_;
    asked_ = false;
  }
  return true;
}

// ---- connections that come and go

Churn::Churn(World& w, uint16_t port, unsigned rounds)
    : w_(w), port_(port), listener_(w.listener(1, port)), rounds_(rounds) {}

bool Churn::step_client() {
  if (failed(0)) return false;
  if (client_ < 0) {
    client_ = w_.begin_connect(0, port_);
    asked_ = false;
    return true;
  }
  const std::string number = std::to_string(round_);
  if (!asked_) {
    asked_ = note(0, w_.a().send(client_, number.data(), number.size(), MSG_DONTWAIT));
    return asked_;
  }
  char room[64];
  const ssize_t r = w_.a().recv(client_, room, sizeof room, MSG_DONTWAIT);
  if (!note(0, r)) return false;
  if (std::string(room, static_cast<size_t>(r)) != number) ++wrong;
  w_.close(0, client_);
  client_ = -1;
  ++round_;
  return true;
}

bool Churn::step_server() {
  if (failed(1)) return false;
  if (server_ < 0) {
    const int fd = w_.b().accept(listener_, SOCK_NONBLOCK);
    if (!note(1, fd)) return false;
    server_ = w_.keep(1, fd);
    return true;
  }
  char room[64];
  const ssize_t r = w_.b().recv(server_, room, sizeof room, MSG_DONTWAIT);
  if (!note(1, r)) return false;
  if (r > 0) {
    note(1, w_.b().send(server_, room, static_cast<size_t>(r), MSG_DONTWAIT));
    return true;
  }
  w_.close(1, server_);
  server_ = -1;
  return true;
}

bool Churn::step() {
  const bool client = !done() && step_client(), server = step_server();
  return client || server;
}

// ---- datagrams

Datagrams::Datagrams(World& w, uint16_t port, unsigned count) : w_(w), count_(count) {
  for (int side : {0, 1}) fd_[side] = w.udp(side, port);
  w.connect_to(0, fd_[0], port);
}

bool Datagrams::step() {
  if (done()) return false;
  char room[2048];
  bool any = false;
  sockaddr_storage from{};
  iovec v{room, sizeof room};
  msghdr msg{};
  msg.msg_name = &from;
  msg.msg_namelen = sizeof from;
  msg.msg_iov = &v;
  msg.msg_iovlen = 1;
  if (const ssize_t r = w_.b().recvmsg(fd_[1], msg, MSG_DONTWAIT); note(1, r)) {
    note(1, w_.b().sendto(fd_[1], std::string(room, static_cast<size_t>(r)), from, MSG_DONTWAIT));
    any = true;
  }
  if (!asked_) {
    const std::string text = pattern(number_, 10 + number_ % 1400);
    asked_ = note(0, w_.a().send(fd_[0], text.data(), text.size(), MSG_DONTWAIT));
    asked_at_ = w_.now();
    return asked_;
  }
  if (const ssize_t r = w_.a().recv(fd_[0], room, sizeof room, MSG_DONTWAIT); note(0, r)) {
    const std::string got(room, static_cast<size_t>(r));
    if (got == pattern(number_, 10 + number_ % 1400)) {
      ++answered_;
      ++number_;
      asked_ = false;
    } else {
      // The answer to one that was given up, or not what was sent.
      bool is_late = false;
      for (unsigned i = 0; i < number_ && !is_late; ++i) is_late = got == pattern(i, 10 + i % 1400);
      if (!is_late) ++wrong;
    }
    return true;
  }
  if (w_.now() - asked_at_ >= kPatience) {
    ++number_;
    asked_ = false;
    any = true;
  }
  return any;
}

// ---- together

void Traffic::add_all(size_t bulk_bytes, unsigned rounds) {
  add<Bulk>(uint16_t{9001}, bulk_bytes);
  add<PingPong>(uint16_t{9002}, rounds);
  add<Churn>(uint16_t{9003}, rounds);
  add<Datagrams>(uint16_t{9004}, rounds);
}

bool Traffic::step() {
  bool any = false;
  for (const auto& l : loads_) any |= l->step();
  return any;
}

bool Traffic::done() const {
  return std::all_of(loads_.begin(), loads_.end(), [](const auto& l) { return l->done(); });
}

void Traffic::finish(Duration bound, const std::function<void()>& strike) {
  EXPECT_TRUE(w_.run(
      [&] {
        if (strike) strike();
        return step();
      },
      [&] { return done(); }, bound))
      << "it does not end";
  for (const auto& l : loads_) {
    EXPECT_EQ(l->wrong, 0U);
    for (int side : {0, 1})
      for (const std::string& e : l->errors[side]) ADD_FAILURE() << "host " << side << ": " << e;
  }
}

}  // namespace vireo::test
