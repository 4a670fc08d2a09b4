// The committed corpus of each fuzzer in an ordinary build: inputs that reach far, and every one
// that once showed a defect. VIREO_FUZZ_INPUTS=<folder> replays a folder of one's own, its
// subfolders named as those of corpus/.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/fuzz/tcp/fuzzers.h"

namespace vireo::fuzz {
namespace {

std::filesystem::path folder(const char* name) {
  const char* own = std::getenv("VIREO_FUZZ_INPUTS");
  return std::filesystem::path(own != nullptr ? own : VIREO_FUZZ_CORPUS) / name;
}

void replay(const char* name, int (*fuzzer)(const uint8_t*, size_t)) {
  std::vector<std::filesystem::path> files;
  for (const auto& e : std::filesystem::directory_iterator(folder(name))) files.push_back(e.path());
  std::ranges::sort(files);
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    // A breach aborts: this says which input it was.
    std::fprintf(stderr, "%s\r", file.filename().c_str());
    EXPECT_EQ(fuzzer(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), 0);
  }
  std::fprintf(stderr, "%zu inputs replayed                                  \n", files.size());
}

TEST(FuzzReplay, Segment) { replay("segment", fuzz_segment); }
TEST(FuzzReplay, Reassembly) { replay("reassembly", fuzz_reassembly); }
TEST(FuzzReplay, Scoreboard) { replay("scoreboard", fuzz_scoreboard); }
TEST(FuzzReplay, Pair) { replay("pair", fuzz_pair); }

/// Any bytes will do, so a run of the generator alone covers what a corpus forgot.
TEST(FuzzReplay, RandomInputs) {
  uint64_t x = 1;
  std::vector<uint8_t> bytes(600);
  for (int i = 0; i < 150; ++i) {
    for (uint8_t& b : bytes) {
      x = x * 6364136223846793005ULL + 1442695040888963407ULL;
      b = static_cast<uint8_t>(x >> 56);
    }
    fuzz_segment(bytes.data(), bytes.size());
    fuzz_reassembly(bytes.data(), bytes.size());
    fuzz_scoreboard(bytes.data(), bytes.size());
    fuzz_pair(bytes.data(), bytes.size());
  }
}

}  // namespace
}  // namespace vireo::fuzz
