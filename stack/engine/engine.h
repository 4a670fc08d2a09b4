// The engine: one lock domain with its NIC queues, packet pool, flows and timers. The
// protocol cores do no I/O; this is where frames, time and locks meet them.
//
// Owner: process. Every function needs the engine's lock, unless it says "any thread".
#pragma once

#include <netinet/in.h>
#include <sys/uio.h>

#include <array>
#include <expected>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/biased_lock.h"
#include "core/carriage.h"
#include "core/clock.h"
#include "core/slab.h"
#include "core/sleep.h"
#include "core/stats_layout.h"
#include "core/wheel.h"
#include "dev/device.h"
#include "dev/opener.h"
#include "stack/engine/demux.h"
#include "stack/engine/fast_open_client.h"
#include "stack/engine/flow.h"
#include "stack/engine/kernel_connections.h"
#include "stack/engine/port_leases.h"
#include "stack/engine/reply_limit.h"
#include "stack/engine/syn_table.h"
#include "stack/ip/icmp_error.h"
#include "stack/ip/pmtu.h"
#include "stack/ip/reassembly.h"
#include "stack/net/lookup.h"
#include "stack/net/netlink.h"
#include "stack/net/snapshot.h"
#include "stack/tcp/burst.h"
#include "stack/tcp/isn.h"
#include "stack/tcp/tcp.h"
#include "stack/wire/parse.h"
#include "stack/wire/plain.h"

namespace vireo {

namespace tcp {
struct PlainSegment;  // stack/tcp/predicted.h
}

/// Up-calls to the socket layer, made with the lock held, at most one per flow and burst. They may
/// read the flow and wake threads; they must not call back into the engine.
struct EngineEvents {
  void (*tcp)(TcpFlow&, tcp::Effects) = nullptr;  ///< owner is set
  void (*accept)(Listener&) = nullptr;            ///< `ready` grew
  void (*udp)(UdpFlow&) = nullptr;                ///< `queue` grew or soft_error was set
};

struct LastWill;
struct LastWillEntry;

struct EngineConfig {
  size_t arena_bytes = size_t{32} << 20;
  bool huge_pages = true;
  uint32_t frame_bytes = 2048;
  Duration time_wait = Duration::s(60);
  Duration helper_grace = Duration::ms(1);
  bool autocork = true;               ///< autocork.cpp
  uint32_t max_orphans = 65'536;      ///< net.ipv4.tcp_max_orphans, TIME-WAIT not counted
  uint32_t port_leases = 0;           ///< most local ports kept for the next connection
  std::span<PortStats> port_stats{};  ///< where open interfaces are told; what has no room is not
  LastWill* will = nullptr;           ///< null: nobody reads it
  uint32_t engines = 1;               ///< that share the will, at most: this one has every so
                                      ///< manieth entry, from that of its EngineId on
  Instant (*clock)() = Clock::now;    ///< of what is not asked by its caller's `now`
  tcp::IsnSecret secret{};            ///< zero: drawn at random, as all but a simulation wants it
};

/// What an engine holds, by count: all zero but `demux_keys` of UDP when every TCP socket is closed
/// and over.
struct Census {
  uint32_t connections = 0;  ///< accepted or not, closed by the program or not
  uint32_t orphans = 0;      ///< of them, those that the program has closed
  uint32_t waiting = 0;      ///< of them, those with something to send, to tell or to ask
  uint32_t half_open = 0;    ///< records of SYNs
  uint32_t time_waits = 0;
  uint32_t listeners = 0;
  uint32_t demux_keys = 0;
  bool operator==(const Census&) const = default;
};

/// An interface in use: its device and the queues we poll.
struct Port {
  net::Link link;
  std::unique_ptr<Device> device;
  std::vector<std::unique_ptr<Queue>> queues;
  QueueLosses losses;         ///< of all queues at the last look
  QueueLosses losses_before;  ///< of the queues that it had before (move_port.cpp)
  tcp::BurstLimits burst;     ///< what may leave at once
  bool segments = false;      ///< in one frame, for the device cuts it
  bool joins = false;         ///< in one frame, as one segment, where the path takes so long a one
  bool corks = false;         ///< a doorbell is dear: autocork.cpp
  bool dead = false;

  Queue& queue() { return *queues.front(); }
};

/// What a destination asks for; the answer says by which port and from which address.
struct RouteRequest {
  IpAddr dst;
  IpAddr src;     ///< unspecified: the kernel's choice
  IfIndex oif{};  ///< SO_BINDTODEVICE, scope of a link-local address, IP_MULTICAST_IF
  uint8_t tos = 0;
  IpProto proto = IpProto::kTcp;
  uint32_t mark = 0;   ///< SO_MARK
  bool hears = false;  ///< what comes by another interface than `oif` is not for it
};
struct Route {
  net::NextHop hop;
  Port* port = nullptr;
};

/// What a socket that is to be bound or connected would go by.
struct Reach {
  IpAddr source;        ///< its own address; unspecified: every one
  unsigned ports = 0;   ///< interfaces
  bool reopens = true;  ///< each of which other engines may open, too
};

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

/// Whose a turn is that returns to the program with what came.
enum class PollOf : uint8_t {
  kNobody,  ///< it does not
  kCall,    ///< recv, accept, connect: the program may be amid what an earlier call told it
  kWait,    ///< epoll_wait, poll, select, or whoever blocks: it is done with that
};

/// What has a connection send.
enum class SendBy : uint8_t {
  kTurn,   ///< none of the program's calls
  kCall,   ///< one of them
  kWrite,  ///< one that writes, and what it wrote waits for no more of it
};

struct Sleeper;

class Engine {
 public:
  /// What a poll_for() did.
  struct PolledFor {
    uint32_t bytes = 0;      ///< that the caller has; 0: what came, if anything, went the usual way
    bool is_worked = false;  ///< as poll() returns it
  };

  /// Maps the arena and starts nothing else: no device is opened before the first flow asks for it.
  static Result<std::unique_ptr<Engine>> create(EngineId id, const EngineConfig& config,
                                                DeviceOpener opener, net::Mirror& mirror,
                                                const EngineEvents& events, EngineStats& stats);
  ~Engine();

