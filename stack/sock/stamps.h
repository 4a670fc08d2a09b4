// Time stamps by SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING: which are asked for, and the
// ancillary data in which they are told.
// Owner: none (functions). Thread: any. Source: Linux Documentation/networking/timestamping.rst,
// net/socket.c __sock_recv_timestamp(), net/ipv4/tcp.c tcp_recv_timestamp().
#pragma once

#include <linux/net_tstamp.h>

#include <cstdint>

#include "stack/sock/cmsg.h"
#include "stack/sock/options/values.h"

namespace vireo {

class Engine;

// Newer than the headers of Debian 12.
constexpr uint32_t kStampOptIdTcp = 1U << 16;      // SOF_TIMESTAMPING_OPT_ID_TCP
constexpr uint32_t kStampOptRxFilter = 1U << 17;   // SOF_TIMESTAMPING_OPT_RX_FILTER
constexpr uint32_t kStampTxCompletion = 1U << 18;  // SOF_TIMESTAMPING_TX_COMPLETION

/// SOF_TIMESTAMPING_TX_RECORD_MASK: what a single send may ask for.
constexpr uint32_t kStampsOfSend = SOF_TIMESTAMPING_TX_RECORD_MASK | kStampTxCompletion;
/// Those for which a datagram is numbered: not TX_ACK.
constexpr uint32_t kStampsOfDatagram = kStampsOfSend & ~uint32_t{SOF_TIMESTAMPING_TX_ACK};

/// Flags whose stamps Vireo does not have: the socket is the kernel's.
constexpr uint32_t kStampsOfKernel =
    ~(kStampsOfSend | SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RX_SOFTWARE |
      SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_SYS_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE |
      SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_CMSG | SOF_TIMESTAMPING_OPT_TSONLY |
      SOF_TIMESTAMPING_OPT_PKTINFO | SOF_TIMESTAMPING_OPT_TX_SWHW | kStampOptIdTcp |
      kStampOptRxFilter);

inline uint32_t stamp_flags(const SocketOptions& o) {
  return static_cast<uint32_t>(o.socket.timestamping);
}
/// SO_TIMESTAMPING asks for times of the device's clock that the kernel's driver takes now
/// (SIOCSHWTSTAMP), and no device of ours does. Readies those that do. Opens devices. Holder of the
/// engine's lock.
bool only_kernel_has_clock(Engine& e, uint32_t flags);

/// Frames are to have their time when they come.
inline bool asks_arrivals(const SocketOptions& o) {
  return (o.socket.stamp | o.socket.keeps_stamp) != 0 ||
         (stamp_flags(o) & SOF_TIMESTAMPING_RX_SOFTWARE) != 0;
}

/// The times of a received frame. ns of CLOCK_REALTIME, or of the device; 0: none.
struct FrameTimes {
  int64_t arrival = 0;
  int64_t device = 0;
};

/// Puts SO_TIMESTAMP or SO_TIMESTAMPNS with `ns`.
inline void put_stamp(const SocketOptions& o, int64_t ns, CmsgWriter& out) {
  constexpr int64_t kSecond = 1'000'000'000;
  // Both layouts are the same on 64-bit machines.
  const bool is_new = o.socket.stamp_new != 0;
  if (o.socket.stamp_ns != 0)
    out.put(SOL_SOCKET, is_new ? SO_TIMESTAMPNS_NEW : SO_TIMESTAMPNS_OLD,
            timespec{ns / kSecond, ns % kSecond});
  else
    out.put(SOL_SOCKET, is_new ? SO_TIMESTAMP_NEW : SO_TIMESTAMP_OLD,
            timeval{ns / kSecond, ns % kSecond / 1000});
}
/// Puts SCM_TIMESTAMPING with those that are not 0, if there are any. @return whether there were.
inline bool put_timestamping(const SocketOptions& o, FrameTimes t, CmsgWriter& out) {
  constexpr int64_t kSecond = 1'000'000'000;
  if (t.arrival == 0 && t.device == 0) return false;
  scm_timestamping times{};
  times.ts[0] = {t.arrival / kSecond, t.arrival % kSecond};
  times.ts[2] = {t.device / kSecond, t.device % kSecond};
  const bool is_new = o.socket.stamp_new != 0;
  out.put(SOL_SOCKET, is_new ? SO_TIMESTAMPING_NEW : SO_TIMESTAMPING_OLD, times);
  return true;
}

/// Those of the times of a received packet that SO_TIMESTAMPING reports.
inline FrameTimes reported(const SocketOptions& o, FrameTimes t) {
  const uint32_t f = stamp_flags(o);
  const bool filters = (f & kStampOptRxFilter) != 0;
  if ((f & SOF_TIMESTAMPING_SOFTWARE) == 0 || (filters && (f & SOF_TIMESTAMPING_RX_SOFTWARE) == 0))
    t.arrival = 0;
  if ((f & SOF_TIMESTAMPING_RAW_HARDWARE) == 0 ||
      (filters && (f & SOF_TIMESTAMPING_RX_HARDWARE) == 0))
    t.device = 0;
  return t;
}

}  // namespace vireo
