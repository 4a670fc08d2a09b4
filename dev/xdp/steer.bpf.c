// The steering program: frames of carried flows go to the AF_XDP socket of the queue they came in
// on, everything else to the kernel untouched. Exact 5-tuple first, then local address and port,
// then port alone, which means the host's own addresses: what it forwards, what is for another
// station and what has the tag of a VLAN that is not here are the kernel's. An ICMP error goes
// where the flow it quotes goes. Fragments go where the one that came first goes, which is the
// kernel if that did not name the ports. IPv6's other extension headers and malformed frames are
// the kernel's, and so are datagrams that a kernel on this host has joined, where the driver does
// not part them. Runs in the driver (native) or in the stack (generic), once a frame: no hash
// look-up where the port has a single rule, one for an exact hit.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "steer_layout.h"

/* Sizes are set by the user's side before loading. Flow maps do not reserve memory for flows they
 * do not hold. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct steer_exact4);
  __type(value, __u32);
} exact4 SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct steer_exact6);
  __type(value, __u32);
} exact6 SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct steer_local4);
  __type(value, __u32);
} local4 SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct steer_local6);
  __type(value, __u32);
} local6 SEC(".maps");

/* Packets whose fragments are ours, and since when. Only who knows a port of ours adds to it. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, struct steer_fragment);
  __type(value, __u64);
} ours SEC(".maps");

/* Packets of which the kernel has a fragment already that did not name the ports. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, struct steer_fragment);
  __type(value, __u64);
} kernels SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_XSKMAP);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} sockets SEC(".maps");

__u16 port_kinds[STEER_PORTS];         /* enum steer_kind bits */
struct steer_lone4 lone4[STEER_PORTS]; /* by the same slot */
__u8 brings_joined;                    /* frames come as a sender's kernel has joined them */
struct steer_link vlans[STEER_VLANS];  /* on the interface */
struct steer_link untagged;            /* the interface itself */
struct steer_host host;
const volatile __u8 write_tags;

/* The part of TCP, UDP and of a quoted header that steering reads. */
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

/* Old verifiers (6.1) forget the bounds of what is multiplied, or-ed or swapped: the mask, which
   the compiler would take for needless, tells them. */
#define BOUNDED(x, mask) asm volatile("%0 &= %1" : "+r"(x) : "i"(mask))

/* Of a port in port_kinds and lone4. Who has no CAP_PERFMON may use an array at one place with the
   same bounds only, whatever path led there: so the protocol, TCP or UDP by now, is read again, of
   which the verifier then knows nothing. */
static __always_inline __u32 slot_of(const volatile __u8* proto, __be16 port) {
  __u32 slot = STEER_PORT_SLOT(*proto >> 4 & 1, port); /* the bit that 17 has and 6 has not */
  BOUNDED(slot, STEER_PORTS - 1);
  return slot;
}

/* A frame, as far as steering it needs more than addresses and ports. */
struct frame {
  struct xdp_md* ctx;
  __u64* key; /* room for one, of whole words */
  struct scratch* scratch;
  __u64 link;       /* STEER_UNTAGGED, or a VLAN that is here */
  __u64 is_ours;    /* unicast to the station that this link is */
  __u64 is_group;   /* to a group of stations */
  __u64 exact_only; /* what no exact rule claims is the kernel's */
};

/* What frames ask that seldom come, by find_seldom() and steer_fragment(). */
struct inquiry {
  __u64 local[2], remote[2]; /* IPv4: in the first half of the first */
  __u64 ports;               /* ports_of(local, remote) */
  __u64 proto;
  __u64 link;
  __u64 flags; /* enum inquiry_flag */
  __u64 id;    /* of a fragment, as it lies in the frame */
};
enum inquiry_flag {
  INQUIRY_V6 = 1,
  INQUIRY_IS_OURS = 2,  /* as in struct frame */
  INQUIRY_IS_GROUP = 4, /* as in struct frame */
  INQUIRY_EXACT_ONLY = 8,
  INQUIRY_LATER = 16, /* a fragment without ports */
};

/* What goes through memory, for the kernel's helpers to read or write. Who has no CAP_PERFMON may
   write a part of a word only where no whole one was stored before, and the compiler would lay
   variables of different times over each other: so all have a place of their own for the whole run,
   and keys and tuples are made of whole words. */
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
  const __u64* const words = (const __u64*)a; /* the machine and the verifier take them unaligned */
  to[0] = words[0];
  to[1] = words[1];
}

