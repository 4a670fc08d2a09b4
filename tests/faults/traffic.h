// What programs do while a fault strikes, by steps that never block: bulk data both ways, small
// questions and answers, connections that come and go, datagrams. Every byte that arrives is
// compared; an errno ends a load and is kept.
// Owner: the test. Thread: one.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/world.h"

namespace vireo::test {

class Load {
 public:
  virtual ~Load() = default;
  /// @return true if something was done.
  virtual bool step() = 0;
  virtual bool done() const = 0;
  /// What the program of this side was told: errno names, without EAGAIN.
  std::set<std::string> errors[2];
  unsigned wrong = 0;  ///< bytes or answers that are not what was sent
  /// Nothing can be done any more on this side.
  bool failed(int side) const { return !errors[side].empty(); }

 protected:
  /// @return true if `result` is no error.
  bool note(int side, ssize_t result);
};

/// One connection, `bytes` in each direction, then an orderly end.
class Bulk final : public Load {
 public:
  Bulk(World& w, uint16_t port, size_t bytes);
  bool step() override;
  bool done() const override { return ends_[0].eof && ends_[1].eof; }
  int fd(int side) const { return ends_[side].fd; }
  size_t received(int side) const { return ends_[side].got; }

 private:
  struct End {
    int fd = -1;
    std::string out;
    size_t sent = 0, got = 0;
    bool shut = false, eof = false;
  };
  bool step(int side);
  World& w_;
  End ends_[2];
};

/// One connection: host a asks, host b answers, `rounds` times.
class PingPong final : public Load {
 public:
  PingPong(World& w, uint16_t port, unsigned rounds);
  bool step() override;
  bool done() const override { return round_ == rounds_; }

 private:
  World& w_;
  int fd_[2];
  const unsigned rounds_;
  unsigned round_ = 0;
  size_t heard_ = 0;
  bool asked_ = false;
};

/// Host a connects, says a number, hears it back and closes; `rounds` times.
class Churn final : public Load {
 public:
  Churn(World& w, uint16_t port, unsigned rounds);
  bool step() override;
  bool done() const override { return round_ == rounds_; }

 private:
  bool step_client();
  bool step_server();
  World& w_;
  const uint16_t port_;
  const int listener_;
  int client_ = -1, server_ = -1;
  const unsigned rounds_;
  unsigned round_ = 0;
  bool asked_ = false;
};

/// Host a sends numbered datagrams, host b sends each back; one at a time, the next after an answer
/// or 50 ms.
class Datagrams final : public Load {
 public:
  Datagrams(World& w, uint16_t port, unsigned count);
  bool step() override;
  bool done() const override { return number_ == count_; }
  unsigned answered() const { return answered_; }

 private:
  World& w_;
  int fd_[2];
  const unsigned count_;
  unsigned number_ = 0, answered_ = 0;
  bool asked_ = false;
  Instant asked_at_;
};

/// Several at once.
class Traffic {
 public:
  explicit Traffic(World& w) : w_(w) {}
  template <class T, class... Args>
  T& add(Args... args) {
    auto one = std::make_unique<T>(w_, args...);
    T& ref = *one;
    loads_.push_back(std::move(one));
    return ref;
  }
  /// One of each kind.
  void add_all(size_t bulk_bytes, unsigned rounds);
  bool step();
  bool done() const;
  /// Steps until all are done; `strike` has its say each turn. Fails the test if they do not end, a
  /// byte is wrong, or a program was told of an error.
  void finish(Duration bound, const std::function<void()>& strike = {});

 private:
  World& w_;
  std::vector<std::unique_ptr<Load>> loads_;
};

}  // namespace vireo::test
