// The steering program: redirects frames of carried flows to the AF_XDP socket that the rule's
// member has on the queue they arrived on and passes all others, unchanged, to the kernel. It
// matches the exact 5-tuple first, then local address and port, then port alone; the last only for
// the host's own addresses. Frames to be forwarded, for another MAC address or with an unknown VLAN
// tag go to the kernel. The SYNs of a local end that several members share are spread among them,
// all else of it goes to the first of them, unless an exact rule matches; of a shared end of UDP
// each member gets a copy, and the kernel the frame. An ICMP error follows the
// flow that it quotes. Fragments follow the first one to arrive; if that had no ports, they go to
// the kernel. Other IPv6 extension headers and malformed frames go to the kernel, and so do UDP GSO
// datagrams from a kernel on this host, if the driver does not segment them. It runs in the driver
// (native) or in the stack (generic), once per frame. A frame costs no hash look-up if its port has
// a single rule, one for an exact hit.
#include "steer_fragments.bpf.h"
#include "steer_quoted.bpf.h"

/* Several datagrams in one frame (UDP_SEGMENT, udp(7)) wait for segmentation by a NIC; their
   checksum field holds only the sum of the pseudo-header. The frame does not tell where each
   datagram ends. The kernel knows and delivers them. A single datagram with such a checksum looks
   the same. */
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

static __always_inline int not_to_one(struct xdp_md* ctx, __s64 rule) {
  return STEER_IS_SHARED(rule) ? steer_copies(ctx, rule) : XDP_PASS;
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
    if (vlan) { /* else a priority tag without a VLAN */
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
    /* The end of a variable-length header is kept as an offset, not as a pointer: adding an unknown
       value to a packet pointer needs CAP_PERFMON. */
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
      const __s64 found = find4(&f, &ip->protocol, ip->daddr, ip->saddr, p.dest, p.source);
      if (brings_joined && ip->protocol == IPPROTO_UDP &&
          is_unfinished(&f, behind, (const __be16*)&ip->saddr, 4))
        return XDP_PASS;
      return found >= 0 ? to_socket(ctx, found) : not_to_one(ctx, found);
    }
    return ip->protocol == IPPROTO_ICMP ? quoted4(&f, ip, behind) : XDP_PASS;
  }

  if (type == bpf_htons(ETH_P_IPV6)) {
    const struct ipv6hdr* ip = at;
    if ((const void*)(ip + 1) > end || ip->version != 6) return XDP_PASS;
    if (ip->nexthdr == IPPROTO_FRAGMENT) return fragment6(&f, ip, l3, end);
    if (is_carried(ip->nexthdr)) {
      const struct ports* p = (const void*)(ip + 1);
      if ((const void*)(p + 1) > end) return XDP_PASS;
      const __s64 found = find6(&f, &ip->nexthdr, &ip->daddr, &ip->saddr, p->dest, p->source);
      if (brings_joined && ip->nexthdr == IPPROTO_UDP &&
          is_unfinished(&f, l3 + sizeof *ip, (const __be16*)&ip->saddr, 16))
        return XDP_PASS;
      return found >= 0 ? to_socket(ctx, found) : not_to_one(ctx, found);
    }
    if (ip->nexthdr == IPPROTO_ICMPV6) return quoted6(&f, ip, end);
  }
  return XDP_PASS;
}

/* No GPL-only helper is used. */
char license_text[] SEC("license") = "Dual BSD/GPL";
