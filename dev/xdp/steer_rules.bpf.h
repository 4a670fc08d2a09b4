// Finds the rule of a flow: exact first, then local address and port, then port alone; also checks
// whether the kernel has its own connection there.
#pragma once

#include "steer_copies.bpf.h"
#include "steer_frame.bpf.h"
#include "steer_maps.bpf.h"
#include "steer_shared.bpf.h"

/* The index of a port in port_kinds and lone4. Without CAP_PERFMON each array access must have the
   same bounds on every path. So the protocol, TCP or UDP by now, is read again: then the verifier
   knows nothing about it. */
static __always_inline __u32 slot_of(const volatile __u8* proto, __be16 port) {
  __u32 slot = STEER_PORT_SLOT(*proto >> 4 & 1, port); /* the bit that 17 has and 6 has not */
  BOUNDED(slot, STEER_PORTS - 1);
  return slot;
}

static __always_inline __s64 value_at(const __u64* value) {
  return value ? (__s64)*value : NO_RULE;
}

/* Multicast packets must have a multicast MAC, unicast ones our MAC; the kernel judges all others.
 */
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

/* The value for a frame that hit a shared rule; of UDP the rule itself, for steer_copies(). Not so
   of what is no whole datagram: the kernel gives that to all. */
static __always_inline __s64 by_shared(const struct frame* f, const __u8* proto, __s64 rule) {
  if (*proto == IPPROTO_UDP) return f->to_first ? NO_RULE : rule;
  return f->to_first ? first_of(rule) : steer_shared(f->ctx, rule);
}

/* Whether the kernel has a connection of its own: open, half-open or in TIME-WAIT. */
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

/* The rule for a local end, on this link or on any; a zero `local` is the wildcard. */
static __always_inline __s64 local_rule4(const struct frame* f, __u16 kinds, __be32 local,
                                         __u64 proto, __be16 port) {
  __u64* const k = f->key; /* struct steer_local4 */
  k[0] = two(local, ports_of(port, proto));
  if (kinds & STEER_BY_LINK) {
    k[1] = f->link;
    const __u64* value = bpf_map_lookup_elem(&local4, k);
    if (value) return (__s64)*value;
  }
  k[1] = STEER_ANY_LINK;
  return value_at(bpf_map_lookup_elem(&local4, k));
}

/* Likewise, for the address already in the key. */
static __always_inline __s64 local_rule6(const struct frame* f, __u16 kinds, __u64 proto,
                                         __be16 port) {
  __u64* const k = f->key; /* struct steer_local6 */
  if (kinds & STEER_BY_LINK) {
    k[2] = two(ports_of(port, proto), f->link);
    const __u64* value = bpf_map_lookup_elem(&local6, k);
    if (value) return (__s64)*value;
  }
  k[2] = two(ports_of(port, proto), STEER_ANY_LINK);
  return value_at(bpf_map_lookup_elem(&local6, k));
}

static __always_inline __s64 find4(const struct frame* f, const __u8* proto, __be32 local,
                                   __be32 remote, __be16 local_port, __be16 remote_port) {
  __s64 found = NO_RULE;
  const __u32 slot = slot_of(proto, local_port);
  const __u16 kinds = port_kinds[slot];
  __u64* const k = f->key;
  if (kinds & STEER_LONE4) {
    const struct steer_lone4* const rule = &lone4[slot];
    if (!is_lone4(f, rule, local, remote, remote_port)) return NO_RULE;
    found = STEER_VALUE(rule->slot, 0);
    if ((kinds & STEER_EXACT4) || !(kinds & STEER_ASK)) return found;
  } else {
    if (kinds & STEER_EXACT4) {
      k[0] = two(local, remote); /* struct steer_exact4 */
      k[1] = two(ports_of(local_port, remote_port), *proto);
      const __u64* value = bpf_map_lookup_elem(&exact4, k);
      if (value) return (__s64)*value;
    }
    if (!(kinds & (STEER_LOCAL4 | STEER_WILD4)) || f->exact_only || !may_hear4(f, local))
      return NO_RULE;
    if (kinds & STEER_LOCAL4) found = local_rule4(f, kinds, local, *proto, local_port);
    if (found == NO_RULE && (kinds & STEER_WILD4) && is_own4(f, local))
      found = local_rule4(f, kinds, 0, *proto, local_port);
  }
  if (found == NO_RULE) return found;
  if (found >= 0 && !(kinds & STEER_ASK)) return found;
  if (kinds & STEER_ASK) {
    k[0] = two(remote, local); /* struct bpf_sock_tuple */
    k[1] = ports_of(remote_port, local_port);
    if (kernel_has(f, sizeof(((struct bpf_sock_tuple*)0)->ipv4))) return NO_RULE;
  }
  return found < 0 ? by_shared(f, proto, found) : found;
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
    const __u64* value = bpf_map_lookup_elem(&exact6, k);
    if (value) return (__s64)*value;
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
  if (found == NO_RULE) return found;
  if (found >= 0 && !(kinds & STEER_ASK)) return found;
  if (kinds & STEER_ASK) {
    put6(k, remote); /* struct bpf_sock_tuple */
    put6(k + 2, local);
    k[4] = ports_of(remote_port, local_port);
    if (kernel_has(f, sizeof(((struct bpf_sock_tuple*)0)->ipv6))) return NO_RULE;
  }
  return found < 0 ? by_shared(f, proto, found) : found;
}
