#include "config/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace vireo {
namespace {

using Env = std::vector<std::string_view>;

ParsedSettings parse(const Env& env) {
  return parse_settings(std::span<const std::string_view>(env));
}

std::vector<std::string> lines(const ParsedSettings& p, Severity severity) {
  std::vector<std::string> out;
  for (const auto& d : p.diagnostics)
    if (d.severity == severity) out.push_back(d.text);
  return out;
}
std::vector<std::string> warnings(const ParsedSettings& p) { return lines(p, Severity::kWarning); }
std::vector<std::string> notes(const ParsedSettings& p) { return lines(p, Severity::kNote); }

using Lines = std::vector<std::string>;

TEST(Settings, EmptyEnvironmentGivesTheDefaults) {
  const auto p = parse({});
  EXPECT_TRUE(p.diagnostics.empty());
  EXPECT_EQ(p.settings.rx_poll, 100'000);
  EXPECT_EQ(p.settings.select_poll, Duration::ms(100));
  EXPECT_EQ(p.settings.arena_bytes.value(), 32 << 20);
  EXPECT_EQ(p.settings.helper_grace, Duration::ms(1));
  EXPECT_EQ(p.settings.device, DeviceChoice::kAuto);
  EXPECT_EQ(p.settings.xdp_ring, 2048);
  EXPECT_EQ(p.settings.tcp_timewait, Duration::s(60));
  EXPECT_EQ(p.settings.log_level, LogLevel::kWarn);
  EXPECT_EQ(p.settings.spec, "none");
  EXPECT_TRUE(p.settings.interfaces.empty());
  EXPECT_TRUE(std::ranges::all_of(p.origin, [](Origin o) { return o == Origin::kDefault; }));
}

TEST(Settings, EveryDefaultPassesItsOwnLimits) {
  for (const auto& row : setting_rows()) {
    if (row.default_text.empty()) continue;
    const std::string entry = std::string(row.env) + "=" + row.default_text;
    const auto p = parse({entry});
    EXPECT_EQ(warnings(p), Lines{}) << entry;
    EXPECT_EQ(dump_settings(p).find(entry + "  # ") != std::string::npos, true) << entry;
  }
}

TEST(Settings, EveryRowIsTold) {
  std::set<std::string_view> names;
  for (const auto& row : setting_rows()) {
    EXPECT_TRUE(row.env.starts_with("VMA_") || row.env.starts_with("VIREO_")) << row.env;
    EXPECT_TRUE(names.insert(row.env).second) << row.env << " twice";
    EXPECT_TRUE(row.doc.ends_with(".")) << row.env;
    EXPECT_EQ(row.is_used, row.meaning.empty()) << row.env;
    EXPECT_TRUE(row.is_used || row.meaning.ends_with(".")) << row.env;
    EXPECT_FALSE(row.section.empty() || row.type.empty() || row.range.empty()) << row.env;
  }
  EXPECT_EQ(names.size(), kSettingCount);
}

TEST(Settings, KnowsEveryNameOfLibvma) {
  constexpr std::string_view kNames[] = {"TRACELEVEL",
                                         "LOG_DETAILS",
                                         "LOG_FILE",
                                         "LOG_COLORS",
                                         "STATS_FILE",
                                         "STATS_SHMEM_DIR",
                                         "VMAD_NOTIFY_DIR",
                                         "STATS_FD_NUM",
                                         "CPU_USAGE_STATS",
                                         "CONFIG_FILE",
                                         "APPLICATION_ID",
                                         "HANDLE_SIGINTR",
                                         "HANDLE_SIGSEGV",
                                         "EXCEPTION_HANDLING",
                                         "OFFLOADED_SOCKETS",
                                         "RING_ALLOCATION_LOGIC_TX",
                                         "RING_ALLOCATION_LOGIC_RX",
                                         "RING_MIGRATION_RATIO_TX",
                                         "RING_MIGRATION_RATIO_RX",
                                         "RING_LIMIT_PER_INTERFACE",
                                         "RING_DEV_MEM_TX",
                                         "TX_SEGS_TCP",
                                         "TX_BUFS",
                                         "RX_BUFS",
                                         "TX_WRE",
                                         "TX_WRE_BATCHING",
                                         "TX_MAX_INLINE",
                                         "TX_MC_LOOPBACK",
                                         "TX_NONBLOCKED_EAGAINS",
                                         "TX_PREFETCH_BYTES",
                                         "RX_WRE",
                                         "RX_WRE_BATCHING",
                                         "RX_BYTES_MIN",
                                         "RX_POLL",
                                         "RX_POLL_INIT",
                                         "RX_UDP_POLL_OS_RATIO",
                                         "RX_POLL_OS_RATIO",
                                         "RX_SKIP_OS",
                                         "HW_TS_CONVERSION",
                                         "RX_POLL_YIELD",
                                         "RX_PREFETCH_BYTES",
                                         "RX_PREFETCH_BYTES_BEFORE_POLL",
                                         "RX_CQ_DRAIN_RATE_NSEC",
                                         "GRO_STREAMS_MAX",
                                         "TCP_3T_RULES",
                                         "UDP_3T_RULES",
                                         "ETH_MC_L2_ONLY_RULES",
                                         "MC_FORCE_FLOWTAG",
                                         "SELECT_POLL",
                                         "SELECT_POLL_OS_FORCE",
                                         "SELECT_POLL_OS_RATIO",
                                         "SELECT_SKIP_OS",
                                         "CQ_MODERATION_ENABLE",
                                         "CQ_MODERATION_COUNT",
                                         "CQ_MODERATION_PERIOD_USEC",
                                         "CQ_AIM_MAX_COUNT",
                                         "CQ_AIM_MAX_PERIOD_USEC",
                                         "CQ_AIM_INTERVAL_MSEC",
                                         "CQ_AIM_INTERRUPTS_RATE_PER_SEC",
                                         "CQ_POLL_BATCH_MAX",
                                         "PROGRESS_ENGINE_INTERVAL",
                                         "PROGRESS_ENGINE_WCE_MAX",
                                         "CQ_KEEP_QP_FULL",
                                         "QP_COMPENSATION_LEVEL",
                                         "TIMER_RESOLUTION_MSEC",
                                         "TCP_TIMER_RESOLUTION_MSEC",
                                         "TCP_CTL_THREAD",
                                         "TCP_TIMESTAMP_OPTION",
                                         "TCP_NODELAY",
                                         "TCP_QUICKACK",
                                         "TCP_CC_ALGO",
                                         "TCP_MAX_SYN_RATE",
                                         "AVOID_SYS_CALLS_ON_TCP_FD",
                                         "ALLOW_PRIVILEGED_SOCK_OPT",
                                         "WAIT_AFTER_JOIN_MSEC",
                                         "THREAD_MODE",
                                         "BUFFER_BATCHING_MODE",
                                         "MEM_ALLOC_TYPE",
                                         "FORK",
                                         "BF",
                                         "CLOSE_ON_DUP2",
                                         "MTU",
                                         "MSS",
                                         "SPEC",
                                         "SPEC_PARAM1",
                                         "SPEC_PARAM2",
                                         "SOCKETXTREME",
                                         "INTERNAL_THREAD_AFFINITY",
                                         "INTERNAL_THREAD_CPUSET",
                                         "INTERNAL_THREAD_ARM_CQ",
                                         "NETLINK_TIMER",
                                         "NEIGH_UC_ARP_QUATA",
                                         "NEIGH_UC_ARP_DELAY_MSEC",
                                         "NEIGH_NUM_ERR_RETRIES",
                                         "DEFERRED_CLOSE",
                                         "RX_POLL_ON_TX_TCP",
                                         "TRIGGER_DUMMY_SEND_GETSOCKNAME",
                                         "TIME_MEASURE_NUM_SAMPLES",
                                         "TIME_MEASURE_DUMP_FILE",
                                         "DBG_SEND_MCPKT_COUNTER",
                                         "DBG_SEND_MCPKT_MCGROUP",
                                         "HUGETBL",
                                         "LOG_CB_FUNC_PTR"};
  std::set<std::string_view> known;
  for (const auto& row : setting_rows()) known.insert(row.env);
  for (const auto& a : setting_aliases()) known.insert(a.env);
  for (const auto n : kNames) EXPECT_TRUE(known.contains("VMA_" + std::string(n))) << n;
}

TEST(Settings, VariablesAreTaken) {
  const auto p =
      parse({"PATH=/bin", "VMA_RX_POLL=-1", "VIREO_ARENA_BYTES=64m", "VMA_SELECT_POLL=250",
             "VIREO_INTERFACES=eth0,eth1", "VMA_INTERNAL_THREAD_AFFINITY=0x6",
             "VIREO_XDP_MODE=Native", "VMA_LOG_FILE="});
  EXPECT_EQ(warnings(p), Lines{});
  EXPECT_EQ(p.settings.rx_poll, -1);
  EXPECT_EQ(p.settings.arena_bytes.value(), 64 << 20);
  EXPECT_EQ(p.settings.select_poll, Duration::us(250));
  EXPECT_EQ(p.settings.interfaces, (StringList{"eth0", "eth1"}));
  EXPECT_EQ(p.settings.helper_affinity, (CpuList{{1, 2}}));
  EXPECT_EQ(p.settings.xdp_mode, XdpChoice::kNative);
  EXPECT_EQ(p.origin_of(SettingId::rx_poll), Origin::kEnvironment);
  EXPECT_EQ(p.origin_of(SettingId::log_file), Origin::kEnvironment);
  EXPECT_EQ(p.origin_of(SettingId::tcp_nodelay), Origin::kDefault);
}

TEST(Settings, AnUnknownNameIsOneLineWithTheNearest) {
  EXPECT_EQ(warnings(parse({"VMA_RX_POL=5"})),
            Lines{"VMA_RX_POL=5: no such setting; nearest: VMA_RX_POLL, -1 to 100000000; ignored"});
  EXPECT_EQ(
      warnings(parse({"VIREO_RX_POLL=5"})),
      Lines{"VIREO_RX_POLL=5: no such setting; nearest: VMA_RX_POLL, -1 to 100000000; ignored"});
  EXPECT_EQ(warnings(parse({"VMA_RX_SKIP_0S=5"})),
            Lines{"VMA_RX_SKIP_0S=5: no such setting; nearest: VMA_RX_UDP_POLL_OS_RATIO, 0 to "
                  "100000000; ignored"});
  EXPECT_EQ(warnings(parse({"VIREO_BANANA=5"})), Lines{"VIREO_BANANA=5: no such setting; ignored"});
  EXPECT_EQ(warnings(parse({"VMA_=", "VIREO_"})), Lines{"VMA_=: no such setting; ignored"});
  EXPECT_EQ(warnings(parse({"VMAX=1", "vma_rx_poll=1", "NOVMA_X=1"})), Lines{});
}

TEST(Settings, ABadValueIsOneLineAndTheDefaultStays) {
  const auto p = parse(
      {"VMA_RX_POLL=fast", "VIREO_XDP_RING=1000", "VIREO_DEVICE=xpd", "VIREO_HELPER_GRACE=2h"});
  EXPECT_EQ(
      warnings(p),
      (Lines{"VIREO_DEVICE=xpd: not one of its words; valid: auto, xdp, mlx5, verbs, shm, off; "
             "nearest: xdp; "
             "using auto (default)",
             "VIREO_XDP_RING=1000: not a power of two; valid: a power of two, 64 to 65536; using "
             "2048 (default)",
             "VMA_RX_POLL=fast: not a whole number; valid: -1 to 100000000; using 100000 (default)",
             "VIREO_HELPER_GRACE=2h: out of range; valid: 1ms to 1s; using 1ms (default)"}));
  EXPECT_EQ(p.settings.rx_poll, 100'000);
  EXPECT_EQ(p.origin_of(SettingId::rx_poll), Origin::kDefault);
}

TEST(Settings, ABadValueUnderAProfileKeepsTheProfiles) {
  const auto p = parse({"VMA_SPEC=latency", "VMA_RX_POLL=fast"});
  EXPECT_EQ(warnings(p), Lines{"VMA_RX_POLL=fast: not a whole number; valid: -1 to 100000000; "
                               "using -1 (profile latency)"});
  EXPECT_EQ(p.settings.rx_poll, -1);
}

TEST(Settings, HostileTextCannotForgeALogLine) {
  const std::string entry = "VMA_RX_POLL=1\nVireo ERROR: x\x1b[31m" + std::string(500, 'z');
  const auto w = warnings(parse({entry}));
  ASSERT_EQ(w.size(), 1U);
  EXPECT_EQ(w[0].find_first_of("\n\x1b"), std::string::npos);
  EXPECT_NE(w[0].find("\\x0a"), std::string::npos);
  EXPECT_LT(w[0].size(), 300U);
}

TEST(Settings, AnAcceptedSettingSaysWhatItMeans) {
  const auto p = parse({"VMA_HANDLE_SIGINTR=1"});
  EXPECT_EQ(warnings(p), Lines{});
  EXPECT_EQ(notes(p), Lines{"VMA_HANDLE_SIGINTR=1: accepted. Signals are the program's: a blocked "
                            "call gives EINTR as on the kernel."});
  EXPECT_TRUE(p.settings.handle_sigintr);
  EXPECT_TRUE(notes(parse({"VMA_SPEC=latency", "VMA_RX_POLL=7"})).empty());
}

TEST(Settings, AnEmptyNumberCountsAsNotSet) {
  const auto p = parse({"VMA_RX_POLL=", "VMA_SPEC=", "VMA_RX_SKIP_OS="});
  EXPECT_TRUE(p.diagnostics.empty());
  EXPECT_EQ(p.settings.rx_poll, 100'000);
  EXPECT_EQ(p.settings.spec, "none");
}

TEST(Settings, TheFirstOfTwoCounts) {
  EXPECT_EQ(parse({"VMA_RX_POLL=5", "VMA_RX_POLL=6"}).settings.rx_poll, 5);
}

TEST(Settings, OldNames) {
  auto p = parse({"VMA_RX_SKIP_OS=7"});
  EXPECT_EQ(p.settings.rx_udp_poll_os_ratio, 7);
  EXPECT_EQ(notes(p), Lines{"VMA_RX_SKIP_OS=7: an old name of VMA_RX_UDP_POLL_OS_RATIO"});
  p = parse({"VMA_RX_POLL_OS_RATIO=7", "VMA_RX_UDP_POLL_OS_RATIO=9"});
  EXPECT_EQ(p.settings.rx_udp_poll_os_ratio, 9);
  EXPECT_EQ(notes(p), Lines{"VMA_RX_POLL_OS_RATIO=7: an old name of VMA_RX_UDP_POLL_OS_RATIO, "
                            "which is set too and wins"});
}

TEST(Settings, OneSettingImpliesAnother) {
  auto p = parse({"VMA_RX_POLL=0"});
  EXPECT_EQ(p.settings.rx_poll, 1);
  EXPECT_EQ(p.origin_of(SettingId::rx_poll), Origin::kImplied);

  p = parse({"VMA_SELECT_POLL=-1"});
  EXPECT_FALSE(p.settings.cq_moderation_enable);
  p = parse({"VMA_SELECT_POLL=-1", "VMA_CQ_MODERATION_ENABLE=1"});
  EXPECT_TRUE(p.settings.cq_moderation_enable);

  p = parse({"VMA_TRACELEVEL=debug"});
  EXPECT_EQ(p.settings.log_details, 2);
  p = parse({"VMA_TRACELEVEL=debug", "VMA_LOG_DETAILS=1"});
  EXPECT_EQ(p.settings.log_details, 1);
}

TEST(Settings, ForceStandsBetweenProfileAndVariable) {
  auto p = parse({"VMA_SELECT_POLL_OS_FORCE=1", "VMA_SPEC=ultra-latency"});
  EXPECT_EQ(p.settings.select_poll_os_ratio, 1);
  EXPECT_EQ(p.settings.select_skip_os, 1);
  p = parse({"VMA_SELECT_POLL_OS_FORCE=1", "VMA_SELECT_SKIP_OS=9"});
  EXPECT_EQ(p.settings.select_poll_os_ratio, 1);
  EXPECT_EQ(p.settings.select_skip_os, 9);
  EXPECT_EQ(parse({"VMA_SELECT_POLL_OS_FORCE=0"}).settings.select_poll_os_ratio, 10);
}

TEST(Settings, DumpNamesEachOrigin) {
  const std::string dump = dump_settings(parse({"VMA_SPEC=15", "VMA_TCP_NODELAY=0"}));
  EXPECT_NE(dump.find("VMA_SPEC=latency  # environment\n"), std::string::npos);
  EXPECT_NE(dump.find("VMA_TCP_NODELAY=0  # environment\n"), std::string::npos);
  EXPECT_NE(dump.find("VMA_RX_POLL=-1  # profile latency\n"), std::string::npos);
  EXPECT_NE(dump.find("VMA_CQ_MODERATION_ENABLE=0  # implied\n"), std::string::npos);
  EXPECT_NE(dump.find("VIREO_ARENA_BYTES=32m  # default\n"), std::string::npos);
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(dump, '\n')), kSettingCount);
}

TEST(Settings, ADumpReadsBackAsItself) {
  const auto first = parse(
      {"VMA_SPEC=7750", "VIREO_INTERFACES=a,b", "VMA_SELECT_POLL=1500us", "VIREO_SNDBUF=3000"});
  const std::string dump = dump_settings(first);
  std::vector<std::string> entries;
  for (size_t at = 0; at < dump.size(); at = dump.find('\n', at) + 1) {
    const std::string line = dump.substr(at, dump.find('\n', at) - at);
    if (!line.starts_with("VMA_SPEC=")) entries.push_back(line.substr(0, line.find("  # ")));
  }
  const Env env(entries.begin(), entries.end());
  const auto second = parse(env);
  EXPECT_EQ(warnings(second), Lines{});
  for (size_t i = 0; i < kSettingCount; ++i) {
    const auto id = static_cast<SettingId>(i);
    if (id == SettingId::spec) continue;
    EXPECT_EQ(setting_text(first.settings, id), setting_text(second.settings, id)) << i;
  }
}

TEST(Settings, ParsesAnEnvironAsItIs) {
  const char* const env[] = {"HOME=/", "VMA_RX_POLL=3", "VIREO_DEVICE=off", nullptr};
  const auto p = parse_settings(env);
  EXPECT_EQ(p.settings.rx_poll, 3);
  EXPECT_EQ(p.settings.device, DeviceChoice::kOff);
  EXPECT_TRUE(parse_settings(static_cast<const char* const*>(nullptr)).diagnostics.empty());
}

// A program with more rights than who started it (AT_SECURE) opens no file that the environment
// names, and goes on.
TEST(Settings, NoFileIsNamedByWhoHasLessRights) {
  const char* const env[] = {"VMA_LOG_FILE=/tmp/log",
                             "VMA_CONFIG_FILE=/tmp/rules",
                             "VMA_STATS_FILE=/tmp/stats",
                             "VIREO_SHM_WIRE=../../tmp/wire",
                             "VMA_RX_POLL=3",
                             nullptr};
  const auto named = parse_settings(env);
  EXPECT_EQ(named.settings.log_file, "/tmp/log");
  const auto none = parse_settings(env, Files::kNone);
  EXPECT_EQ(none.settings.log_file, "");
  EXPECT_EQ(none.settings.config_file, "/etc/libvma.conf");
  EXPECT_EQ(none.settings.stats_file, "");
  EXPECT_EQ(none.settings.shm_wire, "vireo");
  EXPECT_EQ(none.settings.rx_poll, 3);
  EXPECT_EQ(none.diagnostics.size(), 4U);
}

TEST(Settings, TheProcessHasDefaultsUntilTold) {
  EXPECT_EQ(settings().rx_poll, 100'000);
  init_settings(parse({"VMA_RX_POLL=3"}).settings);
  EXPECT_EQ(settings().rx_poll, 3);
}

TEST(Settings, WithPid) {
  EXPECT_EQ(with_pid("/tmp/vireo.%d.log", 42), "/tmp/vireo.42.log");
  EXPECT_EQ(with_pid("%d%d", 1), "1%d");
  EXPECT_EQ(with_pid("/tmp/x", 42), "/tmp/x");
}

}  // namespace
}  // namespace vireo
