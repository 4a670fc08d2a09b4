// A program of rdma-core's users: UDP frames of its own making by a raw-packet queue pair, there
// (ping) and back (echo), every byte compared. Written from the manual pages of libibverbs alone,
// linked with libibverbs alone. Sends lists of requests, inline and from two segments, signaled
// now and then; receives by events; ends by flushing its receives.
//
//   raw_packet ping|echo LOCAL_MAC LOCAL_IP LOCAL_PORT PEER_MAC PEER_IP PEER_PORT FRAMES
//
// echo prints "ready" once its rule stands. Both end with a line of counts as JSON; status 0 if
// every frame came back as it was.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  kSlots = 64,          // of each direction
  kSlotBytes = 2048,    //
  kWindow = 16,         // frames under way
  kSignalEvery = 8,     //
  kEthernetBytes = 14,  //
  kHeaderBytes = kEthernetBytes + sizeof(struct iphdr) + sizeof(struct udphdr),
  kPatience = 10000,  // ms
};
static const uint32_t kFrameBytes[] = {60, 61, 64, 100, 204, 205, 512, 1000, 1514};

struct address {
  uint8_t mac[6];
  uint32_t ip;    // network order
  uint16_t port;  // network order
};

struct end {
  struct ibv_context* context;
  struct ibv_pd* domain;
  struct ibv_mr* region;
  struct ibv_comp_channel* channel;
  struct ibv_cq *sent, *received;
  struct ibv_qp* pair;
  struct ibv_flow* rule;
  uint8_t* memory;  // kSlots to send from, kSlots to receive into
  struct address local, peer;
  bool device_sums;
  uint32_t most_inline;
  uint64_t posted, done;  // sends
  uint64_t inlined, gathered, events, good_sums, flushed;
};

static void fail(const char* step, int error) {
  fprintf(stderr, "raw_packet: %s: %s\n", step, strerror(error));
  exit(1);
}
static void must(bool good, const char* step) {
  if (!good) fail(step, errno);
}
static void must_be_zero(int error, const char* step) {
  if (error != 0) fail(step, error);
}

static uint8_t* send_slot(struct end* e, uint64_t n) {
  return e->memory + (n % kSlots) * kSlotBytes;
}
static uint8_t* receive_slot(struct end* e, uint64_t n) {
  return e->memory + (kSlots + n) * kSlotBytes;
}

// ---- opening and closing --------------------------------------------------------------------

static void move_to(struct end* e, enum ibv_qp_state state) {
  struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1};
  const int port = state == IBV_QPS_INIT ? IBV_QP_PORT : 0;
  must_be_zero(ibv_modify_qp(e->pair, &attr, IBV_QP_STATE | port), "ibv_modify_qp");
}

static void post_receive(struct end* e, uint64_t slot) {
  struct ibv_sge segment = {(uintptr_t)receive_slot(e, slot), kSlotBytes, e->region->lkey};
  struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &segment, .num_sge = 1}, *bad;
  must_be_zero(ibv_post_recv(e->pair, &wr, &bad), "ibv_post_recv");
}

// The rule: UDP from the peer's address and port to ours.
static void ask_for_flow(struct end* e) {
  struct {
    struct ibv_flow_attr attr;
    struct ibv_flow_spec_eth eth;
    struct ibv_flow_spec_ipv4 ip;
    struct ibv_flow_spec_tcp_udp udp;
  } r;
  memset(&r, 0, sizeof r);
  r.attr.type = IBV_FLOW_ATTR_NORMAL;
  r.attr.size = sizeof r;
  r.attr.num_of_specs = 3;
  r.attr.port = 1;
  r.eth.type = IBV_FLOW_SPEC_ETH;
  r.eth.size = sizeof r.eth;
  memcpy(r.eth.val.dst_mac, e->local.mac, 6);
  memset(r.eth.mask.dst_mac, 0xff, 6);
  r.eth.val.ether_type = htons(0x0800);
  r.eth.mask.ether_type = 0xffff;
  r.ip.type = IBV_FLOW_SPEC_IPV4;
  r.ip.size = sizeof r.ip;
  r.ip.val = (struct ibv_flow_ipv4_filter){.src_ip = e->peer.ip, .dst_ip = e->local.ip};
  r.ip.mask = (struct ibv_flow_ipv4_filter){UINT32_MAX, UINT32_MAX};
  r.udp.type = IBV_FLOW_SPEC_UDP;
  r.udp.size = sizeof r.udp;
  r.udp.val = (struct ibv_flow_tcp_udp_filter){.dst_port = e->local.port, .src_port = e->peer.port};
  r.udp.mask = (struct ibv_flow_tcp_udp_filter){UINT16_MAX, UINT16_MAX};
  e->rule = ibv_create_flow(e->pair, &r.attr);
  must(e->rule != NULL, "ibv_create_flow");
}

