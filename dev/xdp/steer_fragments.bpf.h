// Steers the fragments of a packet to where the first to arrive went.
#pragma once

#include "steer_seldom.bpf.h"

/* Whether a socket can receive what is sent to this address. */
static __always_inline int is_for_us(const struct frame* f, const struct inquiry* q) {
  if (q->flags & INQUIRY_V6) {
    const struct in6_addr* const a = (const struct in6_addr*)q->local;
    return may_hear6(f, a) && (a->s6_addr[0] == 0xff || is_own6(f, a));
  }
  const __be32 a = (__be32)q->local[0];
  return may_hear4(f, a) && ((a & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || is_own4(f, a));
}

/* Whether the rule's member wants fragments. */
static __always_inline int takes_fragments(__s64 found) {
  return host.takes_fragments >> (found >> 32 & (STEER_MEMBERS - 1)) & 1;
}

/* Of a time in `ours`. */
#define SLOT_BYTE 0xffULL

static __always_inline int is_since(const __u64* at, __u64 now, __u64 ns) {
  return at && (__s64)(now - *at) < (__s64)ns;
}

/* The verdict for a fragment; for a first fragment `found` is the result of the rule look-up. */
__attribute__((noinline)) int steer_fragment(struct xdp_md* ctx, const struct inquiry* q,
                                             __s64 found) {
  if (!q) return XDP_PASS;
  __u64 key[5]; /* struct steer_fragment */
  const struct frame f = frame_of(ctx, q, key);
  if ((q->flags & INQUIRY_LATER) && !is_for_us(&f, q)) return XDP_PASS;
  const __u64 is_v6 = q->flags & INQUIRY_V6;
  key[0] = q->local[0];
  key[1] = q->local[1];
  key[2] = q->remote[0];
  key[3] = q->remote[1];
  key[4] = two(q->id, is_v6 ? 6 : ports_of(4, q->proto));
  const __u64 now = bpf_ktime_get_ns();
  if (q->flags & INQUIRY_LATER) {
    const __u64* const first = bpf_map_lookup_elem(&ours, key);
    if (is_since(first, now, STEER_OURS_NS))
      return to_socket(ctx, (__s64)STEER_VALUE(*first & SLOT_BYTE, 0));
    bpf_map_update_elem(&kernels, key, &now, BPF_ANY);
    return XDP_PASS;
  }
  int verdict = XDP_PASS;
  if (found >= 0 && takes_fragments(found) &&
      !is_since(bpf_map_lookup_elem(&kernels, key), now, STEER_KERNELS_NS))
    verdict = to_socket(ctx, found);
  if (verdict == XDP_PASS) {
    bpf_map_delete_elem(&ours, key); /* left by an earlier packet with this id */
  } else {
    const __u64 first = (now & ~SLOT_BYTE) | found >> 32;
    bpf_map_update_elem(&ours, key, &first, BPF_ANY);
  }
  return verdict;
}

static __always_inline int steer_asked(const struct frame* f) {
  const struct inquiry* const q = &f->scratch->asked;
  return steer_fragment(f->ctx, q, q->flags & INQUIRY_LATER ? NO_RULE : find_seldom(f->ctx, q));
}

static __always_inline int fragment4(const struct frame* f, const struct iphdr* ip, __u32 at) {
  struct ports* const p = &f->scratch->ports;
  if (!host.takes_fragments || !is_carried(ip->protocol)) return XDP_PASS;
  f->scratch->asked = (struct inquiry){.local = {ip->daddr},
                                       .remote = {ip->saddr},
                                       .proto = ip->protocol,
                                       .link = f->link,
                                       .flags = flags_of(f),
                                       .id = ip->id};
  if (ip->frag_off & IP_OFFSET) {
    f->scratch->asked.flags |= INQUIRY_LATER;
  } else {
    if (bpf_xdp_load_bytes(f->ctx, at, p, sizeof *p)) return XDP_PASS;
    f->scratch->asked.ports = ports_of(p->dest, p->source);
  }
  return steer_asked(f);
}

static __always_inline int fragment6(const struct frame* f, const struct ipv6hdr* ip, __u32 at,
                                     const void* end) {
  const struct frag6* const part = (const void*)(ip + 1);
  struct ports* const p = &f->scratch->ports;
  struct inquiry* const q = &f->scratch->asked;
  if ((const void*)(part + 1) > end || !host.takes_fragments || !is_carried(part->next))
    return XDP_PASS;
  *q = (struct inquiry){
      .proto = part->next, .link = f->link, .flags = INQUIRY_V6 | flags_of(f), .id = part->id};
  put6(q->local, &ip->daddr);
  put6(q->remote, &ip->saddr);
  if (part->offset & IP6_OFFSET) {
    q->flags |= INQUIRY_LATER;
    return steer_asked(f);
  }
  const int is_all = !(part->offset & IP6_MORE); /* RFC 6946: an atomic fragment */
  if (bpf_xdp_load_bytes(f->ctx, at + sizeof *ip + sizeof *part, p, sizeof *p)) return XDP_PASS;
  q->ports = ports_of(p->dest, p->source);
  if (!is_all) return steer_asked(f);
  const __s64 found = find_seldom(f->ctx, q);
  return found >= 0 && takes_fragments(found) ? to_socket(f->ctx, found) : XDP_PASS;
}
