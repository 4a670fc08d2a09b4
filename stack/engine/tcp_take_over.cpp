// Connections that the kernel accepted: their frames come here first, then their state.
#include "stack/engine/hub.h"

namespace vireo {

Carried<TcpFlow*> TcpFlows::begin_take_over(const Route& route, const FlowKey& key,
                                            const IpSettings& ip, Instant now) {
  TcpFlow* const f = make(key);
  if (f == nullptr) return std::unexpected(Refusal{Carriage::kMemory, ENOMEM, "TCP flows"});
  auto rule = hub().steering.make_rule(*route.port, key, f->tag);
  if (!rule) {
    free(*f);
    return std::unexpected(rule.error());
  }
  f->rule = std::move(*rule);
  f->taken_over = true;
  set_route(*f, route, ip, now);
  return f;
}

bool TcpFlows::finish_take_over(TcpFlow& f, const tcp::Config& config, const tcp::TakeOver& o,
                                void* owner, SocketStats& stats, Instant now) {
  if (!tcp::open_taken_over(f.tcb, config_within(f, config), hub().pool, o, now)) return false;
  f.owner = owner;
  f.stats = &stats;
  hub().will.write(f);
  progress(f, now);
  hub().turn.publish_deadline(now);
  return true;
}

void TcpFlows::give_up_take_over(TcpFlow& f, Instant now) {
  hub().steering.expect_strays(f.key, now);
  free(f);
}

}  // namespace vireo