static __always_inline int is_mac(const struct ethhdr* eth, const __u8* mac) {
  const __u16* const a = (const __u16*)eth->h_dest; /* by halves: so it is aligned */
  const __u16* const b = (const __u16*)mac;
  return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

/* What a look-up says: no rule, or the rule's tag. */
#define NO_RULE (-1LL)
static __always_inline __s64 tag_at(const __u32* tag) { return tag ? (__s64)*tag : NO_RULE; }

/* A group's frames come to the group's station; those for a host by another way are the kernel's to
   judge. */
static __always_inline int may_hear4(const struct frame* f, __be32 local) {
  return f->is_ours || (f->is_group && (local & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000));
}
static __always_inline int may_hear6(const struct frame* f, const struct in6_addr* local) {
  return f->is_ours || (f->is_group && local->s6_addr[0] == 0xff);
}

static __always_inline int is_own4(const struct frame* f, __be32 a) {
  int found = 0;
#pragma unroll
  for (int i = 0; i < STEER_FIRST_V4; ++i) found |= host.v4[i] == a;
  if (found) return a != 0;
  if (!host.more_v4) return 0;
  __u64* const k = f->key; /* struct steer_local4 */
  k[0] = a;
  k[1] = 0;
  return bpf_map_lookup_elem(&local4, k) != 0;
}

static __always_inline int is_own6(const struct frame* f, const struct in6_addr* a) {
  __u64* const k = f->key; /* struct steer_local6 */
  put6(k, a);
  int found = 0;
#pragma unroll
  for (int i = 0; i < STEER_FIRST_V6; ++i) {
    __u64 own[2];
    __builtin_memcpy(own, host.v6[i], 16);
    found |= k[0] == own[0] && k[1] == own[1];
  }
  if (found) return (k[0] | k[1]) != 0;
  if (!host.more_v6) return 0;
  k[2] = 0;
  return bpf_map_lookup_elem(&local6, k) != 0;
}

/* A connection of its own, open, half-open or in TIME-WAIT. */
static __always_inline int kernel_has(const struct frame* f, __u32 tuple_bytes) {
  struct bpf_sock* sk = bpf_skc_lookup_tcp(f->ctx, (struct bpf_sock_tuple*)f->key, tuple_bytes,
                                           BPF_F_CURRENT_NETNS, 0);
  if (!sk) return 0;
  const __u32 state = sk->state;
  bpf_sk_release(sk);
  return state != BPF_TCP_LISTEN;
}

static __always_inline int is_lone4(const struct frame* f, const struct steer_lone4* rule,
                                    __be32 local, __be32 remote, __be16 remote_port) {
  if (rule->remote)
    return rule->local == local && rule->remote == remote && rule->remote_port == remote_port;
  if (rule->link != STEER_ANY_LINK && rule->link != f->link) return 0;
  if (!may_hear4(f, local) || f->exact_only) return 0;
  return rule->local ? rule->local == local : is_own4(f, local);
}

/* A rule of a local end, which names this link or none: of it or of all addresses. */
static __always_inline __s64 local_rule4(const struct frame* f, __u16 kinds, __be32 local,
                                         __u64 proto, __be16 port) {
  __u64* const k = f->key; /* struct steer_local4 */
  k[0] = two(local, ports_of(port, proto));
  if (kinds & STEER_BY_LINK) {
    k[1] = f->link;
    const __u32* tag = bpf_map_lookup_elem(&local4, k);
    if (tag) return *tag;
  }
  k[1] = STEER_ANY_LINK;
  return tag_at(bpf_map_lookup_elem(&local4, k));
}

/* Of the address that is in the key already. */
static __always_inline __s64 local_rule6(const struct frame* f, __u16 kinds, __u64 proto,
                                         __be16 port) {
  __u64* const k = f->key; /* struct steer_local6 */
  if (kinds & STEER_BY_LINK) {
    k[2] = two(ports_of(port, proto), f->link);
    const __u32* tag = bpf_map_lookup_elem(&local6, k);
    if (tag) return *tag;
  }
  k[2] = two(ports_of(port, proto), STEER_ANY_LINK);
  return tag_at(bpf_map_lookup_elem(&local6, k));
}

static __always_inline __s64 find4(const struct frame* f, const __u8* proto, __be32 local,
                                   __be32 remote, __be16 local_port, __be16 remote_port) {
  __s64 found = NO_RULE;
  const __u32 slot = slot_of(proto, local_port);
  const __u16 kinds = port_kinds[slot];
  __u64* const k = f->key;
  if (kinds & STEER_LONE4) {
    if (!is_lone4(f, &lone4[slot], local, remote, remote_port)) return NO_RULE;
    found = 0;
    if (kinds & STEER_EXACT4) return found;
  } else {
    if (kinds & STEER_EXACT4) {
      k[0] = two(local, remote); /* struct steer_exact4 */
      k[1] = two(ports_of(local_port, remote_port), *proto);
      const __u32* tag = bpf_map_lookup_elem(&exact4, k);
      if (tag) return *tag == STEER_SPARED ? NO_RULE : (__s64)*tag;
    }
    if (!(kinds & (STEER_LOCAL4 | STEER_WILD4)) || f->exact_only || !may_hear4(f, local))
      return NO_RULE;
    if (kinds & STEER_LOCAL4) found = local_rule4(f, kinds, local, *proto, local_port);
    if (found == NO_RULE && (kinds & STEER_WILD4) && is_own4(f, local))
      found = local_rule4(f, kinds, 0, *proto, local_port);
    if (found == NO_RULE) return found;
  }
  if (!(kinds & STEER_ASK)) return found;
  k[0] = two(remote, local); /* struct bpf_sock_tuple */
  k[1] = ports_of(remote_port, local_port);
  return kernel_has(f, sizeof(((struct bpf_sock_tuple*)0)->ipv4)) ? NO_RULE : found;
}

static __always_inline __s64 find6(const struct frame* f, const __u8* proto,
                                   const struct in6_addr* local, const struct in6_addr* remote,
                                   __be16 local_port, __be16 remote_port) {
  __s64 found = NO_RULE;
  const __u16 kinds = port_kinds[slot_of(proto, local_port)];
  __u64* const k = f->key;
  if (kinds & STEER_EXACT6) {
    put6(k, local); /* struct steer_exact6 */
    put6(k + 2, remote);
    k[4] = two(ports_of(local_port, remote_port), *proto);
    const __u32* tag = bpf_map_lookup_elem(&exact6, k);
    if (tag) return *tag == STEER_SPARED ? NO_RULE : (__s64)*tag;
  }
  if (!(kinds & (STEER_LOCAL6 | STEER_WILD6)) || f->exact_only || !may_hear6(f, local))
    return NO_RULE;
  if (kinds & STEER_LOCAL6) {
    put6(k, local);
    found = local_rule6(f, kinds, *proto, local_port);
  }
  if (found == NO_RULE && (kinds & STEER_WILD6) && is_own6(f, local)) {
    k[0] = k[1] = 0;
    found = local_rule6(f, kinds, *proto, local_port);
  }
  if (found == NO_RULE || !(kinds & STEER_ASK)) return found;
  put6(k, remote); /* struct bpf_sock_tuple */
  put6(k + 2, local);
  k[4] = ports_of(remote_port, local_port);
  return kernel_has(f, sizeof(((struct bpf_sock_tuple*)0)->ipv6)) ? NO_RULE : found;
}

/* Several datagrams in one frame (UDP_SEGMENT, udp(7)) are left for a NIC to part, with a checksum
   that is no more than the sum of the pseudo-header. Nothing in the frame says where each ends: the
   kernel, which knows, delivers them. A single one with such a checksum looks the same. */
static __always_inline int is_unfinished(const struct frame* f, __u32 at, const __be16* addresses,
                                         int words) {
  struct udphdr* const udp = &f->scratch->udp;
  if (bpf_xdp_load_bytes(f->ctx, at, udp, sizeof *udp)) return 0;
  __u32 sum = udp->len + bpf_htons(IPPROTO_UDP);
#pragma unroll
  for (int i = 0; i < words; ++i) sum += addresses[i];
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return udp->check == sum;
}

/* To the socket of this queue; a queue nobody opened is the kernel's. */
static __always_inline int to_socket(struct xdp_md* ctx, __u32 tag) {
  if (write_tags && bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct steer_meta)) == 0) {
    struct steer_meta* meta = (void*)(long)ctx->data_meta;
    if ((void*)(meta + 1) <= (void*)(long)ctx->data) {
      meta->magic = STEER_META_MAGIC;
      meta->tag = tag;
    }
  }
  return (int)bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
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
                        .exact_only = q->flags & INQUIRY_EXACT_ONLY};
}

