// The steering program's maps of rules, fragments and sockets, and the tables that the user's side
// (steer.cpp) writes in place.
#pragma once

#include <linux/bpf.h>

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