  BiasedLock& lock() VIREO_RETURN_CAPABILITY(lock_) { return lock_; }  ///< any thread
  /// Takes the lock, and does the books that a receiving call left to whoever comes next. Who takes
  /// it by take_lock() leaves them, and does nothing but what allows for that. Any thread.
  void acquire() noexcept VIREO_ACQUIRE(lock_) {
    take_lock();
    settle();
  }
  /// Takes the lock, and no books are done.
  void take_lock() noexcept VIREO_ACQUIRE(lock_) VIREO_NO_THREAD_ANALYSIS {
    if (!lock_.enter()) [[unlikely]]
      take_lock_plain();
  }
  bool try_acquire() noexcept VIREO_TRY_ACQUIRE(true, lock_) {
    if (!lock_.try_lock()) return false;
    settle();
    return true;
  }
  /// Does those books, if there are any.
  void settle() noexcept VIREO_REQUIRES(lock_) {
    if (owed_.flow != nullptr) [[unlikely]]
      settle_owed();
  }
  void unlock() noexcept VIREO_RELEASE(lock_) VIREO_NO_THREAD_ANALYSIS {
    if (!lock_.leave()) [[unlikely]]
      unlock_plain();
  }

  // ---- progress
  /// One burst from every queue, due timers, pending sends. @return true if a frame was handled.
  bool poll(Instant now) noexcept VIREO_REQUIRES(lock_) {
    last_poll_.store(now.ns(),
                     std::memory_order_relaxed);  // stale at worst: the helper looks once more
    return turn(now);
  }
  /// poll() of a call that returns to the program with what came: an ACK that is owed for it waits
  /// some such turns, for what the program does next, send or close, carries it. It may have many
  /// others to look after before that, until it waits again for all of them.
  bool poll_to_return(Instant now, PollOf call = PollOf::kCall) noexcept VIREO_REQUIRES(lock_) {
    poll_of_ = call;
    const bool is_worked = poll(now);
    poll_of_ = PollOf::kNobody;
    return is_worked;
  }
  /// poll_to_return() of a call that receives on `f` and has nothing to read: if what comes is the
  /// answer that is expected, it goes straight to `to`, which has an address. Then its books, and
  /// that its bytes were received, are left to who takes the lock next. Of a call that blocks.
  PolledFor poll_for(TcpFlow& f, const iovec& to, Instant now) noexcept VIREO_REQUIRES(lock_);
  /// The same of a datagram of the connected `u`, which has no error to tell. Nothing is left.
  PolledFor poll_for(UdpFlow& u, const iovec& to, Instant now) noexcept VIREO_REQUIRES(lock_);
  /// The same as a part of the caller, by stack/engine/direct.h.
  template <class F>
  PolledFor poll_for_here(F& f, const iovec& to, Instant now) noexcept VIREO_REQUIRES(lock_);
  /// A wait has told the program of so many events, which it answers now, each by one or two
  /// sends; 0: a wait begins. Any thread.
  void tell(unsigned events) noexcept {
    answers_left_.store(events > 1 ? 2 * events : 0, std::memory_order_relaxed);
  }
  /// Earliest time at which poll() has something to do by itself. Any thread.
  Instant next_deadline() const noexcept {
    return Instant::from_ns(deadline_.load(std::memory_order_relaxed));
  }
  Instant last_poll() const noexcept {
    return Instant::from_ns(last_poll_.load(std::memory_order_relaxed));
  }  ///< any thread

  /// What the program writes waits for more of it, or for a doorbell, until then at most; never:
  /// nothing does. Any thread.
  Instant corked_until() const noexcept {
    return Instant::from_ns(corked_until_.load(std::memory_order_seq_cst));
  }
  /// The helper is to look after that: its bell rang. Any thread.
  bool is_cork_watched() const noexcept {
    return is_cork_watched_.load(std::memory_order_relaxed);  // ordered by the bell
  }
  /// It looks no more, unless something waits. @return false: it does. Any thread.
  bool end_cork_watch() noexcept {
    is_cork_watched_.store(false, std::memory_order_seq_cst);
    const bool is_over = corked_until().is_never();
    if (!is_over) is_cork_watched_.store(true, std::memory_order_relaxed);
    return is_over;
  }

  // ---- placement
  /// By which carried interface `request.dst` is reached; opens the device if need be
  /// (milliseconds).
  Carried<Route> route(const RouteRequest& request);
  /// Opens every interface that may be carried (for wildcard binds). @return how many are open; the
  /// refusal if none.
  Carried<unsigned> open_all_ports();
  /// Frames that come from now on bear their time (PacketBuf::hw_time), by devices that tell it.
  /// @return false: none does.
  bool stamp_frames();
  /// The open or openable port that owns `local`; refusal kLoopback/kInterface where there is none.
  Carried<Port*> port_of_address(const IpAddr& local);

  /// Devices are to bring fragments of what is carried, too, which are put together here; or they
  /// are the kernel's, who shows each to its packet filter.
  void take_fragments(bool on);

  /// What route() and a bind to `local` find; opens what they would.
  Carried<Reach> reach(const RouteRequest& request);
  Carried<Reach> reach(const IpAddr& local);
  /// A connection of ours stands in the way of a TCP socket's bind(2), as Linux judges it: open,
  /// closed by its program, or in TIME-WAIT. The kernel knows of those alone that have a socket of
  /// its own beneath. Looks at all.
  bool is_in_use(const BindWish& wish) noexcept;
  /// A listener or UDP socket has this local port, at whatever address.
  bool has_bound(IpProto proto, uint16_t port) noexcept;