/* The rule, as find4() and find6() tell it. A function of its own, which the verifier looks at once
   and not for each that calls it. */
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

/* Whether what is for this address may be a socket's at all. */
static __always_inline int is_for_us(const struct frame* f, const struct inquiry* q) {
  if (q->flags & INQUIRY_V6) {
    const struct in6_addr* const a = (const struct in6_addr*)q->local;
    return may_hear6(f, a) && (a->s6_addr[0] == 0xff || is_own6(f, a));
  }
  const __be32 a = (__be32)q->local[0];
  return may_hear4(f, a) && ((a & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || is_own4(f, a));
}

static __always_inline int is_since(const __u64* at, __u64 now, __u64 ns) {
  return at && (__s64)(now - *at) < (__s64)ns;
}

/* What becomes of a fragment; of a first one `tag` says where its ports go. */
__attribute__((noinline)) int steer_fragment(struct xdp_md* ctx, const struct inquiry* q,
                                             __s64 tag) {
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
    if (is_since(bpf_map_lookup_elem(&ours, key), now, STEER_OURS_NS)) return to_socket(ctx, 0);
    bpf_map_update_elem(&kernels, key, &now, BPF_ANY);
    return XDP_PASS;
  }
  int verdict = XDP_PASS;
  if (tag != NO_RULE && !is_since(bpf_map_lookup_elem(&kernels, key), now, STEER_KERNELS_NS))
    verdict = to_socket(ctx, (__u32)tag);
  if (verdict == XDP_PASS)
    bpf_map_delete_elem(&ours, key); /* of an earlier packet of this id */
  else
    bpf_map_update_elem(&ours, key, &now, BPF_ANY);
  return verdict;
}

