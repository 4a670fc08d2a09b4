#include "tests/script/play.h"

#include <gtest/gtest.h>

#include "tests/script/library.h"

namespace vireo::script {
namespace {

void play_all(const std::string& name, const std::string& text) {
  for (unsigned i = 0; i < 6; ++i) {
    const std::string failure = run(name, text, i);
    EXPECT_TRUE(failure.empty()) << "initial number " << kIss[i] << ": " << failure;
  }
}

}  // namespace

void play(const std::string& name) {
  if (const auto known = known_failures().find(name); known != known_failures().end())
    GTEST_SKIP() << name << " is a known failure: " << known->second;
  for (const auto& f : scripts(library()))
    if (f.stem() == name) {
      play_all(f.filename().string(), contents(f));
      return;
    }
  FAIL() << "no script " << name;
}

void play_text(const std::string& text) { play_all("inline", text); }

}  // namespace vireo::script
