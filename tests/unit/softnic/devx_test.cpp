// Commands to the firmware (DevX), rules by the device's match values, and LRO: what each refuses,
// and what completions of coalesced segments say, byte for byte.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "direct_end.h"

namespace softnic_test {
namespace {

constexpr uint32_t kElement = 32 * 2048;  // one stride of 2 KiB a slot
constexpr uint16_t kPort = 7000;

/// A command or an answer; fields by bit, as the reference manual has them.
template <size_t kBytes>
struct Words {
  uint8_t bytes[kBytes] = {};
  Words& set(size_t at, unsigned bits, uint64_t v) {
    for (unsigned i = bits; i-- > 0; ++at)
      if ((v >> i & 1) != 0) bytes[at / 8] |= static_cast<uint8_t>(0x80 >> at % 8);
    return *this;
  }
  uint32_t get(size_t at, unsigned bits) const {
    uint32_t v = 0;
    for (; bits > 0; --bits, ++at) v = v << 1 | (bytes[at / 8] >> (7 - at % 8) & 1U);
    return v;
  }
};
using Answer = Words<16>;
using Capabilities = Words<16 + 4096>;
using TirRequest = Words<0x110>;
constexpr size_t kTir = 0x100, kCaps = 0x80;

struct Parameters {
  size_t size = 0x40;
  Words<0x40> fields;
  mlx5dv_flow_match_parameters* get() {
    return reinterpret_cast<mlx5dv_flow_match_parameters*>(this);
  }
};
/// TCP over IPv4 to kPort.
Parameters wanted(bool as_mask) {
  Parameters p;
  p.fields.set(0x80, 8, as_mask ? 0xff : 6);
  p.fields.set(0x93, 4, as_mask ? 0xf : 4);
  p.fields.set(0xb0, 16, as_mask ? 0xffff : kPort);
  return p;
}

class DevxEnd : public DirectEnd {
 public:
  explicit DevxEnd(int end) : DirectEnd(end, {.receives = 0, .commands = true}) {
    ibv_wq_init_attr attr{};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = 2;
    attr.max_sge = 1;
    attr.pd = domain;
    attr.cq = received;
    mlx5dv_wq_init_attr mlx5{MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ, {11, 5, 0}};
    wq = mlx5dv_create_wq(context, &attr, &mlx5);
    EXPECT_NE(wq, nullptr);
    mlx5dv_obj obj{};
    obj.rwq = {wq, &ring};
    EXPECT_EQ(mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ), 0);
    ibv_wq_attr ready{};
    ready.attr_mask = IBV_WQ_ATTR_STATE;
    ready.wq_state = IBV_WQS_RDY;
    EXPECT_EQ(ibv_modify_wq(wq, &ready), 0);
  }
  ~DevxEnd() { EXPECT_EQ(ibv_destroy_wq(wq), 0); }

  /// @return its status; 0: it is `made`, with `number`.
  template <size_t kBytes>
  int create(const Words<kBytes>& in) {
    Answer out;
    made = mlx5dv_devx_obj_create(context, in.bytes, kBytes, out.bytes, sizeof out.bytes);
    number = out.get(0x48, 24);
    EXPECT_EQ(made == nullptr, out.get(0, 8) != 0);
    if (made == nullptr) {
      EXPECT_EQ(errno, EREMOTEIO);
    }
    return static_cast<int>(out.get(0, 8));
  }
  TirRequest tir(uint32_t domain_number, uint32_t most = 16) const {
    TirRequest r;
    r.set(0, 16, 0x900).set(kTir + 0x84, 16, 8).set(kTir + 0x94, 4, 3);
    r.set(kTir + 0x98, 8, most).set(kTir + 0xe8, 24, wq->wq_num);
    return r.set(kTir + 0x128, 24, domain_number);
  }
  void post(size_t i) {
    std::byte* const element =
        static_cast<std::byte*>(ring.buf) + size_t{posted & (ring.wqe_cnt - 1U)} * ring.stride;
    std::memset(element, 0, sizeof(mlx5_wqe_srq_next_seg));
    const ibv_sge s = segment(i, kElement);
    mlx5dv_set_data_seg(
        reinterpret_cast<mlx5_wqe_data_seg*>(element + sizeof(mlx5_wqe_srq_next_seg)), s.length,
        s.lkey, s.addr);
    *ring.dbrec = htobe32(++posted);
  }

