// Any environment parses, each message is one printable line, and what was read writes back as
// itself.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace {

using vireo::SettingId;

void require(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

/// Entries are separated by NUL, as in /proc/PID/environ.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> env;
  for (size_t at = 0; at <= input.size();) {
    const size_t end = std::min(input.find('\0', at), input.size());
    env.push_back(input.substr(at, end - at));
    at = end + 1;
  }
  const auto p = vireo::parse_settings(std::span<const std::string_view>(env));
  for (const auto& d : p.diagnostics)
    for (const char c : d.text) require(c >= ' ' && c <= '~');

  require(!vireo::dump_settings(p).empty());
  const auto rows = vireo::setting_rows();
  std::vector<std::string> again;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string text = vireo::setting_text(p.settings, static_cast<SettingId>(i));
    again.push_back(std::string(rows[i].env) + "=" + text);
  }
  // The profile is left out: every value it set is written out.
  const std::vector<std::string_view> second(again.begin() + 1, again.end());
  const auto q = vireo::parse_settings(std::span<const std::string_view>(second));
  for (size_t i = 1; i < rows.size(); ++i) {
    const auto id = static_cast<SettingId>(i);
    if (id == SettingId::select_poll_os_force) continue;
    require(vireo::setting_text(p.settings, id) == vireo::setting_text(q.settings, id));
  }
  for (const auto& d : q.diagnostics) require(d.severity == vireo::Severity::kNote);
  return 0;
}