  // ---- TCP. `stats` outlives the flow (a slot of shared memory). Errors: EADDRNOTAVAIL the
  // 4-tuple is in use. `origin` of the port says whom a TIME-WAIT must let pass. With `fast` the
  // SYN may wait for tcp_send_syn(): tcp::is_syn_deferred(). `lease` is of `local`; whatever comes
  // of it, it is the engine's again.
  Carried<TcpFlow*> tcp_connect(const Route& route, const Endpoint& local, const Endpoint& remote,
                                const tcp::Config& config, const IpSettings& ip, void* owner,
                                SocketStats& stats, Instant now, const FastConnect* fast = nullptr,
                                std::optional<PortLease> lease = std::nullopt,
                                PortOrigin origin = PortOrigin::kDrawn);
  /// A local port for a connection by `route` that may have any, kept from one that is over.
  std::optional<PortLease> lease_port(const Route& route, Instant now) {
    return leases_.take(route.hop.src, *route.port, now);
  }
  /// The kernel is to have those kept ports back that have this number, or all (0): it refused a
  /// program for want of them or of descriptors. @return whether there were any.
  bool give_up_leases(uint16_t number) { return leases_.give_up(number); }
  /// Sends the SYN that waits, with what of `data` may go with it. @return bytes taken.
  size_t tcp_send_syn(TcpFlow& f, const FastConnect& wish, std::span<const iovec> data,
                      Instant now) noexcept;
  /// `local` may be a wildcard; `v6only` as IPV6_V6ONLY. The kernel's own listener stays beneath
  /// for loopback.
  Carried<Listener*> tcp_listen(const Endpoint& local, bool v6only, uint32_t backlog,
                                const tcp::Config& config, void* owner, SocketStats& stats,
                                const ListenOptions& options = {});
  /// Next connection whose handshake is complete, null = none. The caller sets owner and stats.
  TcpFlow* tcp_accept(Listener& l);
  /// SO_BINDTODEVICE anew: it hears by `device` alone from here on, or by all (0). Refused: it
  /// hears nothing any more, all is the kernel's.
  Carried<void> hear_by(Listener& l, IfIndex device);
  Carried<void> hear_by(UdpFlow& u, IfIndex device);
  /// Resets what was not accepted (tcp(7)).
  void tcp_close_listener(Listener& l, Instant now);
  /// Copies into send buffers and sends what may go. @return bytes taken; 0 = no room: wait for
  /// Effects::kWritable.
  size_t tcp_send(TcpFlow& f, std::span<const iovec> data, bool more, Instant now) noexcept
      VIREO_REQUIRES(lock_);
  /// The program took `bytes` out of recv_queue(f.tcb): may send a window update.
  void tcp_received(TcpFlow& f, uint32_t bytes, Instant now) noexcept {
    // Of what it may change only a window to be told has to leave.
    if (tcp::consumed(f.tcb, bytes, now)) [[unlikely]]
      tcp_progress(f, now);
  }
  /// One piece that leaves at once as a segment, the only one in flight. @return false: nothing was
  /// done, ask tcp_send(). Needs no settle().
  bool tcp_send_lone(TcpFlow& f, const iovec& data, Instant now) noexcept VIREO_REQUIRES(lock_);
  /// The same behind others in flight (TCP_NODELAY), where no books are owed.
  bool tcp_send_next(TcpFlow& f, const iovec& data, Instant now) noexcept VIREO_REQUIRES(lock_);
  /// One piece that joins what Nagle's algorithm holds back. As tcp_send_lone().
  bool tcp_hold(TcpFlow& f, const iovec& data) noexcept;
  /// What `f` holds is nearly a segment.
  static void expect_segment(const TcpFlow& f) noexcept;
  /// tcp_send() by none of these three.
  size_t tcp_queue(TcpFlow& f, std::span<const iovec> data, bool more, Instant now) noexcept
      VIREO_REQUIRES(lock_);
  /// Sends what tcp:: calls on f.tcb (set_*, shutdown_write, abort, ...) made ready, and re-arms
  /// its timer.
  void tcp_progress(TcpFlow& f, Instant now) noexcept { progress(f, SendBy::kCall, now); }
  /// A call that sends on `f` waited, for room or while the engine was at work: that was no pause
  /// of the program's.
  void tcp_waited(const TcpFlow& f) noexcept {
    if (haste_.flow == &f) haste_.done = config_.clock();
  }
  /// The program closed it: the engine keeps it until the protocol is done, then frees it.
  /// `port_holder` keeps the port meanwhile; it may be empty, and of a leased port it is not
  /// wanted. `reset`: SO_LINGER 0.
  void tcp_close(TcpFlow& f, UniqueFd port_holder, bool reset, Instant now);
  /// Another TCP has the connection from here on (tcp::hand_over()): its frames are the kernel's.
  /// Those that are here already are dropped. Errors: ENOTSUP the device cannot tell them from its
  /// listener's, ENOSPC; nothing was done.
  Result<void> tcp_hand_over(TcpFlow& f, Instant now);
  /// Asks once in a while which of those connections are over. `is_there(key, interface)` may be
  /// slow.
  void forget_spared(bool (*is_there)(const FlowKey&, IfIndex));
  /// What closed connections still owe their peers, in bytes, a FIN and its acknowledgment counted
  /// as one (exit waits for none).
  uint64_t orphans_owe() const;
  /// Closed connections whose peer has not closed yet, or that are not over for another reason.
  bool has_orphans() const { return !orphans_.empty(); }
  /// The process ends in good order: peers that have acknowledged our FIN need no mourner.
  void settle_will() noexcept;

  // ---- UDP
  /// Receives datagrams for `local` (wildcards allowed), from `remote` only if its port is set.
  Carried<UdpFlow*> udp_open(const Endpoint& local, const Endpoint& remote, bool v6only,
                             void* owner, SocketStats& stats, IfIndex device = {});
  void udp_close(UdpFlow& f);
  /// Further local keys for a flow: a multicast group.
  Carried<void> udp_join(UdpFlow& f, const IpAddr& group, IfIndex ifindex);
  /// `ifindex`: as it was joined by. Other memberships of the same group stay.
  void udp_leave(UdpFlow& f, const IpAddr& group, IfIndex ifindex);
  /// Sends one datagram from `src` by `route`. Errors: EMSGSIZE above the path MTU, EAGAIN ring
  /// full, ENOBUFS pool empty, EHOSTUNREACH no way of ours, or the neighbour is not known yet: the
  /// kernel knows one, or says why not. It keeps datagrams until the neighbour answers (arp(7)),
  /// as many of a neighbour's as unres_qlen_bytes says, be their socket closed by then or not.
  Result<void> udp_send(UdpFlow& f, const Route& route, const Endpoint& src, const Endpoint& dst,
                        std::span<const iovec> data, Doorbell bell, Instant now) noexcept;
  /// As above to the egress kept in the flow, if `dst` is the same and nothing changed since;
  /// ENOENT: ask route() first.
  Result<void> udp_send_cached(UdpFlow& f, const Endpoint& dst, std::span<const iovec> data,
                               Doorbell bell, Instant now) noexcept;
  /// One piece that fits a frame, to f.egress_to. @return false: nothing was done, ask
  /// udp_send_cached().
  bool send_datagram(UdpFlow& f, const iovec& data, Doorbell bell) noexcept;
  /// As a part of the caller, by stack/engine/direct.h, where the headers are plain.
  bool send_datagram_here(UdpFlow& f, const iovec& data, Doorbell bell) noexcept;
  void tx_flush() noexcept;
  /// A datagram was taken from f.queue.
  static void udp_received(UdpFlow& f, const PacketBuf& p) noexcept {
    f.queue_truesize -= std::min(f.queue_truesize, truesize(p));
  }

  /// What was sent and waits for company or for a doorbell leaves: nobody will look for a while.
  void release_held(Instant now) noexcept;