  ibv_wq* wq;
  mlx5dv_rwq ring{};
  uint16_t posted = 0;
  mlx5dv_devx_obj* made = nullptr;
  uint32_t number = 0;
};

Words<16> command(uint32_t opcode, uint32_t modifier = 0) {
  return Words<16>{}.set(0, 16, opcode).set(0x30, 16, modifier);
}

TEST(Devx, OnlyWhereTheContextWasOpenedForIt) {
  DirectEnd e(0, {.receives = 0});
  const auto ask = command(0x100, 3);
  Capabilities can;
  EXPECT_EQ(mlx5dv_devx_general_cmd(e.context, &ask, sizeof ask, &can, sizeof can), EINVAL);
  Answer out;
  const auto alloc = command(0x816);
  EXPECT_EQ(mlx5dv_devx_obj_create(e.context, &alloc, sizeof alloc, &out, sizeof out), nullptr);
  EXPECT_EQ(errno, EINVAL);
  setenv("SOFTNIC_LACKS", "devx", 1);
  mlx5dv_context_attr attr{};
  attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
  EXPECT_EQ(mlx5dv_open_device(e.device, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  unsetenv("SOFTNIC_LACKS");
}

TEST(Devx, CapabilitiesOfOffloads) {
  DevxEnd e(0);
  const auto ask = [&](uint32_t modifier) {
    const auto in = command(0x100, modifier);
    Capabilities can;
    const int error = mlx5dv_devx_general_cmd(e.context, &in, sizeof in, &can, sizeof can);
    EXPECT_EQ(error == 0, can.get(0, 8) == 0);
    return can;
  };
  const auto can = ask(3);
  EXPECT_EQ(can.get(kCaps + 2, 3), 7U) << "LRO, with PSH, with timestamps";
  EXPECT_EQ(can.get(kCaps + 5, 2), 1U) << "lengths count from Ethernet on";
  EXPECT_EQ(can.get(kCaps + 0x180, 32), 8U);
  EXPECT_EQ(ask(0x41).get(0, 8), 3U) << "another group";
  setenv("SOFTNIC_LACKS", "lro", 1);
  EXPECT_EQ(ask(3).get(kCaps + 2, 3), 0U);
  unsetenv("SOFTNIC_LACKS");
  const auto other = command(0x101);
  Answer out;
  EXPECT_EQ(mlx5dv_devx_general_cmd(e.context, &other, sizeof other, &out, sizeof out), EREMOTEIO);
  EXPECT_EQ(out.get(0, 8), 2U);
}

TEST(Devx, ATirNeedsItsQueueAndDomainAndLastsAsLongAsItsRules) {
  DevxEnd e(0);
  EXPECT_EQ(e.create(command(0x801)), 2) << "a command that it does not have";
  ASSERT_EQ(e.create(command(0x816)), 0);
  mlx5dv_devx_obj* const domain = e.made;
  const uint32_t number = e.number;
  EXPECT_EQ(e.create(e.tir(number + 100)), 5) << "no such domain";
  EXPECT_EQ(e.create(e.tir(number).set(kTir + 0xe8, 24, 0xffffff)), 5) << "no such queue";
  EXPECT_EQ(e.create(e.tir(number).set(kTir + 0x84, 16, 1)), 3) << "no such period";
  EXPECT_EQ(e.create(e.tir(number, 0)), 3) << "of no length";
  EXPECT_EQ(e.create(e.tir(number).set(kTir + 0x20, 4, 1)), 3) << "indirect";
  ASSERT_EQ(e.create(e.tir(number)), 0);
  mlx5dv_devx_obj* const tir = e.made;
  EXPECT_EQ(mlx5dv_devx_obj_destroy(domain), EREMOTEIO);
  EXPECT_EQ(ibv_destroy_wq(e.wq), EBUSY);
  EXPECT_EQ(softnic_objects_of(e.device).by_command, 2U);

  Parameters mask = wanted(true), value = wanted(false);
  mlx5dv_flow_matcher_attr attr{};
  attr.type = IBV_FLOW_ATTR_NORMAL;
  attr.match_criteria_enable = 2;
  attr.match_mask = mask.get();
  EXPECT_EQ(mlx5dv_create_flow_matcher(e.context, &attr), nullptr) << "not the outer headers";
  attr.match_criteria_enable = 1;
  mlx5dv_flow_matcher* const matcher = mlx5dv_create_flow_matcher(e.context, &attr);
  ASSERT_NE(matcher, nullptr);
  mlx5dv_flow_action_attr actions[2]{};
  actions[0].type = MLX5DV_FLOW_ACTION_DEST_DEVX;
  actions[0].obj = domain;
  EXPECT_EQ(mlx5dv_create_flow(matcher, value.get(), 1, actions), nullptr) << "it takes no frames";
  actions[0].obj = tir;
  actions[1].type = MLX5DV_FLOW_ACTION_TAG;
  actions[1].tag_value = 9;
  ibv_flow* const flow = mlx5dv_create_flow(matcher, value.get(), 2, actions);
  ASSERT_NE(flow, nullptr);
  EXPECT_EQ(mlx5dv_devx_obj_destroy(tir), EREMOTEIO);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
  EXPECT_EQ(mlx5dv_destroy_flow_matcher(matcher), 0);
  EXPECT_EQ(mlx5dv_devx_obj_destroy(tir), 0);
  EXPECT_EQ(mlx5dv_devx_obj_destroy(domain), 0);
}

class LroOfSoftnic : public testing::Test {
 protected:
  DirectEnd a{0};
  DevxEnd b{1};
  mlx5dv_devx_obj *domain_ = nullptr, *tir_ = nullptr;
  mlx5dv_flow_matcher* matcher_ = nullptr;
  ibv_flow* flow_ = nullptr;
  size_t slot_ = 0;
  uint16_t last_ = 0;

  void SetUp() override {
    ASSERT_EQ(b.create(command(0x816)), 0);
    domain_ = b.made;
    ASSERT_EQ(b.create(b.tir(b.number)), 0);
    tir_ = b.made;
    Parameters mask = wanted(true), value = wanted(false);
    flow_ = rule(mask, value);
    ASSERT_NE(flow_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_flow(flow_), 0);
    EXPECT_EQ(mlx5dv_destroy_flow_matcher(matcher_), 0);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(tir_), 0);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(domain_), 0);
  }
  ibv_flow* rule(Parameters& mask, Parameters& value) {
    mlx5dv_flow_matcher_attr attr{};
    attr.type = IBV_FLOW_ATTR_NORMAL;
    attr.match_criteria_enable = 1;
    attr.match_mask = mask.get();
    matcher_ = mlx5dv_create_flow_matcher(b.context, &attr);
    mlx5dv_flow_action_attr to{};
    to.type = MLX5DV_FLOW_ACTION_DEST_DEVX;
    to.obj = tir_;
    ibv_flow* const f = mlx5dv_create_flow(matcher_, value.get(), 1, &to);
    if (f == nullptr) {
      EXPECT_EQ(mlx5dv_destroy_flow_matcher(matcher_), 0);
    }
    return f;
  }
  /// A segment of `payload` bytes with the time `stamp`; the device sums it.
  void put(uint32_t seq, uint32_t payload, uint32_t stamp, uint8_t ttl = 64, uint8_t flags = 0x10) {
    std::array<std::byte, 14 + 20 + 32> head{};
    const auto set = [&](size_t at, auto v) { std::memcpy(head.data() + at, &v, sizeof v); };
    set(0, uint8_t{2});
    set(6, uint8_t{2});
    set(12, htobe16(0x0800));
    set(14, uint8_t{0x45});
    set(16, htobe16(static_cast<uint16_t>(52 + payload)));
    set(22, ttl);
    set(23, uint8_t{6});
    set(26, htobe32(0x0a000001));
    set(30, htobe32(0x0a000002));
    set(34, htobe16(6000));
    set(36, htobe16(kPort));
    set(38, htobe32(seq));
    set(42, htobe32(77 + seq));
    set(46, uint8_t{0x80});
    set(47, flags);
    set(48, htobe16(static_cast<uint16_t>(stamp)));
    set(54, htobe32(0x0101080a));
    set(58, htobe32(stamp));
    set(62, htobe32(stamp + 1));
    std::memset(a.slot(slot_), static_cast<int>(seq & 0xff), payload);
    last_ = a.put(head, a.segment(slot_++, payload));
    auto& eth = *reinterpret_cast<mlx5_wqe_eth_seg*>(a.block(last_) + sizeof(mlx5_wqe_ctrl_seg));
    eth.cs_flags = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
  }
  std::vector<Completion> take() {
    a.send(last_);
    while (pump()) {
    }
    a.sends.poll();
    slot_ = 0;
    return b.receives.poll();
  }
};

TEST_F(LroOfSoftnic, TheCompletionTellsWhatTheHeadersDoNot) {
  const uint64_t before = softnic_counts_of(b.device).rx_coalesced;
  b.post(0);
  put(1000, 500, 40, 60);
  put(1500, 500, 41, 50);
  put(2000, 100, 42, 64, 0x18);
  const auto got = take();
  ASSERT_EQ(got.size(), 1U);
  const mlx5_cqe64& c = got[0].cqe;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&c);
  const auto word = [&](size_t at) {
    uint32_t v;
    std::memcpy(&v, bytes + at, sizeof v);
    return be32toh(v);
  };
  EXPECT_EQ(be32toh(c.byte_cnt), 1U << 16 | (66 + 1100)) << "one stride of 2 KiB";
  EXPECT_EQ(be32toh(c.srqn_uidx) >> 24, 3U);
  EXPECT_EQ(bytes[4], 1U << 7 | 1U << 6) << "timestamps, PSH";
  EXPECT_EQ(bytes[5], 50U) << "least TTL";
  EXPECT_EQ(word(4) & 0xffff, 42U) << "window";
  EXPECT_EQ(word(8), 2077U) << "acknowledgement";
  EXPECT_EQ(word(48), 42U) << "the last segment's time";
  EXPECT_EQ(word(52), 43U);
  EXPECT_EQ(c.l4_hdr_type_etc >> 4 & 7, 4) << "TCP, ACK and data";
  // The headers are the first segment's, the payloads lie behind them.
  uint16_t total;
  std::memcpy(&total, b.slot(0) + 16, sizeof total);
  EXPECT_EQ(be16toh(total), 552U);
  EXPECT_EQ(b.slot(0)[66 + 499], std::byte(1000 & 0xff));
  EXPECT_EQ(b.slot(0)[66 + 500], std::byte(1500 & 0xff));
  EXPECT_EQ(b.slot(0)[66 + 1099], std::byte(2000 & 0xff));
  EXPECT_EQ(softnic_counts_of(b.device).rx_coalesced, before + 2);
}

