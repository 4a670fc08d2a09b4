#include <gtest/gtest.h>

#include <map>
#include <set>

#include "config/settings.h"

namespace vireo {
namespace {

ParsedSettings with_profile(std::string_view name) {
  const std::string entry = "VMA_SPEC=" + std::string(name);
  const std::vector<std::string_view> env = {entry};
  return parse_settings(std::span<const std::string_view>(env));
}

/// What a profile changes from the defaults, as text by name. Values equal to the default do not
/// show.
std::map<std::string, std::string> changes(std::string_view name) {
  const auto p = with_profile(name);
  EXPECT_TRUE(p.diagnostics.empty()) << name;
  std::map<std::string, std::string> out;
  size_t i = 0;
  for (const auto& row : setting_rows()) {
    const std::string text = setting_text(p.settings, static_cast<SettingId>(i++));
    if (text != row.default_text && row.env != "VMA_SPEC")
      out[std::string(row.env.substr(4))] = text;
  }
  return out;
}
using Changes = std::map<std::string, std::string>;

TEST(Profiles, EveryValueIsAKnownSettingInRange) {
  std::set<std::string_view> names;
  for (const Profile& p : profiles()) {
    for (const auto n : p.names) EXPECT_TRUE(names.insert(n).second) << n << " twice";
    for (const auto& [env, text] : p.values) {
      const std::string entry = std::string(env) + "=" + std::string(text);
      const std::vector<std::string_view> environment = {entry};
      const auto parsed = parse_settings(std::span<const std::string_view>(environment));
      for (const auto& d : parsed.diagnostics)
        EXPECT_EQ(d.severity, Severity::kNote) << p.names[0] << ": " << d.text;
    }
  }
}

TEST(Profiles, Latency) {
  const Changes expected = {{"TX_WRE", "256"},
                            {"TX_WRE_BATCHING", "4"},
                            {"RX_WRE", "256"},
                            {"RX_WRE_BATCHING", "4"},
                            {"RX_POLL", "-1"},
                            {"RX_PREFETCH_BYTES_BEFORE_POLL", "256"},
                            {"SELECT_POLL", "-1"},
                            {"AVOID_SYS_CALLS_ON_TCP_FD", "1"},
                            {"GRO_STREAMS_MAX", "0"},
                            {"CQ_KEEP_QP_FULL", "0"},
                            {"THREAD_MODE", "single"},
                            {"INTERNAL_THREAD_AFFINITY", "0"},
                            {"PROGRESS_ENGINE_INTERVAL", "100ms"},
                            {"SELECT_POLL_OS_RATIO", "1"},
                            {"SELECT_SKIP_OS", "1"},
                            {"TCP_NODELAY", "1"},
                            {"RING_DEV_MEM_TX", "16k"},
                            {"CQ_MODERATION_ENABLE", "0"}};
  EXPECT_EQ(changes("latency"), expected);
  EXPECT_EQ(changes("15"), expected);
  EXPECT_EQ(changes("LATENCY"), expected);
}

TEST(Profiles, UltraLatency) {
  const Changes expected = {{"TX_SEGS_TCP", "512"},
                            {"TX_BUFS", "512"},
                            {"RX_BUFS", "1024"},
                            {"TX_WRE", "256"},
                            {"TX_WRE_BATCHING", "4"},
                            {"RX_WRE", "256"},
                            {"RX_WRE_BATCHING", "4"},
                            {"RX_POLL", "-1"},
                            {"RX_UDP_POLL_OS_RATIO", "0"},
                            {"RX_PREFETCH_BYTES_BEFORE_POLL", "256"},
                            {"SELECT_POLL", "-1"},
                            {"SELECT_POLL_OS_RATIO", "0"},
                            {"SELECT_SKIP_OS", "0"},
                            {"AVOID_SYS_CALLS_ON_TCP_FD", "1"},
                            {"GRO_STREAMS_MAX", "0"},
                            {"PROGRESS_ENGINE_INTERVAL", "0"},
                            {"CQ_KEEP_QP_FULL", "0"},
                            {"THREAD_MODE", "single"},
                            {"TCP_NODELAY", "1"},
                            {"RING_DEV_MEM_TX", "16k"},
                            {"INTERNAL_THREAD_AFFINITY", "0"},
                            {"CQ_MODERATION_ENABLE", "0"}};
  EXPECT_EQ(changes("ultra-latency"), expected);
  EXPECT_EQ(changes("10"), expected);
}

TEST(Profiles, TheOthersOfLibvma) {
  EXPECT_EQ(changes("29west"), (Changes{{"SPEC_PARAM1", "5000"},
                                        {"SPEC_PARAM2", "50"},
                                        {"RX_POLL", "1"},
                                        {"SELECT_POLL_OS_RATIO", "100"},
                                        {"SELECT_SKIP_OS", "50"}}));
  EXPECT_EQ(changes("554"), (Changes{{"SPEC_PARAM1", "5000"},
                                     {"SPEC_PARAM2", "50"},
                                     {"RX_POLL", "1"},
                                     {"SELECT_POLL", "0"},
                                     {"SELECT_SKIP_OS", "20"}}));
  EXPECT_EQ(changes("mcd"), (Changes{{"RING_ALLOCATION_LOGIC_RX", "core_attach"},
                                     {"RING_ALLOCATION_LOGIC_TX", "core_attach"}}));
  EXPECT_EQ(changes("mcd-irq"), (Changes{{"RING_ALLOCATION_LOGIC_RX", "core_attach"},
                                         {"RING_ALLOCATION_LOGIC_TX", "core_attach"},
                                         {"SELECT_POLL", "0"},
                                         {"RX_POLL", "1"},
                                         {"CQ_MODERATION_ENABLE", "0"}}));
  EXPECT_EQ(changes("rti"), (Changes{{"RX_POLL", "-1"}, {"CQ_MODERATION_ENABLE", "0"}}));
  EXPECT_EQ(changes("7750"), (Changes{{"TX_BUFS", "8192"},
                                      {"RX_BUFS", "204800"},
                                      {"STATS_FD_NUM", "1024"},
                                      {"INTERNAL_THREAD_AFFINITY", "0-1"},
                                      {"RX_POLL", "-1"},
                                      {"SELECT_POLL", "-1"},
                                      {"SELECT_POLL_OS_RATIO", "0"},
                                      {"TCP_3T_RULES", "1"},
                                      {"AVOID_SYS_CALLS_ON_TCP_FD", "1"},
                                      {"BUFFER_BATCHING_MODE", "none"},
                                      {"TCP_CTL_THREAD", "no_wakeup"},
                                      {"CQ_MODERATION_ENABLE", "0"}}));
  EXPECT_EQ(changes("multi_ring_latency"), (Changes{{"SELECT_POLL", "-1"},
                                                    {"RX_POLL", "-1"},
                                                    {"RING_ALLOCATION_LOGIC_TX", "thread"},
                                                    {"RING_ALLOCATION_LOGIC_RX", "thread"},
                                                    {"SELECT_POLL_OS_RATIO", "0"},
                                                    {"SELECT_SKIP_OS", "0"},
                                                    {"RX_POLL_ON_TX_TCP", "1"},
                                                    {"TRIGGER_DUMMY_SEND_GETSOCKNAME", "1"},
                                                    {"CQ_MODERATION_ENABLE", "0"}}));
  EXPECT_EQ(changes("none"), Changes{});
  EXPECT_EQ(changes("0"), Changes{});
}

TEST(Profiles, OursSleepWhereTheySay) {
  for (const auto* name : {"interrupt", "low_cpu"}) {
    const auto p = with_profile(name);
    EXPECT_EQ(p.settings.rx_poll, 1) << name;
    EXPECT_EQ(p.settings.select_poll, Duration::ns(0)) << name;
    EXPECT_EQ(p.settings.spec, name);
  }
  EXPECT_GT(with_profile("throughput").settings.arena_bytes.value(),
            Settings().arena_bytes.value());
  EXPECT_TRUE(with_profile("many_threads").settings.rx_poll_yield);
}

TEST(Profiles, AnUnknownOneIsOneLine) {
  const auto p = with_profile("latncy");
  ASSERT_EQ(p.diagnostics.size(), 1U);
  EXPECT_EQ(p.diagnostics[0].text,
            "VMA_SPEC=latncy: no such profile; valid: none, latency, ultra-latency, 29west, "
            "wombat_fh, mcd, mcd-irq, rti, 7750, "
            "multi_ring_latency, throughput, many_threads, interrupt, low_cpu; nearest: latency; "
            "using none (default)");
  EXPECT_EQ(p.settings.rx_poll, Settings().rx_poll);
  EXPECT_EQ(p.settings.spec, "none");
}

}  // namespace
}  // namespace vireo