  // ---- sleeping
  /// Before a thread of the program sleeps: arms all queues and counts the sleeper. @return false:
  /// work arrived and nothing was counted: poll again. Call with the lock, then sleep without it on
  /// wait_fds() and an eventfd of one's own.
  bool begin_sleep() noexcept;
  /// After it, with or without the lock.
  void end_sleep() noexcept;
  /// Arms all queues. @return false: work is there already.
  bool arm_all() noexcept;
  /// Descriptors to poll(2) for POLLIN while asleep; constant but for opens and losses. Any holder.
  std::span<const int> wait_fds() const { return wait_fds_; }
  /// After a sleep that a device ended, and end_sleep(). What woke this thread, and is gone with
  /// this, may have been what another waits for: the devices are asked to tell of the next.
  void wake_ack_all() noexcept;

  /// Are all devices still there, and what have they lost? Three system calls a queue. Flows of
  /// one that is not there end with ENETDOWN.
  void look_after_ports() noexcept;
  /// Asks the devices what they have lost, for the counters. A system call a queue.
  void count_losses() noexcept;

  // ---- facts
  EngineId id() const noexcept { return id_; }  ///< any thread
  PacketPool& pool() { return *pool_; }
  EngineStats& stats() { return stats_; }
  std::span<Port* const> ports() const { return ports_; }
  /// The interface by which a datagram came: `first` is its first buffer, `f` what is in it. 0: it
  /// is not here any more.
  IfIndex came_by(const UdpFlow& u, const PacketBuf& first,
                  const wire::ParsedFrame& f) const noexcept;
  Census census() const noexcept;
  /// Frames and calls for whose flow the demux had to search.
  uint64_t demux_searches() const noexcept { return demux_.searches(); }
  /// No socket of the program is here; connections that it has closed may be.
  bool is_unused() const noexcept;
  /// Calls fn(TcpFlow&) for every connection, fn(SynRecord&) for every half-open one, and
  /// fn(const DemuxKey&, Instant until) for every one in TIME-WAIT.
  template <class F>
  void for_each_tcp(F&& fn) {
    tcp_.for_each(fn);
  }
  template <class F>
  void for_each_half_open(F&& fn) {
    syns_.for_each(fn);
  }
  template <class F>
  void for_each_time_wait(F&& fn) {
    time_waits_.for_each([&](TimeWaitEntry& e) { fn(std::as_const(e.key), e.until); });
  }

  // ---- progress by the helper thread (stack/engine/helper.h)
  /// poll() on behalf of a program that does not call in: does not count as the program's.
  bool poll_for_helper(Instant now) noexcept VIREO_REQUIRES(lock_) { return turn(now); }
  /// Its look each second while there are flows: are the devices still there, and did one forget to
  /// tell a sleeper of what came? @return true if a frame was handled.
  bool look_for_helper(Instant now) noexcept VIREO_REQUIRES(lock_);
  /// The kernel's tables have changed: devices hear of it, and who waits for a neighbour tries
  /// again.
  void heed_tables(Instant now) noexcept VIREO_REQUIRES(lock_);
  /// A port of which the helper is to ask the kernel whether it has connections there, none that
  /// stay on this host: those whose remote end is in `own`.
  std::optional<KernelConnections::Question> to_ask(Instant now, std::vector<IpAddr>& own);
  /// The kernel's answer.
  void kernel_said(const KernelConnections::Question& q, bool has_some, Instant now) noexcept;
  /// While there are no flows nobody polls: lets the mirror free what is out of date.
  void forget_snapshot() noexcept { reader_.quiesce(); }
  uint32_t live_flows() const noexcept {
    return flow_count_.load(std::memory_order_relaxed);
  }  ///< any thread
  uint32_t sleepers() const noexcept {
    return sleepers_.load(std::memory_order_relaxed);
  }  ///< any thread
  /// The helper's bell: set before its thread runs.
  void set_helper_bell(EventFd* bell) noexcept { helper_bell_ = bell; }
  /// The helper is about to sleep until `until` (Instant(): it is awake); what comes to be due
  /// earlier rings. It must look at live_flows(), sleepers() and next_deadline() again after this.
  void set_helper_sleep(Instant until) noexcept {
    helper_sleeps_until_.store(until.ns(), std::memory_order_seq_cst);
  }

 private:
  /// A frame in the burst at hand, as far as it must be answered by itself.
  struct Incoming {
    Port& port;
    const wire::ParsedFrame& frame;
    const std::byte* eth;  ///< its Ethernet header
  };
  struct FailedOpen {
    IfIndex carrier;
    Instant at;
    Refusal refusal;
  };
  template <class T, ListHook T::* Hook>
  using HookList = bi::list<T, bi::member_hook<T, ListHook, Hook>, bi::constant_time_size<false>>;
  using TcpPending = HookList<TcpFlow, &TcpFlow::pending_hook>;
  /// Of one version of IP: the connection, and what a datagram's socket is bound with.
  template <bool kV6>
  struct Heard {
    TcpFlow* flow = nullptr;
    wire::PlainPath<kV6> path;
    UdpBinding* binding = nullptr;  ///< valid while the demux has this version
    wire::PlainPath<kV6> datagram_path;
    uint32_t demux_version = 0;
  };
  template <bool kV6>
  Heard<kV6>& heard() noexcept {
    if constexpr (kV6)
      return heard6_;
    else
      return heard4_;
  }
  struct Polled {
    Port* port;
    Queue* queue;
  };
  struct Resolved {  ///< holds while the snapshot has hop.generation
    net::LookupKey key;
    net::NextHop hop;
  };

  struct BoundTo {  ///< what find_bound() found, 0: nothing; holds until a key is bound or unbound
    Demux::Ref ref = 0;
    IpAddr local;
    uint16_t port = 0;
    IpProto proto{};
  };

  struct Come {  ///< whether it may; holds while the snapshot has that generation
    IpAddr src, dst;
    IfIndex link{};
    uint64_t generation = 0;
    bool may = false;
    bool answers = false;  ///< a segment may have an answer
  };

  struct Asked {  ///< the kernel was, to resolve or confirm that neighbour
    IpAddr via;
    IfIndex ifindex{};
    Instant at{};
    bool to_confirm = false;
  };

  Engine(EngineId id, const EngineConfig& config, DeviceOpener opener, net::Mirror& mirror,
         const EngineEvents& events, EngineStats& stats, Arena arena);

