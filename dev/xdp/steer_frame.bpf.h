// The parts of a frame that the steering program reads, its state for one frame, and the scratch
// memory for keys.
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "steer_layout.h"

/* The part of TCP, UDP and quoted headers that steering reads. */
struct ports {
  __be16 source, dest;
};

struct vlan_tag {
  __be16 tci, next_proto;
};

/* IPv6's Fragment header (RFC 8200 4.5). */
struct frag6 {
  __u8 next, reserved;
  __be16 offset;
  __be32 id;
};

struct icmp_head {
  __u8 type, code;
  __be16 sum;
  __u32 rest;
};

#define IP_FRAGMENT bpf_htons(0x3fff) /* more-fragments or offset */
#define IP_OFFSET bpf_htons(0x1fff)
#define IP6_OFFSET bpf_htons(0xfff8)
#define IP6_MORE bpf_htons(1)

static __always_inline int is_carried(__u8 proto) {
  return proto == IPPROTO_TCP || proto == IPPROTO_UDP;
}

/* Old verifiers (6.1) lose the bounds of a value after a multiplication, OR or byte swap. This mask
   restores them; written in C, the compiler would drop it as redundant. */
#define BOUNDED(x, mask) asm volatile("%0 &= %1" : "+r"(x) : "i"(mask))

/* A frame's properties that steering needs besides addresses and ports. */
struct frame {
  struct xdp_md* ctx;
  __u64* key; /* room for one key, in whole words */
  struct scratch* scratch;
  __u64 link;       /* STEER_UNTAGGED, or a configured VLAN */
  __u64 is_ours;    /* unicast to this link's MAC address */
  __u64 is_group;   /* multicast or broadcast MAC */
  __u64 exact_only; /* only exact rules may match; otherwise to the kernel */
  __u64 to_first;   /* by a shared rule to the first sharer: it is no whole TCP segment */
};

/* The input of find_seldom() and steer_fragment(), for rare frames. */
struct inquiry {
  __u64 local[2], remote[2]; /* IPv4: in the first half of the first word */
  __u64 ports;               /* ports_of(local, remote) */
  __u64 proto;
  __u64 link;
  __u64 flags; /* enum inquiry_flag */
  __u64 id;    /* of a fragment, in the frame's byte order */
};
enum inquiry_flag {
  INQUIRY_V6 = 1,
  INQUIRY_IS_OURS = 2,  /* as in struct frame */
  INQUIRY_IS_GROUP = 4, /* as in struct frame */
  INQUIRY_EXACT_ONLY = 8,
  INQUIRY_LATER = 16, /* a fragment without ports */
};

/* Memory that the kernel's helpers read or write. Without CAP_PERFMON, part of a stack word may be
   written only if no whole word was stored there before, and the compiler would reuse stack slots
   for several variables. So each has its own place for the whole run, and keys and tuples are built
   from whole words. */
struct scratch {
  __u64 key[5];
  struct inquiry asked;
  struct {
    struct icmp_head icmp;
    struct iphdr ip;
  } quoted;
  struct ports ports;
  struct udphdr udp;
};
_Static_assert(sizeof(struct steer_exact6) == 5 * 8 && sizeof(struct steer_local6) == 3 * 8 &&
                   sizeof(struct steer_fragment) == 5 * 8,
               "words");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are made for this order of bytes");

static __always_inline __u64 two(__u64 low32, __u64 high32) { return low32 | high32 << 32; }
static __always_inline __u64 ports_of(__u64 first, __u64 second) { return first | second << 16; }
static __always_inline void put6(__u64* to, const struct in6_addr* a) {
  const __u64* const words = (const __u64*)a; /* machine and verifier allow unaligned loads */
  to[0] = words[0];
  to[1] = words[1];
}

static __always_inline int is_mac(const struct ethhdr* eth, const __u8* mac) {
  const __u16* const a = (const __u16*)eth->h_dest; /* 16 bits at a time: this is aligned */
  const __u16* const b = (const __u16*)mac;
  return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}
