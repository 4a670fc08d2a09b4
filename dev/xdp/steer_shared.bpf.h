// Chooses the member for a frame of a local end that several share: for a SYN one that accepts, by
// a hash of the flow; for others the first sharer. A connection of another one has an exact rule.
#pragma once

#include "steer_frame.bpf.h"
#include "steer_maps.bpf.h"

/* Result of a look-up: the value of a rule (STEER_VALUE); negative: to the kernel. */
#define NO_RULE (-1LL)

struct tcp_start {
  __u32 ports, seq, ack;
  __u8 offset, flags;
  __be16 window;
};

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16

/* Opens a connection. */
static __always_inline int is_syn(__u8 flags) {
  return (flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

/* Any odd number with many bits set: the highest bits of the product depend on all of x. */
static __always_inline __u64 mixed(__u64 x) {
  x *= 0x9e3779b97f4a7c15ULL;
  return x ^ x >> 32;
}

/* The way through the buckets of a shared end. */
struct walk {
  __u64 end, now;
  __u64 hash, step;
  __u64 found; /* slot + 1 of a sharer that accepts; 0: none yet */
};

static long try_bucket(__u32 i, struct walk* w) {
  (void)i;
  const __u8* const all = sharers[0];
  __u64 at = w->end * STEER_BUCKETS + w->hash % STEER_BUCKETS;
  BOUNDED(at, STEER_SHARED_ENDS * STEER_BUCKETS - 1);
  w->hash += w->step;
  const __u8 sharer = all[at];
  if (sharer == 0) return 0;
  __u64 slot = sharer - 1;
  BOUNDED(slot, STEER_MEMBERS - 1);
  if (accepting[slot].until < w->now) return 0;
  w->found = sharer;
  return 1;
}

/* The value of a sharer of `end` that accepts now. The hash chooses the first bucket and the order
   of the others: what one sharer refuses is spread over all. */
static __always_inline __s64 accepting_one(__u64 end, __u64 hash) {
  /* An odd step comes to each bucket once. */
  struct walk w = {.end = end, .now = bpf_ktime_get_ns(), .hash = hash, .step = hash >> 32 | 1};
  bpf_loop(STEER_BUCKETS, try_bucket, &w, 0);
  return w.found ? (__s64)STEER_VALUE(w.found - 1, 0) : NO_RULE;
}

/* Of a shared rule, the value as if it were the first sharer's alone. */
static __always_inline __s64 first_of(__s64 rule) { return rule & (STEER_MEMBERS - 1LL) << 32; }

/* In line for each place of the header: an old verifier refuses a load by a pointer that was made
   in several ways. */
static __always_inline __s64 sharer_for(__s64 rule, const struct tcp_start* tcp, __u64 addresses) {
  if (!is_syn(tcp->flags)) return first_of(rule);
  const __u64 hash = mixed(mixed(addresses ^ hash_secret) ^ tcp->ports);
  return accepting_one(rule & 0xffffffff, hash);
}

/* The value of the member that gets this TCP segment by a shared rule, or NO_RULE. It reads the
   frame once more: to hand over what is known of it takes an old verifier too many states. */
__attribute__((noinline)) __s64 steer_shared(struct xdp_md* ctx, __s64 rule) {
  const void* at = (const void*)(long)ctx->data;
  const void* const end = (const void*)(long)ctx->data_end;
  const struct ethhdr* const eth = at;
  if ((const void*)(eth + 1) > end) return NO_RULE;
  __be16 type = eth->h_proto;
  __u32 l3 = sizeof *eth;
  at = eth + 1;
  if (type == bpf_htons(ETH_P_8021Q)) {
    const struct vlan_tag* const v = at;
    if ((const void*)(v + 1) > end) return NO_RULE;
    type = v->next_proto;
    at = v + 1;
    l3 += sizeof *v;
  }
  if (type == bpf_htons(ETH_P_IP)) {
    const struct iphdr* const ip = at;
    const struct tcp_start* const tcp = (const void*)(ip + 1);
    if ((const void*)(tcp + 1) > end) return NO_RULE;
    const __u64 addresses = two(ip->saddr, ip->daddr);
    if (ip->ihl == 5) return sharer_for(rule, tcp, addresses);
    struct tcp_start behind_options;
    if (bpf_xdp_load_bytes(ctx, l3 + ip->ihl * 4, &behind_options, sizeof behind_options))
      return NO_RULE;
    return sharer_for(rule, &behind_options, addresses);
  }
  const struct ipv6hdr* const ip = at;
  const struct tcp_start* const tcp = (const void*)(ip + 1);
  if ((const void*)(tcp + 1) > end) return NO_RULE;
  const __u64* const a = (const __u64*)&ip->saddr;
  return sharer_for(rule, tcp, mixed(mixed(mixed(a[0]) ^ a[1]) ^ a[2]) ^ a[3]);
}
