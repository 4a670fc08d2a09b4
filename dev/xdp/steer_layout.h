// The layout shared by the steering program (steer.bpf.c) and user space (steer.cpp): keys, values,
// port table, metadata. Plain C, compiled for both; fields are in network byte order unless marked
// as host order.
#ifndef VIREO_DEV_XDP_STEER_LAYOUT_H
#define VIREO_DEV_XDP_STEER_LAYOUT_H

#include <linux/types.h>

/* The processes of a group share the program. Each is a member with a slot below this. */
#define STEER_MEMBERS 64U

/* Value of a rule: the slot of its member in the high half, the tag in the low one. The sign marks
   those of which not every frame goes to that member: */
#define STEER_VALUE(slot, tag) ((__u64)(slot) << 32 | (tag))
/* an exact key whose frames go to the kernel in spite of rules for its local end; */
#define STEER_SPARED (3ULL << 62)
/* a local end that several members share: of TCP each SYN goes to one, of UDP a copy of each frame
   to all. The slot is the first sharer's, the tag the number of the shared end. */
#define STEER_SHARED (1ULL << 63)
#define STEER_MARKS (3ULL << 62)
#define STEER_IS_SHARED(value) (((__u64)(value) & STEER_MARKS) == STEER_SHARED)

/* Index of a member's socket in the table of sockets. */
#define STEER_SOCKET(slot, queue) ((queue) * STEER_MEMBERS + (slot))

struct steer_exact4 {
  __be32 local, remote;
  __be16 local_port, remote_port;
  __u8 proto, pad[3];
};

struct steer_exact6 {
  __u8 local[16], remote[16];
  __be16 local_port, remote_port;
  __u8 proto, pad[3];
};

/* An all-zero address is the wildcard: no frame has it as destination. The same table holds the
   host's addresses, with port and protocol 0: a wildcard matches only these. They are no member's;
   their value is unused. */
struct steer_local4 {
  __be32 local;
  __be16 local_port;
  __u8 proto, pad;
  __u16 link, pad2; /* host order: STEER_ANY_LINK, STEER_UNTAGGED, or a VLAN */
};

struct steer_local6 {
  __u8 local[16];
  __be16 local_port;
  __u8 proto, pad;
  __u16 link, pad2;
};

/* The interface on which a frame arrived: the device itself (untagged), or a VLAN on it. */
#define STEER_ANY_LINK 0U
#define STEER_UNTAGGED 4096U
#define STEER_VLANS 4096U

/* A host interface on this wire. Frames for other MAC addresses arrive in promiscuous mode, from
   flooding switches and for macvlan interfaces stacked on ours. */
struct steer_link {
  __u8 mac[6];
  __u8 is_here, pad;
};

/* The host's first addresses; most hosts have no more. */
#define STEER_FIRST_V4 8
#define STEER_FIRST_V6 4
struct steer_host {
  __be32 v4[STEER_FIRST_V4]; /* 0: none */
  __u8 v6[STEER_FIRST_V6][16];
  __u8 more_v4, more_v6; /* further addresses are in the tables */
  __u8 pad[6];
  __u64 takes_fragments; /* a bit for each member */
};

/* Who gets the SYNs of a shared end: each bucket has a sharer's slot + 1, or 0. */
#define STEER_SHARED_ENDS 256U
#define STEER_BUCKETS 64U

/* A shared end of UDP: who gets copies, and who wants the kernel to get the frame, too; a bit for
   each member. */
struct steer_copies {
  __u64 members, with_kernel;
};

/* A frame in the ring of who gets copies, which has room for frames of three lengths. */
struct steer_copy {
  __u64 length; /* host order: bytes behind this */
};
#define STEER_COPY_SMALL 256U /* with struct steer_copy */
#define STEER_COPY_MEDIUM 512U
#define STEER_COPY_MOST 2048U

/* A member as reader of its ring. A cache line each: the program writes one, the member the other.
 */
struct steer_reader {
  __u64 lost; /* frames for which the ring had no room */
  __u64 pad[7];
  __u64 sleeps; /* it is to be woken, once */
  __u64 pad2[7];
};

/* The kernel gets a frame that was copied with this before it, and then as skb->tc_index: the
   number of the shared end and a part of the interface's, so that the sockets of who got it do not
   hear it twice. */
struct steer_copied {
  __u32 magic; /* host order: STEER_COPIED_MAGIC */
  __u32 mark;  /* STEER_COPIED_MARK */
};
#define STEER_COPIED_MAGIC 0x56636f70U
#define STEER_COPIED_MARK(ifindex, end) (0x8000U | ((ifindex) & 0x7fU) << 8 | ((end) & 0xffU))

/* The time (ns of CLOCK_MONOTONIC) until which a member accepts connections. A cache line each: the
   members write them often. */
struct steer_accepting {
  __u64 until;
  __u64 pad[7];
};

/* Identifies the packet to which a fragment belongs. */
struct steer_fragment {
  __u64 addresses[4]; /* two words local, two remote; IPv4 in half of the first of each */
  __u32 id;           /* in the frame's byte order */
  __u16 version;
  __u16 proto; /* IPv4 */
};
/* Lifetime of fragment state: for packets that are ours, and for packets of which a later fragment
   arrived before the first and went to the kernel. */
#define STEER_OURS_NS 30000000000ULL
#define STEER_KERNELS_NS 1000000000ULL

/* The rule of a port with exactly one IPv4 rule, the usual case: an array costs one cache line, a
   hash table three. An all-zero address is a wildcard; the remote port is then unused. The tag is
   always 0: if tags are written, the tables are used. */
struct steer_lone4 {
  __be32 local, remote;
  __be16 remote_port;
  __u16 link;
  __u16 slot; /* of its member */
  __u16 pad;
};

/* Which kinds of key exist for a (protocol, local port): a frame pays only for look-ups that can
   hit, and one for the kernel pays for none. */
enum steer_kind {
  STEER_EXACT4 = 1,
  STEER_LOCAL4 = 2,
  STEER_WILD4 = 4,
  STEER_EXACT6 = 8,
  STEER_LOCAL6 = 16,
  STEER_WILD6 = 32,
};
/* Further bits of that word: the port's only IPv4 rule is in the array; */
#define STEER_LONE4 64U
/* some rule of the port names a link; */
#define STEER_BY_LINK 128U
/* the kernel may have connections on the port: without an exact rule, look for one first. */
#define STEER_ASK 256U
#define STEER_PORTS 131072U
#define STEER_PORT_SLOT(is_udp, port_as_on_wire) ((is_udp) * 65536U | (port_as_on_wire))

/* Written just before the frame if tags are on. User space clears it before a frame is reused, so
   that a frame without metadata never shows an old tag. */
struct steer_meta {
  __u32 magic; /* host order: STEER_META_MAGIC */
  __u32 tag;   /* host order */
};
#define STEER_META_MAGIC 0x56697265U

#endif
