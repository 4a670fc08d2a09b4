// TCP connections: created by connect or by passive_open.h; receive.h brings their segments,
// tcp_output.h sends them.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/carriage.h"
#include "core/slab.h"
#include "stack/engine/doorbell_policy.h"
#include "stack/engine/fast_open_client.h"
#include "stack/engine/flow.h"
#include "stack/engine/next_hops.h"
#include "stack/engine/part.h"
#include "stack/engine/port_leases.h"
#include "stack/tcp/take_over.h"

namespace vireo {

struct Hub;

/// Use of TCP Fast Open by a connection (RFC 7413; tcp(7) MSG_FASTOPEN, TCP_FASTOPEN_CONNECT).
struct FastConnect {
  bool data_follows = false;    ///< the SYN waits for data, even if no cookie is known
  bool without_cookie = false;  ///< TCP_FASTOPEN_NO_COOKIE; net.ipv4.tcp_fastopen, bit 4
  Duration pause{};             ///< net.ipv4.tcp_fastopen_blackhole_timeout_sec
};

/// Parameters of a bind(2).
struct BindWish {
  Endpoint local;
  bool v6only = false;
  bool reuse_addr = false;
  bool reuse_port = false;
};

class TcpFlows : Part {
 public:
  explicit TcpFlows(uint32_t port_leases) : leases_(port_leases) {}

  // ---- open (tcp_connect.cpp, tcp_fast_open.cpp)
  /// `stats` outlives the flow (a slot of shared memory). Errors: EADDRNOTAVAIL the 4-tuple is in
  /// use. The port's `origin` decides whether a connection in TIME-WAIT gives way. With `fast` the
  /// SYN may wait for send_syn(): tcp::is_syn_deferred(). `lease` is for the port of `local`; the
  /// engine owns it in either case.
  Carried<TcpFlow*> connect(const Route& route, const Endpoint& local, const Endpoint& remote,
                            const tcp::Config& config, const IpSettings& ip, void* owner,
                            SocketStats& stats, Instant now, const FastConnect* fast = nullptr,
                            std::optional<PortLease> lease = std::nullopt,
                            PortOrigin origin = PortOrigin::kDrawn);
  /// Sends the deferred SYN, with as much of `data` as may go with it. @return bytes taken.
  size_t send_syn(TcpFlow& f, const FastConnect& wish, std::span<const iovec> data,
                  Instant now) noexcept;
  /// A leased local port for a connection by `route` that did not choose one.
  std::optional<PortLease> lease_port(const Route& route, Instant now) {
    return leases_.take(route.hop.src, *route.port, now);
  }
  /// Returns leases of this port number, or all (0), to the kernel, which refused a call of a
  /// program for lack of ports or descriptors. @return whether there were any.
  bool give_up_leases(uint16_t number) { return leases_.give_up(number); }
  void give_up_leases(const Port& port) { leases_.give_up(port); }
  /// Whether a connection here prevents a TCP socket's bind(2), by Linux's rules: open, closed by
  /// its program, or in TIME-WAIT. The kernel knows only of those with a shadow socket. Visits all.
  bool is_in_use(const BindWish& wish) noexcept;

  // ---- a connection of the kernel's that is continued here (tcp_take_over.cpp)
  /// From here on frames of `key` come here, and stay in the ring while the lock is held. Follow it
  /// by finish_take_over() or by give_up_take_over().
  Carried<TcpFlow*> begin_take_over(const Route& route, const FlowKey& key, const IpSettings& ip,
                                    Instant now);
  /// `o`: the state that the kernel has left. @return false: no memory; then give it up.
  bool finish_take_over(TcpFlow& f, const tcp::Config& config, const tcp::TakeOver& o, void* owner,
                        SocketStats& stats, Instant now);
  /// It remains the kernel's. Follow it by Steering::give_strays().
  void give_up_take_over(TcpFlow& f, Instant now);

  // ---- send (tcp_send.cpp; fast paths: fast_path/send_small.cpp)
  /// Copies into send buffers and sends what may leave. @return bytes taken; 0 = no room: wait for
  /// Effects::kWritable.
  size_t send(TcpFlow& f, std::span<const iovec> data, bool more, Instant now) noexcept;
  /// Sends one piece at once as the only segment in flight. @return false: nothing was done, call
  /// send(). Deferred receive work may remain.
  bool send_single(TcpFlow& f, const iovec& data, Instant now) noexcept;
  /// The same behind other segments in flight (TCP_NODELAY). Requires that no receive work is
  /// deferred.
  bool send_nodelay(TcpFlow& f, const iovec& data, Instant now) noexcept;
  /// Adds one piece to the data that Nagle's algorithm holds. @return as send_single().
  bool append_nagled(TcpFlow& f, const iovec& data) noexcept;
  /// The held data of `f` is nearly a full segment.
  static void expect_segment(const TcpFlow& f) noexcept;
  /// send() without these three.
  size_t queue(TcpFlow& f, std::span<const iovec> data, bool more, Instant now) noexcept;
  /// Sends what calls of tcp:: on f.tcb (set_*, shutdown_write, abort, ...) made ready, and re-arms
  /// its timer.
  void progress(TcpFlow& f, Instant now) noexcept { progress(f, SendBy::kCall, now); }

  // ---- receive
  /// The program took `bytes` from recv_queue(f.tcb): may send a window update.
  void received(TcpFlow& f, uint32_t bytes, Instant now) noexcept {
    // Of the possible effects only a window update has to be sent.
    if (tcp::consumed(f.tcb, bytes, now)) [[unlikely]]
      progress(f, now);
  }

