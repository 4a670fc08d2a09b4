#include "dev/mlx5/lro.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dev/mlx5/command.h"
#include "dev/mlx5/late_libmlx5.h"

namespace vireo::mlx5 {
namespace {

enum : uint32_t { kQueryHcaCap = 0x100, kAllocTransportDomain = 0x816, kCreateTir = 0x900 };
constexpr uint32_t kOffloadsNow = 1U << 1 | 1;  // the offload capability group, current values
constexpr size_t kOpcode = 0, kModifier = 0x30, kNumber = 0x48;
constexpr size_t kCapability = 0x80, kTirContext = 0x100;
using Request = Command<16>;
using Reply = Command<16>;

constexpr uint32_t kUnit = 256;       // of the maximum length field
constexpr uint32_t kHeaders = kUnit;  // most that a device adds if it counts from the TCP header on
constexpr uint32_t kMaxUnits = 255;
constexpr uint32_t kBothVersions = 3;

/// Creates an object by a firmware command. Null: refused, errno is set.
template <size_t kBytes>
mlx5dv_devx_obj* create(ibv_context* context, const Command<kBytes>& request, uint32_t& number) {
  Reply reply;
  mlx5dv_devx_obj* const made =
      library().obj_create(context, request.data(), request.size(), reply.data(), reply.size());
  number = reply.get(kNumber, 24);
  return made;
}

constexpr size_t kEthernet = 14, kTag = 4, kIpv4 = 20, kIpv6 = 40, kTcp = 20;
constexpr uint16_t kTypeIpv4 = 0x0800, kTypeIpv6 = 0x86dd, kTypeVlan = 0x8100, kTypeQinq = 0x88a8;
constexpr std::byte kPsh{0x08};
constexpr uint8_t kAckAlone = 3, kAckAndData = 4;  // TCP types of l4_hdr_type_etc
constexpr uint8_t kPushed = 1 << 6, kStamped = 1 << 7;
constexpr uint8_t kStampOption[] = {1, 1, 8, 10};

template <class T>
T load(const std::byte* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
template <class T>
void store(std::byte* at, T v) {
  std::memcpy(at, &v, sizeof v);
}
uint16_t type_at(const std::byte* at) { return be16toh(load<uint16_t>(at)); }

uint16_t header_sum(const std::byte* ip) {
  uint32_t sum = 0;
  for (size_t i = 0; i < kIpv4; i += 2) sum += load<uint16_t>(ip + i);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

Result<LroShape> lro_shape_of(const verbs::Context& context, uint32_t room) {
  const Libmlx5& lib = library();
  if (lib.general_cmd == nullptr || lib.obj_create == nullptr || lib.obj_destroy == nullptr ||
      lib.create_matcher == nullptr || lib.destroy_matcher == nullptr || lib.create_flow == nullptr)
    return fail(ENOTSUP, "no mlx5dv_devx_obj_create");
  Request ask;
  ask.set(kOpcode, 16, kQueryHcaCap);
  ask.set(kModifier, 16, kOffloadsNow);
  Command<16 + 4096> can;
  if (lib.general_cmd(context.get(), ask.data(), ask.size(), can.data(), can.size()) != 0)
    return fail(ENOTSUP, "the device takes no commands (DevX)");
  const auto has = [&](size_t bit) { return can.get(kCapability + bit, 1) != 0; };
  // Timestamps are required: nearly every segment has them.
  if (!has(2) || !has(4)) return fail(ENOTSUP, "the device has none");
  const bool counts_all = can.get(kCapability + 5, 2) == 1;
  const uint32_t most = room - (counts_all ? 0 : kHeaders);
  uint32_t period = 0;
  for (size_t i = 0; i < 4; ++i) {
    const uint32_t p = can.get(kCapability + 0x180 + i * 32, 32);
    if (p != 0 && (period == 0 || p < period)) period = p;
  }
  if (room < 2 * kUnit || period == 0 || period > UINT16_MAX)
    return fail(ENOTSUP, "periods or sizes of the device");
  return LroShape{std::min(most / kUnit, kMaxUnits) * kUnit, period};
}

Result<Tir> Tir::create(std::shared_ptr<verbs::Context> context, uint32_t queue_number,
                        const LroShape& shape) {
  Tir t(std::move(context));
  uint32_t domain = 0, number = 0;
  Request alloc;
  alloc.set(kOpcode, 16, kAllocTransportDomain);
  t.domain_ = mlx5::create(t.context_->get(), alloc, domain);
  if (t.domain_ == nullptr) return fail_errno("ALLOC_TRANSPORT_DOMAIN");
  Command<0x20 + 0xf0> request;
  request.set(kOpcode, 16, kCreateTir);
  const auto set = [&](size_t at, unsigned bits, uint32_t v) {
    request.set(kTirContext + at, bits, v);
  };
  set(0x84, 16, shape.period_us);
  set(0x94, 4, kBothVersions);
  set(0x98, 8, shape.most_bytes / kUnit);
  set(0xe8, 24, queue_number);
  set(0x128, 24, domain);
  t.tir_ = mlx5::create(t.context_->get(), request, number);
  if (t.tir_ == nullptr) return fail_errno("CREATE_TIR");
  return t;
}

Tir::~Tir() {
  if (!context_->is_ours()) return;
  if (tir_ != nullptr) library().obj_destroy(tir_);
  if (domain_ != nullptr) library().obj_destroy(domain_);
}

void complete_headers(std::span<std::byte> first, uint32_t bytes, const mlx5_cqe64& cqe) noexcept {
  if (first.size() < kEthernet + kIpv6 + kTcp) return;
  std::byte* const frame = first.data();
  size_t l3 = kEthernet;
  uint16_t type = type_at(frame + l3 - 2);
  for (int tags = 0; tags < 2 && (type == kTypeVlan || type == kTypeQinq); ++tags) {
    l3 += kTag;
    type = type_at(frame + l3 - 2);
  }
  const bool is_v6 = type == kTypeIpv6;
  if (!is_v6 && type != kTypeIpv4) return;
  const auto l3_bytes = static_cast<uint32_t>(bytes - l3);
  const uint8_t least_ttl = cqe.rsvd4[1];
  std::byte* const ip = frame + l3;
  if (is_v6) {
    store(ip + 4, htobe16(static_cast<uint16_t>(l3_bytes - kIpv6)));
    store(ip + 7, least_ttl);
  } else {
    store(ip + 2, htobe16(static_cast<uint16_t>(l3_bytes)));
    store(ip + 8, least_ttl);
    store(ip + 10, uint16_t{0});
    store(ip + 10, header_sum(ip));
  }
  std::byte* const tcp = ip + (is_v6 ? kIpv6 : kIpv4);
  if (first.size() < static_cast<size_t>(tcp - frame) + kTcp) return;
  if ((cqe.rsvd4[0] & kPushed) != 0) tcp[13] |= kPsh;
  const uint8_t kind = cqe.l4_hdr_type_etc >> 4 & 7;
  if (kind != kAckAlone && kind != kAckAndData) return;
  // Both are in network byte order.
  store(tcp + 14, load<uint16_t>(reinterpret_cast<const std::byte*>(&cqe.rsvd4[2])));
  store(tcp + 8, load<uint32_t>(reinterpret_cast<const std::byte*>(&cqe.rsvd4[4])));
  const size_t stamps = static_cast<size_t>(tcp - frame) + kTcp + sizeof kStampOption;
  // The TSecr of the last acknowledgement. TSval stays the first segment's, which is the one to
  // echo (RFC 7323 §4.3).
  if ((cqe.rsvd4[0] & kStamped) != 0 && first.size() >= stamps + 8 &&
      std::memcmp(tcp + kTcp, kStampOption, sizeof kStampOption) == 0)
    store(frame + stamps + 4,
          load<uint32_t>(reinterpret_cast<const std::byte*>(&cqe.timestamp) + 4));
}

}  // namespace vireo::mlx5