/* RFC 792: the error quotes the IP header we sent and 8 bytes more, so its source is our side. Of a
   datagram only its own socket hears, which is connected: for the others the kernel has the error
   queue of the socket beneath. That a packet was too big is for all who send that way. */
static __always_inline int is_quoted4_carried(const struct frame* f, const struct iphdr* outer,
                                              __u32 at) {
  struct scratch* const s = f->scratch;
  const struct icmp_head* const icmp = &s->quoted.icmp;
  const struct iphdr* const ip = &s->quoted.ip;
  if (bpf_xdp_load_bytes(f->ctx, at, &s->quoted, sizeof s->quoted)) return 0;
  if (icmp->type != 3 && icmp->type != 4 && icmp->type != 11 && icmp->type != 12) return 0;
  if (ip->version != 4 || ip->ihl < 5 || (ip->frag_off & IP_OFFSET)) return 0;
  if (!is_carried(ip->protocol) || ip->saddr != outer->daddr) return 0;
  if (bpf_xdp_load_bytes(f->ctx, at + sizeof *icmp + ip->ihl * 4, &s->ports, sizeof s->ports))
    return 0;
  const int is_too_big = icmp->type == 3 && icmp->code == 4;
  f->scratch->asked = (struct inquiry){.local = {ip->saddr},
                                       .remote = {ip->daddr},
                                       .ports = ports_of(s->ports.source, s->ports.dest),
                                       .proto = ip->protocol,
                                       .link = f->link,
                                       .flags = flags_of(f)};
  if (ip->protocol == IPPROTO_UDP && !is_too_big) f->scratch->asked.flags |= INQUIRY_EXACT_ONLY;
  return find_seldom(f->ctx, &f->scratch->asked) != NO_RULE;
}

/* RFC 4443 §2.1: types below 128 are errors; 1 to 4 are assigned, 2 is Packet Too Big. */
static __always_inline int is_quoted6_carried(const struct frame* f, const struct ipv6hdr* outer,
                                              const void* end) {
  const struct icmp_head* icmp = (const void*)(outer + 1);
  const struct ipv6hdr* ip = (const void*)(icmp + 1);
  const struct ports* p = (const void*)(ip + 1);
  if ((const void*)(p + 1) > end) return 0;
  if (icmp->type < 1 || icmp->type > 4 || ip->version != 6 || !is_carried(ip->nexthdr)) return 0;
  if (__builtin_memcmp(&ip->saddr, &outer->daddr, 16) != 0) return 0;
  f->scratch->asked = (struct inquiry){.ports = ports_of(p->source, p->dest),
                                       .proto = ip->nexthdr,
                                       .link = f->link,
                                       .flags = INQUIRY_V6 | flags_of(f)};
  if (ip->nexthdr == IPPROTO_UDP && icmp->type != 2) f->scratch->asked.flags |= INQUIRY_EXACT_ONLY;
  put6(f->scratch->asked.local, &ip->saddr);
  put6(f->scratch->asked.remote, &ip->daddr);
  return find_seldom(f->ctx, &f->scratch->asked) != NO_RULE;
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
  const int is_all = !(part->offset & IP6_MORE); /* RFC 6946: nothing follows */
  if (bpf_xdp_load_bytes(f->ctx, at + sizeof *ip + sizeof *part, p, sizeof *p)) return XDP_PASS;
  q->ports = ports_of(p->dest, p->source);
  if (!is_all) return steer_asked(f);
  const __s64 tag = find_seldom(f->ctx, q);
  return tag != NO_RULE ? to_socket(f->ctx, (__u32)tag) : XDP_PASS;
}

