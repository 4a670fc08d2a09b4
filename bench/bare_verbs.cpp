// Bare frames between two raw-packet queue pairs: what an RDMA device and its libibverbs cost
// without any protocol, the yardstick for Vireo on the same device. libibverbs and nothing else is
// linked, so whose library it is, is the environment's choice.
//
//   bare_verbs server|client|sink|source --local MAC/IP --remote MAC/IP [--size BYTES]
//              [--batch N] [--seconds S] [--device NAME]
//
// Both sides poll and never sleep. `server` and `sink` say "ready" on standard error once their
// rule stands, and print what they saw when told to stop (SIGTERM). Sends as one would by hand:
// inline where the device takes it, checksums by the device, one request in 16 asks for a
// completion. Thread: one. Source: ibv_create_qp(3), ibv_post_send(3), ibv_poll_cq(3),
// ibv_create_flow(3).
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/plain/clock.h"
#include "bench/plain/histogram.h"

namespace {

using plain::ticks;

constexpr uint16_t kPort = 11111;
constexpr uint32_t kMaxFrame = 1514;
constexpr uint32_t kSlotBytes = 2048;
constexpr uint32_t kMaxBatch = 64;
constexpr uint32_t kSignalEvery = 16;
constexpr uint32_t kInlineBytes = 204;  // as Vireo asks for
constexpr uint32_t kRefill = 8;         // receives posted at once where few are under way
constexpr uint32_t kHeadBytes = 14 + 20 + 8;
constexpr uint32_t kLateMs = 200;  // a frame that took so long is lost

volatile std::sig_atomic_t g_stop = 0;

struct Place {
  std::array<uint8_t, 6> mac{};
  in_addr ip{};
};

struct Options {
  std::string_view role;
  Place local, remote;
  uint32_t size = 64;  ///< bytes of a frame, Ethernet header included, FCS not
  uint32_t batch = 1;  ///< frames of a stream in each call
  double seconds = 1;
  std::string_view device;  ///< empty: the first
};

[[noreturn]] void fail(const char* what, int error = errno) {
  std::fprintf(stderr, "bare_verbs: %s: %s\n", what, std::strerror(error));
  std::exit(1);
}
template <class T>
T* must(T* made, const char* what) {
  if (made == nullptr) fail(what);
  return made;
}
void must_be_zero(int error, const char* what) {
  if (error != 0) fail(what, error > 0 ? error : errno);
}

uint16_t ip_sum(std::span<const uint8_t, 20> header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < 20; i += 2) sum += uint32_t{header[i]} << 8 | header[i + 1];
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

void put16(uint8_t* at, uint32_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

/// One open end: a queue pair that is ready, its memory, and the rule that leads frames to it.
class End {
 public:
  /// With room for so many receives and sends.
  End(const Options& o, uint32_t receives, uint32_t sends);
  End(const End&) = delete;
  ~End();

  /// Puts numbers from `first` on into as many frames and sends them by one call.
  void send(uint32_t first, uint32_t count, bool tell = false);
  bool has_room(uint32_t count) const { return posted_ - done_ + count <= sends_; }
  /// Takes completions of sends.
  void reap();
  bool all_sent() const { return posted_ == done_; }

  /// @return frames that came, at most `out.size()`.
  uint32_t poll(std::span<ibv_wc> out);
  uint32_t number_of(const ibv_wc& wc) const {
    uint32_t n;
    std::memcpy(&n, receive_slot(static_cast<uint32_t>(wc.wr_id)) + kHeadBytes, sizeof n);
    return n;
  }
  /// Gives the buffers of `taken` back to the device.
  void refill(std::span<const ibv_wc> taken);

 private:
  uint8_t* send_slot(uint64_t n) const { return memory_ + (n % sends_) * kSlotBytes; }
  uint8_t* receive_slot(uint32_t n) const { return memory_ + size_t{sends_ + n} * kSlotBytes; }
  void open_device(std::string_view name);
  void make_pair();
  void move_to(ibv_qp_state state);
  void ask_for_flow(const Options& o);
  void write_heads(const Options& o);
  void prepare_requests(uint32_t size);

  const uint32_t receives_, sends_;
  bool device_sums_ = false;
  uint32_t inline_bytes_ = 0;
  uint8_t* memory_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_cq *sent_ = nullptr, *received_ = nullptr;
  ibv_qp* pair_ = nullptr;
  ibv_flow* rule_ = nullptr;
  uint64_t posted_ = 0, done_ = 0;  ///< sends
  uint32_t since_signal_ = 0;
  ibv_send_wr wr_[kMaxBatch]{};
  ibv_sge sge_[kMaxBatch]{};
};

void End::open_device(std::string_view name) {
  int count = 0;
  ibv_device** const list = must(ibv_get_device_list(&count), "ibv_get_device_list");
  for (int i = 0; i < count && context_ == nullptr; ++i)
    if (name.empty() || name == ibv_get_device_name(list[i]))
      context_ = must(ibv_open_device(list[i]), "ibv_open_device");
  if (context_ == nullptr) fail("no such RDMA device", ENODEV);
  ibv_free_device_list(list);
  ibv_device_attr attr;
  must_be_zero(ibv_query_device(context_, &attr), "ibv_query_device");
  device_sums_ = (attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) != 0;
}

void End::make_pair() {
  sent_ = must(ibv_create_cq(context_, static_cast<int>(sends_), nullptr, nullptr, 0), "CQ");
  received_ = must(ibv_create_cq(context_, static_cast<int>(receives_), nullptr, nullptr, 0), "CQ");
  for (uint32_t inline_bytes = kInlineBytes; pair_ == nullptr; inline_bytes = 0) {
    ibv_qp_init_attr init{};
    init.send_cq = sent_;
    init.recv_cq = received_;
    init.cap = {sends_, receives_, 1, 1, inline_bytes};
    init.qp_type = IBV_QPT_RAW_PACKET;
    pair_ = ibv_create_qp(domain_, &init);
    if (pair_ == nullptr && inline_bytes == 0) fail("ibv_create_qp");
    inline_bytes_ = std::min(inline_bytes, init.cap.max_inline_data);
  }
}

void End::move_to(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  attr.port_num = 1;
  const int port = state == IBV_QPS_INIT ? IBV_QP_PORT : 0;
  must_be_zero(ibv_modify_qp(pair_, &attr, IBV_QP_STATE | port), "ibv_modify_qp");
}

/// UDP between the two ports.
void End::ask_for_flow(const Options& o) {
  struct {
    ibv_flow_attr attr;
    ibv_flow_spec_eth eth;
    ibv_flow_spec_ipv4 ip;
    ibv_flow_spec_tcp_udp udp;
  } r{};
  r.attr.type = IBV_FLOW_ATTR_NORMAL;
  r.attr.size = sizeof r;
  r.attr.num_of_specs = 3;
  r.attr.port = 1;
  r.eth.type = IBV_FLOW_SPEC_ETH;
  r.eth.size = sizeof r.eth;
  std::memcpy(r.eth.val.dst_mac, o.local.mac.data(), 6);
  std::memset(r.eth.mask.dst_mac, 0xff, 6);
  r.eth.val.ether_type = htons(0x0800);
  r.eth.mask.ether_type = 0xffff;
  r.ip.type = IBV_FLOW_SPEC_IPV4;
  r.ip.size = sizeof r.ip;
  r.ip.val = {.src_ip = o.remote.ip.s_addr, .dst_ip = o.local.ip.s_addr};
  r.ip.mask = {.src_ip = UINT32_MAX, .dst_ip = UINT32_MAX};
  r.udp.type = IBV_FLOW_SPEC_UDP;
  r.udp.size = sizeof r.udp;
  r.udp.val = {.dst_port = htons(kPort), .src_port = htons(kPort)};
  r.udp.mask = {.dst_port = UINT16_MAX, .src_port = UINT16_MAX};
  rule_ = must(ibv_create_flow(pair_, &r.attr), "ibv_create_flow");
}

/// Of every slot to send from: all but the number.
void End::write_heads(const Options& o) {
  for (uint32_t i = 0; i < sends_; ++i) {
    uint8_t* const f = send_slot(i);
    std::memset(f, 'v', kSlotBytes);
    std::memcpy(f, o.remote.mac.data(), 6);
    std::memcpy(f + 6, o.local.mac.data(), 6);
    put16(f + 12, 0x0800);
    const uint8_t ip[12] = {0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, IPPROTO_UDP, 0, 0};
    std::memcpy(f + 14, ip, sizeof ip);
    put16(f + 16, o.size - 14);
    std::memcpy(f + 26, &o.local.ip, 4);
    std::memcpy(f + 30, &o.remote.ip, 4);
    if (!device_sums_) put16(f + 24, ip_sum(std::span<const uint8_t, 20>(f + 14, 20)));
    put16(f + 34, kPort);
    put16(f + 36, kPort);
    put16(f + 38, o.size - 34);
    put16(f + 40, 0);  // no checksum, RFC 768; the device makes one
  }
}

void End::prepare_requests(uint32_t size) {
  for (uint32_t i = 0; i < kMaxBatch; ++i) {
    sge_[i] = {0, size, region_->lkey};
    wr_[i].sg_list = &sge_[i];
    wr_[i].num_sge = 1;
    wr_[i].opcode = IBV_WR_SEND;
    wr_[i].next = i + 1 < kMaxBatch ? &wr_[i + 1] : nullptr;
    if (device_sums_) wr_[i].send_flags |= IBV_SEND_IP_CSUM;
    if (size <= inline_bytes_) wr_[i].send_flags |= IBV_SEND_INLINE;
  }
}

End::End(const Options& o, uint32_t receives, uint32_t sends)
    : receives_(receives),
      sends_(sends),
      memory_(
          static_cast<uint8_t*>(std::aligned_alloc(4096, size_t{receives + sends} * kSlotBytes))) {
  must(memory_, "aligned_alloc");
  open_device(o.device);
  domain_ = must(ibv_alloc_pd(context_), "ibv_alloc_pd");
  const int access = IBV_ACCESS_LOCAL_WRITE;  // the macro mixes it with another enumeration
  region_ = must(ibv_reg_mr(domain_, memory_, size_t{receives + sends} * kSlotBytes, access),
                 "ibv_reg_mr");
  make_pair();
  write_heads(o);
  prepare_requests(o.size);
  move_to(IBV_QPS_INIT);
  std::vector<ibv_wc> all(receives);
  for (uint32_t i = 0; i < receives; ++i) all[i].wr_id = i;
  refill(all);
  move_to(IBV_QPS_RTR);
  move_to(IBV_QPS_RTS);
  ask_for_flow(o);
}

End::~End() {
  must_be_zero(ibv_destroy_flow(rule_), "ibv_destroy_flow");
  must_be_zero(ibv_destroy_qp(pair_), "ibv_destroy_qp");
  must_be_zero(ibv_destroy_cq(received_), "ibv_destroy_cq");
  must_be_zero(ibv_destroy_cq(sent_), "ibv_destroy_cq");
  must_be_zero(ibv_dereg_mr(region_), "ibv_dereg_mr");
  must_be_zero(ibv_dealloc_pd(domain_), "ibv_dealloc_pd");
  must_be_zero(ibv_close_device(context_), "ibv_close_device");
  std::free(memory_);
}

inline void End::send(uint32_t first, uint32_t count, bool tell) {
  for (uint32_t i = 0; i < count; ++i, ++posted_) {
    uint8_t* const frame = send_slot(posted_);
    const uint32_t number = first + i;
    std::memcpy(frame + kHeadBytes, &number, sizeof number);
    sge_[i].addr = reinterpret_cast<uintptr_t>(frame);
    wr_[i].wr_id = posted_;
  }
  ibv_send_wr& last = wr_[count - 1];
  ibv_send_wr* const behind = std::exchange(last.next, nullptr);
  since_signal_ += count;
  const bool is_signaled = tell || since_signal_ >= kSignalEvery;
  if (is_signaled) last.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad;
  must_be_zero(ibv_post_send(pair_, wr_, &bad), "ibv_post_send");
  last.next = behind;
  if (!is_signaled) return;
  last.send_flags &= ~unsigned{IBV_SEND_SIGNALED};
  since_signal_ = 0;
  reap();
}

void End::reap() {
  ibv_wc wc[16];
  for (int n; (n = ibv_poll_cq(sent_, 16, wc)) != 0;) {
    if (n < 0) fail("ibv_poll_cq");
    for (const ibv_wc& c : std::span(wc).first(static_cast<size_t>(n))) {
      if (c.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(c.status), EIO);
      done_ = c.wr_id + 1;  // and those before it
    }
    if (n < 16) return;
  }
}

inline uint32_t End::poll(std::span<ibv_wc> out) {
  const int n = ibv_poll_cq(received_, static_cast<int>(out.size()), out.data());
  if (n < 0) fail("ibv_poll_cq");
  for (const ibv_wc& c : out.first(static_cast<size_t>(n)))
    if (c.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(c.status), EIO);
  return static_cast<uint32_t>(n);
}

void End::refill(std::span<const ibv_wc> taken) {
  ibv_recv_wr wr[kMaxBatch];
  ibv_sge sge[kMaxBatch];
  while (!taken.empty()) {
    const auto n = static_cast<uint32_t>(std::min<size_t>(taken.size(), kMaxBatch));
    for (uint32_t i = 0; i < n; ++i) {
      const auto slot = static_cast<uint32_t>(taken[i].wr_id);
      sge[i] = {reinterpret_cast<uintptr_t>(receive_slot(slot)), kSlotBytes, region_->lkey};
      wr[i] = {slot, i + 1 < n ? &wr[i + 1] : nullptr, &sge[i], 1};
    }
    ibv_recv_wr* bad;
    must_be_zero(ibv_post_recv(pair_, wr, &bad), "ibv_post_recv");
    taken = taken.subspan(n);
  }
}

/// Buffers that go back some at a time: a call for each would cost as much as the frame.
class Taken {
 public:
  explicit Taken(End& end) : end_(end) {}
  void add(const ibv_wc& wc) { all_[count_++] = wc; }
  void give_back() {
    if (count_ < kRefill) return;
    end_.refill({all_, count_});
    count_ = 0;
  }

 private:
  End& end_;
  ibv_wc all_[2 * kRefill];
  size_t count_ = 0;
};

void say_ready() { std::fprintf(stderr, "ready\n"); }

void check_size(const Options& o, const ibv_wc& wc) {
  if (wc.byte_len != o.size) fail("a frame of another size", EMSGSIZE);
}

void serve(const Options& o) {
  End end(o, 64, 64);
  Taken taken(end);
  say_ready();
  ibv_wc wc[kRefill];
  uint64_t answered = 0;
  while (g_stop == 0) {
    const uint32_t n = end.poll(wc);
    if (n == 0) continue;
    for (const ibv_wc& c : std::span(wc).first(n)) {
      while (!end.has_room(1)) end.reap();
      end.send(end.number_of(c), 1);
      check_size(o, c);
      taken.add(c);
    }
    taken.give_back();
    answered += n;
  }
  std::printf("{\"answered\":%llu}\n", static_cast<unsigned long long>(answered));
}

void ask(const Options& o) {
  const plain::TickRate rate;
  End end(o, 64, 64);
  Taken taken(end);
  plain::Histogram took;
  uint64_t lost = 0;
  uint32_t lost_in_a_row = 0;
  const uint64_t patience = rate.of_seconds(kLateMs / 1e3);
  const uint64_t begin = ticks();
  const uint64_t warm = begin + rate.of_seconds(o.seconds / 10);
  const uint64_t over = begin + rate.of_seconds(o.seconds);
  uint64_t now = begin;
  for (uint32_t number = 0; now < over && g_stop == 0; ++number) {
    while (!end.has_room(1)) end.reap();
    const uint64_t start = ticks();
    end.send(number, 1);
    bool is_there = false;
    do {
      ibv_wc wc[kRefill];
      const uint32_t n = end.poll(wc);
      now = ticks();
      for (const ibv_wc& c : std::span(wc).first(n)) {
        is_there |= end.number_of(c) == number;
        check_size(o, c);
        taken.add(c);
      }
      if (n > 0) taken.give_back();
    } while (!is_there && now - start < patience);
    if (is_there) {
      lost_in_a_row = 0;
      if (start >= warm) took.add(now - start);
    } else {
      ++lost;
      if (++lost_in_a_row == 25) fail("no answer: is the server there?", ETIMEDOUT);
    }
  }
  if (took.total() == 0) fail("no answer at all", ETIMEDOUT);
  std::printf("{\"messages\":%llu,\"lost\":%llu,", static_cast<unsigned long long>(took.total()),
              static_cast<unsigned long long>(lost));
  took.print("round_trip", rate.ns_per_tick());
  std::printf("}\n");
}

/// Counts from the first tenth of the time on.
void sink(const Options& o) {
  const plain::TickRate rate;
  End end(o, 1024, 1);
  say_ready();
  const uint64_t warm_up = rate.of_seconds(o.seconds / 10);
  uint64_t first = 0, start = 0, last = 0, all = 0, frames = 0;
  ibv_wc wc[kMaxBatch];
  while (g_stop == 0) {
    const uint32_t n = end.poll(wc);
    if (n == 0) continue;
    for (const ibv_wc& c : std::span(wc).first(n)) check_size(o, c);
    end.refill(std::span(wc).first(n));
    const uint64_t now = ticks();
    all += n;
    if (first == 0) first = now;
    if (now - first < warm_up) continue;
    if (start == 0) {
      start = now;
    } else {
      frames += n;
      last = now;
    }
  }
  const double seconds =
      static_cast<double>(std::max<uint64_t>(last, start + 1) - start) * rate.ns_per_tick() / 1e9;
  std::printf("{\"received\":%llu,\"frames\":%llu,\"seconds\":%.6f}\n",
              static_cast<unsigned long long>(all), static_cast<unsigned long long>(frames),
              seconds);
}

void source(const Options& o) {
  const plain::TickRate rate;
  End end(o, 1, 512);
  const uint64_t begin = ticks();
  const uint64_t over = begin + rate.of_seconds(o.seconds);
  uint64_t now = begin;
  uint32_t sent = 0;
  for (; now < over && g_stop == 0; now = ticks()) {
    if (end.has_room(o.batch)) {
      end.send(sent, o.batch);
      sent += o.batch;
    } else {
      end.reap();
    }
  }
  // What is queued still leaves.
  const uint64_t patience = ticks() + rate.of_seconds(1);
  while (!end.has_room(1) && ticks() < patience) end.reap();
  if (end.has_room(1)) end.send(sent++, 1, true);
  while (!end.all_sent() && ticks() < patience) end.reap();
  std::printf("{\"sent\":%u,\"seconds\":%.6f}\n", sent,
              static_cast<double>(now - begin) * rate.ns_per_tick() / 1e9);
}

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "bare_verbs server|client|sink|source --local MAC/IP --remote MAC/IP\n"
               "  [--size 46..1514] [--batch 1..64] [--seconds S] [--device NAME]\n");
  std::exit(2);
}

