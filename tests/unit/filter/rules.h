// The rules of a network namespace of this process's own, made by the tools that people use.
#pragma once

#include <string>

#include "stack/filter/flow.h"
#include "stack/filter/ruleset.h"

namespace vireo::filter {

/// Enters a new one, with interfaces eth0 (index 10) and eth1 (11).
void enter_new_namespace();
/// By sh(1); a test fails with it.
void run(const std::string& command);
/// nft -f, in place of the rules that there are.
void set_nft(const std::string& ruleset);
Ruleset read_rules();

/// obstacle() for short: "" if there is none.
std::string judged(const Flow& flow);
std::string judged(const Ruleset& rules, const Flow& flow);

// ---- flows.cpp, all by eth0
Flow tcp_listener(uint16_t port, const char* address = "0.0.0.0");
Flow udp_bound(uint16_t port, const char* address = "0.0.0.0");
Flow tcp_client(const char* to, uint16_t port, const char* from = "10.1.0.1");
Flow established(const char* to, uint16_t port);

}  // namespace vireo::filter
