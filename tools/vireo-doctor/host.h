// Checks that concern all interfaces: privileges, memory, kernel, settings, rules file.
// Owner: none (functions). Thread: one.
#pragma once

#include <string>
#include <vector>

#include "config/settings.h"
#include "tools/vireo-doctor/report.h"

namespace vireo::doctor {

std::vector<Check> check_host(const Settings& s);

/// The settings that differ from their defaults, each with its origin.
std::vector<SettingLine> changed_settings(const ParsedSettings& p);

}  // namespace vireo::doctor
