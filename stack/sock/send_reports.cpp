// What is asked for, and the reports themselves. Reading them: error_queue_read.cpp.
#include "stack/sock/send_reports.h"

#include <linux/errqueue.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "stack/sock/blocking.h"
#include "stack/sock/fd_table.h"
#include "stack/sock/send_cmsg.h"
#include "stack/sock/stack.h"
#include "stack/sock/stamps.h"
#include "stack/sock/udp_socket.h"

namespace vireo {
namespace {

/// Numbers that are remembered: as many datagrams as may wait for a neighbour, and then some.
constexpr size_t kMaxPairs = 1024;

/// Copies `bytes` of the frame, behind its head unless `head` is empty.
std::unique_ptr<std::byte[]> copy_of(std::span<const std::byte> head,
                                     std::span<const PacketSlice> text, uint32_t bytes) noexcept {
  std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[head.size() + bytes]);
  if (copy == nullptr) return copy;
  std::byte* to = std::copy(head.begin(), head.end(), copy.get());
  for (const PacketSlice& s : text) {
    const uint32_t n = std::min<uint32_t>(s.length, bytes);
    if (n != 0) std::memcpy(to, s.packet->frame + s.at, n);
    to += n;
    bytes -= n;
  }
  return copy;
}

/// What the error queue may take of the receive buffer.
uint64_t room_for_reports(const File& f, const SocketOptions& o) noexcept {
  const KernelDefaults& d = f.stack->defaults();
  const int initial =
      f.is_udp() ? static_cast<int>(d.rmem_default) : static_cast<int>(d.tcp_rmem.initial);
  const auto all = static_cast<uint64_t>(o.socket.rcvbuf_set ? o.socket.rcvbuf : initial);
  uint64_t used = 0;
  if (f.flow != nullptr && f.is_udp()) used = f.udp_flow().queue_truesize;
  if (f.flow != nullptr && f.is_tcp()) used = tcp::recv_queue(f.tcp_flow().tcb).bytes();
  return all - std::min(all, used);
}

/// The socket's error queue has grown. Holder of the engine's lock.
void tell(File& f, const SocketOptions& o) noexcept {
  if (f.is_tcp()) {
    f.tcp.shut |= kHasReports;
    f.ready.notify(EPOLLERR);
    return;
  }
  f.udp->shut |= kHasReports;
  f.ready.notify(EPOLLERR | (o.socket.select_err_queue != 0 ? EPOLLPRI : 0U));
}

/// A stamp of kind `info` (SCM_TSTAMP_*). `frame`: its bytes, or null.
void report_stamp(File& f, SendReports& r, const SocketOptions& o, uint32_t info, uint32_t id,
                  int64_t time, const LeftFrame* frame) noexcept {
  ErrorReport report{.error = ENOMSG,
                     .origin = SO_EE_ORIGIN_TIMESTAMPING,
                     .info = info,
                     .data = (stamp_flags(o) & SOF_TIMESTAMPING_OPT_ID) != 0 ? id : 0,
                     .time = time,
                     .bytes = nullptr};
  if (frame != nullptr) {
    report.length = static_cast<uint32_t>(frame->head.size()) + frame->bytes;
    report.bytes = copy_of(frame->head, frame->text, frame->bytes);
    if (report.bytes == nullptr) return;
    report.is_frame = true;
    report.interface = frame->interface.value();
  }
  if (r.queue.push(std::move(report), room_for_reports(f, o))) tell(f, o);
}

/// The stamps of a frame that left.
void report_left(File& f, SendReports& r, const SocketOptions& o, uint32_t stamps, uint32_t id,
                 const LeftFrame& frame) noexcept {
  const bool has_bytes = (stamp_flags(o) & SOF_TIMESTAMPING_OPT_TSONLY) == 0;
  const LeftFrame* const bytes = has_bytes ? &frame : nullptr;
  if ((stamps & SOF_TIMESTAMPING_TX_SCHED) != 0)
    report_stamp(f, r, o, SCM_TSTAMP_SCHED, id, frame.time, bytes);
  if ((stamps & SOF_TIMESTAMPING_TX_SOFTWARE) != 0)
    report_stamp(f, r, o, SCM_TSTAMP_SND, id, frame.time, bytes);
}

void set_watched(TcpFlow& flow, bool on) noexcept {
  if (flow.is_watched == on) return;
  flow.is_watched = on;
  tcp::set_watched(flow.tcb, on);
}

/// In their order: two threads may send on a stream.
void insert(std::deque<SendReports::Mark>& marks, SendReports::Mark mark) {
  const auto at = std::ranges::upper_bound(marks, mark.at, {}, &SendReports::Mark::at);
  marks.insert(at, std::move(mark));
}

/// The value of SO_TIMESTAMPING as ancillary data. nullopt: malformed.
std::optional<uint32_t> stamps_in(const Control& c) noexcept {
  if (!c.holds<uint32_t>()) return std::nullopt;
  const auto v = c.as<uint32_t>();
  if ((v & ~kStampsOfSend) != 0) return std::nullopt;
  return v;
}

}  // namespace

