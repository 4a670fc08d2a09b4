#include "stack/tcp/shared_config.h"

#include "core/shared_values.h"

namespace vireo::tcp {

namespace {
constinit SharedValues<Config> g_values;
}

constinit const Config SharedConfig::kDefault;

Lock& SharedConfig::lock() noexcept { return g_values.lock(); }

void SharedConfig::set(Config c) noexcept {
  c.rcv_buf = kDefault.rcv_buf;
  c.snd_buf = kDefault.snd_buf;
  c.mss = kDefault.mss;
  c.ts_offset = kDefault.ts_offset;
  if (c == *config_) return;
  const Config* shared = g_values.find_or_make(c);
  if (shared == nullptr) return;
  drop();
  config_ = shared;
}

void SharedConfig::drop() noexcept {
  if (config_ != &kDefault) SharedValues<Config>::drop(config_);
}

}  // namespace vireo::tcp
