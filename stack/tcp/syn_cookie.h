// SYN cookies: the SYN-ACK itself encodes the state of a half-open connection; nothing is stored.
//
//   number    keyed hash of (tuple, IRS, minute, whether timestamps are on), 30 bits
//             | 2 bits: which of four segment sizes
//   TSval     the timestamp clock with its low 6 bits replaced: SACK, ECN and the window shift
//
// A guess succeeds with probability 2^-29, and cookies are accepted only for two minutes after a
// listener overflowed. Owner: none (pure functions). Thread: any.
// Source: RFC 4987 §3.6; the layout of TSval is Linux's (net/ipv4/syncookies.c).
#pragma once

#include "stack/tcp/isn.h"
#include "stack/tcp/syn_record.h"

namespace vireo::tcp {

inline constexpr Duration kCookieEpoch = Duration::s(60);
inline constexpr unsigned kCookieEpochs = 2;  ///< a cookie is valid in its own epoch and the next
inline constexpr Duration kCookieLife = kCookieEpoch * kCookieEpochs;

/// Makes `r`, which has the tuple and options of the SYN, recoverable from its cookie: sets iss,
/// lowers the segment size to one of four. Without timestamps, SACK and window scaling are lost (as
/// Linux).
void make_cookie(SynRecord& r, const IsnSecret& key, Instant now);
/// plan_syn_ack() for such a record: TSval encodes the options.
void plan_cookie_syn_ack(const SynRecord& r, const Config& c, Instant now, Plan& p);
/// Recovers the record from the third segment; the caller sets its tuple. @return false: not one of
/// our cookies, or too old. Does not change `r.listener` and the links.
bool open_cookie(SynRecord& r, const IsnSecret& key, const Config& c, const Segment& s,
                 Instant now);

}  // namespace vireo::tcp
