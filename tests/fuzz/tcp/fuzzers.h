// The fuzzers of this folder as functions: fuzz_entry.cpp gives one of them to libFuzzer,
// replay_test.cpp runs all over the committed corpus. Each takes any bytes and returns 0, or aborts
// at a breach.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vireo::fuzz {

int fuzz_segment(const uint8_t* data, size_t size);     ///< one Tcb, any segments, any calls
int fuzz_reassembly(const uint8_t* data, size_t size);  ///< Reassembly against a map of bytes
int fuzz_pair(const uint8_t* data, size_t size);        ///< two Tcbs and a harmful wire
int fuzz_scoreboard(const uint8_t* data, size_t size);  ///< SACK scoreboard against a list

}  // namespace vireo::fuzz
