// Counts the instructions that a piece of code executes, exactly and without a performance counter:
// by single-stepping it. Some microseconds an instruction. Owner: the test. Thread: one at a time.
#pragma once

#include <cstdint>

namespace vireo::test {

/// From begin_steps() to end_steps(), a constant few of them included. @return instructions.
void begin_steps();
uint64_t end_steps();

}  // namespace vireo::test
