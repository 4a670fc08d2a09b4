// The steering program: frames of carried flows go to the AF_XDP socket of the queue they came in
// on, everything else to the kernel untouched. Exact 5-tuple first, then local address and port,
// then port alone; an ICMP error goes where the flow it quotes goes. Fragments, IPv6 extension
// headers and malformed frames are the kernel's, and so are datagrams that a kernel on this host
// has joined, where the driver does not part them. Runs in the driver (native) or in the stack
// (generic), once a frame: no hash look-up where the port has a single rule, one for an exact hit.
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

struct {
  __uint(type, BPF_MAP_TYPE_XSKMAP);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} sockets SEC(".maps");

__u8 port_kinds[STEER_PORTS];          /* enum steer_kind bits */
struct steer_lone4 lone4[STEER_PORTS]; /* by the same slot */
__u8 brings_joined;                    /* frames come as a sender's kernel has joined them */
const volatile __u8 own_mac[6];        /* of the interface */
const volatile __u8 write_tags;

/* The part of TCP, UDP and of a quoted header that steering reads. */
struct ports {
  __be16 source, dest;
};

struct vlan_tag {
  __be16 tci, next_proto;
};

struct icmp_head {
  __u8 type, code;
  __be16 sum;
  __u32 rest;
};

#define IP_FRAGMENT bpf_htons(0x3fff) /* more-fragments or offset */
#define IP_OFFSET bpf_htons(0x1fff)

static __always_inline int is_carried(__u8 proto) {
  return proto == IPPROTO_TCP || proto == IPPROTO_UDP;
}

/* Of a port in port_kinds and lone4. Who has no CAP_PERFMON may use an array at one place with the
   same bounds only, whatever path led there: so the protocol, TCP or UDP by now, is read again, of
   which the verifier then knows nothing. Old verifiers (6.1) know no bounds of what is
   multiplied and or-ed: the mask, which the compiler would take for needless, tells them. */
static __always_inline __u32 slot_of(const volatile __u8* proto, __be16 port) {
  __u32 slot = STEER_PORT_SLOT(*proto >> 4 & 1, port); /* the bit that 17 has and 6 has not */
  asm volatile("%0 &= %1" : "+r"(slot) : "i"(STEER_PORTS - 1));
  return slot;
}

/* Unicast to another station reaches us in promiscuous mode, on flooding switches and for macvlan
   interfaces stacked on ours; a port without an address must not take it. */
static __always_inline int is_for_us(const struct ethhdr* eth) {
  if (eth->h_dest[0] & 1) return 1;
  const __u8* d = eth->h_dest;
  return d[0] == own_mac[0] && d[1] == own_mac[1] && d[2] == own_mac[2] && d[3] == own_mac[3] &&
         d[4] == own_mac[4] && d[5] == own_mac[5];
}

/* What a look-up says: no rule, or the rule's tag. */
#define NO_RULE (-1LL)
static __always_inline __s64 tag_at(const __u32* tag) { return tag ? (__s64)*tag : NO_RULE; }

static __always_inline int is_lone4(const struct steer_lone4* rule, const struct ethhdr* eth,
                                    __be32 local, __be32 remote, __be16 remote_port) {
  if (rule->local ? rule->local != local : !is_for_us(eth)) return 0;
  return !rule->remote || (rule->remote == remote && rule->remote_port == remote_port);
}

