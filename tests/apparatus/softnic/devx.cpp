#include "tests/apparatus/softnic/devx.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "tests/apparatus/softnic/coalescing.h"
#include "tests/apparatus/softnic/lacks.h"
#include "tests/apparatus/softnic/mlx5_objects.h"
#include "tests/apparatus/softnic/nic.h"
#include "tests/apparatus/softnic/strict.h"

using namespace vireo::softnic;

namespace {

enum : uint32_t {
  kQueryHcaCap = 0x100,
  kAllocTransportDomain = 0x816,
  kCreateTir = 0x900,
  kOffloads = 1,  // of the groups of capabilities
};
enum : uint8_t { kGood = 0, kBadOperation = 2, kBadParameter = 3, kBadResource = 5 };

constexpr size_t kReplyHead = 16, kCapabilities = 4096;
constexpr size_t kContextAt = 0x20 * 8, kTirBytes = 0xf0;

std::nullptr_t refuse(int error) {
  errno = error;
  return nullptr;
}

class Command {
 public:
  Command(const void* in, size_t bytes) : in_(static_cast<const uint8_t*>(in), bytes) {}
  size_t bytes() const { return in_.size(); }
  uint32_t get(size_t at, unsigned bits) const {
    uint32_t v = 0;
    for (unsigned i = 0; i < bits; ++i, ++at) v = v << 1 | (in_[at / 8] >> (7 - at % 8) & 1U);
    return v;
  }
  uint32_t opcode() const { return bytes() >= kReplyHead ? get(0, 16) : 0; }

 private:
  std::span<const uint8_t> in_;
};

class Reply {
 public:
  Reply(void* out, size_t bytes) : out_(static_cast<uint8_t*>(out), bytes) {
    std::ranges::fill(out_, uint8_t{0});
  }
  size_t bytes() const { return out_.size(); }
  void set(size_t at, unsigned bits, uint32_t v) {
    for (unsigned i = bits; i-- > 0; ++at)
      if ((v >> i & 1) != 0) out_[at / 8] |= static_cast<uint8_t>(1U << (7 - at % 8));
  }
  /// As the kernel tells of a command that the firmware refused.
  int status(uint8_t s) {
    set(0, 8, s);
    return s == kGood ? 0 : EREMOTEIO;
  }