TEST_F(LroOfSoftnic, OneAloneIsAsItWas) {
  b.post(0);
  put(1000, 500, 40);
  const auto got = take();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(be32toh(got[0].cqe.srqn_uidx) >> 24, 1U);
  EXPECT_EQ(got[0].cqe.rsvd4[5], 0);
}

TEST_F(LroOfSoftnic, NoLongerThanTheTirSays) {
  b.post(0);  // 4 KiB at most
  for (uint32_t i = 0; i < 5; ++i) put(1000 + i * 1400, 1400, 40);
  const auto got = take();
  ASSERT_EQ(got.size(), 3U);
  for (const uint32_t i : {0U, 1U}) {
    EXPECT_EQ(be32toh(got[i].cqe.srqn_uidx) >> 24, 2U);
    EXPECT_EQ(be32toh(got[i].cqe.byte_cnt), 2U << 16 | (66 + 2800));
  }
}

TEST_F(LroOfSoftnic, WithoutRoomTheyAreLostOneByOne) {
  const uint64_t before = softnic_counts_of(b.device).rx_no_receive;
  put(1000, 500, 40);
  put(1500, 500, 41);
  EXPECT_TRUE(take().empty());
  EXPECT_EQ(softnic_counts_of(b.device).rx_no_receive, before + 2);
}