Place place(const char* text) {
  Place p;
  auto& m = p.mac;
  char ip[16];
  if (std::sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx/%15s", &m[0], &m[1], &m[2], &m[3], &m[4],
                  &m[5], ip) != 7 ||
      inet_pton(AF_INET, ip, &p.ip) != 1)
    usage();
  return p;
}

uint32_t number(const char* text, uint32_t least, uint32_t most) {
  char* end;
  const unsigned long v = std::strtoul(text, &end, 10);
  if (*end != '\0' || v < least || v > most) usage();
  return static_cast<uint32_t>(v);
}

Options parse(int argc, char** argv) {
  Options o;
  if (argc < 2 || argc % 2 != 0) usage();
  o.role = argv[1];
  bool has_local = false, has_remote = false;
  for (int i = 2; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--local") {
      o.local = place(value);
      has_local = true;
    } else if (name == "--remote") {
      o.remote = place(value);
      has_remote = true;
    } else if (name == "--size") {
      o.size = number(value, kHeadBytes + 4, kMaxFrame);
    } else if (name == "--batch") {
      o.batch = number(value, 1, kMaxBatch);
    } else if (name == "--seconds") {
      o.seconds = std::atof(value);
    } else if (name == "--device") {
      o.device = value;
    } else {
      usage();
    }
  }
  if (!has_local || !has_remote || o.seconds <= 0) usage();
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = parse(argc, argv);
  std::signal(SIGTERM, [](int) { g_stop = 1; });
  if (o.role == "server")
    serve(o);
  else if (o.role == "client")
    ask(o);
  else if (o.role == "sink")
    sink(o);
  else if (o.role == "source")
    source(o);
  else
    usage();
}
