// TCP connections: made by connect or by passive_open.h, fed by receive.h, emptied into the device
// by tcp_output.h.
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

namespace vireo {

struct Hub;

/// How a connection is to use TCP Fast Open (RFC 7413; tcp(7) MSG_FASTOPEN, TCP_FASTOPEN_CONNECT).
struct FastConnect {
  bool data_follows = false;    ///< the SYN waits for it, though no cookie may be known
  bool without_cookie = false;  ///< TCP_FASTOPEN_NO_COOKIE; net.ipv4.tcp_fastopen, bit 4
  Duration pause{};             ///< net.ipv4.tcp_fastopen_blackhole_timeout_sec
};

/// What a socket is to be bound to.
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
  /// use. `origin` of the port says whom a TIME-WAIT must let pass. With `fast` the SYN may wait
  /// for send_syn(): tcp::is_syn_deferred(). `lease` is of `local`; whatever comes of it, it is the
  /// engine's again.
  Carried<TcpFlow*> connect(const Route& route, const Endpoint& local, const Endpoint& remote,
                            const tcp::Config& config, const IpSettings& ip, void* owner,
                            SocketStats& stats, Instant now, const FastConnect* fast = nullptr,
                            std::optional<PortLease> lease = std::nullopt,
                            PortOrigin origin = PortOrigin::kDrawn);
  /// Sends the SYN that waits, with what of `data` may go with it. @return bytes taken.
  size_t send_syn(TcpFlow& f, const FastConnect& wish, std::span<const iovec> data,
                  Instant now) noexcept;
  /// A local port for a connection by `route` that may have any, kept from one that is over.
  std::optional<PortLease> lease_port(const Route& route, Instant now) {
    return leases_.take(route.hop.src, *route.port, now);
  }
  /// The kernel is to have those kept ports back that have this number, or all (0): it refused a
  /// program for want of them or of descriptors. @return whether there were any.
  bool give_up_leases(uint16_t number) { return leases_.give_up(number); }
  void give_up_leases(const Port& port) { leases_.give_up(port); }
  /// A connection of ours stands in the way of a TCP socket's bind(2), as Linux judges it: open,
  /// closed by its program, or in TIME-WAIT. The kernel knows of those alone that have a socket of
  /// its own beneath. Looks at all.
  bool is_in_use(const BindWish& wish) noexcept;

  // ---- send (tcp_send.cpp; the short ways: fast_path/send_small.cpp)
  /// Copies into send buffers and sends what may go. @return bytes taken; 0 = no room: wait for
  /// Effects::kWritable.
  size_t send(TcpFlow& f, std::span<const iovec> data, bool more, Instant now) noexcept;
  /// One piece that leaves at once as a segment, the only one in flight. @return false: nothing was
  /// done, ask send(). Deferred work of receiving may be left.
  bool send_single(TcpFlow& f, const iovec& data, Instant now) noexcept;
  /// The same behind others in flight (TCP_NODELAY), where no work of receiving is deferred.
  bool send_nodelay(TcpFlow& f, const iovec& data, Instant now) noexcept;
  /// One piece that joins what Nagle's algorithm holds back. As send_single().
  bool append_nagled(TcpFlow& f, const iovec& data) noexcept;
  /// What `f` holds is nearly a segment.
  static void expect_segment(const TcpFlow& f) noexcept;
  /// send() by none of these three.
  size_t queue(TcpFlow& f, std::span<const iovec> data, bool more, Instant now) noexcept;
  /// Sends what tcp:: calls on f.tcb (set_*, shutdown_write, abort, ...) made ready, and re-arms
  /// its timer.
  void progress(TcpFlow& f, Instant now) noexcept { progress(f, SendBy::kCall, now); }
  /// DoorbellPolicy::waited().
  void waited(const TcpFlow& f) noexcept;

  // ---- receive
  /// The program took `bytes` out of recv_queue(f.tcb): may send a window update.
  void received(TcpFlow& f, uint32_t bytes, Instant now) noexcept {
    // Of what it may change only a window to be told has to leave.
    if (tcp::consumed(f.tcb, bytes, now)) [[unlikely]]
      progress(f, now);
  }

  // ---- close
  /// The program closed it: the engine keeps it until the protocol is done, then frees it.
  /// `port_holder` keeps the port meanwhile; it may be empty, and of a leased port it is not
  /// wanted. `reset`: SO_LINGER 0.
  void close(TcpFlow& f, UniqueFd port_holder, bool reset, Instant now);
  /// Another TCP has the connection from here on (tcp::hand_over()): its frames are the kernel's.
  /// Those that are here already are dropped. Errors: ENOTSUP the device cannot tell them from its
  /// listener's, ENOSPC; nothing was done.
  Result<void> hand_over(TcpFlow& f, Instant now);
  /// What closed connections still owe their peers, in bytes, a FIN and its acknowledgment counted
  /// as one (exit waits for none).
  uint64_t orphans_owe() const;
  /// Closed connections whose peer has not closed yet, or that are not over for another reason.
  bool has_orphans() const { return !orphans_.empty(); }
  /// The process ends in good order: peers that have acknowledged our FIN need no mourner.
  void settle_will() noexcept;

  // ---- their life, for the engine
  /// Null: no memory, or the key is taken.
  TcpFlow* make(const FlowKey& key);
  void free(TcpFlow& f) noexcept;
  /// free() of one whose key is another's in the demux.
  void end(TcpFlow& f) noexcept;
  /// A SYN of its addresses and ports, and somebody listens: what is over and still here, because
  /// nobody has seen it yet or its program has the socket, stands in no way (RFC 9293 §3.10.7.1).
  /// A connection in TIME-WAIT makes way to what an entry would: `before`. @return the tuple is
  /// free.
  bool make_way(TcpFlow& f, const tcp::Segment& syn, std::optional<tcp::TimeWait>& before,
                Instant now) noexcept;
  /// The port of a connection that ends, for the next one, if it may be kept. @return it is.
  bool keep_port(TcpFlow& f, Instant now);
  /// A connection that the program has closed: is it over?
  void orphan_effects(TcpFlow& f, Instant now) noexcept;
  /// The answer to a SYN of ours, before TCP takes it: a cookie and an MSS for the next time, or a
  /// sign that data on a SYN does not get through (RFC 7413 §4.1.3, §4.1.3.1).
  void hear_syn_ack(const TcpFlow& f, const tcp::Segment& s) noexcept;
  /// A timer of a connection by Fast Open fired: after the third timeout in a row, or the end, all
  /// others do without for a while.
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
  Carried<std::optional<tcp::TimeWait>> take_tuple(const FlowKey& key, PortOrigin origin) noexcept;
  void give_tuple_up(TcpFlow& f) noexcept;

  // tcp_fast_open.cpp
  void begin_fast_connect(TcpFlow& f, const FastConnect& wish, Instant now);

  /// Bytes that leave before a program that sends is taken to look for what came.
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
  uint64_t sent_at_poll_ = 0;  ///< of the engine's tx_bytes, when a send polled last
  Slab<TcpFlow> flows_;
  FlowList<TcpFlow, &TcpFlow::unowned_hook> orphans_;
  uint32_t orphan_count_ = 0;
  PortLeases leases_;
  std::unique_ptr<FastOpenClient> fast_open_client_;  ///< null: nobody wished for it
};

}  // namespace vireo
