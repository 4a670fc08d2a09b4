// The profiles of VMA_SPEC, as data: libvma's with their documented values, and Vireo's own.
// libvma's also set the sizes of its buffer batches, which have no variable: Vireo takes buffers
// one by one.
#include <algorithm>

#include "config/settings.h"

namespace vireo {
namespace {

constexpr std::string_view kNoneNames[] = {"none", "0"};

constexpr std::string_view kLatencyNames[] = {"latency", "15"};
constexpr ProfileValue kLatency[] = {
    {"VMA_TX_WRE", "256"},
    {"VMA_TX_WRE_BATCHING", "4"},
    {"VMA_RX_WRE", "256"},
    {"VMA_RX_WRE_BATCHING", "4"},
    {"VMA_RX_POLL", "-1"},
    {"VMA_RX_PREFETCH_BYTES_BEFORE_POLL", "256"},
    {"VMA_SELECT_POLL", "-1"},
    {"VMA_AVOID_SYS_CALLS_ON_TCP_FD", "1"},
    {"VMA_GRO_STREAMS_MAX", "0"},
    {"VMA_CQ_KEEP_QP_FULL", "0"},
    {"VMA_THREAD_MODE", "single"},
    {"VMA_MEM_ALLOC_TYPE", "huge"},
    {"VMA_INTERNAL_THREAD_AFFINITY", "0"},
    {"VMA_PROGRESS_ENGINE_INTERVAL", "100"},
    {"VMA_SELECT_POLL_OS_RATIO", "1"},
    {"VMA_SELECT_SKIP_OS", "1"},
    {"VMA_TCP_NODELAY", "1"},
    {"VMA_RING_DEV_MEM_TX", "16384"},
};

constexpr std::string_view kUltraLatencyNames[] = {"ultra-latency", "10"};
constexpr ProfileValue kUltraLatency[] = {
    {"VMA_TX_SEGS_TCP", "512"},
    {"VMA_TX_BUFS", "512"},
    {"VMA_TX_WRE", "256"},
    {"VMA_TX_WRE_BATCHING", "4"},
    {"VMA_TX_PREFETCH_BYTES", "256"},
    {"VMA_RX_BUFS", "1024"},
    {"VMA_RX_WRE", "256"},
    {"VMA_RX_WRE_BATCHING", "4"},
    {"VMA_RX_POLL", "-1"},
    {"VMA_RX_UDP_POLL_OS_RATIO", "0"},
    {"VMA_RX_PREFETCH_BYTES", "256"},
    {"VMA_RX_PREFETCH_BYTES_BEFORE_POLL", "256"},
    {"VMA_SELECT_POLL", "-1"},
    {"VMA_SELECT_POLL_OS_RATIO", "0"},
    {"VMA_SELECT_SKIP_OS", "0"},
    {"VMA_AVOID_SYS_CALLS_ON_TCP_FD", "1"},
    {"VMA_GRO_STREAMS_MAX", "0"},
    {"VMA_PROGRESS_ENGINE_INTERVAL", "0"},
    {"VMA_CQ_KEEP_QP_FULL", "0"},
    {"VMA_THREAD_MODE", "single"},
    {"VMA_MEM_ALLOC_TYPE", "huge"},
    {"VMA_TCP_NODELAY", "1"},
    {"VMA_RING_DEV_MEM_TX", "16384"},
    {"VMA_INTERNAL_THREAD_AFFINITY", "0"},
};

constexpr std::string_view k29WestNames[] = {"29west", "29"};
constexpr ProfileValue k29West[] = {
    {"VMA_SPEC_PARAM1", "5000"},   {"VMA_SPEC_PARAM2", "50"},
    {"VMA_RX_POLL", "0"},          {"VMA_RX_UDP_POLL_OS_RATIO", "100"},
    {"VMA_SELECT_POLL", "100000"}, {"VMA_SELECT_POLL_OS_RATIO", "100"},
    {"VMA_SELECT_SKIP_OS", "50"},
};

constexpr std::string_view kWombatNames[] = {"wombat_fh", "554"};
constexpr ProfileValue kWombat[] = {
    {"VMA_SPEC_PARAM1", "5000"},         {"VMA_SPEC_PARAM2", "50"}, {"VMA_RX_POLL", "0"},
    {"VMA_RX_UDP_POLL_OS_RATIO", "100"}, {"VMA_SELECT_POLL", "0"},  {"VMA_SELECT_SKIP_OS", "20"},
};

constexpr std::string_view kMcdNames[] = {"mcd", "623"};
constexpr ProfileValue kMcd[] = {
    {"VMA_RING_ALLOCATION_LOGIC_RX", "31"},
    {"VMA_RING_ALLOCATION_LOGIC_TX", "31"},
};

constexpr std::string_view kMcdIrqNames[] = {"mcd-irq", "624"};
constexpr ProfileValue kMcdIrq[] = {
    {"VMA_RING_ALLOCATION_LOGIC_RX", "31"},
    {"VMA_RING_ALLOCATION_LOGIC_TX", "31"},
    {"VMA_SELECT_POLL", "0"},
    {"VMA_RX_POLL", "0"},
    {"VMA_CQ_MODERATION_ENABLE", "0"},
};

constexpr std::string_view kRtiNames[] = {"rti", "784"};
constexpr ProfileValue kRti[] = {{"VMA_RX_POLL", "-1"}};

constexpr std::string_view k7750Names[] = {"7750"};
constexpr ProfileValue k7750[] = {
    {"VMA_TX_BUFS", "8192"},
    {"VMA_RX_BUFS", "204800"},
    {"VMA_TRACELEVEL", "warn"},
    {"VMA_STATS_FD_NUM", "1024"},
    {"VMA_INTERNAL_THREAD_AFFINITY", "0x3"},
    {"VMA_RX_POLL", "-1"},
    {"VMA_SELECT_POLL", "-1"},
    {"VMA_SELECT_POLL_OS_RATIO", "0"},
    {"VMA_TCP_3T_RULES", "1"},
    {"VMA_AVOID_SYS_CALLS_ON_TCP_FD", "1"},
    {"VMA_BUFFER_BATCHING_MODE", "0"},
    {"VMA_TCP_CTL_THREAD", "2"},
};

constexpr std::string_view kMultiRingNames[] = {"multi_ring_latency"};
constexpr ProfileValue kMultiRing[] = {
    {"VMA_MEM_ALLOC_TYPE", "huge"},
    {"VMA_SELECT_POLL", "-1"},
    {"VMA_RX_POLL", "-1"},
    {"VMA_RING_ALLOCATION_LOGIC_TX", "20"},
    {"VMA_RING_ALLOCATION_LOGIC_RX", "20"},
    {"VMA_SELECT_POLL_OS_RATIO", "0"},
    {"VMA_SELECT_SKIP_OS", "0"},
    {"VMA_RX_POLL_ON_TX_TCP", "1"},
    {"VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME", "1"},
};

// Polls briefly, takes whole bursts, keeps more in flight.
constexpr std::string_view kThroughputNames[] = {"throughput"};
constexpr ProfileValue kThroughput[] = {
    {"VMA_CQ_POLL_BATCH_MAX", "64"},     {"VMA_RX_POLL", "1000"},    {"VMA_SELECT_POLL", "100us"},
    {"VMA_SELECT_POLL_OS_RATIO", "100"}, {"VIREO_XDP_RING", "4096"}, {"VIREO_ARENA_BYTES", "128m"},
};

// Many threads on few cores: threads spin briefly and yield. With several rings, each of 32 has 4
// MiB of the packet memory.
constexpr std::string_view kManyThreadsNames[] = {"many_threads"};
constexpr ProfileValue kManyThreads[] = {
    {"VMA_RX_POLL", "1000"},
    {"VMA_SELECT_POLL", "50us"},
    {"VMA_RX_POLL_YIELD", "1"},
    {"VMA_RING_ALLOCATION_LOGIC_TX", "20"},
    {"VMA_RING_ALLOCATION_LOGIC_RX", "20"},
    {"VIREO_ARENA_BYTES", "128m"},
};

// Sleeps at once and is woken by the device.
constexpr std::string_view kInterruptNames[] = {"interrupt"};
constexpr ProfileValue kInterrupt[] = {{"VMA_RX_POLL", "0"}, {"VMA_SELECT_POLL", "0"}};

// As interrupt, with larger bursts and rarer wake-ups of the helper.
constexpr std::string_view kLowCpuNames[] = {"low_cpu"};
constexpr ProfileValue kLowCpu[] = {
    {"VMA_RX_POLL", "0"},
    {"VMA_SELECT_POLL", "0"},
    {"VMA_CQ_POLL_BATCH_MAX", "64"},
    {"VMA_SELECT_POLL_OS_RATIO", "100"},
    {"VIREO_HELPER_GRACE", "10ms"},
};

constexpr Profile kProfiles[] = {
    {kNoneNames, "The defaults.", {}},
    {kLatencyNames, "Least latency: polls for ever, one thread a core.", kLatency},
    {kUltraLatencyNames, "As latency, and never looks at kernel descriptors while polling.",
     kUltraLatency},
    {k29WestNames, "29West LBM.", k29West},
    {kWombatNames, "Wombat feed handler over LBM.", kWombat},
    {kMcdNames, "Memcached.", kMcd},
    {kMcdIrqNames, "Memcached, by interrupt.", kMcdIrq},
    {kRtiNames, "RTI.", kRti},
    {k7750Names, "Low latency with two processors for the internal thread.", k7750},
    {kMultiRingNames, "Low latency for programs with a thread for each set of sockets.",
     kMultiRing},
    {kThroughputNames, "Bulk transfer: polls little, big bursts, more packet memory.", kThroughput},
    {kManyThreadsNames, "More threads than processors: short polls that yield.", kManyThreads},
    {kInterruptNames, "Never polls: sleeps until the device wakes it.", kInterrupt},
    {kLowCpuNames, "As interrupt, in bigger bursts, with a helper that wakes seldom.", kLowCpu},
};

bool equal_names(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return (x >= 'A' && x <= 'Z' ? x + 32 : x) == (y >= 'A' && y <= 'Z' ? y + 32 : y);
  });
}

}  // namespace

std::span<const Profile> profiles() { return kProfiles; }

const Profile* find_profile(std::string_view name) {
  for (const Profile& p : kProfiles)
    for (const std::string_view n : p.names)
      if (equal_names(n, name)) return &p;
  return nullptr;
}

}  // namespace vireo
