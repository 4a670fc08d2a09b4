#include "config/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include "config/values.h"

namespace vireo {
namespace {

struct Status {
  bool is_used;
  std::string_view meaning;
};
constexpr Status used() { return {true, {}}; }
constexpr Status accepted(std::string_view meaning) { return {false, meaning}; }

/// A row of settings.def, with the functions of its type.
struct Row {
  std::string_view env;
  std::string_view field;
  Limits limits;
  Status status;
  std::string_view doc;
  bool is_text;  ///< an empty value means empty, not unset
  Refusal (*read)(std::string_view, const Limits&, Settings&);
  std::string (*text)(const Settings&, const Limits&);
  Description (*description)(const Limits&);
  std::span<const ChoiceName> (*words)();
};

template <auto Field, class T>
constexpr Row row(std::string_view env, std::string_view field, Limits limits, Status status,
                  std::string_view doc) {
  return {
      env,
      field,
      limits,
      status,
      doc,
      std::is_same_v<T, std::string> || std::is_same_v<T, StringList>,
      [](std::string_view t, const Limits& l, Settings& s) { return read_value(t, l, s.*Field); },
      [](const Settings& s, const Limits& l) { return value_text(s.*Field, l); },
      [](const Limits& l) { return describe(static_cast<const T*>(nullptr), l); },
      [] { return words_of<T>(); }};
}

constexpr Row kTable[] = {
#define VIREO_SECTION(title)
#define VIREO_ALIAS(env, field)
#define VIREO_SETTING(env, field, Type, value, limits, status, doc) \
  row<&Settings::field, Type>(#env, #field, limits, status, doc),
#include "config/settings.def"
};
static_assert(std::size(kTable) == kSettingCount);

struct Section {
  std::string_view title;
  size_t first;  ///< row
};
constexpr auto kSections = [] {
  struct Step {
    std::string_view title;
    size_t rows;
  };
  constexpr Step steps[] = {
#define VIREO_SECTION(title) {title, 0},
#define VIREO_ALIAS(env, field)
#define VIREO_SETTING(env, field, Type, value, limits, status, doc) {"", 1},
#include "config/settings.def"
  };
  constexpr size_t n = std::ranges::count(steps, size_t{0}, &Step::rows);
  std::array<Section, n> sections{};
  size_t at = 0;
  size_t rows = 0;
  for (const Step& s : steps) {
    if (s.rows == 0) sections[at++] = {s.title, rows};
    rows += s.rows;
  }
  return sections;
}();

struct Alias {
  std::string_view env;
  SettingId now;
};
constexpr Alias kAliases[] = {
#define VIREO_SECTION(title)
#define VIREO_SETTING(env, field, Type, value, limits, status, doc)
#define VIREO_ALIAS(env, field) {#env, SettingId::field},
#include "config/settings.def"
};

const Row& row_of(SettingId id) { return kTable[static_cast<size_t>(id)]; }

std::optional<SettingId> find_setting(std::string_view env) {
  for (size_t i = 0; i < kSettingCount; ++i)
    if (kTable[i].env == env) return static_cast<SettingId>(i);
  return std::nullopt;
}

/// Text of the environment for a log line: printable, and of limited length.
std::string quoted(std::string_view text) {
  constexpr size_t kMax = 80;
  std::string out;
  for (const char c : text.substr(0, kMax)) {
    const bool printable = c >= ' ' && c <= '~';
    if (printable)
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  if (text.size() > kMax) out += "...";
  return out;
}

/// The parsed environment: at most one text for each setting, and the unknown names.
struct Given {
  std::array<std::optional<std::string_view>, kSettingCount> text;
  std::vector<std::pair<std::string_view, std::string_view>> unknown;
};

class Parser {
 public:
  ParsedSettings run(std::span<const std::string_view> environment) {
    sort_out(environment);
    apply_profile();
    apply_force();
    for (size_t i = 0; i < kSettingCount; ++i) apply(static_cast<SettingId>(i));
    apply_implied();
    for (const auto& [name, value] : given_.unknown) report_unknown(name, value);
    return std::move(out_);
  }

 private:
  void sort_out(std::span<const std::string_view> environment) {
    std::vector<std::string_view> seen;
    std::vector<std::pair<Alias, std::string_view>> old;
    for (const std::string_view entry : environment) {
      const size_t eq = entry.find('=');
      if (eq == entry.npos) continue;
      const std::string_view name = entry.substr(0, eq);
      const std::string_view value = entry.substr(eq + 1);
      if (!name.starts_with("VMA_") && !name.starts_with("VIREO_")) continue;
      if (std::ranges::find(seen, name) != seen.end()) continue;
      seen.push_back(name);
      if (const auto id = find_setting(name)) {
        const bool is_unset = value.empty() && !row_of(*id).is_text;
        if (!is_unset) given_.text[static_cast<size_t>(*id)] = value;
      } else if (const auto a = std::ranges::find(kAliases, name, &Alias::env);
                 a != std::end(kAliases)) {
        if (!value.empty()) old.emplace_back(*a, value);
      } else {
        given_.unknown.emplace_back(name, value);
      }
    }
    for (const auto& [alias, value] : old) {
      auto& text = given_.text[static_cast<size_t>(alias.now)];
      note(fmt::format("{}={}: an old name of {}{}", alias.env, quoted(value),
                       row_of(alias.now).env, text ? ", which is set too and wins" : ""));
      if (!text) text = value;
    }
  }

  void apply_profile() {
    auto& name = given_.text[static_cast<size_t>(SettingId::spec)];
    if (!name) return;
    const Profile* p = name->empty() ? nullptr : find_profile(*name);
    if (p == nullptr) {
      if (!name->empty()) report_unknown_profile(*name);
      name.reset();
      return;
    }
    profile_ = p->names[0];
    name = profile_;
    for (const auto& [env, text] : p->values) {
      const auto id = find_setting(env);
      if (id && !row_of(*id).read(text, row_of(*id).limits, out_.settings))
        out_.origin[static_cast<size_t>(*id)] = Origin::kProfile;
    }
  }

  /// VMA_SELECT_POLL_OS_FORCE ranks between the profile and the explicit variables, as in libvma.
  void apply_force() {
    apply(SettingId::select_poll_os_force);
    given_.text[static_cast<size_t>(SettingId::select_poll_os_force)].reset();
    if (!out_.settings.select_poll_os_force) return;
    imply(SettingId::select_poll_os_ratio, [](Settings& s) { s.select_poll_os_ratio = 1; });
    imply(SettingId::select_skip_os, [](Settings& s) { s.select_skip_os = 1; });
  }

  void apply(SettingId id) {
    const auto text = given_.text[static_cast<size_t>(id)];
    if (!text) return;
    const Row& r = row_of(id);
    if (const Refusal why = r.read(*text, r.limits, out_.settings)) {
      report_refused(id, *text, *why);
      return;
    }
    out_.origin[static_cast<size_t>(id)] = Origin::kEnvironment;
    if (!r.status.is_used)
      note(fmt::format("{}={}: accepted. {}", r.env, quoted(*text), r.status.meaning));
  }

  void apply_implied() {
    const Settings& s = out_.settings;
    if (s.rx_poll == 0) imply(SettingId::rx_poll, [](Settings& x) { x.rx_poll = 1; });
    const bool polls_for_ever = s.rx_poll < 0 || s.select_poll.ns() < 0;
    if (polls_for_ever && out_.origin_of(SettingId::cq_moderation_enable) != Origin::kEnvironment)
      imply(SettingId::cq_moderation_enable, [](Settings& x) { x.cq_moderation_enable = false; });
    if (s.log_level >= LogLevel::kDebug &&
        out_.origin_of(SettingId::log_details) != Origin::kEnvironment)
      imply(SettingId::log_details, [](Settings& x) { x.log_details = 2; });
  }

  template <class F>
  void imply(SettingId id, F change) {
    change(out_.settings);
    out_.origin[static_cast<size_t>(id)] = Origin::kImplied;
  }

  void note(std::string text) { out_.diagnostics.push_back({Severity::kNote, std::move(text)}); }
  void warn(std::string text) { out_.diagnostics.push_back({Severity::kWarning, std::move(text)}); }

  void report_refused(SettingId id, std::string_view text, std::string_view why) {
    const Row& r = row_of(id);
    std::vector<std::string_view> words;
    for (const auto& w : r.words()) words.push_back(w.name);
    const std::string_view near = nearest(text, words);
    const bool from_profile = out_.origin_of(id) == Origin::kProfile;
    warn(fmt::format("{}={}: {}; valid: {}{}{}; using {} ({})", r.env, quoted(text), why,
                     r.description(r.limits).range, near.empty() ? "" : "; nearest: ", near,
                     quoted(r.text(out_.settings, r.limits)),
                     from_profile ? fmt::format("profile {}", profile_) : "default"));
  }

  void report_unknown(std::string_view name, std::string_view value) {
    const std::string_view near = nearest_setting(name);
    const auto id = find_setting(near);
    std::string hint;
    if (id)
      hint =
          fmt::format("; nearest: {}, {}", near, row_of(*id).description(row_of(*id).limits).range);
    warn(fmt::format("{}={}: no such setting{}; ignored", quoted(name), quoted(value), hint));
  }

  /// Compares the part after the prefix, so that VIREO_RX_POLL finds VMA_RX_POLL.
  static std::string_view nearest_setting(std::string_view name) {
    const auto stem = [](std::string_view n) { return n.substr(n.find('_') + 1); };
    std::vector<std::string_view> stems;
    for (const Row& r : kTable) stems.push_back(stem(r.env));
    for (const Alias& a : kAliases) stems.push_back(stem(a.env));
    const std::string_view near = nearest(stem(name), stems);
    if (near.empty()) return {};
    const auto at = static_cast<size_t>(
        std::ranges::find_if(stems, [&](auto s) { return s.data() == near.data(); }) -
        stems.begin());
    return at < kSettingCount ? kTable[at].env : row_of(kAliases[at - kSettingCount].now).env;
  }

  void report_unknown_profile(std::string_view name) {
    std::vector<std::string_view> names;
    std::string valid;
    for (const Profile& p : profiles()) {
      names.insert(names.end(), p.names.begin(), p.names.end());
      valid.append(valid.empty() ? "" : ", ").append(p.names[0]);
    }
    const std::string_view near = nearest(name, names);
    warn(fmt::format("VMA_SPEC={}: no such profile; valid: {}{}{}; using none (default)",
                     quoted(name), valid, near.empty() ? "" : "; nearest: ", near));
  }

  ParsedSettings out_;
  Given given_;
  std::string_view profile_;
};

// Never destroyed: exit handlers and other threads read settings until the process ends.
alignas(Settings) std::byte g_storage[sizeof(Settings)];
const Settings* g_settings = nullptr;

const Settings& default_settings() {
  alignas(Settings) static std::byte storage[sizeof(Settings)];
  static const Settings* const s = new (storage) Settings();
  return *s;
}

}  // namespace

ParsedSettings parse_settings(std::span<const std::string_view> environment) {
  return Parser().run(environment);
}

namespace {

/// True for a "NAME=value" whose setting names a file, under any of its names.
bool names_file(std::string_view entry) {
  constexpr SettingId kFiles[] = {SettingId::config_file, SettingId::log_file,
                                  SettingId::stats_file, SettingId::shm_wire};
  const std::string_view name = entry.substr(0, entry.find('='));
  auto id = find_setting(name);
  if (const auto* a = std::ranges::find(kAliases, name, &Alias::env); a != std::end(kAliases))
    id = a->now;
  return id && std::ranges::find(kFiles, *id) != std::end(kFiles);
}

}  // namespace

ParsedSettings parse_settings(const char* const* environment, Files files) {
  std::vector<std::string_view> entries;
  Diagnostics left_out;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    // Most variables are not ours: compare the prefix before strlen().
    if (std::strncmp(*environment, "VMA_", 4) != 0 && std::strncmp(*environment, "VIREO_", 6) != 0)
      continue;
    const std::string_view entry = *environment;
    if (files == Files::kNone && names_file(entry))
      left_out.push_back({Severity::kNote,
                          fmt::format("{}: it names a file, and this program has more rights than "
                                      "who started it; ignored",
                                      quoted(entry))});
    else
      entries.push_back(entry);
  }
  ParsedSettings p = parse_settings(entries);
  p.diagnostics.insert(p.diagnostics.end(), left_out.begin(), left_out.end());
  return p;
}

void init_settings(Settings s) { g_settings = new (g_storage) Settings(std::move(s)); }

const Settings& settings() { return g_settings != nullptr ? *g_settings : default_settings(); }

std::vector<SettingRow> setting_rows() {
  std::vector<SettingRow> rows;
  const Settings defaults;
  size_t section = 0;
  for (const Row& r : kTable) {
    while (section + 1 < kSections.size() && kSections[section + 1].first <= rows.size()) ++section;
    Description d = r.description(r.limits);
    rows.push_back({.env = r.env,
                    .field = r.field,
                    .doc = r.doc,
                    .meaning = r.status.meaning,
                    .section = kSections[section].title,
                    .is_used = r.status.is_used,
                    .type = std::move(d.type),
                    .range = std::move(d.range),
                    .default_text = r.text(defaults, r.limits)});
  }
  return rows;
}

std::span<const SettingAlias> setting_aliases() {
  static constexpr auto kPublic = [] {
    std::array<SettingAlias, std::size(kAliases)> a{};
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = {kAliases[i].env, kTable[static_cast<size_t>(kAliases[i].now)].env};
    return a;
  }();
  return kPublic;
}

std::string setting_text(const Settings& s, SettingId id) {
  return row_of(id).text(s, row_of(id).limits);
}

std::string dump_settings(const ParsedSettings& p) {
  constexpr std::string_view kOrigins[] = {"default", "profile ", "implied", "environment"};
  std::string out;
  for (size_t i = 0; i < kSettingCount; ++i) {
    const bool from_profile = p.origin[i] == Origin::kProfile;
    out += fmt::format(
        "{}={}  # {}{}\n", kTable[i].env, kTable[i].text(p.settings, kTable[i].limits),
        kOrigins[static_cast<size_t>(p.origin[i])], from_profile ? p.settings.spec : std::string());
  }
  return out;
}

std::string with_pid(std::string_view path, int pid) {
  const size_t at = path.find("%d");
  if (at == path.npos) return std::string(path);
  return fmt::format("{}{}{}", path.substr(0, at), pid, path.substr(at + 2));
}

}  // namespace vireo
