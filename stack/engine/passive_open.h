// Passive opens: listeners and half-open connections. A SYN becomes a record of 64 bytes or, when
// the queue is full, a cookie; the third segment of the handshake creates the connection. As
// Linux's tcp_conn_request(), tcp_check_req() and reqsk_timer_handler() (net/ipv4), with the checks
// of RFC 5961 where they are stricter.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "core/carriage.h"
#include "core/slab.h"
#include "stack/engine/flow.h"
#include "stack/engine/incoming.h"
#include "stack/engine/part.h"
#include "stack/engine/reply_limit.h"
#include "stack/engine/syn_table.h"
#include "stack/ip/icmp_error.h"

namespace vireo {

struct Hub;

inline FlowKey flow_key(const SynTuple& t) noexcept {
  return {IpProto::kTcp,
          !t.remote.is_v4(),
          VlanId(),
          {t.local, t.local_port, 0},
          {t.remote, t.remote_port, 0}};
}

class PassiveOpen : Part {
 public:
  // ---- the program's calls (listeners.cpp)
  /// `local` may be a wildcard; `v6only` as IPV6_V6ONLY. The kernel's listener stays beneath for
  /// loopback. `stats` outlives the listener.
  Carried<Listener*> listen(const Endpoint& local, bool v6only, uint32_t backlog,
                            const tcp::Config& config, void* owner, SocketStats& stats,
                            const ListenOptions& options = {});
  /// The next connection whose handshake is complete, null = none. The caller sets owner and stats.
  TcpFlow* accept(Listener& l);
  /// SO_BINDTODEVICE: from now on it receives by `device` only, or by all (0). On error it receives
  /// nothing, and all its frames are the kernel's.
  Carried<void> hear_by(Listener& l, IfIndex device);
  /// The program accepts connections of listeners that join others until then, as far as it is
  /// known: afterwards the other processes get the SYNs, or the kernel.
  void accept_until(Instant until) noexcept;
  /// Resets connections that were not accepted (tcp(7)), but for a listener that joins others:
  /// there give_to_kernel().
  void close(Listener& l, Instant now);
  /// The same, and the kernel's listener of its address goes on: that one gets what was not
  /// accepted, as far as the device can; the rest is reset.
  void give_to_kernel(Listener& l, Instant now);
  /// What waits in the accept queues of listeners that join others is given to the kernel's: the
  /// program does not come for it. What cannot be given stays. @return whether something does.
  bool give_waiting(Instant now) noexcept;
  /// Whether all devices can; a few milliseconds for each that was not asked before.
  bool may_give_to_kernel() noexcept;
  /// A listener of which the kernel's is to get something is still there.
  bool is_leaving() const noexcept { return !leaving_until_.is_never(); }
  void close_all(Instant now);

  /// A shared rule was made there.
  void share_on(Port& port) noexcept;

  // ---- listeners
  /// Indexed by Flow::listener; null: free.
  std::span<Listener* const> all() const noexcept { return listeners_; }
  Listener& of(const TcpFlow& child) const noexcept { return *listeners_[child.listener]; }

  // ---- segments and errors without a connection (passive_open.cpp)
  /// `before`: the tuple's connection in TIME-WAIT. @return true: the segment was for a listener or
  /// for a half-open connection.
  bool segment_arrived(const Incoming& in, tcp::Segment& s, const tcp::TimeWait* before,
                       Instant now) noexcept;
  /// An ICMP error: ends a half-open connection if it quotes the sequence number of its SYN-ACK
  /// (RFC 5927 §4.1).
  void error_arrived(const ip::IcmpError& e) noexcept;

  // ---- half-open connections
  /// Their rules on a device that has gone.
  void drop_rules_of(const Device& device) noexcept {
    std::erase_if(syn_rules_, [&](const auto& of) { return of.second.device() == &device; });
  }
  void expire(Instant now) noexcept;
  Instant next_deadline() const noexcept { return std::min(syns_.next_deadline(), leaving_until_); }
  size_t half_open() const noexcept { return syns_.size(); }
  template <class F>
  void for_each_half_open(F&& fn) {
    syns_.for_each(fn);
  }

