// The layout that the steering program (steer.bpf.c) and its user (steer.cpp) share: keys, values,
// port table, metadata. Plain C, compiled for both sides; every field is in network order unless it
// says host.
#ifndef VIREO_DEV_XDP_STEER_LAYOUT_H
#define VIREO_DEV_XDP_STEER_LAYOUT_H

#include <linux/types.h>

/* Value of an exact key whose frames are the kernel's, whatever is said of its local end. */
#define STEER_SPARED 0xffffffffU

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

/* An all-zero address is the wildcard: no frame carries it as its destination. In the same table
   each address of the host stands with port and protocol 0: what a wildcard may take. */
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

/* By which of the interfaces that share the wire a frame came in: itself, or a VLAN on it. */
#define STEER_ANY_LINK 0U
#define STEER_UNTAGGED 4096U
#define STEER_VLANS 4096U

/* An interface of the host on this wire. A frame for another station reaches us in promiscuous
   mode, on flooding switches and for macvlan interfaces stacked on ours. */
struct steer_link {
  __u8 mac[6];
  __u8 is_here, pad;
};

/* The host's first addresses, which most have no more of. */
#define STEER_FIRST_V4 8
#define STEER_FIRST_V6 4
struct steer_host {
  __be32 v4[STEER_FIRST_V4]; /* 0: none */
  __u8 v6[STEER_FIRST_V6][16];
  __u8 more_v4, more_v6; /* the others are in the tables */
  __u8 takes_fragments;
};

/* By which the fragments of a packet know each other. */
struct steer_fragment {
  __u64 addresses[4]; /* two of the local one, two of the remote; IPv4's in half of the first */
  __u32 id;           /* as it lies there */
  __u16 version;
  __u16 proto; /* IPv4 */
};
/* So long what is known of a packet is true of what comes: of ours, and of one of which the kernel
   has a later fragment, which came before the first. */
#define STEER_OURS_NS 30000000000ULL
#define STEER_KERNELS_NS 1000000000ULL

/* The rule of a port that has one IPv4 rule and no more, as most have: an array is a cache line
   where a hash table is three. An all-zero address is a wildcard here, too; the remote port is then
   none. Its tag is 0: where tags are written the tables are asked. */
struct steer_lone4 {
  __be32 local, remote;
  __be16 remote_port;
  __u16 link;
};

/* Which kinds of key exist for a local port, of each (protocol, port), so that a frame pays only
   for look-ups that can hit and a frame of the kernel's pays for none. */
enum steer_kind {
  STEER_EXACT4 = 1,
  STEER_LOCAL4 = 2,
  STEER_WILD4 = 4,
  STEER_EXACT6 = 8,
  STEER_LOCAL6 = 16,
  STEER_WILD6 = 32,
};
/* In the same word: the port's IPv4 rule is in the array, and the tables need not be asked; */
#define STEER_LONE4 64U
/* a rule of the port names a link; */
#define STEER_BY_LINK 128U
/* the kernel may have connections of the port: what no exact rule claims is its own if it has. */
#define STEER_ASK 256U
#define STEER_PORTS 131072U
#define STEER_PORT_SLOT(is_udp, port_as_on_wire) ((is_udp) * 65536U | (port_as_on_wire))

/* Written right before the frame where tags are on. The user's side clears it before a frame is
   reused, so that a frame whose metadata could not be written never shows an old tag. */
struct steer_meta {
  __u32 magic; /* host order: STEER_META_MAGIC */
  __u32 tag;   /* host order */
};
#define STEER_META_MAGIC 0x56697265U

#endif
