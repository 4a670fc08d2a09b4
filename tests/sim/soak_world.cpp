#include "tests/sim/soak_world.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "stack/wire/parse.h"
#include "stack/wire/template.h"
#include "tests/apparatus/mem/steering.h"
#include "tests/unit/engine/tables.h"

namespace vireo::sim {

using tcp::Effects;
using tcp::State;

namespace {

constexpr uint16_t kFirstDoor = 80, kFirstPort = 40'000, kCrossingPort = 50'000;
constexpr unsigned kPorts = 250;  ///< few: tuples come again while TIME-WAIT remembers them
constexpr Duration kLookEvery = Duration::ms(50);

/// Both ends of a connection in one number: family, port of host 0, port of host 1.
uint64_t tuple(bool v6, uint16_t port0, uint16_t port1) {
  return uint64_t{v6} << 32 | uint32_t{port0} << 16 | port1;
}
uint64_t tuple_of(unsigned host, const FlowKey& k) {
  return host == 0 ? tuple(!k.local.addr.is_v4(), k.local.port, k.remote.port)
                   : tuple(!k.local.addr.is_v4(), k.remote.port, k.local.port);
}

MemImpairments weather(Prng& rng) {
  return {.loss = static_cast<double>(rng.below(30)) / 1000,
          .delay = Duration::us(static_cast<int64_t>(20 + rng.below(20'000))),
          .jitter = Duration::us(static_cast<int64_t>(rng.below(500))),
          .reorder = static_cast<double>(rng.below(20)) / 1000,
          .reorder_extra = Duration::us(static_cast<int64_t>(100 + rng.below(20'000))),
          .duplicate = static_cast<double>(rng.below(10)) / 1000};
}

/// Every other seed's devices segment.
MemDeviceOptions devices(uint64_t seed) {
  MemDeviceOptions o{.rx_ring = 512, .tx_ring = 512};
  if (seed % 2 == 0) return o;
  o.inline_head = true;
  o.max_body_slices = 16;
  o.tso_max_bytes = 262'144;
  return o;
}

}  // namespace

// Far ahead of this machine's clock, which an engine looks at when it is made, and the same always.
World::World(uint64_t seed)
    : rng_(seed),
      clock_(Instant::from_ns(Duration::s(int64_t{10} * 366 * 86'400).ns())),
      start_(clock_.now()),
      looked_(start_),
      link_(seed, weather(rng_), weather(rng_), clock_, devices(seed)) {
  stream_.resize((size_t{1} << 20) - 3);
  for (std::byte& b : stream_) b = static_cast<std::byte>(rng_.next());
  for (unsigned i = 0; i < 2; ++i) {
    Host& h = hosts_[i];
    auto mirror = net::Mirror::open();
    VIREO_ASSERT(mirror.has_value());
    h.mirror = std::move(*mirror);
    h.mirror->store().publish(
        test::tables({.v4 = kV4[i], .v6 = kV6[i], .mac = kMac[i], .router_mac = kMac[1 - i]}));
    EngineConfig config;
    config.arena_bytes = size_t{rng_.below(2) == 0 ? 8U : 32U} << 20;
    config.huge_pages = false;
    config.secret = {rng_.next() | 1, rng_.next()};
    const MemEnd end = i == 0 ? MemEnd::kA : MemEnd::kB;
    DeviceOpener opener = [this, end](const net::Link&,
                                      Arena&) -> Carried<std::unique_ptr<Device>> {
      return link_.release(end);
    };
    auto engine = Engine::create(EngineId(static_cast<uint8_t>(i)), config, std::move(opener),
                                 *h.mirror, {on_tcp, on_accept, on_udp}, h.stats);
    VIREO_ASSERT(engine.has_value());
    h.engine = std::move(*engine);
    VIREO_ASSERT(h.engine->ports().open_all().has_value());
    for (Door& d : h.doors) d.world = this, d.host = i;
    link_.wire(end).set_filter(
        [this, i](std::span<const std::byte> frame, uint64_t) { return befalls(i, frame); });
  }
  settle();
  for (Host& h : hosts_) h.frames = h.engine->pool().free_count();
}

World::~World() {
  sockets_.clear();
  for (Host& h : hosts_) h.engine.reset();
}

// ---- time

void World::wrong(const std::string& what) {
  if (!wrong_.empty()) return;
  wrong_ = "after " + std::to_string(elapsed().ms()) + " ms: " + what;
}

void World::in(Duration d, std::function<void()> what) {
  calendar_.push({now() + d, ++order_, std::move(what)});
}

Duration World::around(Duration mean) {
  const double u = static_cast<double>((rng_.next() >> 11) + 1) * 0x1p-53;
  return Duration::ns(static_cast<int64_t>(-std::log(u) * static_cast<double>(mean.ns())));
}

void World::settle() {
  for (int turn = 0;; ++turn) {
    if (turn == 100'000) return wrong("the engines never rest");
    bool is_worked = false;
    for (Host& h : hosts_) {
      h.engine->lock().lock();
      is_worked |= h.engine->poll(now());
      h.engine->unlock();
      is_worked |= h.engine->next_deadline() <= now();
    }
    is_worked |= !told_.empty() || !knocked_.empty() || !spoken_to_.empty() || !too_big_.empty();
    for (unsigned i = 0; i < 2; ++i) answer_for_kernel(i);
    answer_for_router();
    service();
    link_.step(now());
    if (!is_worked) return;
  }
}

void World::pass_to(Instant end) {
  while (wrong_.empty()) {
    settle();
    if (now() >= looked_ + kLookEvery) look();
    if (now() >= end) return;
    Instant next = std::min(end, looked_ + kLookEvery);
    // A deadline may lie within a tick of the wheel that began before it.
    for (const Host& h : hosts_)
      next = std::min(next, std::max(h.engine->next_deadline(), now() + Wheel::kTick));
    next = std::min(next, std::max(link_.next_event(), now()));
    if (!calendar_.empty()) next = std::min(next, std::max(calendar_.top().at, now()));
    link_.step(next);
    while (!calendar_.empty() && calendar_.top().at <= now()) {
      const auto what = calendar_.top().what;
      calendar_.pop();
      what();
    }
  }
}

void World::look() {
  looked_ = now();
  for (Host& h : hosts_)
    if (const std::string s = h.watch.look(*h.engine, now()); !s.empty()) wrong(s);
}

std::string World::round(Duration d) {
  is_busy_ = true;
  const auto again = [this](Duration mean, void (World::*what)()) {
    auto next = std::make_shared<std::function<void()>>();
    *next = [this, mean, what, weak = std::weak_ptr(next)] {
      if (!is_busy_) return;
      (this->*what)();
      if (const auto self = weak.lock()) in(around(mean), *self);
    };
    in(around(mean), *next);
    return next;
  };
  for (unsigned i = 0; i < 2 * kDoors; ++i) toggle_door();
  const auto opens = again(Duration::ms(400), &World::open);
  const auto crossings = again(Duration::s(20), &World::open_crossing);
  const auto doors = again(Duration::s(8), &World::toggle_door);
  const auto cables = again(Duration::s(120), &World::pull_cable);
  const auto paths = again(Duration::s(60), &World::move_path);
  const auto mouths = again(Duration::s(5), &World::toggle_mouth);
  const auto words = again(Duration::ms(100), &World::speak);
  pass_to(now() + d);

  is_busy_ = false;
  for (Host& h : hosts_)
    for (Door& door : h.doors)
      if (door.flow != nullptr) shut(door);
  while (!sockets_.empty()) close(*sockets_.begin()->second, rng_.below(4) == 0);
  close_mouths();
  // The longest of soak_bounds.cpp: an orphan with a slow path, then TIME-WAIT.
  const Instant most = now() + Duration::s(30 * 60);
  const auto is_quiet = [this] {
    return std::ranges::all_of(hosts_, [](const Host& h) { return h.engine->live_flows() == 0; });
  };
  while (wrong_.empty() && !is_quiet()) {
    pass_to(now() + Duration::s(1));
    if (now() >= most) wrong("not over half an hour after all was closed");
  }
  // What is on the wire arrives, windows are wide again, and what routers said is forgotten.
  pass_to(now() + Duration::s(601));
  calendar_ = {};
  talks_.clear();
  syn_words_.clear();
  dead_.clear();
  for (unsigned i = 0; i < 2; ++i)
    if (const std::string s = census(i); !s.empty())
      wrong("host " + std::to_string(i) + " keeps " + s);
  if (link_.next_event() != Instant::never()) wrong("frames are on the wire, and nobody is there");
  return wrong_;
}

/// What is not as it was before the first connection.
std::string World::census(unsigned host) {
  Host& h = hosts_[host];
  Engine& e = *h.engine;
  const Census c = e.census();
  std::string s;
  const auto must_be = [&s](const char* what, uint64_t is, uint64_t should) {
    if (is != should)
      s += std::to_string(is) + " " + what + " instead of " + std::to_string(should) + "; ";
  };
  must_be("connections", c.connections, 0);
  must_be("orphans", c.orphans, 0);
  must_be("flows that wait", c.waiting, 0);
  must_be("half-open connections", c.half_open, 0);
  must_be("TIME-WAITs", c.time_waits, 0);
  must_be("listeners", c.listeners, 0);
  must_be("keys in the demux", c.demux_keys, 0);
  must_be("live flows", e.live_flows(), 0);
  must_be("free frames", e.pool().free_count(), h.frames);
  must_be("flow rules", link_.rules(host == 0 ? MemEnd::kA : MemEnd::kB), 0);
  must_be("window share", e.pool().window_share(), PacketPool::kNoShare);
  if (!e.next_deadline().is_never()) s += "a timer; ";
  return s;
}

// ---- what befalls the link

MemVerdict World::befalls(unsigned from, std::span<const std::byte> frame) {
  if (now() < cable_out_[from] || is_too_big(from, frame)) return MemVerdict::kDrop;
  if (dead_.empty()) return MemVerdict::kPass;
  const auto key = flow_of(frame);  // as the receiver names it
  if (!key) return MemVerdict::kPass;
  return dead_.contains(tuple_of(1 - from, *key)) ? MemVerdict::kDrop : MemVerdict::kPass;
}

/// What no flow rule brings to an engine is its host's kernel's, which knows no such connection.
void World::answer_for_kernel(unsigned host) {
  const MemEnd end = host == 0 ? MemEnd::kA : MemEnd::kB;
  for (const auto& bytes : std::exchange(link_.kernel_frames(end), {})) {
    const wire::ParsedFrame f = wire::parse_frame(bytes);
    if (!f || f.proto != IpProto::kTcp) continue;
    tcp::Segment s;
    s.seq = f.tcp().seq();
    s.ack = f.tcp().ack();
    s.flags = static_cast<tcp::SegFlags>(f.tcp().flag_bits);
    tcp::Plan p;
    if (!tcp::reset_for(s, static_cast<uint32_t>(f.payload().size()), p)) continue;
    ++counts_["resets by kernels"];
    const auto header = wire::HeaderTemplate::build({.src_mac = kMac[host],
                                                     .dst_mac = kMac[1 - host],
                                                     .proto = IpProto::kTcp,
                                                     .src = f.dst(),
                                                     .dst = f.src(),
                                                     .src_port = f.dst_port,
                                                     .dst_port = f.src_port});
    std::array<std::byte, wire::HeaderTemplate::kMaxBytes> frame;
    const size_t n = header.emit_tcp(frame.data(), {.seq = p.seq.value(),
                                                    .ack = p.ack.value(),
                                                    .flags = static_cast<uint8_t>(p.flags),
                                                    .options = {}});
    link_.inject(end, {frame.data(), n});
  }
}

void World::pull_cable() {
  ++counts_["cable pulls"];
  const Duration d = around(Duration::s(rng_.below(4) == 0 ? 60 : 3));
  const auto way = rng_.below(4);  // both ways, mostly
  for (unsigned from = 0; from < 2; ++from)
    if (way != from) cable_out_[from] = now() + d;
}

// ---- programs

void World::on_tcp(TcpFlow& f, Effects) {
  auto& s = *static_cast<Socket*>(f.owner);
  if (!std::exchange(s.is_told, true)) s.world->told_.push_back(&s);
}

void World::on_accept(Listener& l) {
  auto& d = *static_cast<Door*>(l.owner);
  if (!std::exchange(d.is_told, true)) d.world->knocked_.push_back(&d);
}

tcp::Config World::config() {
  static constexpr uint32_t kBuffers[] = {4'096, 20'000, 65'536, 262'144};
  tcp::Config c;
  c.mss = 65'495;
  c.rcv_buf = kBuffers[rng_.below(4)];
  c.snd_buf = kBuffers[rng_.below(4)];
  c.timestamps = rng_.below(5) != 0;
  c.sack = rng_.below(5) != 0;
  c.nodelay = rng_.below(3) == 0;
  c.window_scaling = rng_.below(5) != 0;
  c.keepalive = rng_.below(4) == 0;
  c.keep_idle = Duration::s(20);
  c.keep_interval = Duration::s(5);
  c.keep_count = 4;
  if (rng_.below(6) == 0) c.user_timeout = Duration::s(15);
  return c;
}

IpAddr World::address(unsigned host, bool v6) const { return test::ip(v6 ? kV6[host] : kV4[host]); }

World::Socket& World::own(unsigned host, TcpFlow& f) {
  auto s = std::make_unique<Socket>();
  s->host = host;
  s->flow = &f;
  s->world = this;
  s->id = next_id_++;
  f.owner = s.get();
  f.stats = &s->stats;
  in(around(Duration::ms(500)), [this, id = s->id] { act(id); });
  return *(sockets_[s->id] = std::move(s));
}

World::Socket* World::connect(unsigned host, bool v6, uint16_t from, uint16_t to, bool is_fast) {
  Engine& e = *hosts_[host].engine;
  const Endpoint local{address(host, v6), from, 0}, remote{address(1 - host, v6), to, 0};
  const uint64_t id = tuple_of(host, {IpProto::kTcp, v6, VlanId(), local, remote});
  if (dead_.contains(id)) return nullptr;
  const auto route = e.next_hops().route({.dst = remote.addr, .src = local.addr});
  VIREO_ASSERT(route.has_value());
  auto s = std::make_unique<Socket>();
  const FastConnect wish{.data_follows = true};
  const auto f = e.tcp().connect(*route, local, remote, config(), {}, s.get(), s->stats, now(),
                                 is_fast ? &wish : nullptr);
  if (!f) {  // its last life goes on without its program
    ++counts_["ports in use"];
    return nullptr;
  }
  ++counts_["connects"];
  Socket& mine = own(host, **f);
  mine.to_write = rng_.below(2) * rng_.below(20'000);
  if (is_fast) speak_with_syn(mine);
  return &mine;
}

/// The SYN goes, with the first words where the server's cookie is known.
void World::speak_with_syn(Socket& s) {
  auto talk = std::make_shared<Talk>(Talk{next_id_++, {}});
  const size_t at = (talk->id * 7919 + s.host * 524'287) % stream_.size();
  const iovec v{&stream_[at], std::min<size_t>(1 + rng_.below(3'000), stream_.size() - at)};
  const Seq32 iss = s.flow->tcb.iss;
  const uint64_t n =
      hosts_[s.host].engine->tcp().send_syn(*s.flow, {.data_follows = true}, {&v, 1}, now());
  if (n == 0) return;
  ++counts_["SYNs with data"];
  counts_["bytes written"] += n;
  talk->half[s.host].written = n;
  syn_words_[{tuple_of(s.host, s.flow->key), s.host, iss.value()}] = {std::move(talk), n};
}

void World::open() {
  const auto host = static_cast<unsigned>(rng_.below(2));
  (void)connect(host, rng_.below(5) == 0, static_cast<uint16_t>(kFirstPort + rng_.below(kPorts)),
                static_cast<uint16_t>(kFirstDoor + rng_.below(kDoors)), rng_.below(3) == 0);
}

/// Both ends open at once (RFC 9293 §3.5).
void World::open_crossing() {
  const auto port = static_cast<uint16_t>(kCrossingPort + rng_.below(20));
  const bool is_first = connect(0, false, port, port) != nullptr;
  if (connect(1, false, port, port) != nullptr && is_first) ++counts_["crossing opens"];
}

void World::toggle_door() {
  Host& h = hosts_[rng_.below(2)];
  Door& d = h.doors[rng_.below(kDoors)];
  if (d.flow != nullptr && rng_.below(3) != 0) return shut(d);
  if (d.flow != nullptr) return;
  const auto port = static_cast<uint16_t>(kFirstDoor + (&d - h.doors.data()));
  static constexpr uint32_t kBacklogs[] = {0, 1, 4, 64}, kFastOpens[] = {0, 1, 64};
  const auto l = h.engine->listeners().listen(
      {IpAddr(), port, 0}, false, kBacklogs[rng_.below(4)], config(), &d, d.stats,
      {.defer_accept = static_cast<uint8_t>(rng_.below(8) == 0 ? 3 : 0),
       .syncookies = static_cast<uint8_t>(rng_.below(3)),
       .abort_on_overflow = rng_.below(4) == 0,
       .fast_open = kFastOpens[rng_.below(3)]});
  if (!l) return wrong("cannot listen again on a port whose listener was closed");
  d.flow = *l;
  ++counts_["listeners"];
}

void World::shut(Door& d) {
  hosts_[d.host].engine->listeners().close(*d.flow, now());
  d.flow = nullptr;
}

/// What the engines told: the programs' part.
void World::service() {
  for (const auto all = std::exchange(spoken_to_, {}); Mouth * m : all) hear(*m);
  while (!knocked_.empty()) {
    Door& d = *knocked_.back();
    knocked_.pop_back();
    d.is_told = false;
    if (rng_.below(8) != 0)
      accept(d);
    else  // a program that has other things to do
      in(around(Duration::s(1)), [this, &d] { accept(d); });
  }
  for (const auto all = std::exchange(told_, {}); Socket * s : all)
    if (std::exchange(s->is_told, false)) take(*s);
}

void World::accept(Door& d) {
  if (d.flow == nullptr) return;
  while (TcpFlow* f = hosts_[d.host].engine->listeners().accept(*d.flow)) {
    ++counts_["accepts"];
    Socket& s = own(d.host, *f);
    s.to_write = rng_.below(2) * rng_.below(20'000);
    take(s);
  }
}

/// New, or what went with a SYN goes on. A SYN with data that is delivered once more when its first
/// connection is over opens another, which has that data and nothing else (RFC 7413 §2.1).
std::shared_ptr<World::Talk> World::begin_talk(uint64_t ends, const std::array<Seq32, 2>& iss) {
  for (unsigned host = 0; host < 2; ++host) {
    const auto found = syn_words_.find({ends, host, iss[host].value()});
    if (found == syn_words_.end()) continue;
    SynWords& w = found->second;
    if (!std::exchange(w.is_met, true)) return w.talk;
    ++counts_["opened again by a SYN"];
    auto again = std::make_shared<Talk>(Talk{w.talk->id, {}, true});
    again->half[host].written = w.bytes;
    return again;
  }
  return std::make_shared<Talk>(Talk{next_id_++, {}});
}

/// The handshake says who talks with whom: both ends know the other's initial number.
void World::meet(Socket& s) {
  const tcp::Tcb& t = s.flow->tcb;
  const std::array<Seq32, 2> iss =
      s.host == 0 ? std::array{t.iss, t.irs} : std::array{t.irs, t.iss};
  const uint64_t ends = tuple_of(s.host, s.flow->key);
  auto& talk = talks_[{ends, iss[0].value(), iss[1].value()}];
  if (talk == nullptr) talk = begin_talk(ends, iss);
  s.talk = talk;
  Half& half = talk->half[s.host];
  if (!std::exchange(half.is_taken, true)) return;
  // The listener's side alone is made again, by a cookie that its peer, which has heard nothing
  // but the SYN-ACK, says again after the first was closed (RFC 4987 §3.6 keeps no state).
  if (hosts_[s.host].stats.syn_cookies_received.get() == 0) wrong("two sockets of a connection");
  ++counts_["made again by a cookie"];
  half = {.is_taken = true};
  talk->is_remade = true;  // what the first had sent may be read still
}

void World::take(Socket& s) {
  if (s.talk == nullptr && tcp::state(s.flow->tcb) >= State::kSynReceived) meet(s);
  if (!s.is_paused) read(s);
  write(s);
  if (s.is_dying) return;
  const bool is_over = tcp::error(s.flow->tcb) != 0 || tcp::state(s.flow->tcb) == State::kClosed;
  if (!is_over && !s.is_ended) return;
  s.is_dying = true;  // the program finds out, and closes before long
  in(around(Duration::s(2)), [this, id = s.id] {
    if (const auto i = sockets_.find(id); i != sockets_.end()) close(*i->second, false);
  });
}

void World::write(Socket& s) {
  if (s.talk == nullptr) return;
  Half& half = s.talk->half[s.host];
  while (s.to_write != 0 && tcp::can_send(s.flow->tcb)) {
    const size_t at = (s.talk->id * 7919 + s.host * 524'287 + half.written) % stream_.size();
    const iovec v{&stream_[at], std::min<size_t>(s.to_write, stream_.size() - at)};
    const size_t n =
        hosts_[s.host].engine->tcp().send(*s.flow, {&v, 1}, rng_.below(16) == 0, now());
    half.written += n;
    s.to_write -= n;
    counts_["bytes written"] += n;
    if (n == 0) return;
  }
}

std::string World::at_fault(const Socket& s) const {
  const FlowKey& k = s.flow->key;
  return "host " + std::to_string(s.host) + ", port " + std::to_string(k.local.port) + " to " +
         std::to_string(k.remote.port) + ", " + name(tcp::state(s.flow->tcb)) + ", " +
         std::to_string(s.read) + " of " + std::to_string(s.talk->half[1 - s.host].written) +
         " bytes read: ";
}

/// Takes what there is, or a part of it, and compares it with what was written.
void World::read(Socket& s) {
  if (s.talk == nullptr) return;
  Half& theirs = s.talk->half[1 - s.host];
  PacketChain& q = tcp::recv_queue(s.flow->tcb);
  uint32_t left = rng_.below(4) == 0 ? static_cast<uint32_t>(rng_.below(3'000)) : UINT32_MAX;
  uint32_t taken = 0;
  while (!q.empty() && left != 0) {
    const auto bytes = q.front()->bytes().first(std::min<size_t>(q.front()->length, left));
    for (size_t i = 0; i < bytes.size();) {
      const size_t at = (s.talk->id * 7919 + (1 - s.host) * 524'287 + s.read) % stream_.size();
      const size_t n = std::min(bytes.size() - i, stream_.size() - at);
      if (std::memcmp(bytes.data() + i, &stream_[at], n) != 0)
        return wrong(at_fault(s) + "a wrong byte was read");
      s.read += n;
      i += n;
    }
    const auto n = static_cast<uint32_t>(bytes.size());
    taken += n;
    left -= n;
    q.trim_front(n);
  }
  if (s.read > theirs.written && !s.talk->is_remade)
    return wrong(at_fault(s) + "more was read than was written");
  if (taken != 0) {
    counts_["bytes read"] += taken;
    hosts_[s.host].engine->tcp().received(*s.flow, taken, now());
  }
  if (!q.empty()) {  // the rest a little later
    in(around(Duration::ms(20)), [this, id = s.id] {
      if (const auto i = sockets_.find(id); i != sockets_.end()) take(*i->second);
    });
    return;
  }
  if (!tcp::peer_closed(s.flow->tcb) || s.is_ended) return;
  s.is_ended = true;
  ++counts_["ends of stream"];
  if (s.talk->is_remade) return;
  if (!theirs.ended) wrong(at_fault(s) + "the end of a stream that nobody ended");
  if (s.read != theirs.written) wrong(at_fault(s) + "the end of a stream, and bytes are missing");
}

void World::end(Socket& s) {
  if (s.talk == nullptr) meet(s);
  s.talk->half[s.host].ended = true;
}

void World::half_close(Socket& s) {
  const State state = tcp::state(s.flow->tcb);
  if (state == State::kEstablished || state == State::kCloseWait || state == State::kSynReceived)
    end(s);
  s.to_write = 0;
  tcp::shutdown_write(s.flow->tcb, now());
  hosts_[s.host].engine->tcp().progress(*s.flow, now());
}

void World::close(Socket& s, bool reset) {
  const State state = tcp::state(s.flow->tcb);
  const bool is_open =
      state == State::kEstablished || state == State::kCloseWait || state == State::kSynReceived;
  if (!reset && is_open && tcp::recv_queue(s.flow->tcb).empty()) end(s);
  ++counts_[std::string(reset ? "aborts in " : "closes in ") + name(state)];
  hosts_[s.host].engine->tcp().close(*s.flow, UniqueFd(), reset, now());
  std::erase(told_, &s);
  sockets_.erase(s.id);
}

/// The peer's host is gone without a word: this end ends, and nothing of the connection passes any
/// more, for ever or until the host is up again and knows nothing.
void World::vanish(Socket& s) {
  ++counts_["vanished"];
  const uint64_t id = tuple_of(s.host, s.flow->key);
  dead_.insert(id);
  if (rng_.below(2) == 0) in(around(Duration::s(30)), [this, id] { dead_.erase(id); });
  close(s, true);
}

/// What a program does next with its socket.
void World::act(uint64_t id) {
  const auto found = sockets_.find(id);
  if (found == sockets_.end()) return;
  Socket& s = *found->second;
  if (tcp::state(s.flow->tcb) == State::kSynSent && rng_.below(10) != 0)  // connect() is patient
    return in(around(Duration::s(10)), [this, id] { act(id); });
  const auto dice = rng_.below(1000);
  if (dice < 450) {
    s.to_write += 1 + rng_.below(rng_.below(8) == 0 ? 100'000 : 3'000);
  } else if (dice < 510) {
    s.is_paused = true;
    in(around(Duration::s(rng_.below(4) == 0 ? 90 : 2)), [this, id] {
      const auto i = sockets_.find(id);
      if (i == sockets_.end()) return;
      i->second->is_paused = false;
      take(*i->second);
    });
  } else if (dice < 560) {
    half_close(s);
  } else if (dice < 610) {
    return close(s, false);
  } else if (dice < 630) {
    return close(s, true);
  } else if (dice < 640) {
    return vanish(s);
  } else if (dice < 660) {
    tcp::set_cork(s.flow->tcb, rng_.below(2) == 0, now());
    hosts_[s.host].engine->tcp().progress(*s.flow, now());
  } else if (dice < 680) {
    tcp::set_keepalive(s.flow->tcb, true, Duration::s(20), Duration::s(5), 4, now());
    hosts_[s.host].engine->tcp().progress(*s.flow, now());
  }
  take(s);
  in(around(Duration::ms(1500)), [this, id] { act(id); });
}

std::string World::story() const {
  std::string s;
  for (const auto& [what, n] : counts_) s += std::to_string(n) + " " + what + ", ";
  uint64_t frames = 0, lost = 0;
  for (const MemEnd end : {MemEnd::kA, MemEnd::kB}) {
    const MemStats& w = const_cast<MemLink&>(link_).wire(end).stats();
    frames += w.sent;
    lost += w.lost + w.dropped_by_hook;
  }
  s += std::to_string(frames) + " frames, " + std::to_string(lost) + " lost;";
  std::map<State, Duration> longest;
  for (const Host& h : hosts_)
    for (const auto& [state, d] : h.watch.longest()) longest[state] = std::max(longest[state], d);
  s += " longest:";
  for (const auto& [state, d] : longest)
    s += std::string(" ") + name(state) + " " + std::to_string(d.ms() / 1000) + " s";
  return s;
}

}  // namespace vireo::sim
