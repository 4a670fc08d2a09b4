// Fast Open state of a client: per pair of addresses the server's cookie and the MSS of its last
// SYN-ACK; and how often the path seemed to drop such connections. Fixed size, four entries per
// set, the oldest is replaced. Owner: one engine, created at first use. Thread: holder of its lock.
// The caller passes the time. Source: RFC 7413 §4.1.3, §4.1.3.1; net/ipv4/tcp_fastopen.c
// tcp_fastopen_active_disable().
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/address.h"
#include "core/clock.h"
#include "core/flow_hash.h"

namespace vireo {

class FastOpenClient {
 public:
  static constexpr unsigned kCapacity = 256;

  struct Server {
    IpAddr local;
    IpAddr remote;
    std::array<uint8_t, 16> cookie{};
    uint32_t learnt = 0;  ///< sequence number of the entry, 0: free
    uint16_t mss = 0;     ///< of the server's last SYN-ACK
    uint8_t bytes = 0;

    std::span<const uint8_t> bytes_of_cookie() const { return std::span(cookie).first(bytes); }
  };

  explicit FastOpenClient(const FlowHashKey& key) noexcept : key_(key) {}

  /// Null: no cookie known. Valid until the next change.
  const Server* find(const IpAddr& local, const IpAddr& remote) noexcept {
    for (const Server& s : set_of(remote))
      if (s.learnt != 0 && s.remote == remote && s.local == local) return &s;
    return nullptr;
  }
  void learn(const IpAddr& local, const IpAddr& remote, std::span<const uint8_t> cookie,
             uint16_t mss) noexcept {
    auto* s = const_cast<Server*>(find(local, remote));
    if (s == nullptr) s = &*std::ranges::min_element(set_of(remote), {}, &Server::learnt);
    *s = {};
    s->local = local;
    s->remote = remote;
    s->learnt = ++count_;
    s->mss = mss;
    s->bytes = static_cast<uint8_t>(std::min(cookie.size(), s->cookie.size()));
    std::memcpy(s->cookie.data(), cookie.data(), s->bytes);
  }
  /// A SYN-ACK without a cookie: its MSS bounds the data on the next SYN.
  void learn_mss(const IpAddr& local, const IpAddr& remote, uint16_t mss) noexcept {
    if (auto* s = const_cast<Server*>(find(local, remote)); s != nullptr) s->mss = mss;
  }
  void forget(const IpAddr& local, const IpAddr& remote) noexcept {
    if (auto* s = const_cast<Server*>(find(local, remote)); s != nullptr) *s = {};
  }

  /// A Fast Open connection got no answer: disables Fast Open for a while, doubled each time up to
  /// 64 times `first` (net.ipv4.tcp_fastopen_blackhole_timeout_sec; zero: never).
  void pause(Instant now) noexcept {
    paused_at_ = now;
    if (pauses_ < 7) ++pauses_;
  }
  bool is_paused(Duration first, Instant now) const noexcept {
    return pauses_ != 0 && now < paused_at_ + first * (1 << (pauses_ - 1));
  }
  /// Data on a SYN was acknowledged.
  void works() noexcept { pauses_ = 0; }

 private:
  using Set = std::array<Server, 4>;

  Set& set_of(const IpAddr& remote) noexcept {
    return sets_[flow_hash(key_, remote.bytes().data(), 16) % sets_.size()];
  }

  FlowHashKey key_;
  std::array<Set, kCapacity / 4> sets_{};
  uint32_t count_ = 0;
  unsigned pauses_ = 0;
  Instant paused_at_;
};

}  // namespace vireo