SEC("xdp.frags")
int vireo_steer(struct xdp_md* ctx) {
  const void* at = (const void*)(long)ctx->data;
  const void* end = (const void*)(long)ctx->data_end;
  const struct ethhdr* eth = at;
  if ((const void*)(eth + 1) > end) return XDP_PASS;
  at = eth + 1;
  struct scratch scratch;
  struct frame f = {.ctx = ctx, .key = scratch.key, .scratch = &scratch, .link = STEER_UNTAGGED};
  __u32 l3 = sizeof *eth;
  __be16 type = eth->h_proto;

  if (type == bpf_htons(ETH_P_8021Q)) {
    const struct vlan_tag* v = at;
    if ((const void*)(v + 1) > end) return XDP_PASS;
    type = v->next_proto;
    at = v + 1;
    l3 += sizeof *v;
    __u32 vlan = bpf_ntohs(v->tci);
    BOUNDED(vlan, STEER_VLANS - 1);
    if (vlan) { /* else it has a priority and no VLAN */
      const struct steer_link* link = &vlans[vlan];
      if (!link->is_here) return XDP_PASS;
      f.link = vlan;
      f.is_ours = is_mac(eth, link->mac);
    }
  }
  if (f.link == STEER_UNTAGGED) f.is_ours = is_mac(eth, untagged.mac);
  f.is_group = eth->h_dest[0] & 1;

  if (type == bpf_htons(ETH_P_IP)) {
    const struct iphdr* ip = at;
    if ((const void*)(ip + 1) > end) return XDP_PASS;
    if (ip->version != 4 || ip->ihl < 5) return XDP_PASS;
    /* Where a header of any length ends is a number, and no pointer: to add an unknown one to a
       pointer into the frame needs CAP_PERFMON. */
    const __u32 behind = l3 + ip->ihl * 4;
    if (ip->frag_off & IP_FRAGMENT) return fragment4(&f, ip, behind);
    if (is_carried(ip->protocol)) {
      struct ports p;
      if (ip->ihl == 5) {
        const struct ports* there = (const void*)(ip + 1);
        if ((const void*)(there + 1) > end) return XDP_PASS;
        p = *there;
      } else {
        if (bpf_xdp_load_bytes(ctx, behind, &scratch.ports, sizeof scratch.ports)) return XDP_PASS;
        p = scratch.ports;
      }
      const __s64 tag = find4(&f, &ip->protocol, ip->daddr, ip->saddr, p.dest, p.source);
      if (brings_joined && ip->protocol == IPPROTO_UDP &&
          is_unfinished(&f, behind, (const __be16*)&ip->saddr, 4))
        return XDP_PASS;
      return tag != NO_RULE ? to_socket(ctx, (__u32)tag) : XDP_PASS;
    }
    if (ip->protocol == IPPROTO_ICMP && is_quoted4_carried(&f, ip, behind))
      return to_socket(ctx, 0);
    return XDP_PASS;
  }

  if (type == bpf_htons(ETH_P_IPV6)) {
    const struct ipv6hdr* ip = at;
    if ((const void*)(ip + 1) > end || ip->version != 6) return XDP_PASS;
    if (ip->nexthdr == IPPROTO_FRAGMENT) return fragment6(&f, ip, l3, end);
    if (is_carried(ip->nexthdr)) {
      const struct ports* p = (const void*)(ip + 1);
      if ((const void*)(p + 1) > end) return XDP_PASS;
      const __s64 tag = find6(&f, &ip->nexthdr, &ip->daddr, &ip->saddr, p->dest, p->source);
      if (brings_joined && ip->nexthdr == IPPROTO_UDP &&
          is_unfinished(&f, l3 + sizeof *ip, (const __be16*)&ip->saddr, 16))
        return XDP_PASS;
      return tag != NO_RULE ? to_socket(ctx, (__u32)tag) : XDP_PASS;
    }
    if (ip->nexthdr == IPPROTO_ICMPV6 && is_quoted6_carried(&f, ip, end)) return to_socket(ctx, 0);
  }
  return XDP_PASS;
}

/* No helper that asks for the GPL is used. */
char license_text[] SEC("license") = "Dual BSD/GPL";
