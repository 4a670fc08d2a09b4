#include "tests/apparatus/softnic/store.h"

#include <ucontext.h>

namespace vireo::softnic {

#if defined(__x86_64__)
namespace {

/// By the number that instructions give them.
constexpr int kRegisters[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};
constexpr uint8_t kRex = 0x40, kWide = 0x08, kHighRegister = 0x04;

/// Bytes of a ModRM byte that names memory, with SIB and displacement; 0: it names a register.
unsigned operand_bytes(const uint8_t* at) {
  const unsigned mode = at[0] >> 6, base = at[0] & 7;
  if (mode == 3) return 0;
  const bool has_sib = base == 4;
  unsigned displacement = mode == 1 ? 1 : mode == 2 ? 4 : 0;
  if (mode == 0 && (has_sib ? at[1] & 7 : base) == 5) displacement = 4;
  return 1 + (has_sib ? 1 : 0) + displacement;
}

}  // namespace

std::optional<Store> refused_store(const void* context) {
  const auto& c = *static_cast<const ucontext_t*>(context);
  const auto* const start = reinterpret_cast<const uint8_t*>(c.uc_mcontext.gregs[REG_RIP]);
  const uint8_t* at = start;
  const uint8_t rex = *at++;
  if ((rex & 0xf0) != kRex || (rex & kWide) == 0) return {};
  constexpr uint8_t kMove = 0x89, kEscape = 0x0f, kMoveNonTemporal = 0xc3;
  if (at[0] == kEscape && at[1] == kMoveNonTemporal)
    at += 2;
  else if (at[0] == kMove)
    ++at;
  else
    return {};
  const unsigned operand = operand_bytes(at);
  if (operand == 0) return {};
  const unsigned number = (at[0] >> 3 & 7) | ((rex & kHighRegister) != 0 ? 8U : 0U);
  at += operand;
  return Store{.value = static_cast<uint64_t>(c.uc_mcontext.gregs[kRegisters[number]]),
               .length = static_cast<unsigned>(at - start)};
}

void skip(void* context, const Store& store) {
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] += store.length;
}

#else

std::optional<Store> refused_store(const void*) { return {}; }
void skip(void*, const Store&) {}

#endif

}  // namespace vireo::softnic
