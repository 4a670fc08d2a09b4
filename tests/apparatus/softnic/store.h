// The instruction by which a program stores into a doorbell register, once it has been refused:
// what would have been stored. Knows the eight-byte stores of a general register that compilers
// make of an assignment; on other processors than x86-64 none. Owner: none. Thread: any. Source:
// AMD64 manual vol. 3 (MOV, MOVNTI; ModRM and SIB), ucontext(3).
#pragma once

#include <cstdint>
#include <optional>

namespace vireo::softnic {

struct Store {
  uint64_t value;
  unsigned length;  ///< bytes of the instruction
};

/// `context` as a signal handler with SA_SIGINFO gets it. @return nullopt: another instruction.
std::optional<Store> refused_store(const void* context);
/// The thread goes on behind the instruction.
void skip(void* context, const Store& store);

}  // namespace vireo::softnic