 private:
  std::span<uint8_t> out_;
};

int query_capabilities(const Command& in, Reply& out) {
  const uint32_t group = in.get(0x30, 16) >> 1;
  if (group != kOffloads) return out.status(kBadParameter);
  if (out.bytes() < kReplyHead + kCapabilities) return EINVAL;
  constexpr size_t kAt = kReplyHead * 8;
  out.set(kAt + 0, 1, 1);  // checksums
  if (!lacks("lro")) {
    out.set(kAt + 2, 1, 1);
    out.set(kAt + 3, 1, 1);  // also of segments with PSH
    out.set(kAt + 4, 1, 1);  // also with timestamps
    out.set(kAt + 5, 2, Coalescing::kCountsFromEthernet);
    out.set(kAt + 0x50, 16, Coalescing::kMinPayload);
    for (size_t i = 0; i < std::size(Coalescing::kPeriodsUs); ++i)
      out.set(kAt + 0x180 + i * 32, 32, Coalescing::kPeriodsUs[i]);
  }
  return out.status(kGood);
}

mlx5dv_devx_obj& made(Context& c) {
  mlx5dv_devx_obj& o = *c.firmware_objects.emplace_back(std::make_unique<mlx5dv_devx_obj>());
  o.context = &c;
  o.number = ++c.nic->last_qp;
  return o;
}

mlx5dv_devx_obj* alloc_domain(Context& c, Reply& out) {
  mlx5dv_devx_obj& o = made(c);
  out.set(0x48, 24, o.number);
  return &o;
}

mlx5dv_devx_obj* create_tir(Context& c, const Command& in, Reply& out) {
  const auto field = [&](size_t at, unsigned bits) { return in.get(kContextAt + at, bits); };
  const auto bad = [&](uint8_t status) { return refuse(out.status(status)); };
  if (in.bytes() < kContextAt / 8 + kTirBytes || field(0x20, 4) != 0) return bad(kBadParameter);
  const auto wq =
      std::ranges::find(c.wqs, field(0xe8, 24), [](const auto& w) { return w->wq_num; });
  const auto domain = std::ranges::find_if(c.firmware_objects, [&](const auto& o) {
    return o->tir == nullptr && o->number == field(0x128, 24);
  });
  if (wq == c.wqs.end() || domain == c.firmware_objects.end()) return bad(kBadResource);
  const uint32_t period = field(0x84, 16), versions = field(0x94, 4), most = field(0x98, 8) * 256;
  if (versions > 3 || (versions != 0 && lacks("lro"))) return bad(kBadParameter);
  if (versions != 0 &&
      (std::ranges::find(Coalescing::kPeriodsUs, period) == std::end(Coalescing::kPeriodsUs) ||
       most == 0))
    return bad(kBadParameter);
  mlx5dv_devx_obj* const domain_object = domain->get();  // the list is about to grow
  mlx5dv_devx_obj& o = made(c);
  o.domain = domain_object;
  ++o.domain->users;
  o.table.wq = wq->get();
  ++o.table.wq->users;
  o.tir = std::make_unique<Qp>(ibv_qp_init_attr{}, uint16_t{0});
  o.tir->context = &c.context;
  o.tir->pd = o.table.wq->pd;
  o.tir->qp_num = o.number;
  o.tir->state = IBV_QPS_RESET;
  o.tir->qp_type = IBV_QPT_RAW_PACKET;
  o.tir->table = &o.table;
  if (versions != 0)
    o.tir->coalescing =
        std::make_unique<Coalescing>(most, (versions & 1) != 0, (versions & 2) != 0);
  c.nic->port.attach(*o.tir);
  out.set(0x48, 24, o.number);
  return &o;
}

void end(mlx5dv_devx_obj& o) {
  if (o.tir == nullptr) return;
  o.context->nic->port.detach(*o.tir);
  --o.table.wq->users;
  --o.domain->users;
}

// ---- rules --------------------------------------------------------------------------------------

/// The layers that every match value begins with, and that are asked for by the first criterion.
struct Outer {
  static constexpr size_t kBytes = 0x40;
  uint8_t bytes[kBytes];
  /// Takes a field: what is left in the end is what nobody has looked at.
  template <class T>
  T take(size_t at) {
    T v;
    std::memcpy(&v, bytes + at, sizeof v);
    std::memset(bytes + at, 0, sizeof v);
    return v;
  }
  uint32_t take_bits(size_t at, unsigned bits) {
    const uint32_t v = Command(bytes, kBytes).get(at, bits);
    for (unsigned i = 0; i < bits; ++i, ++at)
      bytes[at / 8] &= static_cast<uint8_t>(~(1U << (7 - at % 8)));
    return v;
  }
  bool is_empty() const {
    return std::ranges::all_of(bytes, [](uint8_t b) { return b == 0; });
  }
};
struct Address {
  uint8_t bytes[16];
};

/// The rule in the words of ibv_create_flow(3). @return an errno: EOPNOTSUPP a field that this
/// device does not look at, EINVAL one without that of the layer below.
int translate(Outer value, Outer mask, std::vector<std::byte>& specs, unsigned& count) {
  const auto add = [&](auto spec, ibv_flow_spec_type type) {
    spec.type = type;
    spec.size = sizeof spec;
    const auto* at = reinterpret_cast<const std::byte*>(&spec);
    specs.insert(specs.end(), at, at + sizeof spec);
    ++count;
  };
  ibv_flow_spec_eth eth{};
  const auto mac = [](Outer& from, uint8_t(&to)[6]) {
    std::memcpy(to, from.bytes + 8, 6);
    std::memset(from.bytes + 8, 0, 6);
  };
  mac(value, eth.val.dst_mac);
  mac(mask, eth.mask.dst_mac);
  const uint32_t vlan = value.take_bits(0x74, 12), vlan_mask = mask.take_bits(0x74, 12);
  const bool has_tag = value.take_bits(0x90, 1) != 0, asks_tag = mask.take_bits(0x90, 1) != 0;
  if (vlan_mask != 0 && !(has_tag && asks_tag)) return EINVAL;
  eth.val.vlan_tag = htobe16(static_cast<uint16_t>(vlan));
  eth.mask.vlan_tag = htobe16(static_cast<uint16_t>(vlan_mask));
  add(eth, IBV_FLOW_SPEC_ETH);
  const uint32_t version = value.take_bits(0x93, 4), version_mask = mask.take_bits(0x93, 4);
  const auto src = value.take<Address>(0x20), src_mask = mask.take<Address>(0x20);
  const auto dst = value.take<Address>(0x30), dst_mask = mask.take<Address>(0x30);
  if (version_mask != 0xf || (version != 4 && version != 6)) return EINVAL;
  if (version == 4) {
    ibv_flow_spec_ipv4 ip{};
    std::memcpy(&ip.val.src_ip, src.bytes + 12, 4);
    std::memcpy(&ip.mask.src_ip, src_mask.bytes + 12, 4);
    std::memcpy(&ip.val.dst_ip, dst.bytes + 12, 4);
    std::memcpy(&ip.mask.dst_ip, dst_mask.bytes + 12, 4);
    add(ip, IBV_FLOW_SPEC_IPV4);
  } else {
    ibv_flow_spec_ipv6 ip{};
    std::memcpy(ip.val.src_ip, src.bytes, 16);
    std::memcpy(ip.mask.src_ip, src_mask.bytes, 16);
    std::memcpy(ip.val.dst_ip, dst.bytes, 16);
    std::memcpy(ip.mask.dst_ip, dst_mask.bytes, 16);
    add(ip, IBV_FLOW_SPEC_IPV6);
  }
  const uint32_t proto = value.take_bits(0x80, 8), proto_mask = mask.take_bits(0x80, 8);
  constexpr uint32_t kTcp = 6, kUdp = 17;
  if (proto_mask != 0xff || (proto != kTcp && proto != kUdp)) return EINVAL;
  const size_t ports = proto == kTcp ? 0x14 : 0x1c;
  ibv_flow_spec_tcp_udp l4{};
  l4.val.src_port = value.take<uint16_t>(ports);
  l4.mask.src_port = mask.take<uint16_t>(ports);
  l4.val.dst_port = value.take<uint16_t>(ports + 2);
  l4.mask.dst_port = mask.take<uint16_t>(ports + 2);
  add(l4, proto == kTcp ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP);
  return mask.is_empty() && value.is_empty() ? 0 : EOPNOTSUPP;
}

Outer outer_of(const uint8_t* from, size_t bytes) {
  Outer o{};
  std::memcpy(o.bytes, from, std::min(bytes, sizeof o.bytes));
  return o;
}

}  // namespace

