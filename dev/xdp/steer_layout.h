// What the steering program (steer.bpf.c) and its user (steer.cpp) agree on: keys, values, port
// filter, metadata. Plain C, compiled for both sides; every field is in network order unless it
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

/* An all-zero address is the wildcard: no frame carries it as its destination. */
struct steer_local4 {
  __be32 local;
  __be16 local_port;
  __u8 proto, pad;
};

struct steer_local6 {
  __u8 local[16];
  __be16 local_port;
  __u8 proto, pad;
};

/* The rule of a port that has one IPv4 rule and no more, as most have: an array is a cache line
   where a hash table is three. An all-zero address is a wildcard here, too; the remote port is then
   none. Its tag is 0: where tags are written the tables are asked. */
struct steer_lone4 {
  __be32 local, remote;
  __be16 remote_port, pad;
};

/* Which kinds of key exist for a local port: one byte per (protocol, port), so that a frame pays
   only for look-ups that can hit and a frame of the kernel's pays for none. */
enum steer_kind {
  STEER_EXACT4 = 1,
  STEER_LOCAL4 = 2,
  STEER_WILD4 = 4,
  STEER_EXACT6 = 8,
  STEER_LOCAL6 = 16,
  STEER_WILD6 = 32,
};
/* In the same byte: the port's IPv4 rule is in the array, and the tables need not be asked. */
#define STEER_LONE4 64U
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