static void open_end(struct end* e) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  must(list != NULL && count > 0, "ibv_get_device_list");
  e->context = ibv_open_device(list[0]);
  must(e->context != NULL, "ibv_open_device");
  ibv_free_device_list(list);

  struct ibv_device_attr attr;
  must_be_zero(ibv_query_device(e->context, &attr), "ibv_query_device");
  e->device_sums = (attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) != 0;
  struct ibv_port_attr port;
  must_be_zero(ibv_query_port(e->context, 1, &port), "ibv_query_port");
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET || port.state != IBV_PORT_ACTIVE)
    fail("the port is not an active Ethernet one", EINVAL);

  e->domain = ibv_alloc_pd(e->context);
  must(e->domain != NULL, "ibv_alloc_pd");
  e->memory = aligned_alloc(4096, 2UL * kSlots * kSlotBytes);
  must(e->memory != NULL, "aligned_alloc");
  const int access = IBV_ACCESS_LOCAL_WRITE;  // the macro mixes it with another enumeration
  e->region = ibv_reg_mr(e->domain, e->memory, 2UL * kSlots * kSlotBytes, access);
  must(e->region != NULL, "ibv_reg_mr");
  e->channel = ibv_create_comp_channel(e->context);
  must(e->channel != NULL, "ibv_create_comp_channel");
  e->sent = ibv_create_cq(e->context, kSlots, NULL, NULL, 0);
  e->received = ibv_create_cq(e->context, kSlots, e, e->channel, 0);
  must(e->sent != NULL && e->received != NULL, "ibv_create_cq");

  struct ibv_qp_init_attr init = {
      .send_cq = e->sent,
      .recv_cq = e->received,
      .cap = {kSlots, kSlots, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 128},
      .qp_type = IBV_QPT_RAW_PACKET};
  e->pair = ibv_create_qp(e->domain, &init);
  must(e->pair != NULL, "ibv_create_qp");
  e->most_inline = init.cap.max_inline_data;
  move_to(e, IBV_QPS_INIT);
  for (uint64_t i = 0; i < kSlots; ++i) post_receive(e, i);
  move_to(e, IBV_QPS_RTR);
  move_to(e, IBV_QPS_RTS);
  ask_for_flow(e);
}

// In the error state every receive that is posted comes back, in order.
static void close_end(struct end* e) {
  must_be_zero(ibv_destroy_flow(e->rule), "ibv_destroy_flow");
  move_to(e, IBV_QPS_ERR);
  struct ibv_wc wc;
  for (int n; (n = ibv_poll_cq(e->received, 1, &wc)) != 0;) {
    must(n > 0, "ibv_poll_cq");
    if (wc.status == IBV_WC_WR_FLUSH_ERR) ++e->flushed;
  }
  must_be_zero(ibv_destroy_qp(e->pair), "ibv_destroy_qp");
  must_be_zero(ibv_destroy_cq(e->received), "ibv_destroy_cq");
  must_be_zero(ibv_destroy_cq(e->sent), "ibv_destroy_cq");
  must_be_zero(ibv_destroy_comp_channel(e->channel), "ibv_destroy_comp_channel");
  must_be_zero(ibv_dereg_mr(e->region), "ibv_dereg_mr");
  must_be_zero(ibv_dealloc_pd(e->domain), "ibv_dealloc_pd");
  must_be_zero(ibv_close_device(e->context), "ibv_close_device");
  free(e->memory);
}

// ---- frames -----------------------------------------------------------------------------------

static uint16_t folded(uint32_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return (uint16_t)~sum;
}
static uint32_t summed(const uint8_t* at, uint32_t bytes, uint32_t sum) {
  for (uint32_t i = 0; i < bytes; ++i) sum += (uint32_t)at[i] << (i % 2 == 0 ? 8 : 0);
  return sum;
}