  // engine.cpp
  void take_lock_plain() noexcept;
  void unlock_plain() noexcept;
  bool turn(Instant now) noexcept VIREO_REQUIRES(lock_);
  /// Beside frames nothing is to be done. Who has something to send or to tell has moved the
  /// deadline, too: want_transmit(), note_effects(), note_udp(), and publish_deadline() of what is
  /// left over.
  bool is_quiet(Instant now) const noexcept {
    return pool_->free_count() > uneasy_below_ &&
           now.ns() < deadline_.load(std::memory_order_relaxed);
  }
  bool end_turn(Instant now, unsigned frames) noexcept VIREO_REQUIRES(lock_);
  bool go_on_to_return(Instant now, unsigned in_burst) noexcept VIREO_REQUIRES(lock_);
  bool full_turn(Instant now, unsigned frames) noexcept VIREO_REQUIRES(lock_);
  void idle(Instant now) noexcept;
  void reap_and_refill() noexcept;
  void publish_deadline(Instant now) noexcept;
  void queue_reap() noexcept;

  bool may_send_next(TcpFlow& f, const iovec& data) noexcept;
  bool send_next(TcpFlow& f, const iovec& data, Doorbell bell, Instant now) noexcept;
  bool send_next_or_wait(TcpFlow& f, const iovec& data, Instant now) noexcept;

  // autocork.cpp
  bool came_at_once(const TcpFlow& f, Instant now) const noexcept;
  void note_haste(TcpFlow& f, Instant now) noexcept;
  bool may_hold_in_haste(const TcpFlow& f, unsigned frames, Instant now) const noexcept;
  void hold_in_haste(unsigned frames, Instant now) noexcept;
  bool may_cork(const TcpFlow& f, size_t bytes, Instant now) const noexcept;
  bool cork(TcpFlow& f, const iovec& data, Instant now) noexcept;
  bool join_corked(TcpFlow& f, const iovec& data, Instant now) noexcept;
  bool pass_cork(TcpFlow& f, size_t bytes, bool more, Instant now) noexcept;
  void uncork() noexcept;
  void forget_cork() noexcept;
  void watch_held(Instant now) noexcept;
  void end_watch() noexcept;

  // doorbell.cpp
  void follow_answer(Instant now) noexcept;
  uint32_t answers_left() const noexcept;
  Doorbell bell_of_call(const TcpFlow& f, SendBy by, unsigned frames, Instant now) noexcept;
  void note_call(TcpFlow& f, SendBy by, Doorbell bell, unsigned frames, Instant now) noexcept;
  Doorbell bell_of_answer(unsigned frames, Instant now) noexcept;
  bool may_hold(unsigned frames, Instant now) noexcept;
  void note_answer(Doorbell bell, unsigned frames, Instant now) noexcept;
  /// Of several queues another's doorbell may be cheap.
  bool is_amid_answers() const noexcept {
    return poll_of_ == PollOf::kCall && answers_.open != 0 && only_.queue != nullptr;
  }
  void ring_turn(Instant now) noexcept;
  void ring_if_due(Instant now) noexcept {
    if ((unrung_ | answers_.open) != 0) [[unlikely]]
      ring_due(now);
  }
  void ring_due(Instant now) noexcept;

  // engine.cpp
  void ring_helper_before(Instant d) noexcept;
  void count_flow() noexcept;

  // own_host.cpp
  void tell_host(Port& port);
  void follow_host();
  void suspect_kernel(Port& port, uint16_t local_port);
  const net::Link* link_of(const Port& port, const wire::ParsedFrame& frame) const noexcept;
  const Come& may_come(const IpAddr& src, const IpAddr& dst, const net::Link& link) noexcept;
  bool looks_as_if_by(IfIndex way, const net::Link& link) const noexcept;
  bool is_source_good(const IpAddr& src, const net::Link& link) const noexcept;

  // ports.cpp
  Carried<Port*> open_port(IfIndex carrier);
  Carried<void> open_device(Port& port);
  void take_up(Port& p);
  VlanId vlan_of(const IpAddr& local) const noexcept;
  Carried<FlowRule> steer(Port& port, const FlowKey& key, FlowTag tag);
  Carried<void> steer_on(Port& port, FlowKey key, IfIndex device, const Flow& f,
                         std::vector<FlowRule>& rules);
  Carried<void> steer_bound(const Flow& f, IfIndex device, std::vector<FlowRule>& rules);
  Carried<Port*> port_of_device(IfIndex device);
  Carried<void> may_name(const Port& port) const noexcept;

  // lost_port.cpp, move_port.cpp
  void lose_port(Port& p) noexcept;
  bool move_port(Port& p) noexcept;
  void move_rules(Port& p, const Device& from) noexcept;

  // bind.cpp
  Carried<void> bind_keys(Flow& f);
  void unbind_keys(Flow& f) noexcept;
  Carried<void> bind_key(const DemuxKey& key, Flow& f);
  void unbind_key(const DemuxKey& key, Flow& f) noexcept;
  /// What was found last, for a key that may be another's now, or heard in another way.
  void forget_bound() noexcept {
    bound_to_ = {};
    heard4_.binding = nullptr;
    heard6_.binding = nullptr;
  }
  Carried<void> join_group(const DemuxKey& key, Listener& l);
  void leave_group(const DemuxKey& key, Listener& l) noexcept;

  // crowd.cpp
  void watch_crowd(const RxLevel& level, Instant now) noexcept;
  void share_windows(uint32_t frames, Instant now) noexcept;
  void widen_windows(Instant now) noexcept;
  void run_short(Instant now) noexcept;

  // pinned.cpp
  void end_pinned(Instant now) noexcept;

  // receive.cpp
  unsigned receive_first(Port& port, Queue& queue, unsigned n, Instant now) noexcept;
  unsigned receive_all(size_t first, Instant now) noexcept;
  unsigned receive_many(Port& port, Queue& queue, unsigned n, Instant now) noexcept;
  void receive_buffer(Port& port, RxDesc& desc, bool alone, Instant now) noexcept;
  void receive_frame(Port& port, RxDesc& desc, PacketChain rest, Instant now) noexcept;
  bool make_whole(const Port& port, wire::ParsedFrame& f, PacketRef& first, PacketChain& rest,
                  Instant now) noexcept;
  void expire_fragments(Instant now) noexcept;
  void receive_tcp(Port& port, const wire::ParsedFrame& frame, const std::byte* eth,
                   PacketChain packet, uint32_t segments, Instant now) noexcept;
  void receive_udp(const Port& port, const wire::ParsedFrame& frame, PacketChain packet) noexcept;
  UdpFlow* member_for(const std::vector<UdpFlow*>& flows, IfIndex device,
                      const wire::ParsedFrame& f) const noexcept;
  void receive_icmp(const wire::ParsedFrame& frame, Instant now) noexcept;
  Demux::Ref find_bound(IpProto proto, const IpAddr& local, uint16_t port) noexcept;
  void receive_stranger(const Incoming& in, const tcp::Segment& s, Instant now) noexcept;
  void receive_by_device(UdpBinding* binding, const net::Link& link, const wire::ParsedFrame& f,
                         PacketChain packet) noexcept;
  const net::Link* heard_by(const Incoming& in) noexcept;
  void reply(const Incoming& in, const tcp::Plan& plan) noexcept;
  void send_alone(Port& port, const wire::HeaderTemplate& header, const tcp::Plan& plan) noexcept;