static __always_inline __s64 find4(const struct ethhdr* eth, const __u8* proto, __be32 local,
                                   __be32 remote, __be16 local_port, __be16 remote_port) {
  const __u32* tag;
  const __u32 slot = slot_of(proto, local_port);
  const __u8 kinds = port_kinds[slot];
  if (kinds & STEER_LONE4)
    return is_lone4(&lone4[slot], eth, local, remote, remote_port) ? 0 : NO_RULE;
  if (kinds & STEER_EXACT4) {
    struct steer_exact4 k = {.local = local,
                             .remote = remote,
                             .local_port = local_port,
                             .remote_port = remote_port,
                             .proto = *proto};
    tag = bpf_map_lookup_elem(&exact4, &k);
    if (tag) return *tag == STEER_SPARED ? NO_RULE : (__s64)*tag;
  }
  if (kinds & (STEER_LOCAL4 | STEER_WILD4)) {
    struct steer_local4 k = {.local = local, .local_port = local_port, .proto = *proto};
    if (kinds & STEER_LOCAL4) {
      tag = bpf_map_lookup_elem(&local4, &k);
      if (tag) return *tag;
    }
    if ((kinds & STEER_WILD4) && is_for_us(eth)) {
      k.local = 0;
      return tag_at(bpf_map_lookup_elem(&local4, &k));
    }
  }
  return NO_RULE;
}

static __always_inline __s64 find6(const struct ethhdr* eth, const __u8* proto,
                                   const struct in6_addr* local, const struct in6_addr* remote,
                                   __be16 local_port, __be16 remote_port) {
  const __u32* tag;
  const __u8 kinds = port_kinds[slot_of(proto, local_port)];
  if (kinds & STEER_EXACT6) {
    struct steer_exact6 k = {.local_port = local_port, .remote_port = remote_port, .proto = *proto};
    __builtin_memcpy(k.local, local, 16);
    __builtin_memcpy(k.remote, remote, 16);
    tag = bpf_map_lookup_elem(&exact6, &k);
    if (tag) return *tag == STEER_SPARED ? NO_RULE : (__s64)*tag;
  }
  if (kinds & (STEER_LOCAL6 | STEER_WILD6)) {
    struct steer_local6 k = {.local_port = local_port, .proto = *proto};
    if (kinds & STEER_LOCAL6) {
      __builtin_memcpy(k.local, local, 16);
      tag = bpf_map_lookup_elem(&local6, &k);
      if (tag) return *tag;
    }
    if ((kinds & STEER_WILD6) && is_for_us(eth)) {
      __builtin_memset(k.local, 0, 16);
      return tag_at(bpf_map_lookup_elem(&local6, &k));
    }
  }
  return NO_RULE;
}

/* Several datagrams in one frame (UDP_SEGMENT, udp(7)) are left for a NIC to part, with a checksum
   that is no more than the sum of the pseudo-header. Nothing in the frame says where each ends: the
   kernel, which knows, delivers them. A single one with such a checksum looks the same. */
