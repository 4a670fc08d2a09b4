// Every script of cases/ under six initial sequence numbers, as tests named by clause:
// script_tcp --gtest_list_tests is the list. VIREO_SCRIPTS=<file or folder> plays others instead.
// Scripts named in KNOWN_FAILURES must still fail: one that passes must leave the list.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>

#include "tests/script/library.h"
#include "tests/script/script.h"

namespace vireo::script {
namespace {

class Play : public ::testing::Test {
 public:
  Play(std::filesystem::path path, unsigned which) : path_(std::move(path)), which_(which) {}
  void TestBody() override {
    const std::string failure = run(path_.filename().string(), contents(path_), which_);
    if (known_failures().contains(path_.stem().string()))
      EXPECT_FALSE(failure.empty()) << path_ << " is in KNOWN_FAILURES and passes: take it out";
    else
      EXPECT_TRUE(failure.empty()) << failure;
  }

 private:
  std::filesystem::path path_;
  unsigned which_;
};

/// "RFC 9293 §3.8.6.1" -> "RFC9293_3_8_6_1".
std::string suite_name(const std::string& clause) {
  std::string s;
  for (const char c : clause) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      s += c;
    else if (c == '.' || c == '-' || static_cast<unsigned char>(c) == 0xc2)  // the UTF-8 of §
      s += '_';
  }
  return s;
}

void add_scripts() {
  const char* other = std::getenv("VIREO_SCRIPTS");
  for (const auto& f : scripts(other != nullptr ? std::filesystem::path(other) : library())) {
    Script heading;
    parse_heading(contents(f), heading);
    for (unsigned i = 0; i < 6; ++i)
      ::testing::RegisterTest(suite_name(heading.clause).c_str(),
                              (f.stem().string() + "/" + std::to_string(i)).c_str(), nullptr,
                              heading.title.c_str(), f.c_str(), 1,
                              [f, i]() -> Play* { return new Play(f, i); });
  }
}

}  // namespace
}  // namespace vireo::script

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  vireo::script::add_scripts();
  return RUN_ALL_TESTS();
}
