#include "tests/script/runner.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/byteorder.h"

namespace vireo::script {
namespace {

constexpr uint8_t kFin = 0x01, kSyn = 0x02, kRst = 0x04, kPsh = 0x08, kAck = 0x10;

void put32(std::vector<uint8_t>& out, uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(v >> shift));
}
uint32_t get32(const uint8_t* p) {
  be32 v;
  std::memcpy(static_cast<void*>(&v), p, 4);
  return v;
}

int icmp_errno(const std::string& code) {
  if (code == "net_unreachable") return ENETUNREACH;
  if (code == "host_unreachable") return EHOSTUNREACH;
  if (code == "protocol_unreachable" || code == "proto_unreachable") return ENOPROTOOPT;
  if (code == "port_unreachable") return ECONNREFUSED;
  if (code == "source_route_failed") return EOPNOTSUPP;
  return EHOSTUNREACH;
}

}  // namespace

Runner::Runner(const Script& script, Seq32 iss, Seq32 irs, const tcp::BurstLimits& bursts)
    : script_(script), iss_(iss), irs_(irs) {
  tcp::Config c;
  c.mss = 1460;
  std::string bad;
  if (!configure(script.settings, c, bad)) failure_ = script.path + ": unknown setting " + bad;
  host_ = std::make_unique<Host>(c, iss);
  host_->set_bursts(bursts);
  zero_ = last_ = host_->now();
}

bool Runner::fail(const std::string& what) {
  if (failure_.empty()) {
    failure_ = script_.path;
    if (event_ != nullptr) failure_ += ":" + std::to_string(event_->line);
    failure_ += ": " + what;
    if (event_ != nullptr) failure_ += "\n  script:   " + event_->text;
  }
  return false;
}

std::string Runner::run() {
  if (!failure_.empty()) return failure_;
  for (const Event& e : script_.events) {
    event_ = &e;
    if (!play(e)) return failure_;
  }
  if (settle(Instant::never())) no_segment_before(Instant::never());
  if (failure_.empty() && host_->pool().free_count() == 0) fail("the pool is empty");
  return failure_;
}

// ---- time

Instant Runner::start_of(const Event& e) {
  switch (e.when.kind) {
    case When::Kind::kAbsolute:
      return zero_ + e.when.from;
    case When::Kind::kRelative:
      return last_ + e.when.from;
    case When::Kind::kAny:
      return last_;
  }
  return last_;
}

/// What left before `t` was not expected by any event up to now.
bool Runner::no_segment_before(Instant t) {
  auto& sent = host_->sent();
  if (sent.empty() || sent.front().at >= t) return true;
  return fail("unexpected segment\n  actual:   " + describe(sent.front()));
}

/// Moves the clock; a segment that leaves on the way must not stay unexpected.
bool Runner::advance(Instant to) {
  while (host_->deadline() <= to) {
    host_->step(host_->deadline());
    if (!retry_pending()) return false;
  }
  host_->step(to);
  return retry_pending() && no_segment_before(to);
}

bool Runner::advance_until_sent(Instant to) {
  while (host_->sent().empty() && host_->deadline() <= to) {
    host_->step(host_->deadline());
    if (!retry_pending()) return false;
  }
  if (host_->sent().empty() && host_->now() < to && !to.is_never()) host_->step(to);
  return true;
}

bool Runner::retry_pending() {
  if (!pending_ || pending_->finished) return true;
  const int64_t r = pending_->retry();
  if (r == -EAGAIN || r == -EINPROGRESS || r == -EALREADY) return true;
  pending_->finished = true;
  pending_->result = r;
  pending_->at = host_->now();
  return true;
}

/// The call in progress must have returned at its time, if it returned or its time is over.
bool Runner::settle(Instant by) {
  if (!pending_) return true;
  if (!pending_->finished && by <= pending_->due + script_.tolerance) return true;
  event_ = pending_->event;
  if (!pending_->finished) return fail("the call did not return in time");
  const Duration off = pending_->at - pending_->due;
  if (off > script_.tolerance || off < Duration{} - script_.tolerance)
    return fail("the call returned at " + std::to_string(seconds(pending_->at)));
  pending_.reset();
  return true;
}

