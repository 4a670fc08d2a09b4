// For a process that gets copies of frames (steer_copies.bpf.h) which the kernel gets, too: its own
// sockets beneath must not hear them twice. At the ingress the mark before such a frame becomes
// skb->tc_index; a filter of those sockets drops what has the mark of a shared end of the process.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "steer_layout.h"

/* The marks of shared ends of which this process gets copies. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 4096);
  __type(key, __u32);
  __type(value, __u8);
} own SEC(".maps");

/* Several processes may have this at one interface: it changes nothing that it did not find. */
SEC("tc")
int vireo_marks(struct __sk_buff* skb) {
  const struct steer_copied* const m = (const void*)(long)skb->data_meta;
  if ((const void*)(m + 1) <= (const void*)(long)skb->data && m->magic == STEER_COPIED_MAGIC)
    skb->tc_index = (__u16)m->mark;
  return -1; /* TCX_NEXT */
}

SEC("socket")
int vireo_heard(struct __sk_buff* skb) {
  const __u32 mark = skb->tc_index;
  if (mark == 0 || !bpf_map_lookup_elem(&own, &mark)) return skb->len;
  return 0;
}

/* No GPL-only helper is used. */
char license_text[] SEC("license") = "Dual BSD/GPL";
