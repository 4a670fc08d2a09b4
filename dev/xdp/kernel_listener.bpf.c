// Gives the kernel's listener connections that were opened here: a frame with our note is the
// peer's segment that ends a handshake, and the kernel takes it as it takes the answer to a SYN
// cookie, with what the note says was agreed. All other frames go on untouched. Runs at the
// interface's ingress (tcx), only while there are such frames.
// Source: bpf_sk_assign_tcp_reqsk() of Linux 6.9, net/core/filter.c.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "kernel_listener_note.h"

#define NEXT (-1) /* TCX_NEXT */

/* Its number in the kernel is not known before the program is loaded: kernel_listener.cpp. libbpf
   would look for it, too, but reads the types of the whole kernel, which takes 100 ms. */
#define KERNEL_FUNCTION 0x7ffffff
static int (*const assign_request)(struct __sk_buff* frame, struct bpf_sock* listener,
                                   struct bpf_tcp_req_attrs* agreed,
                                   int bytes) = (void*)KERNEL_FUNCTION;

const volatile __u64 secret;
struct kernel_listener_answer answer;

static __always_inline int give(struct __sk_buff* frame, const struct kernel_listener_note* note) {
  const struct ethhdr* eth = (const void*)(long)frame->data;
  const void* end = (const void*)(long)frame->data_end;
  struct bpf_tcp_req_attrs agreed = note->agreed;
  struct bpf_sock_tuple ends = {};
  const struct tcphdr* tcp;
  __u32 bytes;
  if ((const void*)(eth + 1) > end) return -22;
  if (eth->h_proto == bpf_htons(ETH_P_IP)) {
    const struct iphdr* ip = (const void*)(eth + 1);
    tcp = (const void*)(ip + 1);
    if ((const void*)(tcp + 1) > end) return -22;
    ends.ipv4.saddr = ip->saddr;
    ends.ipv4.daddr = ip->daddr;
    ends.ipv4.sport = tcp->source;
    ends.ipv4.dport = tcp->dest;
    bytes = sizeof ends.ipv4;
  } else {
    const struct ipv6hdr* ip = (const void*)(eth + 1);
    tcp = (const void*)(ip + 1);
    if ((const void*)(tcp + 1) > end) return -22;
    __builtin_memcpy(ends.ipv6.saddr, &ip->saddr, sizeof ends.ipv6.saddr);
    __builtin_memcpy(ends.ipv6.daddr, &ip->daddr, sizeof ends.ipv6.daddr);
    ends.ipv6.sport = tcp->source;
    ends.ipv6.dport = tcp->dest;
    bytes = sizeof ends.ipv6;
  }
  struct bpf_sock* listener = bpf_sk_lookup_tcp(frame, &ends, bytes, BPF_F_CURRENT_NETNS, 0);
  if (!listener) return -111; /* ECONNREFUSED */
  const int error = listener->state == BPF_TCP_LISTEN
                        ? assign_request(frame, listener, &agreed, sizeof agreed)
                        : -17; /* EEXIST */
  bpf_sk_release(listener);
  return error;
}

SEC("tc")
int vireo_listener(struct __sk_buff* frame) {
  const struct kernel_listener_note* note = (const void*)(long)frame->data_meta;
  if ((const void*)(note + 1) > (const void*)(long)frame->data || note->secret != secret)
    return NEXT;
  const __u32 number = note->number;
  answer.error = give(frame, note);
  answer.number = number;
  return NEXT;
}

char license_text[] SEC("license") = "Dual BSD/GPL";
