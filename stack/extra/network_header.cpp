// Reads the headers from the egress that the flow keeps.
#include "stack/extra/network_header.h"

#include <cstring>

#include "core/user_memory.h"
#include "stack/sock/blocking.h"

namespace vireo::extra {

Result<size_t> network_header(Handle h, void* out, size_t room) {
  using Header = wire::HeaderTemplate;
  Engine* const e = h->engine.load(std::memory_order_acquire);
  if (e == nullptr) return fail(ENOTCONN, "header");
  const EngineGuard guard(*e);
  if (!h.is_alive() || !h->is_carried() || h->flow == nullptr) return fail(ENOTCONN, "header");
  const bool is_tcp = h->is_tcp();
  if (!is_tcp && h->udp_flow().egress_to != h->udp_flow().key.remote)
    return fail(ENOTCONN, "header");
  const Header& header = is_tcp ? h->tcp_flow().egress.header : h->udp_flow().egress.header;
  if (!header) return fail(ENOTCONN, "header");
  if (out == nullptr) return header.size();
  if (room < header.size()) return fail(ENOBUFS, "header");
  std::byte bytes[Header::kMaxBytes];
  const size_t n = is_tcp ? header.emit_tcp(bytes, {}) : header.emit_udp(bytes, {});
  if (!is_writable(out, n)) return fail(EFAULT, "header");
  std::memcpy(out, bytes, n);
  return n;
}

}  // namespace vireo::extra
