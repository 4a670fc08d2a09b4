// Opening interfaces, and operations on all their queues.
#include <algorithm>
#include <cstring>

#include "core/log.h"
#include "stack/engine/hub.h"

namespace vireo {
namespace {

/// Shows an interface in use to the tools.
void publish(std::span<PortStats> rows, const Port& p) {
  for (PortStats& row : rows) {
    const uint32_t of = row.ifindex.load(std::memory_order_relaxed);
    if (of != 0 && of != p.link.index.value()) continue;
    row.queues = static_cast<uint32_t>(p.queues.size());
    std::strncpy(row.name, p.link.name.c_str(), sizeof row.name - 1);
    std::strncpy(row.mode, p.device->caps().mode, sizeof row.mode - 1);
    // Pairs with the acquire in read_stats(): the row is complete.
    row.ifindex.store(p.link.index.value(), std::memory_order_release);
    return;
  }
}

/// Payload of the largest packet for IP's length field, with the longest headers (RFC 791 §3.1: 60
/// + 60).
constexpr uint32_t kMaxInIp = UINT16_MAX - 120;

/// A failed open is not repeated for each connection: opening costs milliseconds.
constexpr Duration kRetryOpen = Duration::s(1);

}  // namespace

/// Opens the device of the port's link, and its queues.
Carried<void> Ports::open_device(Port& port) {
  auto device = opener_(port.link, hub().arena);
  if (!device) return std::unexpected(device.error());
  port.device = std::move(*device);
  for (uint32_t q = 0; q < port.device->caps().queues; ++q) {
    auto queue = port.device->open_queue(QueueId(q), hub().pool);
    if (!queue) {
      const Err& e = queue.error();
      return std::unexpected(Refusal{carriage_of_errno(e.code), e.code, e.where});
    }
    (*queue)->rx_refill();
    if (stamps_) (*queue)->stamp();
    port.queues.push_back(std::move(*queue));
  }
  const DeviceCaps& caps = port.device->caps();
  port.segments = caps.tso_max_bytes != 0;
  port.burst = {kMaxInIp, tcp::Burst::kMaxSlices, 0};
  port.corks = caps.doorbell_is_call && hub().config.autocork;
  port.joins = caps.multi_frame && !port.segments;
  if (port.segments) port.burst = {std::min(caps.tso_max_bytes, kMaxInIp), caps.max_body_slices, 0};
  return {};
}

/// From now on its queues are polled, and tools see it.
void Ports::take_up(Port& p) {
  for (auto& q : p.queues) polled_.push_back({&p, q.get()});
  choose_only();
  for (auto& q : p.queues)
    if (q->wait_fd() >= 0) wait_fds_.push_back(q->wait_fd());
  publish(hub().config.port_stats, p);
}

void Ports::choose_only() noexcept {
  const bool is_one = polled_.size() == 1 && !notes_arrivals();
  only_ = is_one ? polled_.front() : Polled{};
}

Result<bool> Ports::open_copies(Port& p) {
  if (p.has_copies) return true;
  auto queue = p.device->open_copies(hub().pool);
  if (!queue) return std::unexpected(queue.error());
  p.queues.push_back(std::move(*queue));
  p.has_copies = true;
  polled_.push_back({&p, p.queues.back().get()});
  choose_only();
  wait_fds_.push_back(p.queues.back()->wait_fd());
  publish(hub().config.port_stats, p);
  return false;
}

Carried<Port*> Ports::open(IfIndex carrier) {
  for (Port* p : all_) {
    if (p->link.index != carrier) continue;
    if (p->dead) return std::unexpected(Refusal{Carriage::kDevice, ENETDOWN, "device lost"});
    return p;
  }
  const Instant now = Clock::now();
  for (const FailedOpen& f : failed_)
    if (f.carrier == carrier && now - f.at < kRetryOpen) return std::unexpected(f.refusal);

  const auto refuse = [&](Refusal r) -> Carried<Port*> {
    std::erase_if(failed_, [&](const FailedOpen& f) { return f.carrier == carrier; });
    failed_.push_back({carrier, now, r});
    return std::unexpected(r);
  };
  const net::Link* link = hub().reader.snapshot().links->find(carrier);
  if (link == nullptr) return refuse({Carriage::kInterface, ENODEV, "interface gone"});
  if (!link->is_up() || link->is_loopback() || !has(link->flags, net::LinkFlags::kEthernet))
    return refuse({Carriage::kInterface, 0, "not an Ethernet interface that is up"});

  auto port = std::make_unique<Port>();
  port->link = *link;
  if (auto open = open_device(*port); !open) return refuse(open.error());
  Port* p = owned_.emplace_back(std::move(port)).get();
  all_.push_back(p);
  hub().host.tell(*p);
  take_up(*p);
  hub().will.write_port(*p);
  log<LogLevel::kInfo>("{}: carried by {}, {} queue(s)", p->link.name, p->device->caps().mode,
                       p->queues.size());
  hub().steering.add_wildcards(*p);
  return p;
}

bool Ports::stamp_frames() {
  const auto stamp_those_open = [&] {
    bool any = false;
    for (Port* p : all_) {
      any |= !p->dead && p->device->caps().stamps;
      for (auto& q : p->queues) q->stamp();
    }
    return any;
  };
  stamps_ = true;
  if (stamp_those_open()) return true;
  (void)open_all();  // a device with a clock may exist without being open
  return stamp_those_open();
}

void Ports::share() noexcept {
  for (Port* p : all_)
    for (auto& q : p->queues) q->share();
}

void Ports::flush() noexcept {
  for (Port* p : all_)
    for (auto& q : p->queues) q->tx_flush();
}

void Ports::reap() noexcept {
  for (Port* p : all_)
    for (auto& q : p->queues) q->tx_reap();
}

void Ports::reap_and_refill() noexcept {
  for (Port* p : all_)
    for (auto& q : p->queues) {
      q->tx_reap();
      q->rx_refill();
    }
}

bool Ports::come_in_bulk() noexcept {
  bool found = false;
  for (Port* p : all_)
    for (auto& q : p->queues) found |= q->comes_in_bulk();
  return found;
}

bool Ports::arm_all() noexcept {
  for (Port* p : all_) {
    if (p->dead) continue;
    for (auto& q : p->queues) {
      q->tx_reap();
      q->rx_refill();
      const auto is_armed = q->arm();
      if (!is_armed) {
        lose(*p);
        return false;  // there is a loss to report
      }
      if (!*is_armed) return false;
    }
  }
  return true;
}

void Ports::wake_ack_all() noexcept {
  const bool others_sleep = hub().wakeups.sleepers() != 0;
  for (Port* p : all_)
    for (auto& q : p->queues) {
      q->wake_ack();
      // This thread's next poll finds what has arrived, and whether the device exists.
      if (others_sleep) (void)q->arm();
    }
}

}  // namespace vireo
