// Finds the rule of rare frames (fragments, ICMP errors) in a function that the verifier checks
// once; its arguments are in memory. Also sends frames to a member's socket.
#pragma once

#include "steer_rules.bpf.h"

/* Redirects to the socket of the rule's member on this queue; a queue that the member has not open
   passes to the kernel. */
static __always_inline int to_socket(struct xdp_md* ctx, __s64 value) {
  if (write_tags && bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct steer_meta)) == 0) {
    struct steer_meta* meta = (void*)(long)ctx->data_meta;
    if ((void*)(meta + 1) <= (void*)(long)ctx->data) {
      meta->magic = STEER_META_MAGIC;
      meta->tag = (__u32)value;
    }
  }
  const __u64 queue = ctx->rx_queue_index;
  return (int)bpf_redirect_map(&sockets, STEER_SOCKET(value >> 32, queue), XDP_PASS);
}

static __always_inline __u64 flags_of(const struct frame* f) {
  return (f->is_ours ? INQUIRY_IS_OURS : 0) | (f->is_group ? INQUIRY_IS_GROUP : 0);
}

static __always_inline struct frame frame_of(struct xdp_md* ctx, const struct inquiry* q,
                                             __u64* key) {
  return (struct frame){.ctx = ctx,
                        .key = key,
                        .link = q->link,
                        .is_ours = q->flags & INQUIRY_IS_OURS,
                        .is_group = q->flags & INQUIRY_IS_GROUP,
                        .exact_only = q->flags & INQUIRY_EXACT_ONLY,
                        .to_first = 1};
}

/* The result of find4() or find6(). Not inlined, so that the verifier checks it once and not for
   each caller. */
__attribute__((noinline)) __s64 find_seldom(struct xdp_md* ctx, const struct inquiry* q) {
  if (!q) return NO_RULE;
  __u64 key[5];
  const struct frame f = frame_of(ctx, q, key);
  const __u8* const proto = (const __u8*)&q->proto;
  const __be16 local_port = q->ports & 0xffff;
  const __be16 remote_port = q->ports >> 16 & 0xffff;
  if (q->flags & INQUIRY_V6)
    return find6(&f, proto, (const struct in6_addr*)q->local, (const struct in6_addr*)q->remote,
                 local_port, remote_port);
  return find4(&f, proto, (__be32)q->local[0], (__be32)q->remote[0], local_port, remote_port);
}