static __always_inline int is_unfinished(struct xdp_md* ctx, __u32 at, const __be16* addresses,
                                         int words) {
  struct udphdr udp;
  if (bpf_xdp_load_bytes(ctx, at, &udp, sizeof udp)) return 0;
  __u32 sum = udp.len + bpf_htons(IPPROTO_UDP);
#pragma unroll
  for (int i = 0; i < words; ++i) sum += addresses[i];
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return udp.check == sum;
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

/* RFC 792: the error quotes the IP header we sent and 8 bytes more, so its source is our side. */
static __always_inline int is_quoted4_carried(struct xdp_md* ctx, const struct ethhdr* eth,
                                              __u32 at) {
  struct {
    struct icmp_head icmp;
    struct iphdr ip;
  } q;
  struct ports p;
  if (bpf_xdp_load_bytes(ctx, at, &q, sizeof q)) return 0;
  if (q.icmp.type != 3 && q.icmp.type != 4 && q.icmp.type != 11 && q.icmp.type != 12) return 0;
  if (q.ip.version != 4 || q.ip.ihl < 5 || (q.ip.frag_off & IP_OFFSET)) return 0;
  if (!is_carried(q.ip.protocol)) return 0;
  if (bpf_xdp_load_bytes(ctx, at + sizeof q.icmp + q.ip.ihl * 4, &p, sizeof p)) return 0;
  return find4(eth, &q.ip.protocol, q.ip.saddr, q.ip.daddr, p.source, p.dest) != NO_RULE;
}

/* RFC 4443 §2.1: types below 128 are errors; 1 to 4 are assigned. */
static __always_inline int is_quoted6_carried(const struct ethhdr* eth, const void* at,
                                              const void* end) {
  const struct icmp_head* icmp = at;
  const struct ipv6hdr* ip = (const void*)(icmp + 1);
  const struct ports* p = (const void*)(ip + 1);
  if ((const void*)(p + 1) > end) return 0;
  if (icmp->type < 1 || icmp->type > 4 || ip->version != 6 || !is_carried(ip->nexthdr)) return 0;
  return find6(eth, &ip->nexthdr, &ip->saddr, &ip->daddr, p->source, p->dest) != NO_RULE;
}

SEC("xdp.frags")
int vireo_steer(struct xdp_md* ctx) {
  const void* at = (const void*)(long)ctx->data;
  const void* end = (const void*)(long)ctx->data_end;
  const struct ethhdr* eth = at;
  if ((const void*)(eth + 1) > end) return XDP_PASS;
  at = eth + 1;
  __u32 l3 = sizeof *eth;
  __be16 type = eth->h_proto;

#pragma unroll
  for (int tags = 0; tags < 2; ++tags) {
    if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD)) break;
    const struct vlan_tag* v = at;
    if ((const void*)(v + 1) > end) return XDP_PASS;
    type = v->next_proto;
    at = v + 1;
    l3 += sizeof *v;
  }

  if (type == bpf_htons(ETH_P_IP)) {
    const struct iphdr* ip = at;
    if ((const void*)(ip + 1) > end) return XDP_PASS;
    if (ip->version != 4 || ip->ihl < 5 || (ip->frag_off & IP_FRAGMENT)) return XDP_PASS;
    /* Where a header of any length ends is a number, and no pointer: to add an unknown one to a
       pointer into the frame needs CAP_PERFMON. */
    const __u32 behind = l3 + ip->ihl * 4;
    if (is_carried(ip->protocol)) {
      struct ports p;
      if (ip->ihl == 5) {
        const struct ports* there = (const void*)(ip + 1);
        if ((const void*)(there + 1) > end) return XDP_PASS;
        p = *there;
      } else if (bpf_xdp_load_bytes(ctx, behind, &p, sizeof p)) {
        return XDP_PASS;
      }
      const __s64 tag = find4(eth, &ip->protocol, ip->daddr, ip->saddr, p.dest, p.source);
      if (brings_joined && ip->protocol == IPPROTO_UDP &&
          is_unfinished(ctx, behind, (const __be16*)&ip->saddr, 4))
        return XDP_PASS;
      return tag != NO_RULE ? to_socket(ctx, (__u32)tag) : XDP_PASS;
    }
    if (ip->protocol == IPPROTO_ICMP && is_quoted4_carried(ctx, eth, behind))
      return to_socket(ctx, 0);
    return XDP_PASS;
  }

  if (type == bpf_htons(ETH_P_IPV6)) {
    const struct ipv6hdr* ip = at;
    if ((const void*)(ip + 1) > end || ip->version != 6) return XDP_PASS;
    at = ip + 1;
    if (is_carried(ip->nexthdr)) {
      const struct ports* p = at;
      if ((const void*)(p + 1) > end) return XDP_PASS;
      const __s64 tag = find6(eth, &ip->nexthdr, &ip->daddr, &ip->saddr, p->dest, p->source);
      if (brings_joined && ip->nexthdr == IPPROTO_UDP &&
          is_unfinished(ctx, l3 + sizeof *ip, (const __be16*)&ip->saddr, 16))
        return XDP_PASS;
      return tag != NO_RULE ? to_socket(ctx, (__u32)tag) : XDP_PASS;
    }
    if (ip->nexthdr == IPPROTO_ICMPV6 && is_quoted6_carried(eth, at, end)) return to_socket(ctx, 0);
  }
  return XDP_PASS;
}

/* No helper that asks for the GPL is used. */
char license_text[] SEC("license") = "Dual BSD/GPL";
