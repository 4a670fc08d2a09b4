// What a test may do to the device beneath the program: in lock-step both ports are in this
// process, do their work within the call that gives it to them, and can be held, harmed and
// removed. Exported from our libibverbs.so.1 as SOFTNIC_1.
// Owner: the test. Thread: any.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

extern "C" {

struct softnic_counts {
  uint64_t tx_frames;
  uint64_t tx_bursts;  ///< requests to segment, each of which became several of tx_frames
  uint64_t rx_frames;
  uint64_t rx_coalesced;    ///< of rx_frames, those that became part of the packet before (LRO)
  uint64_t rx_no_rule;      ///< no flow rule wanted them
  uint64_t rx_no_receive;   ///< dropped: no receive was posted
  uint64_t tx_unplugged;    ///< sent while the link was down
  uint64_t rules_compared;  ///< rules that were held against frames received
};

/// What programs have open of a device, and the receives that lie posted.
struct softnic_objects {
  unsigned contexts, domains, regions, channels, completion_queues, pairs, flows;
  unsigned work_queues, tables;   ///< of receives; those that lead to them
  unsigned by_command, matchers;  ///< made by DevX; of rules by the device's match values
  unsigned receives;              ///< of striding queues: strides
};

/// The largest IP packet of devices that are opened from now on.
void softnic_set_mtu(uint32_t mtu);
/// A held device takes requests and does nothing about them: a slow doorbell, a stalled bus.
void softnic_hold(ibv_device* device, bool held);
/// Does the work of at most `requests` sends of a held device, and takes in as many frames.
/// @return how many sends it did.
unsigned softnic_step(ibv_device* device, unsigned requests);
/// Takes the cable out or plugs it in: frames sent meanwhile are lost, IBV_EVENT_PORT_ERR or
/// IBV_EVENT_PORT_ACTIVE is told.
void softnic_set_link(ibv_device* device, bool up);
/// IBV_EVENT_DEVICE_FATAL: every request comes back flushed, nothing is carried any more until the
/// device was closed by all.
void softnic_remove(ibv_device* device);
/// The next `sends` end with this error, and their queue pair in the error state.
void softnic_fail_sends(ibv_device* device, unsigned sends, ibv_wc_status status);
/// IBV_EVENT_QP_FATAL, and IBV_EVENT_WQ_FATAL where there are work queues. `flushed`: every one is
/// in the error state and its requests come back; else the events alone tell, which they survive.
void softnic_fail_pairs(ibv_device* device, bool flushed);
/// The next `frames` that would be received vanish.
void softnic_drop(ibv_device* device, unsigned frames);
/// The next `frames` that are received are not what was sent: one byte of each is another.
void softnic_corrupt(ibv_device* device, unsigned frames);
/// The next `events` of completion queues are not told.
void softnic_lose_events(ibv_device* device, unsigned events);
softnic_counts softnic_counts_of(ibv_device* device);
softnic_objects softnic_objects_of(ibv_device* device);
/// Rings that the program drives itself (mlx5dv_init_obj) are looked at by a thread of the device
/// from their making on, or, from now on if `by_hand`, by softnic_pump() alone, and more strictly.
/// `each_doorbell` false: several may ring between two of its looks.
void softnic_drive(bool by_hand, bool each_doorbell = true);
/// mlx5dv_init_obj() is refused from now on (EOPNOTSUPP), as by a device of another maker.
void softnic_refuse_rings(bool refused);
/// Every device looks at its doorbells and does what can be done. @return whether there was
/// something.
bool softnic_pump(void);
/// The doorbells of all rings that were given away are calls (doorbell_page.h).
bool softnic_is_watched(ibv_device* device);
/// The counter that stamps completions stands at `ticks` now, and gains `ppm` millionths.
void softnic_set_clock(uint64_t ticks, int ppm);
/// A frame comes in from the wire, as if the peer had sent it.
void softnic_inject(ibv_device* device, const void* frame, size_t bytes);
}
