#include "tests/unit/engine/host.h"

#include <algorithm>
#include <cstring>

#include "core/checksum.h"
#include "stack/wire/parse.h"
#include "stack/wire/template.h"

namespace vireo::test {
namespace {

void on_tcp(TcpFlow& f, tcp::Effects e) { static_cast<Conn*>(f.owner)->effects |= e; }
void on_accept(Listener& l) { ++static_cast<Listening*>(l.owner)->told; }
void on_udp(UdpFlow&) {}

/// Of this machine's clock, which an engine looks at when it is made.
constexpr Instant kFarAhead = Instant::from_ns(int64_t{10} * 366 * 86'400 * 1'000'000'000);

}  // namespace

Host::Host(const HostOptions& options)
    : clock_(options.seed == 0 ? Clock::now() + options.ahead : kFarAhead),
      link_(std::max<uint64_t>(options.seed, 1), options.from_host, options.to_host, clock_,
            options.device) {
  auto mirror = net::Mirror::open();
  VIREO_ASSERT(mirror.has_value());
  mirror_ = std::move(*mirror);
  publish(options.knows_router);
  EngineConfig config;
  config.arena_bytes = options.arena_bytes;
  config.huge_pages = false;
  config.time_wait = options.time_wait;
  config.max_orphans = options.max_orphans;
  config.autocork = options.autocork;
  config.clock = options.clock;
  config.secret = {options.seed, ~options.seed};
  DeviceOpener opener = [this](const net::Link&, Arena&) -> Carried<std::unique_ptr<Device>> {
    return link_.release(MemEnd::kA);
  };
  auto engine = Engine::create(EngineId(0), config, std::move(opener), *mirror_,
                               {on_tcp, on_accept, on_udp}, stats_);
  VIREO_ASSERT(engine.has_value());
  engine_ = std::move(*engine);
}

Host::~Host() = default;

void Host::publish(bool knows_router) {
  mirror_->store().publish(tables({.knows_router = knows_router}));
}
void Host::learn_router() { publish(true); }

void Host::poll() {
  engine_->acquire();
  engine_->poll(now());
  engine_->unlock();
  link_.step(now());
}

void Host::settle() {
  for (int i = 0; i < 1000; ++i) {
    engine_->acquire();
    const bool is_worked = engine_->poll(now());
    engine_->unlock();
    link_.step(now());
    if (!is_worked && engine_->next_deadline() > now()) return;
  }
  FAIL() << "the engine never rests";
}

void Host::pass(Duration d) {
  const Instant end = now() + d;
  settle();
  while (true) {
    // A deadline may lie within a tick of the wheel that began before it.
    const Instant due = std::max(engine_->next_deadline(), now() + Wheel::kTick);
    const Instant next = std::min({due, std::max(link_.next_event(), now()), end});
    link_.step(next);
    settle();
    if (next >= end) return;
  }
}

Listening& Host::listen(uint16_t port, uint32_t backlog, tcp::Config config, bool v6,
                        const ListenOptions& options) {
  auto& l = *listening_.emplace_back(std::make_unique<Listening>());
  config.mss = 65'495;
  const auto made = engine_->listeners().listen({v6 ? IpAddr() : IpAddr::any_v4(), port, 0}, false,
                                                backlog, config, &l, l.stats, options);
  VIREO_ASSERT(made.has_value());
  l.listener = *made;
  return l;
}

void Host::close(Listening& l) {
  engine_->listeners().close(*l.listener, now());
  l.listener = nullptr;
  settle();
}

Conn* Host::accept(Listening& l) {
  TcpFlow* f = engine_->listeners().accept(*l.listener);
  if (f == nullptr) return nullptr;
  auto& c = *conns_.emplace_back(std::make_unique<Conn>());
  c.flow = f;
  f->owner = &c;
  f->stats = &c.stats;
  return &c;
}

void Host::close(Conn& c, bool reset) {
  engine_->tcp().close(*c.flow, UniqueFd(), reset, now());
  c.flow = nullptr;
  settle();
}

size_t Host::write(Conn& c, const std::string& bytes) {
  const iovec v{const_cast<char*>(bytes.data()), bytes.size()};
  const size_t n = engine_->tcp().send(*c.flow, {&v, 1}, false, now());
  settle();
  return n;
}

std::string Host::read(Conn& c) {
  std::string s;
  PacketChain& q = tcp::recv_queue(c.tcb());
  while (!q.empty()) {
    s.append(reinterpret_cast<const char*>(q.front()->data()), q.front()->length);
    q.pop_front();
  }
  engine_->tcp().received(*c.flow, static_cast<uint32_t>(s.size()), now());
  settle();
  return s;
}

void Host::inject(std::span<const std::byte> frame, bool poll_now) {
  link_.inject(MemEnd::kB, frame);
  link_.step(now());
  if (poll_now) settle();
}

size_t Host::forget_heard() {
  auto& frames = link_.kernel_frames(MemEnd::kB);
  const size_t n = frames.size();
  frames.clear();
  return n;
}

std::deque<Heard>& Host::heard() {
  auto& frames = link_.kernel_frames(MemEnd::kB);
  for (const auto& bytes : frames) {
    const wire::ParsedFrame f = wire::parse_frame(bytes);
    EXPECT_TRUE(f) << wire::parse_error_name(f.error);
    if (!f || f.proto != IpProto::kTcp) continue;
    EXPECT_TRUE(wire::l4_checksum_ok(f));
    Heard h;
    h.from = {f.src(), f.src_port, 0};
    h.to = {f.dst(), f.dst_port, 0};
    h.seq = f.tcp().seq();
    h.ack = f.tcp().ack();
    h.window = f.tcp().window;
    h.flags = static_cast<SegFlags>(f.tcp().flag_bits);
    h.tos = f.tos;
    h.ttl = f.ttl;
    const auto options = f.tcp().options();
    h.raw_options.assign(options.begin(), options.end());
    h.options = wire::parse_tcp_options(options, has(h.flags, kSyn));
    const auto payload = f.payload();
    h.data.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
    h.at = now();
    heard_.push_back(std::move(h));
  }
  frames.clear();
  return heard_;
}

std::vector<std::byte> tcp_frame(const Endpoint& from, const Endpoint& to, SegFlags flags,
                                 Seq32 seq, Seq32 ack, const Said& what) {
  net::Mac dst = kHostMac;
  if (what.group_mac) dst.fill(0xff);
  const auto header = wire::HeaderTemplate::build({.src_mac = kRouterMac,
                                                   .dst_mac = dst,
                                                   .proto = IpProto::kTcp,
                                                   .src = from.addr,
                                                   .dst = to.addr,
                                                   .src_port = from.port,
                                                   .dst_port = to.port,
                                                   .tos = what.tos});
  std::vector<uint8_t> options = what.options;
  while (options.size() % 4 != 0) options.push_back(1);
  std::vector<std::byte> frame(wire::HeaderTemplate::kMaxBytes);
  const size_t n = header.emit_tcp(
      frame.data(),
      {.seq = seq.value(),
       .ack = ack.value(),
       .flags = static_cast<uint8_t>(flags),
       .window = what.window,
       .options = options,
       .payload_bytes = static_cast<uint32_t>(what.data.size()),
       .payload_sum = checksum::fold(checksum::sum(what.data.data(), what.data.size()))});
  frame.resize(n + what.data.size());
  if (!what.data.empty()) std::memcpy(frame.data() + n, what.data.data(), what.data.size());
  if (what.bad_checksum) frame[header.l4_at() + 16] ^= std::byte{0xff};
  return frame;
}

std::vector<std::byte> icmp_error_frame(const Endpoint& sender, const Endpoint& receiver, Seq32 seq,
                                        uint8_t type, uint8_t code, uint32_t rest) {
  const auto quoted = tcp_frame(sender, receiver, kAck, seq, Seq32(0));
  constexpr size_t kIp = 14, kIcmp = kIp + 20, kQuote = kIcmp + 8, kQuoted = 28;
  std::vector<std::byte> f(kQuote + kQuoted);
  std::memcpy(f.data(), quoted.data(), kIcmp);
  std::memcpy(f.data() + kQuote, quoted.data() + kIp, kQuoted);
  const auto put16 = [&](size_t at, uint16_t v) {
    const be16 w(v);
    std::memcpy(f.data() + at, &w, 2);
  };
  const auto sum_at = [&](size_t from, size_t n, size_t at) {
    const be16 sum = checksum::finish(checksum::sum(f.data() + from, n));
    std::memcpy(f.data() + at, &sum, 2);
  };
  put16(kIp + 2, static_cast<uint16_t>(20 + 8 + kQuoted));
  f[kIp + 9] = std::byte{1};
  std::memcpy(f.data() + kIp + 12, ip("10.0.0.254").bytes().data() + 12, 4);
  std::memcpy(f.data() + kIp + 16, sender.addr.bytes().data() + 12, 4);
  put16(kIp + 10, 0);
  sum_at(kIp, 20, kIp + 10);
  f[kIcmp] = std::byte{type};
  f[kIcmp + 1] = std::byte{code};
  put16(kIcmp + 4, static_cast<uint16_t>(rest >> 16));
  put16(kIcmp + 6, static_cast<uint16_t>(rest));
  sum_at(kIcmp, 8 + kQuoted, kIcmp + 2);
  return f;
}

void Peer::say(SegFlags flags, Seq32 seq, Seq32 ack_number, const Said& what) {
  host_.inject(tcp_frame(here, there, flags, seq, ack_number, what), what.poll_now);
}

std::optional<Heard> Peer::hear() {
  auto& all = host_.heard();
  const auto mine = std::find_if(all.begin(), all.end(), [&](const Heard& h) {
    return h.to == here && h.from.port == there.port && h.from.addr == there.addr;
  });
  if (mine == all.end()) return std::nullopt;
  Heard h = std::move(*mine);
  all.erase(mine);
  if (h.options.has_timestamps) ts_ecr = h.options.ts_val;
  return h;
}

std::vector<Heard> Peer::hear_all() {
  std::vector<Heard> all;
  while (auto h = hear()) all.push_back(std::move(*h));
  return all;
}

std::vector<uint8_t> Peer::syn_options() const {
  std::vector<uint8_t> o;
  if (mss != 0) o = {2, 4, static_cast<uint8_t>(mss >> 8), static_cast<uint8_t>(mss)};
  if (sack) o.insert(o.end(), {1, 1, 4, 2});
  if (timestamps) {
    const auto t = options();
    o.insert(o.end(), t.begin(), t.end());
  }
  if (wscale >= 0) o.insert(o.end(), {1, 3, 3, static_cast<uint8_t>(wscale)});
  o.insert(o.end(), more_options.begin(), more_options.end());
  return o;
}

std::vector<uint8_t> Peer::options() const {
  if (!timestamps) return {};
  std::array<uint8_t, 40> out{};
  wire::TcpOptionWriter w(out);
  w.timestamps(ts_val, ts_ecr);
  return {out.begin(), out.begin() + w.size()};
}

void Peer::syn(const std::string& data) {
  ts_ecr = 0;
  nxt = iss + 1;
  say(kSyn, iss, Seq32(0), {.data = data, .options = syn_options()});
}

bool Peer::connect() {
  syn();
  const auto answer = hear();
  if (!answer || !answer->is(kSyn | kAck)) return false;
  EXPECT_EQ(answer->ack, nxt);
  irs = answer->seq;
  ack = irs + 1;
  timestamps = timestamps && answer->options.has_timestamps;
  say(kAck);
  return true;
}

void Peer::say(SegFlags flags, const std::string& data) {
  say(flags, nxt, ack, {.data = data, .options = options()});
  nxt = nxt + static_cast<uint32_t>(data.size()) + (has(flags, kFin) ? 1 : 0);
}

}  // namespace vireo::test