namespace vireo::softnic {

void destroy_firmware_objects(Context& c) {
  for (const auto& o : c.firmware_objects) end(*o);
  c.firmware_objects.clear();
}

}  // namespace vireo::softnic

extern "C" {

ibv_context* softnic_mlx5_open_device(ibv_device* device, const mlx5dv_context_attr* attr) {
  if (attr->comp_mask != 0 || (attr->flags & ~uint32_t{MLX5DV_CONTEXT_FLAGS_DEVX}) != 0)
    return refuse(EOPNOTSUPP);
  const bool commands = (attr->flags & MLX5DV_CONTEXT_FLAGS_DEVX) != 0;
  if (commands && lacks("devx")) return refuse(EOPNOTSUPP);
  ibv_context* const c = ibv_open_device(device);
  if (c != nullptr) of(c).has_commands = commands;
  return c;
}

int softnic_mlx5_general_cmd(ibv_context* context, const void* in, size_t in_bytes, void* out,
                             size_t out_bytes) {
  if (!of(context).has_commands || in_bytes < kReplyHead || out_bytes < kReplyHead) return EINVAL;
  const Command command(in, in_bytes);
  Reply reply(out, out_bytes);
  if (command.opcode() != kQueryHcaCap) return reply.status(kBadOperation);
  return query_capabilities(command, reply);
}

mlx5dv_devx_obj* softnic_mlx5_obj_create(ibv_context* context, const void* in, size_t in_bytes,
                                         void* out, size_t out_bytes) {
  Context& c = of(context);
  if (!c.has_commands || in_bytes < kReplyHead || out_bytes < kReplyHead) return refuse(EINVAL);
  const std::lock_guard hold(c.nic->port.lock);
  if (c.nic->port.faults.removed) return refuse(EIO);
  const Command command(in, in_bytes);
  Reply reply(out, out_bytes);
  switch (command.opcode()) {
    case kAllocTransportDomain:
      return alloc_domain(c, reply);
    case kCreateTir:
      return create_tir(c, command, reply);
    default:
      return refuse(reply.status(kBadOperation));
  }
}

int softnic_mlx5_obj_destroy(mlx5dv_devx_obj* obj) {
  Context& c = *obj->context;
  const std::lock_guard hold(c.nic->port.lock);
  if (obj->users > 0 || (obj->tir != nullptr && c.nic->port.flows.has_rules_of(*obj->tir)))
    return EREMOTEIO;
  end(*obj);
  std::erase_if(c.firmware_objects, [&](const auto& o) { return o.get() == obj; });
  return 0;
}

mlx5dv_flow_matcher* softnic_mlx5_create_matcher(ibv_context* context,
                                                 const mlx5dv_flow_matcher_attr* attr) {
  constexpr uint8_t kOuterAlone = 1;
  if (lacks("rules") || lacks("matchers")) return refuse(EOPNOTSUPP);
  if (attr->type != IBV_FLOW_ATTR_NORMAL || attr->flags != 0 || attr->comp_mask != 0 ||
      attr->match_criteria_enable != kOuterAlone)
    return refuse(EOPNOTSUPP);
  if (attr->match_mask->match_sz < Outer::kBytes || attr->match_mask->match_sz % 4 != 0)
    return refuse(EINVAL);
  const auto* mask = reinterpret_cast<const uint8_t*>(attr->match_mask->match_buf);
  Context& c = of(context);
  const std::lock_guard hold(c.nic->port.lock);
  auto& m = *c.matchers.emplace_back(std::make_unique<mlx5dv_flow_matcher>());
  m = {&c, attr->priority, {mask, mask + attr->match_mask->match_sz}};
  return &m;
}

int softnic_mlx5_destroy_matcher(mlx5dv_flow_matcher* matcher) {
  Context& c = *matcher->context;
  const std::lock_guard hold(c.nic->port.lock);
  std::erase_if(c.matchers, [&](const auto& m) { return m.get() == matcher; });
  return 0;
}

ibv_flow* softnic_mlx5_create_flow(mlx5dv_flow_matcher* matcher,
                                   const mlx5dv_flow_match_parameters* value, size_t actions,
                                   const mlx5dv_flow_action_attr* attr) {
  Context& c = *matcher->context;
  Qp* to = nullptr;
  uint32_t tag = 0;
  for (const mlx5dv_flow_action_attr& a : std::span(attr, actions)) {
    if (a.type == MLX5DV_FLOW_ACTION_DEST_DEVX && to == nullptr && a.obj->tir != nullptr)
      to = a.obj->tir.get();
    else if (a.type == MLX5DV_FLOW_ACTION_TAG && tag == 0)
      tag = a.tag_value;
    else
      return refuse(EOPNOTSUPP);
  }
  if (to == nullptr || value->match_sz != matcher->mask.size()) return refuse(EINVAL);
  const auto* wanted = reinterpret_cast<const uint8_t*>(value->match_buf);
  for (size_t i = 0; i < value->match_sz; ++i)
    if ((wanted[i] & ~matcher->mask[i]) != 0) {
      broken_rule("mlx5dv_create_flow: byte %zu of the value is %02x, of the mask %02x", i,
                  wanted[i], matcher->mask[i]);
      return refuse(EINVAL);
    }
  std::vector<std::byte> request(sizeof(ibv_flow_attr));
  ibv_flow_attr head{};
  unsigned count = 0;
  const int error = translate(outer_of(wanted, value->match_sz),
                              outer_of(matcher->mask.data(), matcher->mask.size()), request, count);
  if (error != 0) return refuse(error);
  if (tag != 0) {
    ibv_flow_spec_action_tag spec{IBV_FLOW_SPEC_ACTION_TAG, sizeof spec, tag};
    const auto* at = reinterpret_cast<const std::byte*>(&spec);
    request.insert(request.end(), at, at + sizeof spec);
    ++count;
  }
  head.type = IBV_FLOW_ATTR_NORMAL;
  head.size = static_cast<uint16_t>(request.size());
  head.priority = matcher->priority;
  head.num_of_specs = static_cast<uint8_t>(count);
  head.port = 1;
  std::memcpy(request.data(), &head, sizeof head);
  return c.ibv_create_flow(to, reinterpret_cast<ibv_flow_attr*>(request.data()));
}

}  // extern "C"