  // plain.cpp
  bool receive_plain(RxDesc& desc, bool alone, Instant now) noexcept;
  bool receive_plain6(RxDesc& desc, bool alone, Instant now) noexcept;
  template <bool kV6>
  bool receive_plain_as(RxDesc& desc, bool alone, Instant now) noexcept;
  template <bool kV6>
  bool receive_segment(RxDesc& desc, const wire::PlainIp<kV6>& ip, bool alone,
                       Instant now) noexcept;
  template <bool kV6>
  bool receive_expected(RxDesc& desc, wire::PlainTcp<kV6> s, TcpFlow& f, bool alone,
                        Instant now) noexcept;
  template <bool kAnswersLone, bool kV6>
  bool take_segment(RxDesc& desc, const wire::PlainTcp<kV6>& s, TcpFlow& f,
                    const tcp::PlainSegment& segment, bool alone, Instant now) noexcept;
  template <bool kV6>
  bool receive_datagram(RxDesc& desc, const wire::PlainIp<kV6>& ip, bool alone) noexcept;
  template <bool kV6>
  TcpFlow* hear_flow(wire::PlainTcp<kV6> s, FlowTag tag) noexcept;
  template <bool kV6>
  UdpBinding* hear_binding(wire::PlainUdp<kV6> u, FlowTag tag) noexcept;

  // direct.h, direct.cpp
  template <class IsGood>
  static bool copy_verified(const RxDesc& d, void* to, const std::byte* text, size_t n,
                            IsGood&& is_good) noexcept;
  uint32_t take_expected(RxDesc& desc, TcpFlow& f, const iovec& to, Instant now) noexcept;
  uint32_t take_expected(RxDesc& desc, UdpFlow& u, const iovec& to, Instant now) noexcept;
  static bool begins_row(UdpFlow& u, const std::byte* frame) noexcept;
  bool finish_to_return(Instant now) noexcept VIREO_REQUIRES(lock_);
  bool emit_lone(TcpFlow& f, PacketBuf* b, uint64_t sum, Doorbell bell, Instant now) noexcept;
  void settle_owed() noexcept VIREO_REQUIRES(lock_);
  void settle_answered(TcpFlow& f) noexcept;

  // tcp_flows.cpp
  TcpFlow* new_tcp(const FlowKey& key);
  void free_tcp(TcpFlow& f) noexcept;
  void end_tcp(TcpFlow& f) noexcept;
  bool make_way(TcpFlow& f, const tcp::Segment& syn, std::optional<tcp::TimeWait>& before,
                Instant now) noexcept;
  void give_tuple_up(TcpFlow& f) noexcept;
  Carried<std::optional<tcp::TimeWait>> take_tuple(const FlowKey& key, PortOrigin origin) noexcept;
  void forget_heard(const TcpFlow& f) noexcept {
    if (heard4_.flow == &f) heard4_.flow = nullptr;
    if (heard6_.flow == &f) heard6_.flow = nullptr;
  }
  bool keep_port(TcpFlow& f, Instant now);
  void note_effects(TcpFlow& f, tcp::Effects e) noexcept;
  void orphan_effects(TcpFlow& f, Instant now) noexcept;
  void end_surplus(TcpFlow& f) noexcept;
  bool has_sent_much() const noexcept {
    return stats_.tx_bytes.get() - sent_at_poll_ >= kSentPerPoll;
  }
  void look_for_acks(const TcpFlow& f, Instant now) noexcept VIREO_REQUIRES(lock_);
  size_t tcp_send_pieces(TcpFlow& f, const iovec& all, bool more, Instant now) noexcept
      VIREO_REQUIRES(lock_);
  size_t send_piece(TcpFlow& f, std::span<const iovec> data, bool more, SendBy by,
                    Instant now) noexcept VIREO_REQUIRES(lock_);
  void progress(TcpFlow& f, SendBy by, Instant now) noexcept;
  void deliver_events(Instant now) noexcept;
  void run_timers(Instant now) noexcept;
  void arm_timer(TcpFlow& f) noexcept;
  /// The flow's deadline may have come to be `at`, or is later than it was. It may fire in vain
  /// then.
  void arm_timer_by(TcpFlow& f, Instant at) noexcept {
    if (at < f.deadline()) [[unlikely]]
      arm_timer(f);
  }

  // last_will.cpp
  LastWillEntry* will_entry(const TcpFlow& f) const noexcept;
  void write_will(const TcpFlow& f) noexcept;
  void strike_will(const TcpFlow& f) noexcept;
  void will_port(const Port& p) noexcept;

  // listen.cpp
  bool listen_segment(const Incoming& in, tcp::Segment& s, const tcp::TimeWait* before,
                      Instant now) noexcept;
  bool record_segment(tcp::SynRecord& r, const Incoming& in, tcp::Segment& s, Instant now) noexcept;
  void syn_arrived(Listener& l, const SynTuple& tuple, const Incoming& in, tcp::Segment& syn,
                   const tcp::TimeWait* before, Instant now) noexcept;
  bool cookie_arrived(Listener& l, const SynTuple& tuple, tcp::Segment& s, Instant now) noexcept;
  bool open_child(Listener& l, const tcp::SynRecord& r, tcp::Config& c, tcp::Segment& s,
                  Instant now) noexcept;
  TcpFlow* new_child(const Listener& l, const SynTuple& t, Instant now) noexcept;
  void queue_child(Listener& l, TcpFlow& f) noexcept;
  Listener* member_for(const ListenGroup& g, const SynTuple& t, IfIndex link) const noexcept;
  Result<void> way_back(const Listener& l, const SynTuple& t, Egress& e, Instant now) noexcept;
  uint64_t secret_of(const SynTuple& t) const noexcept;
  tcp::Config child_config(const Listener& l, uint64_t secret) const noexcept;
  void say_syn_ack(tcp::SynRecord& r, tcp::Config& c, const Incoming& in, const tcp::Segment& syn,
                   Instant now) noexcept;
  bool repeat_syn_ack(tcp::SynRecord& r, Instant now) noexcept;
  void forget_record(tcp::SynRecord& r) noexcept;
  void expire_records(Instant now) noexcept;
  void told_of_record(tcp::SynRecord& r, Seq32 quoted) noexcept;
  void warn_of_flood(const Listener& l, Instant now) noexcept;