 private:
  // listeners.cpp
  Listener* member_for(const ListenGroup& g, const SynTuple& t, IfIndex link) const noexcept;
  void leave(Listener& l);
  void end(Listener& l, Instant now) noexcept;
  void reset_ready(Listener& l, Instant now) noexcept;

  // unaccepted.cpp
  void give_ready(Listener& l, Port& port, Instant now) noexcept;
  void give_ready(Listener& l, Instant now) noexcept;
  bool keeps_frames(const Listener& l, const Port& port) const noexcept;
  bool keep_for_kernel(tcp::SynRecord& r, Instant now) noexcept;
  void expire_leaving(Instant now) noexcept;

  // passive_open.cpp
  bool record_segment(tcp::SynRecord& r, const Incoming& in, tcp::Segment& s, Instant now) noexcept;
  void syn_arrived(Listener& l, const SynTuple& tuple, const Incoming& in, tcp::Segment& syn,
                   const tcp::TimeWait* before, Instant now) noexcept;
  bool cookie_arrived(Listener& l, const SynTuple& tuple, tcp::Segment& s, Instant now) noexcept;
  bool open_child(Listener& l, const tcp::SynRecord& r, tcp::Config& c, tcp::Segment& s,
                  Instant now) noexcept;
  TcpFlow* new_child(const Listener& l, const SynTuple& t, Instant now) noexcept;
  void queue_child(Listener& l, TcpFlow& f) noexcept;

  // shared_listener.cpp
  bool needs_rule(const Listener& l, const Port& port) const noexcept;
  int make_rule(const tcp::SynRecord& r, Port& port) noexcept;
  void pass_rule(const tcp::SynRecord& r, TcpFlow& child) noexcept;
  bool make_rule(const Listener& l, TcpFlow& child) noexcept;
  void drop_rule(const tcp::SynRecord& r) noexcept {
    if (!syn_rules_.empty()) [[unlikely]]
      syn_rules_.erase(&r);
  }

  // syn_ack.cpp
  Result<void> way_back(const Listener& l, const SynTuple& t, CachedRoute& e, Instant now) noexcept;
  uint64_t secret_of(const SynTuple& t) const noexcept;
  tcp::Config child_config(const Listener& l, uint64_t secret) const noexcept;
  void send_syn_ack(tcp::SynRecord& r, tcp::Config& c, const Incoming& in, const tcp::Segment& syn,
                    Instant now) noexcept;
  bool repeat_syn_ack(tcp::SynRecord& r, Instant now) noexcept;
  void forget_record(tcp::SynRecord& r) noexcept;
  void warn_of_flood(const Listener& l, Instant now) noexcept;

  // fast_open_server.cpp
  bool may_open_fast(const Listener& l) noexcept;
  tcp::FastOpenKeys fast_open_keys(const Listener& l) const noexcept;
  bool open_fast(Listener& l, const SynTuple& t, const Incoming& in, tcp::Segment& syn,
                 Instant now) noexcept;
  void renew_fast_open(const Listener& l, TcpFlow& f, const Incoming& in, Instant now) noexcept;
  void grant_fast_open(const Listener& l, const SynTuple& t, const tcp::Segment& syn,
                       tcp::Plan& syn_ack) noexcept;

  Hub& hub() const noexcept;
  SynTable syns_;
  /// Rules of half-open connections, of a listener that is shared (shared_listener.cpp).
  std::unordered_map<const tcp::SynRecord*, FlowRule> syn_rules_;
  std::vector<Listener*> listeners_;
  Instant accept_until_ = Instant::never();
  Instant leaving_until_ = Instant::never();
  std::vector<SlabHandle> fast_opens_;  ///< connections whose handshake may not be complete (RFC
                                        ///< 7413)
  ReplyLimit challenges_{1000};         ///< challenge ACKs to invalid segments
  Instant neighbour_asked_{};           ///< when resolution was last requested to answer a SYN
  Instant flood_warned_ = Instant::from_ns(INT64_MIN / 2);
};

}  // namespace vireo