bool Runner::play(const Event& e) {
  const Instant start = start_of(e);
  if (start < last_ && e.when.kind == When::Kind::kAbsolute) return fail("time runs backwards");
  const auto* packet = std::get_if<PacketSpec>(&e.action);
  if (packet != nullptr && !packet->inbound) {
    if (!expect(e, *packet)) return false;
  } else {
    if (!advance(start) || !settle(start)) return false;
    bool ok = true;
    if (packet != nullptr)
      ok = inject(*packet);
    else if (const auto* icmp = std::get_if<IcmpSpec>(&e.action))
      ok = inject(*icmp);
    else if (const auto* c = std::get_if<Call>(&e.action))
      ok = call(e, *c);
    else
      ok = check(std::get<std::vector<Assertion>>(e.action));
    if (!ok || !retry_pending() || !failure_.empty()) return false;
  }
  last_ = e.when.kind == When::Kind::kAny || e.when.from != e.when.to
              ? (e.when.blocking ? start : host_->now())
              : start;
  return true;
}

// ---- segments in

std::vector<uint8_t> Runner::option_bytes(const std::vector<Option>& options) const {
  std::vector<uint8_t> out;
  for (const Option& o : options) {
    switch (o.kind) {
      case Option::Kind::kNop:
        out.push_back(1);
        break;
      case Option::Kind::kEnd:
        out.push_back(0);
        break;
      case Option::Kind::kMss:
        put32(out, 0x02040000U | o.values[0]);
        break;
      case Option::Kind::kWindowScale:
        out.insert(out.end(), {3, 3, static_cast<uint8_t>(o.values[0])});
        break;
      case Option::Kind::kSackPermitted:
        out.insert(out.end(), {4, 2});
        break;
      case Option::Kind::kSack:
        out.insert(out.end(), {5, static_cast<uint8_t>(2 + 4 * o.values.size())});
        for (const uint32_t v : o.values) put32(out, (iss_ + v).value());
        break;
      case Option::Kind::kTimestamps:
        out.insert(out.end(), {8, 10});
        put32(out, o.values[0]);
        put32(out, ts_known_ && o.values[1] != 0 ? o.values[1] + ts_base_ : o.values[1]);
        break;
      case Option::Kind::kRaw:
        out.insert(out.end(),
                   {static_cast<uint8_t>(o.values[0]), static_cast<uint8_t>(o.values.size() + 1)});
        for (size_t i = 1; i < o.values.size(); ++i)
          out.push_back(static_cast<uint8_t>(o.values[i]));
        break;
    }
  }
  while (out.size() % 4 != 0) out.push_back(0);
  return out;
}

bool Runner::inject(const PacketSpec& p) {
  WireSegment w;
  w.seq = (irs_ + p.seq).value();
  if (p.ack) w.ack = (iss_ + *p.ack).value();
  w.window = p.window.value_or(65535);
  w.urgent = p.urgent;
  w.flags = p.flags;
  w.ecn = p.ecn == EcnBits::kAny ? EcnBits::kNotEct : p.ecn;
  w.options = option_bytes(p.options);
  if (w.options.size() > 40) return fail("more than 40 bytes of options");
  for (uint32_t i = 0; i < p.length; ++i) w.payload += stream_byte(p.seq + i, false);
  host_->deliver(w);
  return true;
}

bool Runner::inject(const IcmpSpec& i) {
  host_->deliver_icmp((iss_ + i.quoted_seq).value(), icmp_errno(i.code), i.mtu);
  return true;
}

// ---- segments out

PacketSpec Runner::as_spec(const WireSegment& w) const {
  PacketSpec p;
  p.flags = w.flags;
  p.seq = w.absolute ? w.seq : w.seq - iss_.value();
  p.length = static_cast<uint32_t>(w.payload.size());
  if ((w.flags & kAck) != 0) p.ack = w.ack - irs_.value();
  p.window = w.window;
  p.urgent = w.urgent;
  p.ecn = w.ecn;
  const std::vector<uint8_t>& b = w.options;
  for (size_t i = 0; i < b.size();) {
    Option o;
    const size_t n = b[i] <= 1 || i + 1 == b.size() ? 1 : b[i + 1];
    if (b[i] == 0) o.kind = Option::Kind::kEnd;
    if (n > 1 && (n < 2 || i + n > b.size())) break;
    if (b[i] == 2) {
      o.kind = Option::Kind::kMss;
      o.values = {static_cast<uint32_t>(b[i + 2] << 8 | b[i + 3])};
    } else if (b[i] == 3) {
      o.kind = Option::Kind::kWindowScale;
      o.values = {b[i + 2]};
    } else if (b[i] == 4) {
      o.kind = Option::Kind::kSackPermitted;
    } else if (b[i] == 5) {
      o.kind = Option::Kind::kSack;
      for (size_t at = i + 2; at + 4 <= i + n; at += 4)
        o.values.push_back(get32(&b[at]) - irs_.value());
    } else if (b[i] == 8) {
      o.kind = Option::Kind::kTimestamps;
      o.values = {get32(&b[i + 2]) - (ts_known_ ? ts_base_ : 0), get32(&b[i + 6])};
    } else if (b[i] > 1) {
      o.kind = Option::Kind::kRaw;
      o.values = {b[i]};
      for (size_t at = i + 2; at < i + n; ++at) o.values.push_back(b[at]);
    }
    p.options.push_back(o);
    i += n;
  }
  return p;
}

