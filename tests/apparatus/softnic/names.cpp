// The names and rates that libibverbs gives to numbers.
// Source: ibv_wc_status_str(3), ibv_event_type_str(3), ibv_rate_to_mbps(3); IBA 9.2 for the rates.
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>

namespace {

template <size_t N>
const char* name_in(const std::array<const char*, N>& names, int number) {
  return number >= 0 && static_cast<size_t>(number) < N ? names[static_cast<size_t>(number)]
                                                        : "unknown";
}

struct Rate {
  ibv_rate rate;
  int mbps;
  int mult;  ///< of 2.5 Gbit/s; -1: not a whole number of them
};
constexpr Rate kRates[] = {{IBV_RATE_2_5_GBPS, 2500, 1},        {IBV_RATE_5_GBPS, 5000, 2},
                           {IBV_RATE_10_GBPS, 10'000, 4},       {IBV_RATE_14_GBPS, 14'062, -1},
                           {IBV_RATE_20_GBPS, 20'000, 8},       {IBV_RATE_25_GBPS, 25'781, 10},
                           {IBV_RATE_28_GBPS, 28'125, -1},      {IBV_RATE_30_GBPS, 30'000, 12},
                           {IBV_RATE_40_GBPS, 40'000, 16},      {IBV_RATE_50_GBPS, 53'125, 20},
                           {IBV_RATE_56_GBPS, 56'250, -1},      {IBV_RATE_60_GBPS, 60'000, 24},
                           {IBV_RATE_80_GBPS, 80'000, 32},      {IBV_RATE_100_GBPS, 103'125, 40},
                           {IBV_RATE_112_GBPS, 112'500, -1},    {IBV_RATE_120_GBPS, 120'000, 48},
                           {IBV_RATE_168_GBPS, 168'750, -1},    {IBV_RATE_200_GBPS, 206'250, 80},
                           {IBV_RATE_300_GBPS, 309'375, 120},   {IBV_RATE_400_GBPS, 425'000, 160},
                           {IBV_RATE_600_GBPS, 637'500, 240},   {IBV_RATE_800_GBPS, 850'000, 320},
                           {IBV_RATE_1200_GBPS, 1'275'000, 480}};

}  // namespace

extern "C" {

const char* ibv_node_type_str(ibv_node_type type) {
  static constexpr std::array<const char*, 8> kNames{
      "unknown", "channel adapter", "switch",         "router",
      "RNIC",    "usNIC",           "usNIC over UDP", "unspecified"};
  return name_in(kNames, type);
}

const char* ibv_port_state_str(ibv_port_state state) {
  static constexpr std::array<const char*, 6> kNames{"NOP",        "PORT_DOWN",   "PORT_INIT",
                                                     "PORT_ARMED", "PORT_ACTIVE", "PORT_DEFER"};
  return name_in(kNames, state);
}

const char* ibv_event_type_str(ibv_event_type event) {
  static constexpr std::array<const char*, 20> kNames{"CQ error",
                                                      "QP fatal error",
                                                      "QP request error",
                                                      "QP access error",
                                                      "communication established",
                                                      "send queue drained",
                                                      "path migrated",
                                                      "path migration failed",
                                                      "device fatal error",
                                                      "port active",
                                                      "port error",
                                                      "LID changed",
                                                      "P_Key changed",
                                                      "subnet manager changed",
                                                      "SRQ error",
                                                      "SRQ limit reached",
                                                      "last WQE reached",
                                                      "client to register again",
                                                      "GID changed",
                                                      "WQ fatal error"};
  return name_in(kNames, event);
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  static constexpr std::array<const char*, 24> kNames{"success",
                                                      "local length error",
                                                      "local QP operation error",
                                                      "local EE context error",
                                                      "local protection error",
                                                      "work request flushed",
                                                      "memory window bind error",
                                                      "bad response",
                                                      "local access error",
                                                      "remote invalid request",
                                                      "remote access error",
                                                      "remote operation error",
                                                      "transport retries exhausted",
                                                      "RNR retries exhausted",
                                                      "local RDD violation",
                                                      "remote invalid RD request",
                                                      "remote aborted",
                                                      "invalid EE context number",
                                                      "invalid EE context state",
                                                      "fatal error",
                                                      "response timeout",
                                                      "general error",
                                                      "tag matching error",
                                                      "tag matching rendezvous incomplete"};
  return name_in(kNames, status);
}

int ibv_rate_to_mbps(ibv_rate rate) {
  for (const Rate& r : kRates)
    if (r.rate == rate) return r.mbps;
  return -1;
}
ibv_rate mbps_to_ibv_rate(int mbps) {
  for (const Rate& r : kRates)
    if (r.mbps == mbps) return r.rate;
  return IBV_RATE_MAX;
}
int ibv_rate_to_mult(ibv_rate rate) {
  for (const Rate& r : kRates)
    if (r.rate == rate) return r.mult;
  return -1;
}
ibv_rate mult_to_ibv_rate(int mult) {
  for (const Rate& r : kRates)
    if (r.mult == mult && mult > 0) return r.rate;
  return IBV_RATE_MAX;
}

}  // extern "C"
