// Settings whose value is one of a few words: their enums, and all accepted spellings of each
// value. The first spelling is the one printed; the numbers are libvma's (its README, sys_vars.h).
// Owner: none (values). Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/log.h"

namespace vireo {

/// One accepted spelling.
struct ChoiceName {
  std::string_view name;
  int value;
};

enum class DeviceChoice : uint8_t { kAuto, kXdp, kMlx5, kVerbs, kShm, kOff };
constexpr bool is_rdma(DeviceChoice c) {
  return c == DeviceChoice::kMlx5 || c == DeviceChoice::kVerbs;
}
enum class XdpChoice : uint8_t { kAuto, kZeroCopy, kNative, kGeneric };
enum class TcpTimestamps : uint8_t { kOff, kOn, kAsKernel };
enum class TcpCongestion : uint8_t { kAsKernel, kNewReno, kCubic, kDctcp, kNone };
enum class MemAlloc : uint8_t { kAnonymous, kContiguous, kHuge };
enum class ExceptionHandling : int8_t {
  kExit = -2,
  kDebug,
  kUnoffload,
  kLogError,
  kReturnError,
  kAbort
};
enum class RingLogic : uint8_t {
  kInterface = 0,
  kIp = 1,
  kSocket = 10,
  kUserId = 11,
  kThread = 20,
  kCore = 30,
  kCoreAttach = 31
};
enum class HwTimestamps : uint8_t { kOff, kRaw, kBest, kSync, kPtp };
enum class StridingChoice : uint8_t { kAuto, kOff, kOn };  ///< also for LRO
enum class PromoteChoice : uint8_t { kNever, kAtAccept, kProven, kAuto };
enum class ThreadMode : uint8_t { kSingle, kSpin, kMutex, kPlenty };
enum class BufferBatching : uint8_t { kNone, kReclaim, kBatch };
enum class TcpCtlThread : uint8_t { kOff, kWakeup, kNoWakeup };

/// choices(E{}) gives the spellings of E, canonical first.
template <class E>
inline constexpr std::array<ChoiceName, 0> kChoices{};

template <class E>
constexpr ChoiceName choice(std::string_view name, E value) {
  return {name, static_cast<int>(value)};
}

template <>
inline constexpr auto kChoices<DeviceChoice> =
    std::array{choice("auto", DeviceChoice::kAuto), choice("xdp", DeviceChoice::kXdp),
               choice("mlx5", DeviceChoice::kMlx5), choice("verbs", DeviceChoice::kVerbs),
               choice("shm", DeviceChoice::kShm),   choice("off", DeviceChoice::kOff)};
template <>
inline constexpr auto kChoices<XdpChoice> =
    std::array{choice("auto", XdpChoice::kAuto), choice("zerocopy", XdpChoice::kZeroCopy),
               choice("native", XdpChoice::kNative), choice("generic", XdpChoice::kGeneric)};
template <>
inline constexpr auto kChoices<TcpTimestamps> =
    std::array{choice("off", TcpTimestamps::kOff),     choice("0", TcpTimestamps::kOff),
               choice("on", TcpTimestamps::kOn),       choice("1", TcpTimestamps::kOn),
               choice("os", TcpTimestamps::kAsKernel), choice("2", TcpTimestamps::kAsKernel)};
template <>
inline constexpr auto kChoices<TcpCongestion> =
    std::array{choice("os", TcpCongestion::kAsKernel),     choice("dctcp", TcpCongestion::kDctcp),
               choice("newreno", TcpCongestion::kNewReno), choice("0", TcpCongestion::kNewReno),
               choice("reno", TcpCongestion::kNewReno),    choice("lwip", TcpCongestion::kNewReno),
               choice("cubic", TcpCongestion::kCubic),     choice("1", TcpCongestion::kCubic),
               choice("none", TcpCongestion::kNone),       choice("2", TcpCongestion::kNone)};
template <>
inline constexpr auto kChoices<MemAlloc> =
    std::array{choice("anon", MemAlloc::kAnonymous),    choice("0", MemAlloc::kAnonymous),
               choice("contig", MemAlloc::kContiguous), choice("1", MemAlloc::kContiguous),
               choice("huge", MemAlloc::kHuge),         choice("2", MemAlloc::kHuge)};
template <>
inline constexpr auto kChoices<ExceptionHandling> =
    std::array{choice("exit", ExceptionHandling::kExit),
               choice("-2", ExceptionHandling::kExit),
               choice("debug", ExceptionHandling::kDebug),
               choice("-1", ExceptionHandling::kDebug),
               choice("unoffload", ExceptionHandling::kUnoffload),
               choice("0", ExceptionHandling::kUnoffload),
               choice("log_error", ExceptionHandling::kLogError),
               choice("1", ExceptionHandling::kLogError),
               choice("return_error", ExceptionHandling::kReturnError),
               choice("2", ExceptionHandling::kReturnError),
               choice("abort", ExceptionHandling::kAbort),
               choice("3", ExceptionHandling::kAbort)};
template <>
inline constexpr auto kChoices<RingLogic> =
    std::array{choice("interface", RingLogic::kInterface),
               choice("0", RingLogic::kInterface),
               choice("ip", RingLogic::kIp),
               choice("1", RingLogic::kIp),
               choice("socket", RingLogic::kSocket),
               choice("10", RingLogic::kSocket),
               choice("user_id", RingLogic::kUserId),
               choice("11", RingLogic::kUserId),
               choice("thread", RingLogic::kThread),
               choice("20", RingLogic::kThread),
               choice("core", RingLogic::kCore),
               choice("30", RingLogic::kCore),
               choice("core_attach", RingLogic::kCoreAttach),
               choice("31", RingLogic::kCoreAttach)};
template <>
inline constexpr auto kChoices<HwTimestamps> =
    std::array{choice("off", HwTimestamps::kOff),   choice("0", HwTimestamps::kOff),
               choice("raw", HwTimestamps::kRaw),   choice("1", HwTimestamps::kRaw),
               choice("best", HwTimestamps::kBest), choice("2", HwTimestamps::kBest),
               choice("sync", HwTimestamps::kSync), choice("3", HwTimestamps::kSync),
               choice("ptp", HwTimestamps::kPtp),   choice("4", HwTimestamps::kPtp)};
template <>
inline constexpr auto kChoices<StridingChoice> =
    std::array{choice("auto", StridingChoice::kAuto), choice("off", StridingChoice::kOff),
               choice("0", StridingChoice::kOff), choice("on", StridingChoice::kOn),
               choice("1", StridingChoice::kOn)};
template <>
inline constexpr auto kChoices<PromoteChoice> =
    std::array{choice("0", PromoteChoice::kNever), choice("1", PromoteChoice::kAtAccept),
               choice("proven", PromoteChoice::kProven), choice("auto", PromoteChoice::kAuto)};
template <>
inline constexpr auto kChoices<ThreadMode> =
    std::array{choice("single", ThreadMode::kSingle), choice("0", ThreadMode::kSingle),
               choice("spin", ThreadMode::kSpin),     choice("1", ThreadMode::kSpin),
               choice("mutex", ThreadMode::kMutex),   choice("2", ThreadMode::kMutex),
               choice("plenty", ThreadMode::kPlenty), choice("3", ThreadMode::kPlenty)};
template <>
inline constexpr auto kChoices<BufferBatching> =
    std::array{choice("none", BufferBatching::kNone),       choice("0", BufferBatching::kNone),
               choice("reclaim", BufferBatching::kReclaim), choice("1", BufferBatching::kReclaim),
               choice("batch", BufferBatching::kBatch),     choice("2", BufferBatching::kBatch)};
template <>
inline constexpr auto kChoices<TcpCtlThread> =
    std::array{choice("off", TcpCtlThread::kOff),
               choice("0", TcpCtlThread::kOff),
               choice("wakeup", TcpCtlThread::kWakeup),
               choice("1", TcpCtlThread::kWakeup),
               choice("no_wakeup", TcpCtlThread::kNoWakeup),
               choice("2", TcpCtlThread::kNoWakeup)};
template <>
inline constexpr auto kChoices<LogLevel> =
    std::array{choice("none", LogLevel::kNone),    choice("panic", LogLevel::kPanic),
               choice("0", LogLevel::kPanic),      choice("error", LogLevel::kError),
               choice("1", LogLevel::kError),      choice("warn", LogLevel::kWarn),
               choice("warning", LogLevel::kWarn), choice("2", LogLevel::kWarn),
               choice("info", LogLevel::kInfo),    choice("information", LogLevel::kInfo),
               choice("3", LogLevel::kInfo),       choice("details", LogLevel::kDetails),
               choice("debug", LogLevel::kDebug),  choice("4", LogLevel::kDebug),
               choice("fine", LogLevel::kFine),    choice("func", LogLevel::kFine),
               choice("5", LogLevel::kFine),       choice("all", LogLevel::kAll),
               choice("finer", LogLevel::kAll),    choice("funcall", LogLevel::kAll),
               choice("func+", LogLevel::kAll),    choice("func_all", LogLevel::kAll),
               choice("func-all", LogLevel::kAll), choice("6", LogLevel::kAll)};

/// True for the enums above: a setting of such a type has one of its words.
template <class E>
concept ChoiceEnum = requires { kChoices<E>[0].name; } && (kChoices<E>.size() > 0);

}  // namespace vireo
