// Reports what the host's packet filter means for carried sockets. Owner: main. Thread: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "stack/filter/ruleset.h"
#include "stack/net/snapshot.h"
#include "tools/vireo-doctor/report.h"

namespace vireo::doctor {

/// As filter::IsOwnProgram, by the program's name. Needs CAP_SYS_ADMIN.
bool is_own_program(uint32_t program);
Check check_packet_filter(const Settings& s, const filter::Ruleset& rules);
/// Adds to carried interfaces which traffic the rules block.
void note_packet_filter(const Settings& s, const filter::Ruleset& rules, const net::Snapshot& net,
                        std::vector<InterfaceLine>& interfaces);
/// Whether the destination of a carried route stays carried with these rules.
void judge_route(const Settings& s, const filter::Ruleset& rules, const net::Snapshot& net,
                 const Endpoint& to, RouteLine& route);

}  // namespace vireo::doctor