// Headers of a frame whose payload lies there already. Checksums are left to the device if it makes
// them.
static void address_frame(const struct end* e, uint8_t* frame, uint32_t bytes) {
  memcpy(frame, e->peer.mac, 6);
  memcpy(frame + 6, e->local.mac, 6);
  frame[12] = 0x08;
  frame[13] = 0x00;
  struct iphdr ip = {.ihl = 5, .version = 4, .ttl = 64, .protocol = IPPROTO_UDP};
  ip.tot_len = htons((uint16_t)(bytes - kEthernetBytes));
  ip.saddr = e->local.ip;
  ip.daddr = e->peer.ip;
  const uint32_t udp_bytes = bytes - kEthernetBytes - (uint32_t)sizeof ip;
  struct udphdr udp = {{{e->local.port, e->peer.port, htons((uint16_t)udp_bytes), 0}}};
  uint8_t* const at = frame + kEthernetBytes;
  if (!e->device_sums) ip.check = htons(folded(summed((uint8_t*)&ip, sizeof ip, 0)));
  memcpy(at, &ip, sizeof ip);
  memcpy(at + sizeof ip, &udp, sizeof udp);
  if (!e->device_sums) {
    const uint32_t pseudo = summed((uint8_t*)&ip.saddr, 8, IPPROTO_UDP + udp_bytes);
    const uint16_t sum = folded(summed(at + sizeof ip, udp_bytes, pseudo));
    udp.uh_sum = htons(sum != 0 ? sum : 0xffff);
    memcpy(at + sizeof ip, &udp, sizeof udp);
  }
}

static uint8_t payload_byte(uint64_t number, uint32_t at) {
  return (uint8_t)(number * 31 + at * 7 + (at >> 8));
}
static uint32_t bytes_of(uint64_t number) {
  return kFrameBytes[number % (sizeof kFrameBytes / sizeof kFrameBytes[0])];
}
static bool is_frame(const uint8_t* frame, uint32_t bytes, uint64_t number) {
  if (bytes != bytes_of(number)) return false;
  for (uint32_t i = kHeaderBytes; i < bytes; ++i)
    if (frame[i] != payload_byte(number, i)) return false;
  return true;
}

// ---- sending and receiving
// ------------------------------------------------------------------------

static void reap(struct end* e) {
  struct ibv_wc wc[8];
  int n;
  while ((n = ibv_poll_cq(e->sent, 8, wc)) > 0)
    for (int i = 0; i < n; ++i) {
      if (wc[i].status != IBV_WC_SUCCESS) {
        fprintf(stderr, "raw_packet: send: %s\n", ibv_wc_status_str(wc[i].status));
        exit(1);
      }
      e->done = wc[i].wr_id + 1;  // and those before it
    }
  must(n == 0, "ibv_poll_cq");
}

// The next `count` frames, which lie in their slots, as one list.
static void send_frames(struct end* e, const uint32_t* bytes, uint32_t count, uint64_t last) {
  struct ibv_send_wr wr[kWindow], *bad;
  struct ibv_sge segment[kWindow][2];
  memset(wr, 0, sizeof wr);
  for (uint32_t i = 0; i < count; ++i, ++e->posted) {
    uint8_t* const frame = send_slot(e, e->posted);
    struct ibv_send_wr* const w = &wr[i];
    w->wr_id = e->posted;
    w->next = i + 1 < count ? &wr[i + 1] : NULL;
    w->opcode = IBV_WR_SEND;
    w->sg_list = segment[i];
    if (e->device_sums) w->send_flags |= IBV_SEND_IP_CSUM;
    if (e->posted % kSignalEvery == kSignalEvery - 1 || e->posted == last)
      w->send_flags |= IBV_SEND_SIGNALED;
    if (bytes[i] <= e->most_inline) {
      w->send_flags |= IBV_SEND_INLINE;
      segment[i][0] = (struct ibv_sge){(uintptr_t)frame, bytes[i], 0};
      w->num_sge = 1;
      ++e->inlined;
    } else {  // headers and payload apart
      segment[i][0] = (struct ibv_sge){(uintptr_t)frame, kHeaderBytes, e->region->lkey};
      segment[i][1] = (struct ibv_sge){(uintptr_t)frame + kHeaderBytes, bytes[i] - kHeaderBytes,
                                       e->region->lkey};
      w->num_sge = 2;
      ++e->gathered;
    }
  }
  must_be_zero(ibv_post_send(e->pair, wr, &bad), "ibv_post_send");
}

