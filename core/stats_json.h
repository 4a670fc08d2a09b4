// Counters as JSON: the format of `vireo-stat --json` and of VMA_STATS_FILE.
//
//   {"processes":[{"pid":..,"name":"..","ports":[{"name","ifindex","mode","queues"}],
//     "engine":{"rx_packets":..,...},"decisions":{"carried":..,"kernel":..,"refused":{"loopback":..}},
//     "sockets":[{"fd":..,"proto":"tcp","family":4,"state":"..","closed":false,"carried":true,
//       "reason":"","text":"","detail":"","errno":0,"local":"..","remote":"..","rx_packets":..,...}],
//     "closed":{"carried":{"sockets":..,"rx_packets":..,...}}}]}
//
// "closed" counts every socket that was closed, by its last decision; the newest of them are listed
// in "sockets" too, with "closed":true. Owner: none (functions). Thread: any.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/stats_reading.h"

namespace vireo {

/// Quoted and escaped; bytes outside ASCII become U+FFFD, so that any program name is valid JSON.
std::string json_string(std::string_view text);
/// The whole document, one line without its newline.
std::string processes_json(std::span<const ProcessReading> all);
/// "10.0.0.1:80", "0.0.0.0:80"; empty if neither address nor port is known.
std::string endpoint_text(const Endpoint& e, bool v6);

}  // namespace vireo
