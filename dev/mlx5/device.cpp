// Opens the device: checks whether its rings can be driven directly, and falls back to dev/verbs.
#include <algorithm>
#include <cerrno>

#include "core/log.h"
#include "dev/mlx5/late_libmlx5.h"
#include "dev/mlx5/mlx5.h"
#include "dev/mlx5/queue.h"
#include "dev/verbs/late_libibverbs.h"
#include "dev/verbs/queue.h"

namespace vireo {
namespace mlx5 {
namespace {

void log_why_not(const Err& why) {
  log<LogLevel::kInfo>("mlx5 rings are not driven directly, but by libibverbs: {} ({})", why.where,
                       why.code);
}

ibv_cq* create_compressed(ibv_context* context, uint32_t entries, ibv_comp_channel* channel) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = entries;
  attr.channel = channel;
  mlx5dv_cq_init_attr mlx5{};
  mlx5.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
  mlx5.cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH;
  ibv_cq_ex* cq = library().create_cq(context, &attr, &mlx5);
  return cq != nullptr ? ibv_cq_ex_to_cq(cq) : nullptr;
}

bool can_compress(ibv_context* context) {
  mlx5dv_context c{};
  c.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION;
  return library().query_device(context, &c) == 0 &&
         (c.comp_mask & MLX5DV_CONTEXT_MASK_CQE_COMPRESION) != 0 &&
         (c.cqe_comp_caps.supported_format & MLX5DV_CQE_RES_FORMAT_HASH) != 0;
}

/// Reads the clock that PTP may adjust, as libmlx5 keeps it.
bool read_ptp(void* context, verbs::StampClock::Reading& out) {
  mlx5dv_clock_info i{};
  if (library().get_clock_info(static_cast<ibv_context*>(context), &i) != 0) return false;
  out = {i.last_cycles, static_cast<int64_t>(i.nsec), uint64_t{i.mult} << (32 - i.shift)};
  return true;
}

std::optional<verbs::StampClock> clock_of(const verbs::Context& context, StampTime wanted) {
  const Instant now = Clock::now();
  const uint64_t khz = context.limits().hca_core_clock;
  mlx5dv_clock_info i{};
  if (wanted == StampTime::kPtp && khz != 0 && library().get_clock_info != nullptr &&
      library().get_clock_info(context.get(), &i) == 0 && i.mask != 0 && i.shift <= 32)
    return verbs::StampClock::by(read_ptp, context.get(), i.mask, khz, now);
  return verbs::StampClock::of(context, wanted, now);
}

struct MadeStriding {
  verbs::Pair pair;
  std::unique_ptr<Striding> striding;
  uint32_t element_bytes;
};
/// Makes a QP that only sends, and the striding receive queue. Errors: whatever the device refuses.
Result<MadeStriding> make_striding(const std::shared_ptr<verbs::Context>& context, PacketPool& pool,
                                   uint32_t mtu, const verbs::QueueShape& shape,
                                   verbs::PairShape pair_shape) {
  const auto strides = striding_shape_of(*context, pool, mtu, shape);
  if (!strides) return std::unexpected(strides.error());
  pair_shape.only_sends = true;
  pair_shape.receives = strides->elements << strides->log_strides;
  pair_shape.create_received = nullptr;  // compressed CQEs would not name their stride
  auto pair = verbs::Pair::create(context, pair_shape);
  if (!pair) return std::unexpected(pair.error());
  auto wq = StridingWq::create(context, pair->received(), *strides);
  if (!wq) return std::unexpected(wq.error());
  auto striding = std::make_unique<Striding>(std::move(*wq), *strides, pool, context->arena_lkey());
  return MadeStriding{std::move(*pair), std::move(striding),
                      pool.frame_bytes() << strides->log_strides};
}

/// Errors: whatever the device refuses.
Result<std::unique_ptr<LroRules>> make_lro(const std::shared_ptr<verbs::Context>& context,
                                           const Striding& striding, uint32_t element_bytes) {
  constexpr uint32_t kShare = 4;    // of a WQE: a rest too short for a packet is unused
  constexpr uint32_t kMax = 32768;  // what the engine takes in one burst, in frames
  const auto shape = lro_shape_of(*context, std::min(element_bytes / kShare, kMax));
  if (!shape) return std::unexpected(shape.error());
  auto tir = Tir::create(context, striding.wq.number(), *shape);
  if (!tir) return std::unexpected(tir.error());
  auto rules = std::make_unique<LroRules>(context, std::move(*tir));
  if (auto good = rules->prove(); !good) return std::unexpected(good.error());
  return rules;
}

ibv_flow* make_lro_rule(Queue& to, const FlowKey& key,
                        const std::optional<std::array<uint8_t, 6>>& mac, FlowTag tag) {
  return static_cast<Mlx5Queue&>(to).lro().create(key, mac, tag);
}

/// Opens the device with DevX (firmware commands), if permitted.
ibv_context* open_for_commands(ibv_device* device) {
  if (library().open_device != nullptr && library().is_supported(device)) {
    mlx5dv_context_attr attr{};
    attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    if (ibv_context* const c = library().open_device(device, &attr)) return c;
  }
  return verbs::library().open_device(device);
}

void log_without(const char* what, const Err& why) {
  log<LogLevel::kInfo>("mlx5: {}: {} ({})", what, why.where, why.code);
}

Result<verbs::OpenedQueue> make_direct(verbs::VerbsDevice& device,
                                       const std::shared_ptr<verbs::Context>& context,
                                       std::span<std::byte> arena, PacketPool& pool,
                                       DeviceCaps& caps, const VerbsOptions& options) {
  const auto shape = verbs::shape_of(context->limits(), pool, caps, options);
  if (!shape) return std::unexpected(shape.error());
  constexpr uint32_t kMinSends = 64;  // so that the ring holds WQEs of any size
  const uint32_t wanted_inline = std::min(options.inline_bytes, Sq::kMaxInline);
  verbs::PairShape rings_shape{
      std::max(shape->tx_slots, kMinSends),
      shape->tx_segments,
      wanted_inline,
      shape->rx_slots,
      shape->rx_segments,
      caps.tso_max_bytes > 0,
      options.compress && can_compress(context->get()) ? create_compressed : nullptr};
  std::optional<verbs::Pair> pair;
  std::unique_ptr<Striding> striding;
  std::unique_ptr<LroRules> lro;
  if (options.stride || options.lro) {
    auto made = make_striding(context, pool, caps.mtu, *shape, rings_shape);
    if (made) {
      pair.emplace(std::move(made->pair));
      striding = std::move(made->striding);
      if (options.lro) {
        auto rules = make_lro(context, *striding, made->element_bytes);
        if (rules)
          lro = std::move(*rules);
        else
          log_without("no LRO", rules.error());
      }
    } else {
      log_without("receives do not stride", made.error());
    }
  }
  if (!pair) {
    auto plain = verbs::Pair::create(context, rings_shape);
    if (!plain) return std::unexpected(plain.error());
    pair.emplace(std::move(*plain));
  }
  const auto rings = rings_of(*pair);
  if (!rings) return std::unexpected(rings.error());
  const uint32_t inline_bytes = std::min(wanted_inline, pair->granted().max_inline_data);
  caps.inline_bytes = static_cast<uint16_t>(inline_bytes);
  if (!pair->segments()) caps.tso_max_bytes = 0;
  const auto clock = clock_of(*context, options.stamps);
  caps.stamps = clock.has_value();
  ibv_qp* const qp = striding != nullptr ? striding->wq.pair() : pair->get();
  const bool coalesces = lro != nullptr;
  if (striding != nullptr)
    device.set_kind(DeviceKind::kMlx5, coalesces ? "mlx5-lro" : "mlx5-striding", true);
  if (coalesces) caps.multi_frame = true;
  return verbs::OpenedQueue{
      std::make_unique<Mlx5Queue>(device, context, std::move(*pair), *rings, arena, pool, *shape,
                                  inline_bytes, clock, std::move(striding), std::move(lro)),
      qp, coalesces ? make_lro_rule : nullptr};
}

}  // namespace

Result<Rings> rings_of(const verbs::Pair& pair) {
  Rings r{};
  mlx5dv_obj obj{};
  obj.qp = {pair.get(), &r.pair};
  obj.cq = {pair.sent(), &r.sent};
  if (library().init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) != 0)
    return fail(ENOTSUP, "mlx5dv_init_obj");
  obj.cq = {pair.received(), &r.received};
  if (library().init_obj(&obj, MLX5DV_OBJ_CQ) != 0) return fail(ENOTSUP, "mlx5dv_init_obj");
  if (r.pair.sq.stride != Sq::kBlock || r.pair.sq.wqe_cnt < 2 * Sq::kMaxBlocks)
    return fail(ENOTSUP, "layout of the send queue");
  for (const mlx5dv_cq* cq : {&r.sent, &r.received})
    if (cq->cqe_size != 64 && cq->cqe_size != 128)
      return fail(ENOTSUP, "layout of the completion queue");
  return r;
}

