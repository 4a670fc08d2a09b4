// Every script of cases/ under six initial sequence numbers, as tests named by clause:
// script_tcp --gtest_list_tests is the list. VIREO_SCRIPTS=<file or folder> plays others instead.
// Scripts named in KNOWN_FAILURES must still fail: one that passes must leave the list.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/script/runner.h"

namespace vireo::script {
namespace {

constexpr uint32_t kIss[6] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0u - 1460u};

std::string contents(const std::filesystem::path& p) {
  std::ifstream in(p);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

/// Names of scripts that show a known defect; after the name, why.
std::set<std::string> known_failures() {
  std::set<std::string> names;
  std::istringstream lines(contents(std::filesystem::path(VIREO_SCRIPT_DIR) / "KNOWN_FAILURES"));
  std::string line;
  while (std::getline(lines, line)) {
    const std::string name = line.substr(0, line.find_first_of(" \t"));
    if (!name.empty() && name[0] != '#') names.insert(name);
  }
  return names;
}

class Play : public ::testing::Test {
 public:
  Play(std::filesystem::path path, int which, bool fails)
      : path_(std::move(path)), which_(which), fails_(fails) {}
  void TestBody() override {
    Script s;
    const std::string bad = parse(path_.filename().string(), contents(path_), s);
    ASSERT_EQ(bad, "");
    Runner r(s, Seq32(kIss[which_]), Seq32(kIss[(which_ + 3) % 6]));
    const std::string failure = r.run();
    if (fails_)
      EXPECT_NE(failure, "") << path_ << " is in KNOWN_FAILURES and passes: take it out";
    else
      EXPECT_TRUE(failure.empty()) << failure;
  }

 private:
  std::filesystem::path path_;
  int which_;
  bool fails_;
};

/// "RFC 9293 §3.8.6.1" -> "RFC9293_3_8_6_1".
std::string suite_name(const std::string& clause) {
  std::string s;
  for (const char c : clause) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      s += c;
    else if (c == '.' || c == '-')
      s += '_';
    else if (static_cast<unsigned char>(c) == 0xc2)  // § in UTF-8
      s += '_';
  }
  return s;
}

void add_scripts() {
  namespace fs = std::filesystem;
  const char* other = std::getenv("VIREO_SCRIPTS");
  const fs::path place = other != nullptr ? fs::path(other) : fs::path(VIREO_SCRIPT_DIR) / "cases";
  std::vector<fs::path> files;
  if (fs::is_directory(place)) {
    for (const auto& f : fs::recursive_directory_iterator(place))
      if (f.path().extension() == ".pkt") files.push_back(f.path());
  } else {
    files.push_back(place);
  }
  std::sort(files.begin(), files.end());
  const std::set<std::string> failing = known_failures();
  for (const fs::path& f : files) {
    Script heading;
    parse_heading(contents(f), heading);
    const bool fails = failing.contains(f.stem().string());
    for (int i = 0; i < 6; ++i)
      ::testing::RegisterTest(suite_name(heading.clause).c_str(),
                              (f.stem().string() + "/" + std::to_string(i)).c_str(), nullptr,
                              heading.title.c_str(), f.c_str(), 1,
                              [f, i, fails]() -> Play* { return new Play(f, i, fails); });
  }
}

}  // namespace
}  // namespace vireo::script

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  vireo::script::add_scripts();
  return RUN_ALL_TESTS();
}
