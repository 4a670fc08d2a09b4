// SYN cookies: the SYN-ACK's sequence number is the whole memory of a half-open connection.
//
//   number    keyed hash of (tuple, IRS, minute, whether timestamps are on), 30 bits
//             | 2 bits: which of four segment sizes
//   TSval     the timestamp clock with its low 6 bits replaced: SACK, ECN and the window shift
//
// A guess is right with probability 2^-29 while cookies are accepted at all, which is only for two
// minutes after a listener overflowed. Owner: none (pure functions). Thread: any.
// Source: RFC 4987 §3.6; the layout of TSval is Linux's (net/ipv4/syncookies.c).
#pragma once

#include "stack/tcp/isn.h"
#include "stack/tcp/syn_record.h"

namespace vireo::tcp {

inline constexpr Duration kCookieEpoch = Duration::s(60);
inline constexpr unsigned kCookieEpochs = 2;  ///< a cookie is good in its own and the next
inline constexpr Duration kCookieLife = kCookieEpoch * kCookieEpochs;

/// Makes `r`, whose tuple and options are those of the SYN, one that can be had back from its
/// cookie: sets iss, lowers the segment size to one of four; without timestamps SACK and scaling
/// are lost (as Linux).
void make_cookie(SynRecord& r, const IsnSecret& key, Instant now);
/// plan_syn_ack() of such a record: the options hide in TSval.
void plan_cookie_syn_ack(const SynRecord& r, const Config& c, Instant now, Plan& p);
/// The record back from the third segment; its tuple is set by the caller. @return false: not one
/// of our cookies, or too old. `r.listener` and the links are not touched.
bool open_cookie(SynRecord& r, const IsnSecret& key, const Config& c, const Segment& s,
                 Instant now);

}  // namespace vireo::tcp
