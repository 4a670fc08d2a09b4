// Checks that hold for all interfaces: rights, memory, kernel, settings, rules file.
// Owner: none (functions). Thread: one.
#pragma once

#include <string>
#include <vector>

#include "config/settings.h"
#include "tools/vireo-doctor/report.h"

namespace vireo::doctor {

std::vector<Check> check_host(const Settings& s);

/// The settings that are not at their default, each with where it came from.
std::vector<SettingLine> changed_settings(const ParsedSettings& p);

}  // namespace vireo::doctor
