#include "tests/fuzz/tcp/fuzzers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return vireo::fuzz::VIREO_FUZZER(data, size);
}