  // ---- close
  /// The program closed the socket: the engine keeps the connection until the protocol is done,
  /// then frees it. `port_holder` keeps the port meanwhile; it may be empty, and is ignored for a
  /// leased port. `reset`: SO_LINGER 0.
  void close(TcpFlow& f, UniqueFd port_holder, bool reset, Instant now);
  /// Another TCP has the connection from here on (tcp::hand_over()): its frames go to the kernel.
  /// Follow it by Steering::give_strays(). Errors: ENOTSUP the device cannot distinguish them
  /// from its listener's, ENOSPC; then nothing was done.
  Result<void> hand_over(TcpFlow& f, Instant now);
  /// The last step of that: its frames go to the kernel already, or will with their rule.
  void part_with(TcpFlow& f, Instant now) noexcept;
  /// Bytes that closed connections have not yet sent or had acknowledged; a FIN counts as one (exit
  /// waits for none).
  uint64_t orphans_owe() const;
  /// There are closed connections that are not freed, for instance because the peer has not closed.
  bool has_orphans() const { return !orphans_.empty(); }
  /// The process exits normally: peers that have acknowledged our FIN need no RST by the mourner.
  void settle_will() noexcept;

  // ---- for the engine's parts
  /// Null: no memory, or the key is taken.
  TcpFlow* make(const FlowKey& key);
  void free(TcpFlow& f) noexcept;
  /// free() without the demux entry, which another has taken.
  void end(TcpFlow& f) noexcept;
  /// A SYN with the tuple of `f` arrived, and a listener may take it: a connection that is over,
  /// but not yet freed or still held by its program, does not prevent it (RFC 9293 §3.10.7.1). One
  /// in TIME-WAIT gives way as a TimeWaitEntry would; its state is stored in `before`. @return the
  /// tuple is free.
  bool make_way(TcpFlow& f, const tcp::Segment& syn, std::optional<tcp::TimeWait>& before,
                Instant now) noexcept;
  /// Keeps the port of a connection that ends as a lease, if allowed. @return it is kept.
  bool keep_port(TcpFlow& f, Instant now);
  /// Frees a connection that the program has closed, or moves it to TIME-WAIT, if it is done.
  void orphan_effects(TcpFlow& f, Instant now) noexcept;
  /// The SYN-ACK to our SYN, before TCP handles it: stores cookie and MSS for later connections, or
  /// notes that data on a SYN does not get through (RFC 7413 §4.1.3, §4.1.3.1).
  void hear_syn_ack(const TcpFlow& f, const tcp::Segment& s) noexcept;
  /// A timer of a Fast Open connection fired: after the third consecutive timeout, or if the
  /// connection failed, Fast Open is disabled for a while.
  void watch_fast_open(TcpFlow& f, tcp::Effects e, Instant now) noexcept;

  const Slab<TcpFlow>& slab() const noexcept { return flows_; }
  Slab<TcpFlow>& slab() noexcept { return flows_; }
  uint32_t size() const noexcept { return flows_.size(); }
  uint32_t orphans() const noexcept { return orphan_count_; }
  void free_all() noexcept {
    flows_.for_each([&](TcpFlow& f) { free(f); });
  }
  template <class F>
  void for_each(F&& fn) {
    flows_.for_each(fn);
  }

 private:
  // tcp_connect.cpp
  void set_route(TcpFlow& f, const Route& route, const IpSettings& ip, Instant now) noexcept;
  tcp::Config config_within(TcpFlow& f, const tcp::Config& config) noexcept;
  Carried<std::optional<tcp::TimeWait>> take_tuple(const FlowKey& key, PortOrigin origin) noexcept;
  void give_tuple_up(TcpFlow& f) noexcept;

  // tcp_fast_open.cpp
  void begin_fast_connect(TcpFlow& f, const FastConnect& wish, Instant now);

  /// Bytes that a sending program may send before it polls for received frames.
  static constexpr uint64_t kSentPerPoll = 32768;

  // tcp_send.cpp
  bool has_sent_much() const noexcept;
  void look_for_acks(const TcpFlow& f, Instant now) noexcept;
  size_t send_pieces(TcpFlow& f, const iovec& all, bool more, Instant now) noexcept;
  size_t send_piece(TcpFlow& f, std::span<const iovec> data, bool more, SendBy by,
                    Instant now) noexcept;
  void progress(TcpFlow& f, SendBy by, Instant now) noexcept;

  // fast_path/send_small.cpp
  bool may_send_nodelay(TcpFlow& f, const iovec& data) noexcept;
  bool emit_nodelay(TcpFlow& f, const iovec& data, Doorbell bell, Instant now) noexcept;
  bool send_nodelay_or_wait(TcpFlow& f, const iovec& data, Instant now) noexcept;
  bool emit_single(TcpFlow& f, PacketBuf* b, uint64_t sum, Doorbell bell, Instant now) noexcept;

  // tcp_flows.cpp
  void end_surplus(TcpFlow& f) noexcept;

  Hub& hub() const noexcept;
  uint64_t sent_at_poll_ = 0;  ///< the engine's tx_bytes when a send last polled
  Slab<TcpFlow> flows_;
  FlowList<TcpFlow, &TcpFlow::unowned_hook> orphans_;
  uint32_t orphan_count_ = 0;
  PortLeases leases_;
  std::unique_ptr<FastOpenClient> fast_open_client_;  ///< null: not used so far
};

}  // namespace vireo
