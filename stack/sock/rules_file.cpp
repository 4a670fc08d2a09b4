// Reads the rules file once.
#include "stack/sock/rules_file.h"

#include "core/log.h"

namespace vireo {

const Rules& RulesFile::rules(const Settings& s) {
  if (const Rules* r = read_.load(std::memory_order_acquire)) return *r;
  const LockGuard guard(lock_);
  if (!rules_) {
    Diagnostics said;
    // The default file may be missing, one named in the settings may not.
    const bool named = s.config_file != Settings{}.config_file;
    rules_ = std::make_unique<Rules>(Rules::load(s.config_file, named, said));
    for (const Diagnostic& d : said) log<LogLevel::kWarn>("{}", d.text);
    read_.store(rules_.get(), std::memory_order_release);
  }
  return *rules_;
}

}  // namespace vireo