  // fast_open.cpp
  bool may_open_fast(const Listener& l) noexcept;
  tcp::FastOpenKeys fast_open_keys(const Listener& l) const noexcept;
  bool open_fast(Listener& l, const SynTuple& t, const Incoming& in, tcp::Segment& syn,
                 Instant now) noexcept;
  void renew_fast_open(const Listener& l, TcpFlow& f, const Incoming& in, Instant now) noexcept;
  void grant_fast_open(const Listener& l, const SynTuple& t, const tcp::Segment& syn,
                       tcp::Plan& syn_ack) noexcept;

  // fast_connect.cpp
  void begin_fast_connect(TcpFlow& f, const FastConnect& wish, Instant now);
  void hear_syn_ack(const TcpFlow& f, const tcp::Segment& s) noexcept;
  void watch_fast_open(TcpFlow& f, tcp::Effects e, Instant now) noexcept;

  // transmit.cpp
  void want_transmit(TcpFlow& f) noexcept;
  bool transmit(TcpFlow& f, SendBy by, Instant now) noexcept;
  bool emit(TcpFlow& f, const tcp::Plan& plan, Doorbell bell) noexcept;
  void ring_later(TcpFlow& f, unsigned frames) noexcept;
  void ring_left() noexcept;
  unsigned send_joined(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst, Doorbell bell,
                       Instant now) noexcept;
  unsigned send_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst, Doorbell bell,
                      Instant now) noexcept;
  bool emit_burst(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst,
                  Doorbell bell) noexcept;
  unsigned emit_run(TcpFlow& f, const tcp::Plan& plan, const tcp::Burst& burst, Doorbell bell,
                    Instant now) noexcept;
  void count_sent(TcpFlow& f, uint64_t segments, size_t header, uint32_t payload) noexcept {
    stats_.tx_packets.add(segments);
    stats_.tx_bytes.add(segments * header + payload);
    f.stats->tx_packets.add(segments);
    f.stats->tx_bytes.add(payload);
  }
  Result<void> resolve_egress(Egress& e, IpProto proto, const Endpoint& local,
                              const Endpoint& remote, const IpSettings& ip, Instant now) noexcept;
  Result<net::NextHop> next_hop(net::LookupKey key) noexcept;
  /// Of the VLAN tag (PCP) to send with.
  uint8_t tag_priority(const net::NextHop& hop, const IpSettings& ip) const noexcept;
  void ask_for_neighbour(const net::NextHop& hop, Instant now) noexcept;
  void forget_asked(const net::NextHop& hop) noexcept;
  Result<void> refresh_egress(TcpFlow& f, Instant now) noexcept;
  void stall(TcpFlow& f, const tcp::Plan& plan, const Err& why, Instant now) noexcept;
  void flush_pending(Instant now) noexcept;
  void flush_pending_to_return(Instant now) noexcept;
  void transmit_all(TcpPending& flows, Instant now) noexcept;
  void retry_waiters(Instant now) noexcept;

  // path_mtu.cpp
  void path_mtu_reported(TcpFlow& f, Seq32 quoted, uint32_t mtu, Instant now) noexcept;
  void path_mtu_reported(const ip::IcmpError& e, Instant now) noexcept;
  void expire_path_mtus(Instant now) noexcept;

  // time_wait.cpp
  void enter_time_wait(TcpFlow& f, Instant now);
  TimeWaitEntry* leave_entry(TcpFlow& f, FlowRule rule, Instant now);
  void drop_time_wait(TimeWaitEntry& e) noexcept;
  void time_wait_segment(TimeWaitEntry& e, const Incoming& in, tcp::Segment& s,
                         Instant now) noexcept;
  void expire_time_waits(Instant now) noexcept;

  // udp_flows.cpp
  void note_udp(UdpFlow& u) noexcept;
  /// As Linux: an empty queue takes any one datagram. When the pool runs low, queues grow no more.
  bool has_room(const UdpFlow& u, uint32_t cost) const noexcept {
    const bool is_full = u.queue_truesize + cost > u.rcv_buf || pool_->free_count() < low_water_;
    return !is_full || u.queue.empty();
  }
  /// @return false: there is none, and the datagram is lost.
  bool take_room(UdpFlow& u, uint32_t cost) const noexcept {
    if (!has_room(u, cost)) [[unlikely]] {
      u.stats->rx_drops.add();
      return false;
    }
    u.queue_truesize += cost;
    return true;
  }
  bool keep_datagram(UdpFlow& u, PacketChain packet) noexcept;
  void deliver_udp(UdpFlow& u, PacketChain packet) noexcept;
  bool deliver_multicast(const std::vector<UdpFlow*>& members, IfIndex device,
                         PacketChain& packet) noexcept;
  struct Datagram;
  Result<void> refresh_egress(UdpFlow& u, Instant now) noexcept;
  Result<void> make_datagram(std::span<const iovec> data, Datagram& d) noexcept;
  Result<void> emit_udp(UdpFlow& u, const Datagram& d, Doorbell bell) noexcept;
  void count_sent(UdpFlow& u, size_t head, size_t payload) noexcept {
    stats_.tx_packets.add();
    stats_.tx_bytes.add(head + payload);
    u.stats->tx_packets.add();
    u.stats->tx_bytes.add(payload);
  }

  static constexpr unsigned kBurst = 16;
  /// Bytes that leave before a program that sends is taken to look for what came.
  static constexpr uint64_t kSentPerPoll = 32768;
  /// Frames after which rings are served although no poll came back empty: where every turn finds
  /// frames, none would, and the device would run out of empty ones.
  static constexpr unsigned kMostUnbooked = 256;
  static constexpr unsigned kTimersPerPoll = 32;
  /// Work of the wheel in a turn, and in one that has left some of it waiting for so long.
  static constexpr unsigned kTimerLooks = 3;
  static constexpr unsigned kMostTimerLooks = kTimersPerPoll * Wheel::kLooksPerFired;
  static constexpr Duration kLongestBacklog = Duration::us(256);
  /// Frames of the program's calls that wait for the doorbell of another. More make each cheaper,
  /// but a look at what came, once in 32 KiB, rings soon after.
  static constexpr unsigned kMostUnrung = 20;
  /// Frames of one turn, whosever, that leave with one doorbell.
  static constexpr unsigned kMostTogether = 32;
  /// No doorbell counts as longer: another process may have had the processor.
  static constexpr Duration kLongestDoorbell = Duration::us(4);

