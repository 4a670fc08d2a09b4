#include "tools/settings_doc/manual.h"

#include <gtest/gtest.h>

#include <sstream>

#include "config/settings.h"

namespace vireo {
namespace {

std::string minus_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out.append(c == '-' ? "\\-" : std::string(1, c));
  return out;
}

TEST(Manual, NamesEverySettingAndProfile) {
  const std::string page = manual_page();
  const std::string markdown = manual_markdown();
  for (const auto& r : setting_rows()) {
    EXPECT_NE(page.find(".B " + std::string(r.env) + "\n"), page.npos) << r.env;
    EXPECT_NE(markdown.find("| `" + std::string(r.env) + "` |"), markdown.npos) << r.env;
  }
  for (const auto& a : setting_aliases()) EXPECT_NE(page.find(a.env), page.npos) << a.env;
  for (const auto& p : profiles()) {
    EXPECT_NE(page.find(minus_escaped(p.doc)), page.npos) << p.names[0];
    EXPECT_NE(markdown.find(p.doc), markdown.npos) << p.names[0];
  }
}

TEST(Manual, EveryRequestIsOneOfManPages) {
  std::istringstream lines(manual_page());
  for (std::string line; std::getline(lines, line);) {
    ASSERT_FALSE(line.empty());
    if (line[0] != '.' && line[0] != '\'') continue;
    const std::string request = line.substr(0, line.find(' '));
    constexpr std::string_view kKnown[] = {".\\\"", ".TH", ".SH", ".SS", ".TP", ".PP",
                                           ".B",    ".BI", ".BR", ".I",  ".IR", ".br"};
    EXPECT_NE(std::find(std::begin(kKnown), std::end(kKnown), request), std::end(kKnown)) << line;
  }
}

TEST(Manual, TablesHaveFourCells) {
  std::istringstream lines(manual_markdown());
  for (std::string line; std::getline(lines, line) && line != "# Profiles";) {
    if (!line.starts_with("| ")) continue;
    size_t bars = 0;
    for (size_t i = 0; i < line.size(); ++i)
      bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
    EXPECT_EQ(bars, 5U) << line;
  }
}

TEST(Manual, FindsSettingsThatNobodyReads) {
  std::string all;
  std::string but_one;
  for (const auto& r : setting_rows()) {
    all += "s." + std::string(r.field) + ";";
    if (r.field != "rx_poll") but_one += "s->" + std::string(r.field) + ";";
  }
  const std::vector<std::string> complete = {"int x;", all};
  EXPECT_TRUE(unread_settings(complete).empty());
  const std::vector<std::string> lacking = {but_one + " rx_poll; x.rx_poll_; "};
  EXPECT_EQ(unread_settings(lacking), std::vector<std::string>{"VMA_RX_POLL (rx_poll)"});
}

}  // namespace
}  // namespace vireo
