// Received data that the program has without a copy: it reads the packet's buffer, and gives it
// back. Every buffer has a LentBuffer, by which the program names it. A packet is a list of them.
//
// What a socket has lent counts against its receive buffer, and nothing is lent while the pool runs
// low: who gives nothing back then gets copies, as from recv(2), and starves nobody else. Closing
// the socket takes everything back, but what was lent to outlive it.
//
// Owner: process (type-stable slabs, one for each engine); a LentBuffer is its socket's or, if
// loose, the program's. Guard: the lock of the engine whose pool has the buffer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/packet.h"
#include "stack/engine/flow.h"
#include "stack/sock/fd_table.h"

namespace vireo {

class Engine;

struct LentBuffer {
  // ---- read by the program (vma_buff_t)
  LentBuffer* next = nullptr;  ///< of the same packet
  std::byte* data = nullptr;
  uint16_t length = 0;
  // ---- Vireo's
  uint16_t holds = 0;  ///< of the program; the last one given back returns the buffer
  bool is_first = false;
  PacketBuf* packet = nullptr;  ///< null: given back
  Engine* engine = nullptr;
  File* file = nullptr;  ///< whose receive buffer is charged, while it has this generation
  uint32_t generation = 0;
  ListHook hook;  ///< of ExtraState::lent; unlinked: loose
};

/// A packet lent.
struct Lent {
  LentBuffer* first = nullptr;  ///< null: it was not lent
  size_t buffers = 0;
  size_t bytes = 0;
};

namespace lending {
// Holder of the engine's lock, but for name_of().
/// Whether the socket may lend buffers that `cost` that much (truesize()).
bool may_lend(const File& f, Engine& e, uint32_t cost) noexcept;
/// Lends the first `buffers` of a queue of `h`, whose File has an ExtraState. If there is no memory
/// nothing is done. The charge of UDP's queue stays until they are given back.
Lent lend(Handle h, Engine& e, PacketChain& queue, uint32_t buffers) noexcept;
/// Gives back one hold on a buffer. @return how many are left.
unsigned give_back(LentBuffer& b) noexcept;
/// One more hold on a buffer. @return how many there are.
unsigned hold(LentBuffer& b) noexcept;
/// Ends the loan of a buffer that the program holds once, and nobody gives back. The charge stays.
PacketRef reclaim(LentBuffer& b) noexcept;
/// give_back() for each buffer of a packet.
void give_back_packet(LentBuffer& first) noexcept;
/// No longer its socket's: stays lent when that is closed.
void make_loose(LentBuffer& first) noexcept;
/// The socket is being closed.
void take_all_back(File& f) noexcept;
/// In the child of a fork, whose buffers are the parent's: the program's names mean nothing.
void forget_all(File& f) noexcept;

/// The name of a packet, as an opaque pointer; and the packet of a name, null: it is not lent by
/// the socket, or not from the engine's pool.
void* name_of(const LentBuffer& first) noexcept;
LentBuffer* find(const Engine& e, const void* name, Handle h) noexcept;
}  // namespace lending

}  // namespace vireo
