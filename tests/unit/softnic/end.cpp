#include "end.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>

#include <cstdlib>
#include <cstring>

namespace softnic_test {

End::End(int number, const EndOptions& o) : memory(64 * kSlot) {
  // Who dies opens the device itself: the child of a fork has nothing of its parent's.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  unsetenv("SOFTNIC_WIRE");
  ibv_device** list = ibv_get_device_list(nullptr);
  device = list[number];
  ibv_free_device_list(list);
  mlx5dv_context_attr attr_of_open{};
  if (o.commands) attr_of_open.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
  context = mlx5dv_open_device(device, &attr_of_open);
  domain = ibv_alloc_pd(context);
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;  // the macro mixes it with another enumeration
  region = ibv_reg_mr(domain, memory.data(), memory.size(), kAccess);
  channel = ibv_create_comp_channel(context);
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  sent = ibv_create_cq(context, 64, nullptr, nullptr, 0);
  received = ibv_create_cq(context, 64, nullptr, channel, 0);
  if (o.fields != 0) {
    ibv_destroy_cq(received);
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = 64;
    wanted.channel = channel;
    wanted.wc_flags = o.fields;
    received = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &wanted));
  }
  if (o.compress) {
    ibv_destroy_cq(received);
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = 64;
    wanted.channel = channel;
    mlx5dv_cq_init_attr mlx5{};
    mlx5.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
    mlx5.cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH;
    received = ibv_cq_ex_to_cq(mlx5dv_create_cq(context, &wanted, &mlx5));
  }
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  attr.send_cq = sent;
  attr.recv_cq = received;
  attr.cap = {o.sends, o.receives, 2, 2, 128};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = domain;
  if (o.tso_header > 0) attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
  attr.max_tso_header = o.tso_header;
  pair = ibv_create_qp_ex(context, &attr);
  for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) EXPECT_EQ(move(to), 0);
}

End::~End() {
  for (ibv_flow* f : flows) EXPECT_EQ(ibv_destroy_flow(f), 0);
  EXPECT_EQ(ibv_destroy_qp(pair), 0);
  EXPECT_EQ(ibv_destroy_cq(received), 0);
  EXPECT_EQ(ibv_destroy_cq(sent), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

ibv_sge End::segment(size_t i, uint32_t bytes) {
  return {reinterpret_cast<uintptr_t>(slot(i)), bytes, region->lkey};
}

int End::post_receive(uint64_t id, ibv_sge s) {
  ibv_recv_wr wr{id, nullptr, &s, 1};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(pair, &wr, &bad);
}

int End::post_send(uint64_t id, ibv_sge s, unsigned flags) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.sg_list = &s;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = flags;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(pair, &wr, &bad);
}

int End::move(ibv_qp_state to) {
  ibv_qp_attr attr{};
  attr.qp_state = to;
  attr.port_num = 1;
  return ibv_modify_qp(pair, &attr, to == IBV_QPS_INIT ? IBV_QP_STATE | IBV_QP_PORT : IBV_QP_STATE);
}

void End::take_all() {
  ibv_flow_attr attr{};
  attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
  attr.size = sizeof attr;
  attr.port = 1;
  flows.push_back(ibv_create_flow(pair, &attr));
  ASSERT_NE(flows.back(), nullptr);
}

std::vector<ibv_wc> End::poll(ibv_cq* cq) {
  std::vector<ibv_wc> out(64);
  out.resize(static_cast<size_t>(ibv_poll_cq(cq, 64, out.data())));
  return out;
}

std::vector<std::byte> udp_frame(uint16_t port, size_t payload, uint8_t first_mac_byte) {
  std::vector<std::byte> f(42 + payload);
  const uint8_t head[] = {first_mac_byte, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0};
  std::memcpy(f.data(), head, sizeof head);
  const auto put = [&](size_t at, uint16_t v) {
    v = htons(v);
    std::memcpy(f.data() + at, &v, sizeof v);
  };
  put(16, static_cast<uint16_t>(28 + payload));
  f[22] = std::byte(64);
  f[23] = std::byte(17);
  const uint8_t addresses[] = {10, 0, 0, 1, 10, 0, 0, 2};
  std::memcpy(f.data() + 26, addresses, sizeof addresses);
  put(34, 6000);
  put(36, port);
  put(38, static_cast<uint16_t>(8 + payload));
  return f;
}

}  // namespace softnic_test