  EngineId id_;
  EngineConfig config_;
  DeviceOpener opener_;
  net::Mirror& mirror_;
  net::SnapshotStore::Reader reader_;
  uint64_t net_generation_ = 0;  ///< of the last look at waiting neighbours
  EngineEvents events_;
  EngineStats& stats_;
  SocketStats spare_stats_;  ///< of flows that have no slot
  tcp::IsnSecret secret_;
  Arena arena_;
  std::unique_ptr<PacketPool> pool_;
  unsigned frames_unbooked_ = 0;  ///< received since rings were last reaped and refilled
  unsigned lull_ = 0;             ///< turns that found nothing, since something was done
  bool deadlines_moved_ = false;  ///< deadline_ may be late
  unsigned unrung_ = 0;           ///< frames that wait for ring_left()
  /// What the program answers to the events that it was told of, where doorbells are dear.
  struct {
    bool is_one = false;  ///< what is being sent
    unsigned open = 0;    ///< 1 and the frames that wait for a doorbell, from the first answer on
    uint8_t trust = 0;    ///< answers in a row that something followed at once
    Instant until{};      ///< so long they wait
    Instant last{};       ///< when the last one had left
    Duration doorbell{};  ///< how long the last one that rang took
  } answers_;
  uint64_t sent_at_poll_ = 0;  ///< of tx_bytes, when a send polled last
  PollOf poll_of_ = PollOf::kNobody;
  PollOf polls_for_ = PollOf::kCall;  ///< whose poll_for_here() is
  uint8_t ride_clock_ = 0;            ///< TcpFlow::rides_from
  Instant ride_until_{};              ///< it goes on by itself
  Doorbell bell_ = Doorbell::kNow;    ///< of a segment that nothing of its connection follows
  bool stamps_ = false;               ///< stamp_frames() was asked for
  TcpFlow* corked_ = nullptr;         ///< its small writes wait for company...
  Instant uncork_at_{};               ///< ... until then
  /// The last write that left at once behind others.
  struct {
    const TcpFlow* flow = nullptr;
    unsigned sends = 0;   ///< in a row that came at once, less what interruptions cost
    Duration doorbell{};  ///< how long the last one that rang for itself alone took, with its send
    Instant done{};       ///< when that was over, or since when it waits for another's
    Instant ring_at{};    ///< so long those wait that do
  } haste_;
  /// An answer whose books are not done. Its flow is as it is afterwards but for what nobody looks
  /// at who sends on it: the acknowledged segment is still in the queue.
  struct {
    TcpFlow* flow = nullptr;
    tcp::LoneAnswer answer;
  } owed_;
  Heard<false> heard4_;  ///< whose frames took the short way last
  Heard<true> heard6_;
  uint32_t low_water_ = 0;    ///< free frames below which queues grow no more
  uint32_t short_below_ = 0;  ///< free frames with which, or fewer, a turn is run_short()
  /// ... or looks after windows: all while they are shared out, else short_below_.
  uint32_t uneasy_below_ = 0;
  Instant pinned_looked_;  ///< of end_pinned(): when, how far, and whom it found
  uint32_t pinned_next_ = 0;
  SlabHandle pinned_;
  Instant shared_at_;  ///< when windows were last bounded or widened (crowd.cpp)

  // Shared with other threads, each on a line of its own.
  alignas(64) BiasedLock lock_;
  alignas(64) std::atomic<int64_t> deadline_{Instant::never().ns()};
  std::atomic<int64_t> last_poll_{0};
  std::atomic<uint32_t> answers_left_{0};  ///< to what tell() was told of, at most
  std::atomic<uint32_t> flow_count_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<int64_t> helper_sleeps_until_{0};  ///< 0: awake
  std::atomic<int64_t> corked_until_{Instant::never().ns()};
  std::atomic<bool> is_cork_watched_{false};
  EventFd* helper_bell_ = nullptr;

  alignas(64) Demux demux_;
  BoundTo bound_to_;
  ip::PmtuTable pmtu_{FlowHashKey::random()};
  SynTable syns_;
  std::unique_ptr<FastOpenClient> fast_open_client_;  ///< null: nobody wished for it
  ReplyLimit resets_;                                 ///< to strangers
  ReplyLimit challenges_;                             ///< to those who knock wrongly
  ip::Reassembly reassembly_;
  bool takes_fragments_ = true;  ///< take_fragments()
  Instant syn_asked_{};          ///< when a neighbour was asked for to answer a SYN
  Instant flood_warned_ = Instant::from_ns(INT64_MIN / 2);
  RxDesc burst_[kBurst];
  PacketRef partial_;  ///< a packet whose further frames have not come yet
  RxFlags partial_flags_ = RxFlags::kNone;
  PacketChain partial_rest_;
  TcpPending pending_;
  HookList<TcpFlow, &TcpFlow::notify_hook> notify_;
  HookList<UdpFlow, &UdpFlow::notify_hook> notify_udp_;
  TcpPending riding_;  ///< owe an ACK that waits for something to ride on; the longest first
  TcpPending stalled_;
  HookList<TcpFlow, &TcpFlow::unowned_hook> orphans_;
  uint32_t orphan_count_ = 0;
  std::vector<SlabHandle> fast_opens_;  ///< connections whose handshake may not be over (RFC 7413)
  HookList<TimeWaitEntry, &TimeWaitEntry::hook> time_wait_queue_;
  Instant waiters_retried_{};  ///< last retry of those who wait for a neighbour
  Wheel wheel_;
  Slab<TcpFlow> tcp_;
  Slab<UdpFlow> udp_;
  Slab<TimeWaitEntry> time_waits_;
  std::vector<Listener*> listeners_;  ///< by Flow::listener; null: free
  std::vector<UdpFlow*> bound_udp_;
  std::vector<std::unique_ptr<Port>> owned_ports_;
  std::vector<Port*> ports_;
  std::vector<Polled> polled_;  ///< all of their queues
  Polled only_{};               ///< the only one of them; null: there are more, or none
  std::vector<int> wait_fds_;
  std::vector<FailedOpen> failed_opens_;
  std::array<Resolved, 8> resolved_;              ///< by where they go
  std::array<Asked, 8> asked_;                    ///< by the address's last byte
  std::array<Come, 64> come_;                     ///< by the source's last bytes
  std::shared_ptr<const net::Links> told_links_;  ///< of which the devices were told
  std::shared_ptr<const net::Addrs> told_addrs_;
  PortLeases leases_;
  KernelConnections kernel_connections_;
  struct Spared {
    FlowKey key;
    IfIndex by;
    FlowRule rule;
  };
  std::vector<Spared> spared_;  ///< of connections that were handed over, and perhaps are over
  size_t spared_most_ = 64;     ///< then it is worth a look
};

}  // namespace vireo
