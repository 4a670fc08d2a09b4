#include "tests/apparatus/mem/mem_link.h"

#include <algorithm>

#include "tests/apparatus/mem/mem_device.h"

namespace vireo {

MemLink::MemLink(uint64_t seed, const MemImpairments& a_to_b, const MemImpairments& b_to_a,
                 VirtualClock& clock, const MemDeviceOptions& options)
    : clock_(clock), wires_{{splitmix64(seed), a_to_b}, {splitmix64(~seed), b_to_a}} {
  for (const MemEnd end : {MemEnd::kA, MemEnd::kB}) {
    const auto i = static_cast<size_t>(end);
    owned_[i] = std::make_unique<MemDevice>(*this, end, options);
    devices_[i] = owned_[i].get();
  }
}

MemLink::~MemLink() {
  for (auto& device : owned_) device.reset();
  for (const MemDevice* released : devices_) VIREO_ASSERT(released == nullptr);
}

Device& MemLink::device(MemEnd end) { return *devices_[static_cast<size_t>(end)]; }

std::unique_ptr<Device> MemLink::release(MemEnd end) {
  return std::move(owned_[static_cast<size_t>(end)]);
}

Instant MemLink::next_event() const {
  Instant next = Instant::never();
  for (const MemWire& w : wires_) next = std::min(next, w.next_arrival());
  for (const MemDevice* d : devices_)
    if (d != nullptr) next = std::min(next, d->next_departure());
  return next;
}

void MemLink::step(Instant now) {
  run_to(now);
  clock_.advance_to(now);
}

/// In order of time; at one instant departures go first, and A before B.
void MemLink::run_to(Instant until) {
  for (Instant at = next_event(); at <= until && !at.is_never(); at = next_event()) {
    for (MemDevice* d : devices_)
      while (d != nullptr && d->next_departure() <= at) d->depart(at);
    for (size_t from = 0; from < 2; ++from)
      while (auto frame = wires_[from].receive(at))
        if (MemDevice* to = devices_[1 - from]) to->receive(std::move(*frame));
  }
}

const MemDeviceStats& MemLink::stats(MemEnd end) const {
  return devices_[static_cast<size_t>(end)]->stats_;
}

void MemLink::inject(MemEnd from, std::span<const std::byte> frame) {
  wire(from).send({frame.begin(), frame.end()}, now());
}

std::vector<MemOpening>& MemLink::openings(MemEnd end) {
  return devices_[static_cast<size_t>(end)]->openings_;
}

void MemLink::refuse_openings(MemEnd end, int error) {
  devices_[static_cast<size_t>(end)]->openings_error_ = error;
}

std::vector<std::vector<std::byte>>& MemLink::kernel_frames(MemEnd end) {
  return devices_[static_cast<size_t>(end)]->kernel_frames_;
}

size_t MemLink::rules(MemEnd end) const {
  return devices_[static_cast<size_t>(end)]->steering_.size();
}

void MemLink::unplug(MemEnd end) { devices_[static_cast<size_t>(end)]->plugged_ = false; }

}  // namespace vireo