// Waits for the next frame that came.
static struct ibv_wc receive(struct end* e) {
  struct ibv_wc wc;
  for (;;) {
    reap(e);
    for (int armed = 0; armed < 2; ++armed) {
      const int n = ibv_poll_cq(e->received, 1, &wc);
      must(n >= 0, "ibv_poll_cq");
      if (n == 1 && wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "raw_packet: receive: %s\n", ibv_wc_status_str(wc.status));
        exit(1);
      }
      if (n == 1) {
        if ((wc.wc_flags & IBV_WC_IP_CSUM_OK) != 0) ++e->good_sums;
        return wc;
      }
      if (armed == 0) must_be_zero(ibv_req_notify_cq(e->received, 0), "ibv_req_notify_cq");
    }
    struct pollfd readable = {.fd = e->channel->fd, .events = POLLIN};
    if (poll(&readable, 1, kPatience) != 1) fail("no frame comes", ETIMEDOUT);
    struct ibv_cq* which;
    void* whose;
    must_be_zero(ibv_get_cq_event(e->channel, &which, &whose), "ibv_get_cq_event");
    if (which != e->received || whose != e) fail("an event of another queue", EINVAL);
    ibv_ack_cq_events(which, 1);
    ++e->events;
  }
}

static void finish_sends(struct end* e) {
  for (int i = 0; e->done != e->posted; ++i) {
    if (i == kPatience) fail("a send is not completed", ETIMEDOUT);
    reap(e);
    if (e->done != e->posted) usleep(1000);
  }
}

static uint64_t ping(struct end* e, uint64_t frames) {
  uint64_t good = 0;
  for (uint64_t next = 0; good < frames;) {
    uint32_t bytes[kWindow], count = 0;
    for (; next < frames && next - good < kWindow && count < kWindow / 2; ++count, ++next) {
      uint8_t* const frame = send_slot(e, next);
      bytes[count] = bytes_of(next);
      for (uint32_t i = kHeaderBytes; i < bytes[count]; ++i) frame[i] = payload_byte(next, i);
      address_frame(e, frame, bytes[count]);
    }
    if (count > 0) send_frames(e, bytes, count, frames - 1);
    const struct ibv_wc wc = receive(e);
    if (!is_frame(receive_slot(e, wc.wr_id), wc.byte_len, good)) {
      fprintf(stderr, "raw_packet: frame %llu came back as %u other bytes\n",
              (unsigned long long)good, wc.byte_len);
      exit(1);
    }
    ++good;
    post_receive(e, wc.wr_id);
  }
  return good;
}

static uint64_t echo(struct end* e, uint64_t frames) {
  puts("ready");
  fflush(stdout);
  for (uint64_t n = 0; n < frames; ++n) {
    const struct ibv_wc wc = receive(e);
    memcpy(send_slot(e, n), receive_slot(e, wc.wr_id), wc.byte_len);
    post_receive(e, wc.wr_id);
    address_frame(e, send_slot(e, n), wc.byte_len);
    const uint32_t bytes = wc.byte_len;
    send_frames(e, &bytes, 1, frames - 1);
  }
  return frames;
}

static struct address parse(char** words) {
  struct address a;
  unsigned m[6];
  struct in_addr ip;
  if (sscanf(words[0], "%x:%x:%x:%x:%x:%x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]) != 6 ||
      inet_pton(AF_INET, words[1], &ip) != 1)
    fail("MAC or IP address", EINVAL);
  for (int i = 0; i < 6; ++i) a.mac[i] = (uint8_t)m[i];
  a.ip = ip.s_addr;
  a.port = htons((uint16_t)atoi(words[2]));
  return a;
}

int main(int argc, char** argv) {
  if (argc != 9) {
    fputs("usage: raw_packet ping|echo LOCAL_MAC IP PORT PEER_MAC IP PORT FRAMES\n", stderr);
    return 2;
  }
  static struct end e;
  e.local = parse(argv + 2);
  e.peer = parse(argv + 5);
  const uint64_t frames = strtoull(argv[8], NULL, 10);
  open_end(&e);
  const uint64_t good = strcmp(argv[1], "ping") == 0 ? ping(&e, frames) : echo(&e, frames);
  finish_sends(&e);
  close_end(&e);
  printf(
      "{\"frames\": %llu, \"inlined\": %llu, \"gathered\": %llu, \"events\": %llu, "
      "\"good_sums\": %llu, \"flushed\": %llu}\n",
      (unsigned long long)good, (unsigned long long)e.inlined, (unsigned long long)e.gathered,
      (unsigned long long)e.events, (unsigned long long)e.good_sums, (unsigned long long)e.flushed);
  return good == frames ? 0 : 1;
}
