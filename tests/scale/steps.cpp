#include "tests/scale/steps.h"

#include <csignal>

namespace vireo::test {
namespace {

volatile uint64_t g_steps = 0;

void on_step(int) { g_steps = g_steps + 1; }

}  // namespace

void begin_steps() {
  struct sigaction a{};
  a.sa_handler = on_step;
  ::sigaction(SIGTRAP, &a, nullptr);
  g_steps = 0;
  // Trap flag; the red zone lies below the stack pointer.
  asm volatile(
      "lea -128(%%rsp), %%rsp\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" ::
          : "memory", "cc");
}

uint64_t end_steps() {
  asm volatile(
      "lea -128(%%rsp), %%rsp\n\tpushfq\n\tandq $-257, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" ::
          : "memory", "cc");
  return g_steps;
}

}  // namespace vireo::test