TEST_F(LroOfSoftnic, RulesAskLayerByLayer) {
  const auto refused = [&](auto change) {
    mlx5dv_flow_matcher* const kept = matcher_;
    Parameters mask = wanted(true), value = wanted(false);
    change(mask.fields, value.fields);
    EXPECT_EQ(rule(mask, value), nullptr);
    matcher_ = kept;
    return errno;
  };
  EXPECT_EQ(refused([](auto& m, auto&) { m.set(0x8e, 2, 3); }), EOPNOTSUPP) << "ECN";
  EXPECT_EQ(refused([](auto& m, auto& v) {
              m = Words<0x40>{}.set(0xb0, 16, 0xffff);
              v = Words<0x40>{}.set(0xb0, 16, kPort);
            }),
            EINVAL)
      << "a port of no protocol";
  EXPECT_EQ(refused([](auto& m, auto& v) {
              m.set(0x74, 12, 0xfff);
              v.set(0x74, 12, 7);
            }),
            EINVAL)
      << "a VLAN of frames that need have none";
}

using LroOfSoftnicDeath = LroOfSoftnic;
TEST_F(LroOfSoftnicDeath, AValueThatTheMaskDoesNotAskFor) {
  Parameters mask = wanted(true), value = wanted(false);
  value.fields.set(0xa0, 16, 6000);
  EXPECT_DEATH((void)rule(mask, value), "byte 20 of the value");
}

}  // namespace
}  // namespace softnic_test
