#include <bit>

#include "stack/tcp/cc_kinds.h"

namespace vireo::tcp {

namespace {

/// Newton's method, x >= 0, to double precision. Not libm's: the library would depend on libm, and
/// every program would load it.
double cube_root(double x) {
  if (!(x > 0)) return 0;
  // Dividing the bits by three is within 6 % of the root; each step squares the error.
  double r = std::bit_cast<double>(std::bit_cast<uint64_t>(x) / 3 + (uint64_t{0x2A9F7893} << 32));
  for (int i = 0; i < 5; ++i) r = (2 * r + x / (r * r)) / 3;
  return r;
}

constexpr Instant kNotBegun{};

double seconds(Duration d) { return static_cast<double>(d.ns()) * 1e-9; }

/// RFC 9438 §4.2. After a timeout, or a slow start that ended without loss, the curve begins at its
/// plateau (§4.8, §4.10).
void begin_stage(Cubic& s, uint32_t cwnd, uint32_t mss, Instant now) {
  s.epoch = now;
  s.last_ack = now;
  s.w_est = cwnd;
  s.fraction = 0;
  if (s.w_max <= cwnd) {
    s.w_max = cwnd;
    s.k = 0;
    return;
  }
  s.k = static_cast<float>(cube_root((s.w_max - cwnd) / (Cubic::kC * mss)));
}

/// W_cubic in bytes.
double curve(const Cubic& s, double t, uint32_t mss) {
  const double x = t - s.k;
  return Cubic::kC * x * x * x * mss + s.w_max;
}

}  // namespace

void cubic_avoid(CongestionControl& c, const CcAck& a, Instant now) {
  Cubic& s = c.cubic;
  if (s.epoch == kNotBegun) begin_stage(s, c.cwnd, a.mss, now);
  // Time without ACKs of a fully used window is not counted (§4.2, §5.8): such ACKs come at least
  // once a round trip.
  const Duration silence = now - s.last_ack - std::max(a.rtt, a.srtt);
  if (silence > Duration{}) s.epoch = s.epoch + silence;
  s.last_ack = now;

  const double cwnd = c.cwnd;
  const double alpha = s.w_est < c.prior_cwnd ? Cubic::kAlpha : 1.0;
  s.w_est += alpha * a.acked * a.mss / cwnd;
  const double t = seconds(now - s.epoch);
  double next;
  if (curve(s, t, a.mss) < s.w_est) {  // §4.3: Reno would be faster
    next = std::max(s.w_est, cwnd + s.fraction);
  } else {
    const double target = std::clamp(curve(s, t + seconds(a.srtt), a.mss), cwnd, 1.5 * cwnd);
    next = cwnd + s.fraction + (target - cwnd) * a.acked / cwnd;
  }
  next = std::min<double>(next, CongestionControl::kMaxWindow);
  c.cwnd = static_cast<uint32_t>(next);
  s.fraction = static_cast<float>(next - c.cwnd);
}

void cubic_on_congestion(CongestionControl& c, CcEvent e, uint32_t flight, uint32_t mss) {
  Cubic& s = c.cubic;
  s.prior_w_max = s.w_max;
  // §4.8: after a timeout the plateau is unknown. §4.6, §4.7: otherwise it is here, or lower if
  // cwnd did not reach the last one (another flow needs room).
  if (e == CcEvent::kTimeout)
    s.w_max = 0;
  else if (c.cwnd < s.w_max)
    s.w_max = static_cast<uint32_t>(c.cwnd * (1 + Cubic::kBeta) / 2);
  else
    s.w_max = c.cwnd;
  s.epoch = kNotBegun;
  const double beta = e == CcEvent::kEcn ? Cubic::kBetaEcn : Cubic::kBeta;
  // §4.6: based on cwnd as in Linux, but at most what RFC 7661 §4.2 lets it grow to.
  const auto window = static_cast<uint32_t>(std::min<uint64_t>(c.cwnd, 2 * uint64_t{flight}));
  c.ssthresh = std::max(static_cast<uint32_t>(window * beta), 2 * mss);
}

void cubic_undo(CongestionControl& c) {
  c.cubic.w_max = c.cubic.prior_w_max;
  c.cubic.epoch = kNotBegun;  // the stage restarts at the point of the curve where cwnd is
}

}  // namespace vireo::tcp
