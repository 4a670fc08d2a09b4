// Steers an ICMP error to where the flow that it quotes goes.
#pragma once

#include "steer_seldom.bpf.h"

/* To the member of the flow, without a tag: the frame is none of the flow's. */
static __always_inline int to_asked(const struct frame* f) {
  const __s64 found = find_seldom(f->ctx, &f->scratch->asked);
  return found >= 0 ? to_socket(f->ctx, found & ~0xffffffffLL) : XDP_PASS;
}

/* RFC 792: the error quotes the IP header we sent and 8 more bytes, so the quoted source is our
   side. For UDP only a connected socket (exact rule) receives it; for other sockets the error queue
   of the kernel socket beneath serves. "Fragmentation needed" concerns every sender on that path.
   */
static __always_inline int quoted4(const struct frame* f, const struct iphdr* outer, __u32 at) {
  struct scratch* const s = f->scratch;
  const struct icmp_head* const icmp = &s->quoted.icmp;
  const struct iphdr* const ip = &s->quoted.ip;
  if (bpf_xdp_load_bytes(f->ctx, at, &s->quoted, sizeof s->quoted)) return XDP_PASS;
  if (icmp->type != 3 && icmp->type != 4 && icmp->type != 11 && icmp->type != 12) return XDP_PASS;
  if (ip->version != 4 || ip->ihl < 5 || (ip->frag_off & IP_OFFSET)) return XDP_PASS;
  if (!is_carried(ip->protocol) || ip->saddr != outer->daddr) return XDP_PASS;
  if (bpf_xdp_load_bytes(f->ctx, at + sizeof *icmp + ip->ihl * 4, &s->ports, sizeof s->ports))
    return XDP_PASS;
  const int is_too_big = icmp->type == 3 && icmp->code == 4;
  f->scratch->asked = (struct inquiry){.local = {ip->saddr},
                                       .remote = {ip->daddr},
                                       .ports = ports_of(s->ports.source, s->ports.dest),
                                       .proto = ip->protocol,
                                       .link = f->link,
                                       .flags = flags_of(f)};
  if (ip->protocol == IPPROTO_UDP && !is_too_big) f->scratch->asked.flags |= INQUIRY_EXACT_ONLY;
  return to_asked(f);
}

/* RFC 4443 §2.1: types below 128 are errors; 1 to 4 are assigned, 2 is Packet Too Big. */
static __always_inline int quoted6(const struct frame* f, const struct ipv6hdr* outer,
                                   const void* end) {
  const struct icmp_head* icmp = (const void*)(outer + 1);
  const struct ipv6hdr* ip = (const void*)(icmp + 1);
  const struct ports* p = (const void*)(ip + 1);
  if ((const void*)(p + 1) > end) return XDP_PASS;
  if (icmp->type < 1 || icmp->type > 4 || ip->version != 6 || !is_carried(ip->nexthdr))
    return XDP_PASS;
  if (__builtin_memcmp(&ip->saddr, &outer->daddr, 16) != 0) return XDP_PASS;
  f->scratch->asked = (struct inquiry){.ports = ports_of(p->source, p->dest),
                                       .proto = ip->nexthdr,
                                       .link = f->link,
                                       .flags = INQUIRY_V6 | flags_of(f)};
  if (ip->nexthdr == IPPROTO_UDP && icmp->type != 2) f->scratch->asked.flags |= INQUIRY_EXACT_ONLY;
  put6(f->scratch->asked.local, &ip->saddr);
  put6(f->scratch->asked.remote, &ip->daddr);
  return to_asked(f);
}
