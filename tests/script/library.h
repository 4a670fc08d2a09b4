// The scripts on disk and those known to fail.
// Owner: none. Thread: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/seq.h"

namespace vireo::script {

/// The six initial numbers under which wrap mistakes show, for our side and the peer's.
inline constexpr uint32_t kIss[6] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0u - 1460u};
inline Seq32 ours(unsigned which) { return Seq32(kIss[which]); }
inline Seq32 theirs(unsigned which) { return Seq32(kIss[(which + 3) % 6]); }

std::string contents(const std::filesystem::path& p);
/// The scripts below `place`, or `place` itself if it is one.
std::vector<std::filesystem::path> scripts(const std::filesystem::path& place);
/// Where our scripts are.
std::filesystem::path library();
/// Names of scripts that show a known defect, with why.
const std::map<std::string, std::string>& known_failures();
/// Parses and plays; empty: passed.
std::string run(const std::string& path, const std::string& text, unsigned which);

}  // namespace vireo::script
