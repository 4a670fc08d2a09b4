// Which of the multicast groups that the program sends to have members on this host. To these the
// kernel's socket sends, which loops a copy to them (ip(7) IP_MULTICAST_LOOP); Vireo only sends to
// the wire. The kernel tells nobody of joins: its lists are read at the first datagram to a group,
// and then again and again by the helper's thread.
//
// Owner: Stack. Thread: any; tend() the helper's. Guard: a leaf lock of its own.
// Source: /proc/net/igmp, /proc/net/igmp6 (net/ipv4/igmp.c, net/ipv6/mcast.c).
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/address.h"
#include "core/clock.h"
#include "core/lock.h"

namespace vireo {

class Stack;

class HostGroups {
 public:
  /// As of a moment ago. The first question about a group takes some 100 us. True if the kernel's
  /// lists cannot be read. `stack`: whose helper is woken by the first.
  bool has_member(const IpAddr& group, Stack& stack);
  /// Reads the lists again. @return when to call again.
  Duration tend(Instant now);

  void fork_prepare() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.lock(); }
  void fork_parent() noexcept VIREO_NO_THREAD_ANALYSIS { lock_.unlock(); }
  void fork_child() noexcept VIREO_NO_THREAD_ANALYSIS;

  /// Appends the groups of a list: a line for each, with its address in hexadecimal. IPv4's are in
  /// the order of the machine's bytes, on lines of their own below the interface's.
  static void parse(std::string_view igmp, std::string_view igmp6, std::vector<IpAddr>& to);

 private:
  struct Known {
    IpAddr group;
    bool has_member;
  };
  const Known* find(const IpAddr& group) const VIREO_REQUIRES(lock_);

  Lock lock_;
  std::vector<Known> sent_to_ VIREO_GUARDED_BY(lock_);  ///< by group
  /// Changes with each answer, for the last answer that a thread keeps.
  std::atomic<uint32_t> generation_{1};
  std::atomic<bool> is_active_{false};
  Instant due_{};  ///< of the helper's thread
};

}  // namespace vireo
