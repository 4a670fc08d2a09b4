// The engine's part of the last will (core/last_will.h): it contains a connection from its first
// SYN until the peer knows of its end.
//
// Owner: none. Guard: the engine's lock.
#pragma once

#include "stack/engine/engine_config.h"
#include "stack/engine/flow.h"
#include "stack/engine/port.h"

namespace vireo {

struct LastWillEntry;

class WillWriter {
 public:
  WillWriter(EngineId id, const EngineConfig& config) : id_(id), config_(config) {}

  void write(const TcpFlow& f) noexcept;
  void strike(const TcpFlow& f) noexcept;
  void write_port(const Port& p) noexcept;

 private:
  LastWillEntry* entry_of(const TcpFlow& f) const noexcept;

  EngineId id_;
  const EngineConfig& config_;
};

}  // namespace vireo
