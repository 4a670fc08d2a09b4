#include "tests/sim/two_hosts.h"

#include <fmt/format.h>

#include <algorithm>

namespace vireo::sim {

namespace {
std::string describe(const WireModel& w) {
  return fmt::format("delay {}us jitter {}us loss {} dup {} reorder {} by {}us rate {} queue {}",
                     w.delay.us(), w.jitter.us(), w.loss_ppm, w.duplicate_ppm, w.reorder_ppm,
                     w.reorder_by.us(), w.bytes_per_second, w.queue_bytes);
}
std::string describe(const tcp::Config& c) {
  return fmt::format("mss {} rcv_buf {} snd_buf {} wscale {}/{} ts {} sack {} nodelay {}", c.mss,
                     c.rcv_buf, c.snd_buf, c.window_scaling, c.wscale, c.timestamps, c.sack,
                     c.nodelay);
}
}  // namespace

std::string Scenario::str() const {
  return fmt::format(
      "seed {} iss {:#x},{:#x} bytes {},{} full {} sim {} syn data {}/{} burst {} frames {}\n  A: "
      "{} "
      "| {}\n  B: {} | {}",
      seed, iss[0].value(), iss[1].value(), app[0].to_send, app[1].to_send, ring_full_ppm,
      simultaneous_open, syn_data, takes_syn_data, gathers.us(), frames, describe(wire[0]),
      describe(config[0]), describe(wire[1]), describe(config[1]));
}

TwoHosts::TwoHosts(const Scenario& s) : s_(s), rng_(s.seed) {
  for (Host& h : host_) {
    h.memory.resize(size_t{s.frames} * s.frame_bytes);
    h.pool = std::make_unique<PacketPool>(h.memory, s.frame_bytes);
    h.tcb = std::make_unique<Tcb>();
    h.line_free = now_;
  }
}

TwoHosts::~TwoHosts() {
  while (!queue_.empty()) {
    const Event e = queue_.top();
    queue_.pop();
    if (e.what == What::kDeviceDone) {
      --e.packet->device_refs;
      PacketPool::drop(e.packet);
    }
  }
  for (Host& h : host_) tcp::release(*h.tcb);
}

void TwoHosts::fail(const std::string& what) {
  if (!outcome_.failure.empty()) return;
  outcome_.failure = fmt::format("at {} us: {}", now_.ns() / 1000, what);
}

void TwoHosts::push(Event e) {
  e.order = ++order_;
  queue_.push(std::move(e));
}

bool TwoHosts::done() const {
  for (const Host& h : host_) {
    const State st = h.tcb->state;
    if (!h.got_eof || (st != State::kClosed && st != State::kTimeWait)) return false;
  }
  return true;
}

void TwoHosts::arm(int side) {
  Host& h = host_[side];
  const Instant at = tcp::deadline(*h.tcb);
  if (at.is_never() || at >= h.timer_at) return;
  h.timer_at = at;
  push({.at = std::max(at, now_),
        .order = 0,
        .what = What::kTimer,
        .side = side,
        .segment = {},
        .copy = {}});
}

bool TwoHosts::emit(int side, const Plan& p) {
  if (chance(s_.ring_full_ppm)) return false;
  put(side, p);
  return true;
}

/// What may leave with `p`, if there is more. @return true: it was a burst; `is_full`: that the
/// ring had no room for.
bool TwoHosts::send_burst(int side, const Plan& p, bool& is_full) {
  Host& h = host_[side];
  tcp::Burst burst;
  if (s_.bursts.bytes == 0 || !tcp::plan_burst(*h.tcb, p, s_.bursts, burst)) return false;
  if (burst.segments < 2 || burst.segments > s_.bursts.segments || burst.bytes > s_.bursts.bytes ||
      burst.slice_count > s_.bursts.slices)
    fail("burst beyond its limits");
  is_full = chance(s_.ring_full_ppm);
  if (is_full) return true;
  ++outcome_.bursts;
  uint32_t bytes = 0, segments = 0;
  burst.for_each(p, [&](const tcp::Burst::Segment& s) {
    bytes += s.text.length;
    ++segments;
    put(side, burst.plan(p, s));
    return true;
  });
  if (bytes != burst.bytes || segments != burst.segments) fail("a burst of other segments");
  tcp::sent_burst(*h.tcb, p, burst, burst.segments, now_);
  return true;
}

void TwoHosts::put(int side, const Plan& p) {
  Host& h = host_[side];
  auto f = std::make_shared<Flying>();
  f->seq = p.seq;
  f->ack = p.ack;
  f->window = p.window;
  f->flags = p.flags;
  f->urgent = p.urgent;
  if (p.options_length % 4 != 0 || p.options_length > 40) fail("options not padded");
  f->options.assign(p.options, p.options + p.options_length);
  if (p.length > 0) {
    const std::byte* data = p.packet->frame + p.at;
    f->payload.assign(data, data + p.length);
    if (p.length + p.options_length > s_.config[side].mss) fail("segment above the path's MSS");
    if (p.length + p.options_length > s_.config[1 - side].mss) fail("segment above the peer's MSS");
    if (p.length == p.packet->length &&
        checksum::fold(p.packet->sum) % 0xffff != checksum::sum(data, p.length) % 0xffff)
      fail("wrong payload sum");
    const StreamOffset first = has(p.flags, SegFlags::kSyn) ? 0 : p.offset - 1;
    for (uint16_t i = 0; i < p.length; ++i)
      if (data[i] != stream_byte(side, first + i)) {
        fail(fmt::format("wrong byte sent at {}", first + i));
        break;
      }
    if (s_.device_holds > Duration{}) {
      ++p.packet->refs;
      ++p.packet->device_refs;
      ++h.device_held;
      push({.at = now_ + Duration::ns(static_cast<int64_t>(
                             upto(static_cast<uint64_t>(s_.device_holds.ns())))),
            .order = 0,
            .what = What::kDeviceDone,
            .side = side,
            .segment = {},
            .packet = p.packet,
            .copy = std::make_shared<std::vector<std::byte>>(f->payload),
            .data_at = p.at});
    }
  }
  ++outcome_.segments;
  if (p.retransmission) ++outcome_.retransmissions;
  if (s_.logged)
    outcome_.log.push_back(
        fmt::format("{} {}: {} {}:{} ack {} win {} urg {} ecn {} again {} options {}", now_.ns(),
                    side, static_cast<unsigned>(f->flags), f->seq.value(), f->payload.size(),
                    f->ack.value(), f->window, f->urgent, static_cast<unsigned>(p.ecn),
                    p.retransmission, fmt::join(f->options, ",")));
  transmit(side, std::move(f));
}

void TwoHosts::transmit(int side, std::shared_ptr<Flying> f) {
  const WireModel& w = s_.wire[side];
  Host& h = host_[side];
  const uint64_t bytes = 54 + f->options.size() + f->payload.size();
  Instant leaves = now_;
  if (w.bytes_per_second != 0) {
    const Instant start = std::max(now_, h.line_free);
    if (w.queue_bytes != 0) {
      const auto backlog =
          static_cast<uint64_t>((start - now_).ns()) * w.bytes_per_second / 1'000'000'000;
      if (backlog > w.queue_bytes) {
        ++outcome_.overflowed;
        return;
      }
    }
    leaves = start + Duration::ns(static_cast<int64_t>(bytes * 1'000'000'000 / w.bytes_per_second));
    h.line_free = leaves;
  }
  if (is_shrunk(w) && f->options.size() + f->payload.size() > w.shrunk_to) return;
  const int copies = chance(w.duplicate_ppm) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    if (chance(w.loss_ppm)) continue;
    Instant at = leaves + w.delay +
                 Duration::ns(static_cast<int64_t>(upto(static_cast<uint64_t>(w.jitter.ns()))));
    if (chance(w.reorder_ppm)) at = at + w.reorder_by;
    push({.at = at, .order = 0, .what = What::kArrive, .side = 1 - side, .segment = f, .copy = {}});
  }
}

void TwoHosts::open(int side) {
  Host& h = host_[side];
  h.opened = true;
  tcp::open_active(*h.tcb, s_.config[side], *h.pool, s_.iss[side], now_);
  if (!s_.syn_data) return;
  static constexpr uint8_t kCookie[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::byte> data(std::min<uint64_t>(s_.app[side].to_send, 3000));
  for (size_t i = 0; i < data.size(); ++i) data[i] = stream_byte(side, i);
  const size_t cut = upto(data.size());
  const iovec v[2] = {{data.data(), cut}, {data.data() + cut, data.size() - cut}};
  h.written = tcp::begin_fast_open(
      *h.tcb, {.cookie = kCookie, .peer_mss = s_.config[1 - side].mss, .data = v}, now_);
}

void TwoHosts::open_passive(int side, Segment&& syn) {
  Host& h = host_[side];
  h.opened = true;
  if (!s_.takes_syn_data) {
    tcp::open_passive(*h.tcb, s_.config[side], *h.pool, syn, s_.iss[side], now_);
    return;
  }
  const bool has_data = !syn.payload.empty();
  tcp::open_fast(*h.tcb, s_.config[side], *h.pool, std::move(syn), s_.iss[side], now_);
  effects(side, has_data ? Effects::kConnected | Effects::kReadable : Effects::kConnected);
  h.is_early = true;
}

void TwoHosts::pump(int side) {
  Host& h = host_[side];
  Plan p;
  unsigned n = 0;
  while (tcp::next_segment(*h.tcb, now_, p)) {
    if (++n > 100'000) {
      fail("next_segment never ends");
      return;
    }
    bool is_full = false;
    const bool is_burst = send_burst(side, p, is_full);
    if (is_burst ? is_full : !emit(side, p)) {
      if (!h.pump_queued) {
        h.pump_queued = true;
        push({.at = now_ + Duration::us(100),
              .order = 0,
              .what = What::kPump,
              .side = side,
              .segment = {},
              .copy = {}});
      }
      break;
    }
    if (!is_burst) tcp::sent(*h.tcb, p, now_);
    check(side);
  }
  arm(side);
}

void TwoHosts::arrive(int side, const Flying& f) {
  Host& h = host_[side];
  Segment s;
  s.seq = f.seq;
  s.ack = f.ack;
  s.window = f.window;
  s.flags = f.flags;
  s.urgent = f.urgent;
  s.options = f.options;
  if (!f.payload.empty()) {
    PacketBuf* b = h.pool->take();
    if (b == nullptr) return;  // the ring was out of frames: a loss
    b->data_at = static_cast<uint16_t>(54 + f.options.size());
    std::memcpy(b->data(), f.payload.data(), f.payload.size());
    b->length = static_cast<uint16_t>(f.payload.size());
    s.payload.push_back(PacketRef(b));
  }
  if (!h.opened) {
    if (!has(f.flags, SegFlags::kSyn) || has(f.flags, SegFlags::kAck)) return;
    open_passive(side, std::move(s));
    return;
  }
  effects(side, tcp::input(*h.tcb, std::move(s), now_));
}

void TwoHosts::effects(int side, Effects e) {
  Host& h = host_[side];
  const auto soon = [&](What what, bool& queued, Duration after) {
    if (queued) return;
    queued = true;
    push({.at = now_ + after, .order = 0, .what = what, .side = side, .segment = {}, .copy = {}});
  };
  if (has(e, Effects::kError)) fail(fmt::format("side {}: error {}", side, h.tcb->error));
  if (has(e, Effects::kConnected)) {
    if (h.connected && !std::exchange(h.is_early, false)) fail("connected twice");
    h.connected = true;
    soon(What::kWrite, h.write_queued, Duration{});
  }
  if (has(e, Effects::kWritable) && h.writer_waits) soon(What::kWrite, h.write_queued, Duration{});
  if (has(e, Effects::kReadable | Effects::kPeerClosed))
    soon(What::kRead, h.read_queued,
         Duration::ns(
             static_cast<int64_t>(upto(static_cast<uint64_t>(s_.app[side].read_pause.ns())))));
}

void TwoHosts::write(int side) {
  Host& h = host_[side];
  const AppModel& a = s_.app[side];
  if (!h.connected || h.finished_writing) return;
  if (!tcp::can_send(*h.tcb)) {
    fail("cannot send though nobody closed");
    return;
  }
  h.writer_waits = false;
  std::vector<std::byte> data;
  while (h.written < a.to_send) {
    const uint64_t n = std::min<uint64_t>(1 + upto(a.max_write - 1), a.to_send - h.written);
    data.resize(n);
    for (uint64_t i = 0; i < n; ++i) data[i] = stream_byte(side, h.written + i);
    const uint64_t cut = upto(n);
    const iovec v[2] = {{data.data(), cut}, {data.data() + cut, n - cut}};
    const size_t took = tcp::append(*h.tcb, v, rng_() % 100 < a.more_percent, now_);
    h.written += took;
    check(side);
    if (took < n) {
      h.writer_waits = true;
      // No frame and nothing outstanding: no ACK will come; a program would be told by the pool.
      if (h.tcb->queue.empty()) {
        h.write_queued = true;
        push({.at = now_ + Duration::ms(1),
              .order = 0,
              .what = What::kWrite,
              .side = side,
              .segment = {},
              .copy = {}});
      }
      return;
    }
    if (a.think > Duration{} && h.written < a.to_send) {
      h.write_queued = true;
      push({.at = now_ +
                  Duration::ns(static_cast<int64_t>(upto(static_cast<uint64_t>(a.think.ns())))),
            .order = 0,
            .what = What::kWrite,
            .side = side,
            .segment = {},
            .copy = {}});
      return;
    }
  }
  h.finished_writing = true;
  tcp::shutdown_write(*h.tcb, now_);
}

void TwoHosts::read(int side) {
  Host& h = host_[side];
  PacketChain& q = tcp::recv_queue(*h.tcb);
  uint32_t want = static_cast<uint32_t>(1 + upto(s_.app[side].max_read - 1));
  uint32_t took = 0;
  while (want > 0 && !q.empty()) {
    const PacketBuf* b = q.front();
    const uint32_t n = std::min<uint32_t>(want, b->length);
    for (uint32_t i = 0; i < n; ++i)
      if (b->data()[i] != stream_byte(1 - side, h.read + i)) {
        fail(fmt::format("side {}: wrong byte received at {}", side, h.read + i));
        return;
      }
    q.trim_front(n);
    h.read += n;
    want -= n;
    took += n;
  }
  tcp::consumed(*h.tcb, took, now_);
  check(side);
  if (!q.empty()) {
    h.read_queued = true;
    push({.at = now_ + Duration::ns(static_cast<int64_t>(
                           1 + upto(static_cast<uint64_t>(s_.app[side].read_pause.ns())))),
          .order = 0,
          .what = What::kRead,
          .side = side,
          .segment = {},
          .copy = {}});
    return;
  }
  if (tcp::peer_closed(*h.tcb)) {
    if (h.read != s_.app[1 - side].to_send)
      fail(fmt::format("side {}: end of file after {} of {}", side, h.read,
                       s_.app[1 - side].to_send));
    h.got_eof = true;
  }
}

/// The sums by mark against a recount, and what the cursors promise.
void TwoHosts::check_scoreboard(int side) {
  Tcb& t = *host_[side].tcb;
  tcp::SendQueue& q = t.queue;
  uint32_t sacked = 0, lost = 0, retrans = 0, due = 0, count = 0;
  for (uint32_t i = q.first(); i != q.end(); ++i) {
    const tcp::SendDesc& d = q[i];
    if (d.offset >= t.snd_nxt) {
      if (d.marks != 0) fail("a mark on what was never sent");
      continue;
    }
    const auto n =
        static_cast<uint32_t>(std::min(d.end(), t.snd_nxt) - std::max(d.offset, t.snd_una));
    if (d.is(tcp::kSacked) && d.is(tcp::kLost | tcp::kRetransmitted)) fail("SACKed and lost");
    if (d.is(tcp::kRetransmitted) && d.retransmits == 0) fail("retransmitted, yet never");
    if (d.is(tcp::kSacked)) sacked += n;
    if (d.is(tcp::kSacked)) ++count;
    if (d.is(tcp::kLost)) lost += n;
    if (d.is(tcp::kRetransmitted)) retrans += n;
    if (!d.waits()) continue;
    due += n;
    if (tcp::SendQueue::before(i, q.board().rtx_index)) fail("lost before the cursor");
  }
  if (t.sack_on && (sacked != t.sacked_out || count != (q.has_ring() ? q.board().sacked_count : 0)))
    fail(fmt::format("sacked_out {} in {}, recount {} in {}", t.sacked_out, q.board().sacked_count,
                     sacked, count));
  if (lost != t.lost_out) fail(fmt::format("lost_out {}, recount {}", t.lost_out, lost));
  if (retrans != t.retrans_out) fail("retrans_out");
  if (due != t.rtx_due) fail(fmt::format("rtx_due {}, recount {}", t.rtx_due, due));
  if (uint64_t{t.sacked_out} + t.lost_out > t.outstanding()) fail("more sacked and lost than sent");
  if (t.recovery == tcp::Recovery::kFast && t.snd_una >= t.queue.board().recover)
    fail("recovery without end");
  if (t.tlp_out && t.recovery != tcp::Recovery::kOpen) fail("a probe in recovery");
}

void TwoHosts::check(int side) {
  Host& h = host_[side];
  const Tcb& t = *h.tcb;
  if (t.state == State::kClosed || !outcome_.failure.empty()) return;
  if (!(t.snd_una <= t.snd_nxt && t.snd_nxt <= t.snd_max)) fail("una <= nxt <= max");
  if (t.snd_max > t.snd_nxt + 1) fail("more than a probe beyond snd_nxt");
  if (t.snd_max > t.snd_end + 1) fail("sent what was never written");
  check_scoreboard(side);
  if (t.rcv_adv < h.edge_seen && t.is_synchronized()) fail("advertised edge moved left");
  h.edge_seen = t.rcv_adv;
  if (t.snd_una < h.una_seen) fail("snd_una moved left");
  h.una_seen = t.snd_una;
  if (t.rcv_acked > t.rcv_nxt) fail("acknowledged what never came");
  // Exactly one of: a loss timer (retransmission, probe, reordering), persist, nothing.
  const bool watches =
      t.rtx_timer != tcp::RtxTimer::kNone && t.rtx_timer != tcp::RtxTimer::kPersist;
  if (t.outstanding() > 0) {
    if (!watches || t.rtx_at.is_never())
      fail("outstanding data without a retransmission timer");
    else if (t.rtx_at > t.rto_at)
      fail("a timer beyond the retransmission timeout");
  } else if (watches) {
    fail("retransmission timer with nothing outstanding");
  }
  if ((t.rtx_timer == tcp::RtxTimer::kNone) != t.rtx_at.is_never()) fail("timer kind and deadline");
  auto& q = const_cast<Tcb&>(t).queue;
  StreamOffset at = 0;
  const uint32_t step = std::max(1U, q.count() / 16);  // the whole ring now and then
  const bool whole = s_.logged || rng_() % 64 == 0;
  for (uint32_t i = 0; i < q.count(); i += whole ? 1 : step) {
    if (q.at(i).length == 0 || (i > 0 && q.at(i).offset < at)) fail("ring not sorted");
    if (whole && i > 0 && q.at(i).offset != at) fail("ring has a gap");
    if (q.at(i).packet == nullptr) {
      if (i + 1 != q.count() || !t.fin_queued || q.at(i).length != 1) fail("no frame, no FIN");
    } else if (q.at(i).packet->length != q.at(i).length) {
      fail("frame and descriptor differ");
    }
    at = q.at(i).end();
  }
  if (!q.empty() && q.back().end() != t.snd_end + (t.fin_queued ? 1 : 0))
    fail("ring does not end at snd_end");
  if (!q.empty() && q.front().offset > std::max<StreamOffset>(t.snd_una, 1))
    fail("ring begins beyond una");
  if (q.empty() && t.snd_una > 0 && t.snd_una < t.snd_end && t.state < State::kTimeWait)
    fail("data without frames");
  if (t.reassembly != nullptr) {
    StreamOffset last = t.rcv_nxt;
    uint32_t buffers = 0;
    for (uint32_t i = 0; i < t.reassembly->count(); ++i) {
      const auto& r = t.reassembly->at(i);
      if (r.begin <= last || r.end <= r.begin) fail("reassembly ranges touch or overlap");
      if (r.data.bytes() != r.end - r.begin) fail("reassembly bytes");
      buffers += r.data.buffers();
      last = r.end;
    }
    if (buffers != t.reassembly->buffers()) fail("reassembly buffer count");
    if (last > t.rcv_adv) fail("reassembly beyond the advertised edge");
  }
  const uint64_t pinned =
      (uint64_t{t.recv_queue.buffers()} + (t.reassembly ? t.reassembly->buffers() : 0)) *
      s_.frame_bytes;
  if (t.recv_queue.bytes() > t.rcv_buf + (1ULL << t.rcv_wscale))
    fail("more received than the buffer holds");
  if (pinned > 3ULL * t.rcv_buf + 64ULL * s_.frame_bytes)
    fail(fmt::format("frames pinned without limit: side {} queue {} in {} reassembly {} in {}",
                     side, t.recv_queue.bytes(), t.recv_queue.buffers(),
                     t.reassembly ? t.reassembly->bytes() : 0,
                     t.reassembly ? t.reassembly->buffers() : 0));
  if (t.cc.cwnd < t.mss && t.state >= State::kEstablished) fail("cwnd below a segment");
}

Outcome TwoHosts::run() {
  for (int side = 0; side < (s_.simultaneous_open ? 2 : 1); ++side) {
    open(side);
    pump(side);
  }
  outcome_.start = now_;
  const Instant limit = now_ + s_.limit;
  while (!queue_.empty() && outcome_.failure.empty() && !done()) {
    const Event e = queue_.top();
    queue_.pop();
    if (e.at > limit) {
      fail("did not finish");
      break;
    }
    const Tcb& sender = *host_[0].tcb;
    if (sender.recovery != tcp::Recovery::kOpen)
      outcome_.recovering = outcome_.recovering + (e.at - now_);
    if (sender.state >= State::kEstablished) {
      outcome_.syn_data = sender.syn_data && sender.fast_open;
      if (sender.retransmits > retransmits_seen_) ++outcome_.timeouts;
      retransmits_seen_ = sender.retransmits;
      outcome_.probes = sender.tlp_probes;
      (is_shrunk(s_.wire[0]) ? outcome_.mss_shrunk : outcome_.mss_end) = sender.mss;
      outcome_.undos = sender.undos;
    }
    now_ = e.at;
    ++outcome_.events;
    Host& h = host_[e.side];
    switch (e.what) {
      case What::kArrive:
        arrive(e.side, *e.segment);
        if (s_.gathers > Duration{}) {
          check(e.side);
          if (!h.pump_queued) {
            h.pump_queued = true;
            push({.at = now_ + s_.gathers,
                  .order = 0,
                  .what = What::kPump,
                  .side = e.side,
                  .segment = {},
                  .copy = {}});
          }
          arm(e.side);
          continue;
        }
        break;
      case What::kTimer:
        if (h.timer_at > now_) continue;
        h.timer_at = Instant::never();
        if (tcp::deadline(*h.tcb) <= now_) {
          effects(e.side, tcp::on_deadline(*h.tcb, now_));
          if (tcp::deadline(*h.tcb) <= now_)
            fail(fmt::format("deadline does not move on: timer {} at {} us, timeout at {} us",
                             static_cast<int>(h.tcb->rtx_timer), h.tcb->rtx_at.ns() / 1000,
                             h.tcb->rto_at.ns() / 1000));
        }
        break;
      case What::kWrite:
        h.write_queued = false;
        write(e.side);
        break;
      case What::kRead:
        h.read_queued = false;
        read(e.side);
        break;
      case What::kPump:
        h.pump_queued = false;
        break;
      case What::kDeviceDone: {
        if (std::memcmp(e.packet->frame + e.data_at, e.copy->data(), e.copy->size()) != 0)
          fail("a frame was written while the device read it");
        --e.packet->device_refs;
        --h.device_held;
        PacketPool::drop(e.packet);
        continue;
      }
    }
    check(e.side);
    pump(e.side);
    check(e.side);
  }
  if (outcome_.failure.empty() && !done())
    fail(fmt::format("stuck: states {} {} read {} {} written {} {} una {} {} nxt {} {} edge {} {}",
                     static_cast<int>(host_[0].tcb->state), static_cast<int>(host_[1].tcb->state),
                     host_[0].read, host_[1].read, host_[0].written, host_[1].written,
                     host_[0].tcb->snd_una, host_[1].tcb->snd_una, host_[0].tcb->snd_nxt,
                     host_[1].tcb->snd_nxt, host_[0].tcb->snd_edge, host_[1].tcb->snd_edge));
  for (Host& h : host_) {
    tcp::release(*h.tcb);
    if (h.pool->free_count() + 0 < h.pool->size() && outcome_.failure.empty()) {
      // Frames that a device still reads are not leaked.
      uint32_t held = 0;
      for (uint32_t i = 0; i < h.pool->size(); ++i) held += h.pool->at(i).refs > 0 ? 1 : 0;
      uint32_t device = 0;
      for (uint32_t i = 0; i < h.pool->size(); ++i)
        device += h.pool->at(i).refs > 0 && h.pool->at(i).refs == h.pool->at(i).device_refs ? 1 : 0;
      if (held != device) fail("a frame was leaked");
    }
  }
  outcome_.end = now_;
  return outcome_;
}

}  // namespace vireo::sim
