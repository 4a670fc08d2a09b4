#include "tests/script/library.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/script/runner.h"

namespace vireo::script {

namespace fs = std::filesystem;

std::string contents(const fs::path& p) {
  std::ifstream in(p);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

std::vector<fs::path> scripts(const fs::path& place) {
  std::vector<fs::path> files;
  if (!fs::is_directory(place)) return {place};
  for (const auto& f : fs::recursive_directory_iterator(place))
    if (f.path().extension() == ".pkt") files.push_back(f.path());
  std::sort(files.begin(), files.end());
  return files;
}

fs::path library() { return fs::path(VIREO_SCRIPT_DIR) / "cases"; }

const std::map<std::string, std::string>& known_failures() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> names;
    std::istringstream lines(contents(fs::path(VIREO_SCRIPT_DIR) / "KNOWN_FAILURES"));
    std::string line;
    while (std::getline(lines, line)) {
      const size_t end = line.find_first_of(" \t");
      if (line.empty() || line[0] == '#' || end == std::string::npos) continue;
      names[line.substr(0, end)] = line.substr(line.find_first_not_of(" \t", end));
    }
    return names;
  }();
  return all;
}

std::string run(const std::string& path, const std::string& text, unsigned which) {
  Script s;
  if (std::string bad = parse(path, text, s); !bad.empty()) return bad;
  // Under every other number its device segments: not a byte of the script may differ for that.
  const tcp::BurstLimits bursts{65'415, 16, 64};
  return Runner(s, ours(which), theirs(which), which % 2 == 0 ? tcp::BurstLimits{} : bursts).run();
}

}  // namespace vireo::script
