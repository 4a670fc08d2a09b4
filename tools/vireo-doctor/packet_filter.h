// Reports what the host's packet filter means for sockets that would be carried. Owner: main.
// Thread: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "stack/filter/ruleset.h"
#include "stack/net/snapshot.h"
#include "tools/vireo-doctor/report.h"

namespace vireo::doctor {

Check check_packet_filter(const Settings& s, const filter::Ruleset& rules);
/// Adds to interfaces that are carried what rules keep from them.
void note_packet_filter(const Settings& s, const filter::Ruleset& rules, const net::Snapshot& net,
                        std::vector<InterfaceLine>& interfaces);
/// The destination of a carried route: is it carried in spite of the rules?
void judge_route(const Settings& s, const filter::Ruleset& rules, const net::Snapshot& net,
                 const Endpoint& to, RouteLine& route);

}  // namespace vireo::doctor