std::string Runner::describe(const WireSegment& w) const {
  char at[32];
  std::snprintf(at, sizeof at, "%.6f ", seconds(w.at));
  return at + to_string(as_spec(w));
}

bool Runner::options_match(const PacketSpec& want, const PacketSpec& got) const {
  if (want.any_options) return true;
  if (want.options.size() != got.options.size()) return false;
  for (size_t i = 0; i < want.options.size(); ++i) {
    const Option& a = want.options[i];
    const Option& b = got.options[i];
    if (a.kind != b.kind || a.values.size() != b.values.size()) return false;
    for (size_t n = 0; n < a.values.size(); ++n) {
      const bool clock = a.kind == Option::Kind::kTimestamps && n == 0;
      const auto off = static_cast<int32_t>(a.values[n] - b.values[n]);
      if (std::abs(off) > (clock ? script_.tolerance.ms() : 0)) return false;
    }
  }
  return true;
}

/// Payload sent must be the bytes that were written at that place of the stream.
bool Runner::payload_right(const WireSegment& w) const {
  const uint32_t first = w.seq - iss_.value() + ((w.flags & kSyn) != 0 ? 1 : 0);
  for (uint32_t i = 0; i < w.payload.size(); ++i)
    if (w.payload[i] != stream_byte(first + i, true)) return false;
  return true;
}

bool Runner::expect(const Event& e, const PacketSpec& want) {
  const bool any = e.when.kind == When::Kind::kAny;
  const Instant from = start_of(e);
  const Instant to = any ? Instant::never() : from + (e.when.to - e.when.from);
  const Instant latest = any ? Instant::never() : to + script_.tolerance;
  if (!advance_until_sent(latest)) return false;
  auto& sent = host_->sent();
  if (sent.empty()) return fail("no segment was sent");
  WireSegment w = std::move(sent.front());
  sent.pop_front();
  if ((w.flags & kSyn) != 0) {  // the script's number says where its stream starts
    iss_ = Seq32(w.seq) - want.seq;
  }
  if (!ts_known_) {
    const PacketSpec first = as_spec(w);
    for (size_t i = 0; i < std::min(first.options.size(), want.options.size()); ++i)
      if (first.options[i].kind == Option::Kind::kTimestamps &&
          want.options[i].kind == Option::Kind::kTimestamps) {
        ts_base_ = first.options[i].values[0] - want.options[i].values[0];
        ts_known_ = true;
      }
  }
  if (!payload_right(w)) return fail("wrong payload\n  actual:   " + describe(w));
  // A longer run than one segment: its continuation left at the same instant.
  while (w.payload.size() < want.length && !w.payload.empty() && !sent.empty()) {
    const WireSegment& next = sent.front();
    const bool joins = next.at == w.at && !next.payload.empty() &&
                       next.seq == w.seq + static_cast<uint32_t>(w.payload.size()) &&
                       next.ack == w.ack && next.options == w.options &&
                       (w.flags & (kFin | kSyn | kRst)) == 0;
    if (!joins) break;
    if (!payload_right(next)) return fail("wrong payload\n  actual:   " + describe(next));
    w.payload += next.payload;
    w.flags = static_cast<uint8_t>(next.flags | (w.flags & ~kPsh));
    w.window = next.window;
    sent.pop_front();
  }
  const PacketSpec got = as_spec(w);
  const bool same = got.flags == want.flags && got.seq == want.seq && got.length == want.length &&
                    got.ack == want.ack && (!want.window || got.window == want.window) &&
                    got.urgent == want.urgent &&
                    (want.ecn == EcnBits::kAny || want.ecn == got.ecn) && options_match(want, got);
  if (!same)
    return fail("wrong segment\n  expected: " + to_string(want) + "\n  actual:   " + describe(w));
  if (!any && (w.at < from - script_.tolerance || w.at > latest))
    return fail("wrong time, expected at " + std::to_string(seconds(from)) +
                "\n  actual:   " + describe(w));
  if (host_->now() < from) return advance(from) && settle(from);
  return settle(host_->now());
}

}  // namespace vireo::script
