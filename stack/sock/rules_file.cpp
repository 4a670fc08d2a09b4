// Reads the rules file once, and adds to its rules.
#include "stack/sock/rules_file.h"

#include "core/log.h"

namespace vireo {

const Rules& RulesFile::rules(const Settings& s) {
  if (const Rules* r = read_.load(std::memory_order_acquire)) return *r;
  const LockGuard guard(lock_);
  return read(s);
}

const Rules& RulesFile::read(const Settings& s) {
  if (all_.empty()) {
    Diagnostics said;
    // The default file may be missing, one named in the settings may not.
    const bool named = s.config_file != Settings{}.config_file;
    all_.push_back(std::make_unique<Rules>(Rules::load(s.config_file, named, said)));
    for (const Diagnostic& d : said) log<LogLevel::kWarn>("{}", d.text);
    read_.store(all_.back().get(), std::memory_order_release);
  }
  return *all_.back();
}

bool RulesFile::add_first(const Settings& s, std::string_view line) {
  const LockGuard guard(lock_);
  Diagnostics said;
  auto more = read(s).with_first(line, said);
  for (const Diagnostic& d : said) log<LogLevel::kWarn>("{}", d.text);
  if (!more) return false;
  all_.push_back(std::make_unique<Rules>(std::move(*more)));
  read_.store(all_.back().get(), std::memory_order_release);
  return true;
}

}  // namespace vireo
