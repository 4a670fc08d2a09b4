#include "config/pattern.h"

#include <fnmatch.h>
#include <gtest/gtest.h>

#include <string>

namespace vireo {
namespace {

TEST(Pattern, MatchesAsFnmatchDoes) {
  const char* const patterns[] = {"",     "*",       "?",      "a",        "db2*",   "t?cp",
                                  "*.py", "a*b*c",   "[ab]",   "[!a]",     "[a-c]x", "[]]",
                                  "[!]]", "[a-]",    "\\*",    "a\\",      "[a",     "**a",
                                  "a*",   "*a*a*a*", "[a-c]*", "x[0-9]?z", "[\\]a]", "[^a]b"};
  const char* const texts[] = {"",        "a",    "b",    "c",    "x",     "]",   "-",  "*",  "db2",
                               "db2sync", "ttcp", "tcp",  "x.py", "a.b.c", "abc", "ax", "dx", "[a",
                               "aaa",     "aa",   "x5yz", "a\\",  "bb",    "ab",  "^b"};
  for (const char* p : patterns)
    for (const char* t : texts)
      EXPECT_EQ(matches_pattern(p, t), fnmatch(p, t, 0) == 0)
          << "pattern '" << p << "' text '" << t << "'";
}

TEST(Pattern, ManyStarsTakeNoLongTime) {
  std::string pattern;
  for (int i = 0; i < 500; ++i) pattern += "*a";
  EXPECT_FALSE(matches_pattern(pattern + "b", std::string(1000, 'a')));
  EXPECT_TRUE(matches_pattern(pattern, std::string(1000, 'a')));
}

}  // namespace
}  // namespace vireo
