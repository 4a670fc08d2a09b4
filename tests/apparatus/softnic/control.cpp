#include "tests/apparatus/softnic/control.h"

#include "tests/apparatus/softnic/clock.h"
#include "tests/apparatus/softnic/nic.h"
#include "tests/apparatus/softnic/pump.h"

using namespace vireo::softnic;

namespace {

Nic& nic_of(ibv_device* d) { return *static_cast<Nic*>(d); }

}  // namespace

extern "C" {

void softnic_set_mtu(uint32_t mtu) { set_mtu(mtu); }

void softnic_hold(ibv_device* device, bool held) {
  Port& p = nic_of(device).port;
  const std::lock_guard hold(p.lock);
  p.faults.held = held;
  if (held) return;
  p.step(UINT32_MAX);
  p.work();
}

unsigned softnic_step(ibv_device* device, unsigned requests) {
  Port& p = nic_of(device).port;
  const std::lock_guard hold(p.lock);
  return p.step(requests);
}

void softnic_set_link(ibv_device* device, bool up) {
  Nic& n = nic_of(device);
  const std::lock_guard hold(n.port.lock);
  if (n.port.faults.link_down == !up) return;
  n.port.faults.link_down = !up;
  n.tell(up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

void softnic_remove(ibv_device* device) {
  Nic& n = nic_of(device);
  const std::lock_guard hold(n.port.lock);
  n.port.faults.removed = true;
  n.port.enter_all_errors();
  n.tell(IBV_EVENT_DEVICE_FATAL);
}

void softnic_fail_sends(ibv_device* device, unsigned sends, ibv_wc_status status) {
  Port& p = nic_of(device).port;
  const std::lock_guard hold(p.lock);
  p.faults.fail_sends = sends;
  p.faults.fail_status = status;
}

void softnic_fail_pairs(ibv_device* device, bool flushed) {
  Nic& n = nic_of(device);
  const std::lock_guard hold(n.port.lock);
  if (flushed) n.port.enter_all_errors();
  n.tell(IBV_EVENT_QP_FATAL);
  n.tell_of_queues();
}

void softnic_drop(ibv_device* device, unsigned frames) {
  Port& p = nic_of(device).port;
  const std::lock_guard hold(p.lock);
  p.faults.drops = frames;
}

void softnic_corrupt(ibv_device* device, unsigned frames) {
  Port& p = nic_of(device).port;
  const std::lock_guard hold(p.lock);
  p.faults.corruptions = frames;
}

void softnic_lose_events(ibv_device* device, unsigned events) {
  Port& p = nic_of(device).port;
  const std::lock_guard hold(p.lock);
  p.faults.lost_events = events;
}

softnic_counts softnic_counts_of(ibv_device* device) {
  Port& p = nic_of(device).port;
  const std::lock_guard hold(p.lock);
  softnic_counts c = p.counts;
  c.rules_compared = p.flows.compared();
  return c;
}

softnic_objects softnic_objects_of(ibv_device* device) {
  Nic& n = nic_of(device);
  const std::lock_guard hold(n.port.lock);
  const auto count = [](const auto& all) { return static_cast<unsigned>(all.size()); };
  softnic_objects o{};
  o.contexts = count(n.contexts);
  for (const Context* c : n.contexts) {
    o.domains += count(c->pds);
    o.channels += count(c->channels);
    o.completion_queues += count(c->cqs);
    o.pairs += count(c->qps);
    o.work_queues += count(c->wqs);
    o.tables += count(c->tables);
    o.by_command += count(c->firmware_objects);
    o.matchers += count(c->matchers);
  }
  o.regions = n.port.memory.count();
  o.flows = n.port.flows.count();
  o.receives = n.port.posted_receives();
  return o;
}

void softnic_drive(bool by_hand, bool each_doorbell) { drive(by_hand, each_doorbell); }

void softnic_refuse_rings(bool refused) { refuse_rings(refused); }

bool softnic_pump(void) { return pump(); }

bool softnic_is_watched(ibv_device* device) {
  Port& p = nic_of(device).port;
  const std::lock_guard hold(p.lock);
  return p.is_watched();
}

void softnic_set_clock(uint64_t ticks, int ppm) { set_ticks(ticks, ppm); }

void softnic_inject(ibv_device* device, const void* frame, size_t bytes) {
  Port& p = nic_of(device).port;
  const std::lock_guard hold(p.lock);
  p.inject({static_cast<const std::byte*>(frame), bytes});
}

}  // extern "C"
