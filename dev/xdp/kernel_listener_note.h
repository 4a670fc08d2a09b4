/* What KernelListener puts in front of a frame, in the room for metadata that XDP gives it, for the
   program that finds it there. Shared by both: no C++. */
#pragma once

#include <linux/types.h>

/* struct bpf_tcp_req_attrs of Linux 6.9 (include/net/tcp.h), which no header shows to programs. */
struct bpf_tcp_req_attrs {
  __u32 rcv_tsval;
  __u32 rcv_tsecr;
  __u16 mss;
  __u8 rcv_wscale;
  __u8 snd_wscale;
  __u8 ecn_ok;
  __u8 wscale_ok;
  __u8 sack_ok;
  __u8 tstamp_ok;
  __u8 usec_ts_ok;
  __u8 reserved[3];
};

struct kernel_listener_note {
  __u64 secret; /* of the program: other frames have no note, or another's */
  struct bpf_tcp_req_attrs agreed;
  __u32 number; /* of the frame, for kernel_listener_answer */
};

struct kernel_listener_answer {
  __u32 number;
  __s32 error; /* errno, negative; 0: the listener got it */
};
