// Gives a copy of a frame to each of those that share a local end of UDP, and the kernel the frame
// itself if one of them wants that. AF_XDP brings a frame to one socket only; the copies go to
// rings that the members map.
#pragma once

#include "steer_frame.bpf.h"
#include "steer_maps.bpf.h"

struct copying {
  struct xdp_md* ctx;
  __u64 members; /* still without a copy */
  __u64 length;
};

/* The number of the lowest bit: the bits below it are counted. Without a branch: without
   CAP_PERFMON an array's index must have the same bounds on every path. */
static __always_inline __u64 lowest(__u64 bits) {
  __u64 n = (bits & -bits) - 1;
  n -= n >> 1 & 0x5555555555555555ULL;
  n = (n & 0x3333333333333333ULL) + (n >> 2 & 0x3333333333333333ULL);
  n = (n + (n >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
  return n * 0x0101010101010101ULL >> 56;
}

/* `room` is a constant. @return 0: there is none left. */
static __always_inline int copy_into(struct xdp_md* ctx, void* ring, struct steer_reader* reader,
                                     __u64 length, const __u64 room) {
  struct steer_copy* const to = bpf_ringbuf_reserve(ring, room, 0);
  if (!to) return 0;
  to->length = length;
  if (length < sizeof(struct ethhdr)) goto bad;
  asm volatile(""
               : "+r"(length)); /* else both bounds become one comparison, which tells 6.1 none */
  if (length > room - sizeof *to || bpf_xdp_load_bytes(ctx, 0, to + 1, length)) goto bad;
  /* A whole barrier between the reservation, which the reader sees, and the look whether it sleeps:
     it looks in the opposite order (copy_queue.cpp). The first record wakes whoever sleeps: a
     wake-up is an interrupt of this processor. */
  const __u64 sleeps = __sync_lock_test_and_set(&reader->sleeps, 0);
  bpf_ringbuf_submit(to, sleeps ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
  return 1;
bad:
  bpf_ringbuf_discard(to, BPF_RB_NO_WAKEUP);
  return 1;
}

/* A function that the verifier looks at by itself: in the loop it would see each way through it
   with each of the next. */
__attribute__((noinline)) int steer_copy(struct xdp_md* ctx, __u64 slot, __u64 length) {
  BOUNDED(slot, STEER_MEMBERS - 1);
  const __u32 key = slot;
  void* const ring = bpf_map_lookup_elem(&rings, &key);
  if (!ring) return 0;
  struct steer_reader* const reader = &readers[slot];
  int has_room;
  if (length <= STEER_COPY_SMALL - sizeof(struct steer_copy))
    has_room = copy_into(ctx, ring, reader, length, STEER_COPY_SMALL);
  else if (length <= STEER_COPY_MEDIUM - sizeof(struct steer_copy))
    has_room = copy_into(ctx, ring, reader, length, STEER_COPY_MEDIUM);
  else
    has_room = copy_into(ctx, ring, reader, length, STEER_COPY_MOST);
  if (!has_room) __sync_fetch_and_add(&reader->lost, 1);
  return 0;
}

static long copy_to_one(__u32 i, struct copying* c) {
  (void)i;
  if (!c->members) return 1;
  const __u64 slot = lowest(c->members);
  c->members &= c->members - 1;
  steer_copy(c->ctx, slot, c->length);
  return 0;
}

/* Marks the frame for the kernel. @return 0, or the driver cannot. */
static __always_inline long mark_copied(struct xdp_md* ctx, __u64 end) {
  if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct steer_copied))) return -1;
  struct steer_copied* const m = (void*)(long)ctx->data_meta;
  if ((void*)(m + 1) > (void*)(long)ctx->data) return -1;
  m->magic = STEER_COPIED_MAGIC;
  m->mark = STEER_COPIED_MARK(ctx->ingress_ifindex, end);
  return 0;
}

/* What becomes of a frame that hit the shared rule. One that cannot be copied, or not marked, is
   the kernel's, which gives it to all. */
__attribute__((noinline)) int steer_copies(struct xdp_md* ctx, __s64 rule) {
  __u64 end = rule & (STEER_SHARED_ENDS - 1);
  BOUNDED(end, STEER_SHARED_ENDS - 1);
  const struct steer_copies* const to = &copies[end];
  struct copying c = {.ctx = ctx, .members = to->members, .length = bpf_xdp_get_buff_len(ctx)};
  if (!c.members || c.length > STEER_COPY_MOST - sizeof(struct steer_copy)) return XDP_PASS;
  const int with_kernel = to->with_kernel != 0;
  if (with_kernel && mark_copied(ctx, end)) return XDP_PASS;
  bpf_loop(STEER_MEMBERS, copy_to_one, &c, 0);
  return with_kernel ? XDP_PASS : XDP_DROP;
}
