// What a socket wants to know of what it sends: time stamps (SO_TIMESTAMPING) and the end of
// MSG_ZEROCOPY, on its error queue.
//
//   stream     Stamps are of the last byte of a call. Its place in the stream is marked before the
//              data is queued; each frame with a marked byte, and its ACK, is reported.
//   datagram   The frame leaves within the call, or the kernel's socket sends it: then the report
//              is on that socket's queue, with the number that the kernel gave it.
//
// Owner: File, kept for reuse when that is closed. Guard: the engine's lock for marks; a leaf lock
// for the rest.
// Source: Linux Documentation/networking/timestamping.rst, msg_zerocopy.rst.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/result.h"
#include "core/seq.h"
#include "stack/engine/left_frame.h"
#include "stack/sock/error_queue.h"
#include "stack/sock/file.h"
#include "stack/sock/options/values.h"

namespace vireo {

inline constexpr int kScmTsOptId = 81;  ///< SCM_TS_OPT_ID, newer than the headers of Debian 12

/// What one send asks for.
struct SendAsks {
  uint32_t stamps = 0;         ///< SOF_TIMESTAMPING_TX_*
  std::optional<uint32_t> id;  ///< of a datagram: its number
  bool is_counted = false;     ///< by DatagramIds
  bool is_zerocopy = false;    ///< and the socket has SO_ZEROCOPY
  const File* from = nullptr;  ///< of a datagram: its socket
};

/// The numbers of datagrams with OPT_ID: ours, and those that the kernel's socket counted for what
/// it sent.
struct DatagramIds {
  uint32_t next = 0;
  uint32_t kernel_next = 0;
  struct Pair {
    uint32_t kernel;
    uint32_t ours;
  };
  std::vector<Pair> differing;  ///< of datagrams that the kernel sent, the last ones

  void note_kernels(uint32_t ours);
  /// For the number in a report of the kernel's.
  uint32_t ours(uint32_t kernel) const noexcept;
};

struct SendReports {
  /// A byte of a stream whose way is reported.
  struct Mark {
    StreamOffset at;
    uint32_t stamps;
    uint32_t length = 0;                          ///< of `text`
    std::unique_ptr<std::byte[]> text = nullptr;  ///< of the segment, for TX_ACK
  };

  ErrorQueue queue;
  // ---- a stream: engine's lock
  std::deque<Mark> marks;  ///< by place
  StreamOffset numbered_from = 0;
  // ---- control lock
  bool is_numbered = false;  ///< SOF_TIMESTAMPING_OPT_ID was set when last looked at
  // ---- a datagram socket: `lock`
  Lock lock;
  DatagramIds ids VIREO_GUARDED_BY(lock);
  uint32_t zerocopy_next = 0;  ///< a stream: engine's lock

  /// Back to the state of a new socket.
  void reset();
  void reset_after_fork() noexcept {
    lock.reset_after_fork();
    queue.reset_after_fork();
  }
};

namespace send_reports {

/// Made if there are none. Control lock held. Null: no memory.
SendReports* of(File& f) noexcept;

/// The socket's options changed, or its flow is new. Control lock held, or the File is not in the
/// table; the engine's lock held if there is a flow.
void follow(File& f, Engine* e) noexcept;
/// The same for a new flow of a connection.
inline void follow_new(File& f, Engine& e) noexcept {
  const SocketLevelOptions& o = f.tcp.options->socket;
  if ((o.stamp | o.timestamping | o.zerocopy) != 0) [[unlikely]]
    follow(f, &e);
}

/// What a send with these flags, without ancillary data, asks for.
SendAsks asks_of(const SocketOptions& o, int flags) noexcept;
/// The same with ancillary data. Errors: EINVAL, EFAULT.
Result<SendAsks> asks_of_stream(const SocketOptions& o, const msghdr& msg, int flags) noexcept;
struct DatagramAsks {
  SendAsks asks;
  bool is_kernels = false;  ///< it is malformed
};
DatagramAsks asks_of_datagram(const SocketOptions& o, const msghdr& msg, int flags) noexcept;

// ---- a stream. Holder of the engine's lock.
/// A call appends `bytes` after those that are queued.
void begin_stream(File& f, const SendAsks& asks, uint64_t bytes) noexcept;
/// It appended `done` bytes, of which the last is the last that is queued.
void end_stream(File& f, const SendAsks& asks, uint64_t want, uint64_t done) noexcept;

// ---- a datagram
/// Numbers it. No lock held.
void begin_datagram(File& f, SendAsks& asks) noexcept;
/// Before a flow sends what t_sending asks for. Holder of the engine's lock.
void watch_datagram(UdpFlow& u) noexcept;
/// The kernel's socket, which counts for itself, was given one with MSG_ZEROCOPY. No lock held.
void kernel_completes(File& f) noexcept;
/// It was not sent.
void undo_datagram(File& f, const SendAsks& asks) noexcept;
/// The kernel's socket is to send it. No lock held.
void kernel_sends(File& f, const SendAsks& asks) noexcept;
/// It was sent, by either. No lock held.
void end_datagram(File& f, const SendAsks& asks) noexcept;
/// What the calling thread sends; null: nothing that is reported.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit const SendAsks* t_sending =
    nullptr;

// ---- up-calls of the engine
void on_tcp_left(TcpFlow& flow, const LeftFrame& frame);
void on_tcp_acked(TcpFlow& flow);
void on_udp_left(UdpFlow& flow, const LeftFrame& frame);

/// recvmsg(MSG_ERRQUEUE). No lock held.
Result<ssize_t> receive(Handle h, msghdr& msg, int flags);

}  // namespace send_reports
}  // namespace vireo
