// The steering program's maps of rules, fragments and sockets, and its global tables, which user
// space (steer.cpp) writes in place.
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "steer_layout.h"

/* User space sets the sizes before loading. Flow maps allocate memory only for existing entries. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct steer_exact4);
  __type(value, __u64);
} exact4 SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct steer_exact6);
  __type(value, __u64);
} exact6 SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct steer_local4);
  __type(value, __u64);
} local4 SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);
  __type(key, struct steer_local6);
  __type(value, __u64);
} local6 SEC(".maps");

/* Packets whose fragments are ours, with the time; its lowest byte is the member's slot. Only a
   fragment for a port of ours adds an entry. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, struct steer_fragment);
  __type(value, __u64);
} ours SEC(".maps");

/* Packets of which a fragment without ports already went to the kernel. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, struct steer_fragment);
  __type(value, __u64);
} kernels SEC(".maps");

/* By STEER_SOCKET(). */
struct {
  __uint(type, BPF_MAP_TYPE_XSKMAP);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} sockets SEC(".maps");

/* The members' rings of copies (BPF_MAP_TYPE_RINGBUF), by slot. */
struct steer_ring {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4096);
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, STEER_MEMBERS);
  __type(key, __u32);
  __array(values, struct steer_ring);
} rings SEC(".maps");

__u16 port_kinds[STEER_PORTS];         /* enum steer_kind bits */
struct steer_lone4 lone4[STEER_PORTS]; /* by the same slot */
__u8 brings_joined;                    /* UDP GSO frames may arrive unsegmented */
struct steer_link vlans[STEER_VLANS];  /* the VLANs on the interface */
struct steer_link untagged;            /* the interface itself */
struct steer_host host;
__u8 sharers[STEER_SHARED_ENDS][STEER_BUCKETS];
struct steer_copies copies[STEER_SHARED_ENDS];
struct steer_accepting accepting[STEER_MEMBERS] __attribute__((aligned(64)));
struct steer_reader readers[STEER_MEMBERS] __attribute__((aligned(64)));
const volatile __u8 write_tags;
const volatile __u64 hash_secret; /* so that no peer chooses who gets its SYNs */
