// The settings: every entry of settings.def as a field, parsed once at load and immutable after. A
// value comes from, in falling precedence: the variable, another setting that implies it, the
// profile (VMA_SPEC), the default. Owner: process. Thread: init_settings() before any other thread;
// reading from any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/choices.h"
#include "config/diagnostic.h"
#include "core/clock.h"

namespace vireo {

/// A number of bytes, distinct from `int` for the parser (64k, 1m, 2g); converts freely.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr Bytes(int64_t v) : v_(v) {}  // NOLINT(google-explicit-constructor)
  constexpr operator size_t() const {
    return static_cast<size_t>(v_);
  }  // NOLINT(google-explicit-constructor)
  constexpr int64_t value() const { return v_; }

 private:
  int64_t v_ = 0;
};

using StringList = std::vector<std::string>;

/// Processor numbers, ascending, each once, below CPU_SETSIZE. Empty: any.
struct CpuList {
  std::vector<int> cpus;
  bool operator==(const CpuList&) const = default;
};

/// The fields and their defaults, from settings.def. A Duration that may be -1 is negative for "no
/// limit".
struct Settings {
#define VIREO_SECTION(title)
#define VIREO_ALIAS(env, field)
#define VIREO_SETTING(env, field, Type, value, limits, status, doc) Type field = value;
#include "config/settings.def"
};

enum class SettingId : uint16_t {
#define VIREO_SECTION(title)
#define VIREO_ALIAS(env, field)
#define VIREO_SETTING(env, field, Type, value, limits, status, doc) field,
#include "config/settings.def"
  kCount
};
inline constexpr size_t kSettingCount = static_cast<size_t>(SettingId::kCount);

/// Where a value came from.
enum class Origin : uint8_t { kDefault, kProfile, kImplied, kEnvironment };

struct ParsedSettings {
  Settings settings;
  std::array<Origin, kSettingCount> origin{};
  Diagnostics diagnostics;  ///< in the order of the table, unknown names last

  Origin origin_of(SettingId id) const { return origin[static_cast<size_t>(id)]; }
};

/// Parses "NAME=value" strings. Names that begin with neither VMA_ nor VIREO_ are skipped; of a
/// repeated name the first counts (as getenv(3)). Never fails: an invalid value gives a diagnostic,
/// and the setting keeps the value it would otherwise have. An empty value of a setting that is not
/// a string counts as not set. Thread: any.
ParsedSettings parse_settings(std::span<const std::string_view> environment);
/// Whether variables may name files.
enum class Files : uint8_t {
  kNamed,
  kNone,  ///< variables that name files are ignored, with a diagnostic
};
/// The same for a null-terminated environ(7).
ParsedSettings parse_settings(const char* const* environment, Files files = Files::kNamed);

/// The process's settings: defaults until init_settings(). Valid to the last instruction of the
/// process.
const Settings& settings();
/// Sets them. Call at most once, before a second thread exists.
void init_settings(Settings s);

/// One row of the table as data: for the dump and the manual.
struct SettingRow {
  std::string_view env;
  std::string_view field;
  std::string_view doc;
  std::string_view meaning;  ///< for an accepted setting: its meaning here; empty if used
  std::string_view section;
  bool is_used = false;
  std::string type;   ///< "integer", "bytes", "time in us", ...
  std::string range;  ///< "-1 to 100000000", "auto, xdp, shm or off"
  std::string default_text;
};
std::vector<SettingRow> setting_rows();

/// Older names of settings: {old, now}.
struct SettingAlias {
  std::string_view env;
  std::string_view now;
};
std::span<const SettingAlias> setting_aliases();

/// The value as written in the environment.
std::string setting_text(const Settings& s, SettingId id);
/// "NAME=value   # origin", one line each, in the order of the table.
std::string dump_settings(const ParsedSettings& p);

/// `path` with the first %d replaced by `pid` (VMA_LOG_FILE and others).
std::string with_pid(std::string_view path, int pid);

/// A profile: its names (the first is printed) and the variables it sets, as text.
struct ProfileValue {
  std::string_view env;
  std::string_view text;
};
struct Profile {
  std::span<const std::string_view> names;
  std::string_view doc;
  std::span<const ProfileValue> values;
};
std::span<const Profile> profiles();
/// By name or number, ignoring case; null if there is none.
const Profile* find_profile(std::string_view name);

}  // namespace vireo
