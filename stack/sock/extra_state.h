// What a socket has only if its program uses the extra API (stack/extra).
// Owner: its File, freed with it. Guard: written under the control lock and, once there is an
// engine, the engine's too; read under either.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "stack/sock/file.h"
#include "stack/sock/inspection.h"
#include "stack/sock/lent_buffers.h"

namespace vireo {

/// Values of options. Only the API's functions read them.
struct ExtraValues {
  std::optional<uint64_t> user_data;  ///< SO_VMA_USER_DATA; nullopt: the descriptor
  uint32_t flow_tag = 0;              ///< SO_VMA_FLOW_TAG
  uint32_t max_burst = 0;             ///< of SO_MAX_PACING_RATE, as the program has set it
  uint16_t typical_packet = 0;        ///< the same
};

struct ExtraState {
  ExtraValues values;
  // ---- guarded by the engine's lock
  FlowList<LentBuffer, &LentBuffer::hook> lent;  ///< not those that are loose
  uint32_t lent_bytes = 0;                       ///< truesize() of all, loose ones too
  std::unique_ptr<Inspector> inspector;          ///< null: no receive callback
};

/// The state of `f`, made if it has none. Null: no memory. Control lock held, the engine's not.
ExtraState* extra_of(File& f) noexcept;
/// The socket is being closed: gives back all packets. `f` has a state. Engine's lock held.
void drop_extra(File& f) noexcept;
/// Frees it, with the File.
void free_extra(File& f) noexcept;
/// In the child of a fork: what it has of the parent's means nothing. `f` has a state.
void forget_extra(File& f) noexcept;

}  // namespace vireo