void DatagramIds::note_kernels(uint32_t ours) {
  const uint32_t kernel = kernel_next++;
  if (kernel == ours) return;
  if (differing.size() == kMaxPairs) differing.erase(differing.begin());
  differing.push_back({kernel, ours});
}

uint32_t DatagramIds::ours(uint32_t kernel) const noexcept {
  const auto pair = std::ranges::find(differing, kernel, &Pair::kernel);
  return pair == differing.end() ? kernel : pair->ours;
}

void SendReports::reset() {
  queue.clear();
  marks.clear();
  const LockGuard guard(lock);
  ids = {};
  is_numbered = false;
  zerocopy_next = 0;
}

namespace send_reports {

SendReports* of(File& f) noexcept {
  SendReports* r = fd_table().reports_of(f);
  if (r != nullptr) return r;
  r = new (std::nothrow) SendReports;
  fd_table().keep_reports(f, r);
  return fd_table().reports_of(f);
}

void follow(File& f, Engine* e) noexcept VIREO_NO_THREAD_ANALYSIS {
  const SocketOptions& o = f.is_udp() ? f.udp->options : *f.tcp.options;
  const uint32_t flags = stamp_flags(o);
  const bool stamps = (flags & kStampsOfSend) != 0;
  const bool numbers = (flags & SOF_TIMESTAMPING_OPT_ID) != 0;
  SendReports* r = fd_table().reports_of(f);
  if (flags != 0 || o.socket.zerocopy != 0) r = of(f);
  const bool is_newly_numbered = r != nullptr && numbers && !r->is_numbered;
  if (r != nullptr) r->is_numbered = numbers;
  if (f.is_udp()) {
    f.udp->reports_sends = r != nullptr && (stamps || o.socket.zerocopy != 0);
    if (!is_newly_numbered) return;
    const LockGuard guard(r->lock);
    r->ids = {};
    return;
  }
  f.tcp.sends_apart =
      f.stack->settings().rx_poll_on_tx_tcp || (r != nullptr && (stamps || o.socket.zerocopy != 0));
  if (e == nullptr || f.flow == nullptr) return;
  e->ports().ask_arrivals(*f.flow, asks_arrivals(o));
  if ((flags & SOF_TIMESTAMPING_RAW_HARDWARE) != 0) (void)e->ports().stamp_frames();
  if (f.flow->kind != FlowKind::kTcp) return;
  TcpFlow& flow = f.tcp_flow();
  set_watched(flow, r != nullptr && (stamps || !r->marks.empty()));
  const bool from_end = (flags & kStampOptIdTcp) != 0;
  if (is_newly_numbered) r->numbered_from = from_end ? flow.tcb.snd_end : flow.tcb.snd_una;
}

SendAsks asks_of(const SocketOptions& o, int flags) noexcept {
  return {.stamps = stamp_flags(o) & kStampsOfSend,
          .id = std::nullopt,
          .is_zerocopy = (flags & MSG_ZEROCOPY) != 0 && o.socket.zerocopy != 0};
}

// As net/core/sock.c sock_cmsg_send(): data of other levels is ignored.
Result<SendAsks> asks_of_stream(const SocketOptions& o, const msghdr& msg, int flags) noexcept {
  SendAsks asks = asks_of(o, flags);
  if (!is_readable(static_cast<const std::byte*>(msg.msg_control), msg.msg_controllen))
    return fail(EFAULT, "sendmsg");
  const bool ok = for_each_control(msg, [&](const Control& c) {
    if (c.level != SOL_SOCKET) return true;
    if (c.type == SO_TIMESTAMPING_OLD || c.type == SO_TIMESTAMPING_NEW) {
      const auto stamps = stamps_in(c);
      asks.stamps = stamps.value_or(0);
      return stamps.has_value();
    }
    return c.type != kScmTsOptId;
  });
  if (!ok) return fail(EINVAL, "sendmsg");
  return asks;
}

DatagramAsks asks_of_datagram(const SocketOptions& o, const msghdr& msg, int flags) noexcept {
  DatagramAsks d{.asks = asks_of(o, flags)};
  if (msg.msg_controllen == 0) return d;
  if (!is_readable(static_cast<const std::byte*>(msg.msg_control), msg.msg_controllen)) {
    d.is_kernels = true;
    return d;
  }
  const bool ok = for_each_control(msg, [&](const Control& c) {
    if (c.level != SOL_SOCKET) return true;
    if (c.type == SO_TIMESTAMPING_OLD || c.type == SO_TIMESTAMPING_NEW) {
      const auto stamps = stamps_in(c);
      d.asks.stamps = stamps.value_or(0);
      return stamps.has_value();
    }
    if (c.type != kScmTsOptId) return true;
    if (!c.holds<uint32_t>() || (stamp_flags(o) & SOF_TIMESTAMPING_OPT_ID) == 0)
      return false;  // the kernel says what is wrong with it
    d.asks.id = c.as<uint32_t>();
    return true;
  });
  d.is_kernels |= !ok;
  return d;
}

void begin_stream(File& f, const SendAsks& asks, uint64_t bytes) noexcept {
  if (asks.stamps == 0 || bytes == 0) return;
  SendReports& r = *fd_table().reports_of(f);
  TcpFlow& flow = f.tcp_flow();
  set_watched(flow, true);
  insert(r.marks, {flow.tcb.snd_end + bytes - 1, asks.stamps});
}

void end_stream(File& f, const SendAsks& asks, uint64_t want, uint64_t done) noexcept {
  SendReports& r = *fd_table().reports_of(f);
  if (asks.is_zerocopy && done != 0 && r.queue.complete_copy(r.zerocopy_next++))
    tell(f, *f.tcp.options);
  if (asks.stamps == 0 || done == want || r.marks.empty()) return;
  // Less was taken than expected: the mark was set on a byte that is still to come. Another thread
  // may have set one meanwhile.
  const StreamOffset last = f.tcp_flow().tcb.snd_end - 1;
  const auto own = std::ranges::find(r.marks, last + (want - done), &SendReports::Mark::at);
  if (own == r.marks.end()) return;
  const SendReports::Mark mark{last, own->stamps};
  r.marks.erase(own);
  if (done == 0) return;
  const tcp::Tcb& t = f.tcp_flow().tcb;
  if (t.snd_nxt > mark.at) {  // it has left already
    const int64_t now = Clock::wall_ns();
    const LeftFrame frame{{}, {}, 0, mark.at, {}, now};
    report_left(f, r, *f.tcp.options, mark.stamps, static_cast<uint32_t>(mark.at - r.numbered_from),
                frame);
  }
  if (t.snd_una <= mark.at) insert(r.marks, {mark.at, mark.stamps});
}

void on_tcp_left(TcpFlow& flow, const LeftFrame& frame) {
  File& f = *static_cast<File*>(flow.owner);
  SendReports* const r = fd_table().reports_of(f);
  if (r == nullptr) return;
  // The last of them: Linux has one for each segment of its own.
  const auto end =
      std::ranges::lower_bound(r->marks, frame.offset + frame.bytes, {}, &SendReports::Mark::at);
  const auto begin = std::ranges::lower_bound(r->marks, frame.offset, {}, &SendReports::Mark::at);
  if (begin == end) return;
  SendReports::Mark& mark = *(end - 1);
  const SocketOptions& o = *f.tcp.options;
  report_left(f, *r, o, mark.stamps, static_cast<uint32_t>(mark.at - r->numbered_from), frame);
  if ((mark.stamps & SOF_TIMESTAMPING_TX_ACK) != 0 &&
      (stamp_flags(o) & SOF_TIMESTAMPING_OPT_TSONLY) == 0) {
    mark.text = copy_of({}, frame.text, frame.bytes);
    mark.length = mark.text == nullptr ? 0 : frame.bytes;
  }
  r->marks.erase(begin, end - 1);
}

void on_tcp_acked(TcpFlow& flow) {
  File& f = *static_cast<File*>(flow.owner);
  SendReports* const r = fd_table().reports_of(f);
  if (r == nullptr || r->marks.empty()) return;
  const StreamOffset una = flow.tcb.snd_una;
  const SocketOptions& o = *f.tcp.options;
  auto at = r->marks.begin();
  for (; at != r->marks.end() && at->at < una; ++at) {
    if ((at->stamps & SOF_TIMESTAMPING_TX_ACK) == 0) continue;
    const bool is_numbered = (stamp_flags(o) & SOF_TIMESTAMPING_OPT_ID) != 0;
    ErrorReport report{.error = ENOMSG,
                       .origin = SO_EE_ORIGIN_TIMESTAMPING,
                       .info = SCM_TSTAMP_ACK,
                       .data = is_numbered ? static_cast<uint32_t>(at->at - r->numbered_from) : 0,
                       .time = Clock::wall_ns(),
                       .length = at->length,
                       .bytes = std::move(at->text)};
    if (r->queue.push(std::move(report), room_for_reports(f, o))) tell(f, o);
  }
  r->marks.erase(r->marks.begin(), at);
}

void begin_datagram(File& f, SendAsks& asks) noexcept {
  asks.from = &f;
  if (asks.stamps == 0) return;
  const bool is_numbered = (stamp_flags(f.udp->options) & SOF_TIMESTAMPING_OPT_ID) != 0;
  if (is_numbered && !asks.id && (asks.stamps & kStampsOfDatagram) != 0) {
    SendReports& r = *fd_table().reports_of(f);
    const LockGuard guard(r.lock);
    asks.id = r.ids.next++;
    asks.is_counted = true;
  }
}

void watch_datagram(UdpFlow& u) noexcept {
  if (t_sending->stamps == 0 || u.is_watched) return;
  u.is_watched = true;  // by ancillary data alone
  u.go_to(u.egress_to);
}

void undo_datagram(File& f, const SendAsks& asks) noexcept {
  if (!asks.is_counted) return;
  SendReports& r = *fd_table().reports_of(f);
  const LockGuard guard(r.lock);
  --r.ids.next;
}

void kernel_sends(File& f, const SendAsks& asks) noexcept {
  if (!asks.is_counted) return;
  SendReports& r = *fd_table().reports_of(f);
  const LockGuard guard(r.lock);
  r.ids.note_kernels(*asks.id);
}

void kernel_completes(File& f) noexcept {
  if (SendReports* const r = fd_table().reports_of(f); r != nullptr) ++r->zerocopy_next;
}

void end_datagram(File& f, const SendAsks& asks) noexcept VIREO_NO_THREAD_ANALYSIS {
  if (!asks.is_zerocopy) return;
  Engine* const e = f.engine.load(std::memory_order_acquire);
  if (e == nullptr) return;
  const EngineGuard guard(*e);
  SendReports& r = *fd_table().reports_of(f);
  if (f.flow != nullptr && r.queue.complete_copy(r.zerocopy_next++)) tell(f, f.udp->options);
}

void on_udp_left(UdpFlow& flow, const LeftFrame& frame) {
  File& f = *static_cast<File*>(flow.owner);
  if (t_sending == nullptr || t_sending->from != &f || fd_table().reports_of(f) == nullptr) return;
  report_left(f, *fd_table().reports_of(f), f.udp->options, t_sending->stamps,
              t_sending->id.value_or(0), frame);
}

}  // namespace send_reports
}  // namespace vireo
