// Entries of the last will.
#include <cstring>

#include "core/last_will.h"
#include "stack/engine/will_writer.h"

namespace vireo {

LastWillEntry* WillWriter::entry_of(const TcpFlow& f) const noexcept {
  const uint32_t index = (f.tag.value() - 1) * config_.engines + id_.value();
  return config_.will == nullptr || index >= kLastWillEntries ? nullptr
                                                              : &config_.will->entries[index];
}

void WillWriter::write(const TcpFlow& f) noexcept {
  LastWillEntry* const e = entry_of(f);
  if (e == nullptr) return;
  e->iss = f.tcb.iss.value();
  e->ts_offset = f.tcb.ts_offset;
  e->timestamps = f.tcb.config->timestamps ? 1 : 0;
  e->scope = f.key.remote.addr.is_link_local() ? f.egress.ifindex.value() : 0;
  std::memcpy(e->local_addr, f.key.local.addr.bytes().data(), sizeof e->local_addr);
  std::memcpy(e->remote_addr, f.key.remote.addr.bytes().data(), sizeof e->remote_addr);
  e->local_port = f.key.local.port;
  e->remote_port = f.key.remote.port;
  // release: another process may read this memory between any two instructions.
  e->open.store(1, std::memory_order_release);
  auto& used = config_.will->used;
  const auto end = static_cast<uint32_t>(e - config_.will->entries) + 1;
  uint32_t had = used.load(std::memory_order_relaxed);
  // Other engines have entries between ours, under their own locks.
  while (end > had && !used.compare_exchange_weak(had, end, std::memory_order_release)) {
  }
}

void WillWriter::strike(const TcpFlow& f) noexcept {
  if (LastWillEntry* const e = entry_of(f)) e->open.store(0, std::memory_order_release);
}

void WillWriter::write_port(const Port& p) noexcept {
  if (config_.will == nullptr) return;
  for (auto& port : config_.will->ports) {
    uint32_t there = 0;
    // Another engine may have written first, this interface or another.
    if (port.compare_exchange_strong(there, p.link.index.value(), std::memory_order_release) ||
        there == p.link.index.value())
      return;
  }
}

}  // namespace vireo