Result<verbs::OpenedQueue> make_mlx5_queue(verbs::VerbsDevice& device,
                                           const std::shared_ptr<verbs::Context>& context,
                                           std::span<std::byte> arena, PacketPool& pool,
                                           DeviceCaps& caps, const VerbsOptions& options) {
  auto made = make_direct(device, context, arena, pool, caps, options);
  if (made || made.error().code != ENOTSUP) return made;
  log_why_not(made.error());
  device.set_kind(DeviceKind::kVerbs, "verbs", false);
  return verbs::make_verbs_queue(device, context, arena, pool, caps, options);
}

}  // namespace mlx5

Result<std::unique_ptr<Device>> open_mlx5(const VerbsTarget& target, Arena& arena,
                                          const VerbsOptions& options) {
  if (auto good = verbs::check(options); !good) return std::unexpected(good.error());
  if (auto loaded = verbs::load_libibverbs(); !loaded) return std::unexpected(loaded.error());
  auto direct = mlx5::load_libmlx5();
  auto context = verbs::Context::open(target, arena,
                                      options.lro && direct ? mlx5::open_for_commands : nullptr);
  if (!context) return std::unexpected(context.error());
  if (direct && !mlx5::library().is_supported((*context)->get()->device))
    direct = fail(ENOTSUP, "not an mlx5 device");
  auto device = std::make_unique<verbs::VerbsDevice>(
      std::move(*context), target, arena, options,
      direct ? mlx5::make_mlx5_queue : verbs::make_verbs_queue);
  if (direct)
    device->set_kind(DeviceKind::kMlx5, "mlx5", true);
  else
    mlx5::log_why_not(direct.error());
  return device;
}

}  // namespace vireo
