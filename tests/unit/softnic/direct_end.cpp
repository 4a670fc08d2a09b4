#include "direct_end.h"

namespace softnic_test {

bool DirectCq::has() const {
  const uint8_t o = next()->op_own;
  const bool turned = (consumed & cq.cqe_cnt) != 0;
  return o >> 4 != MLX5_CQE_INVALID && ((o & MLX5_CQE_OWNER_MASK) != 0) == turned;
}

void DirectCq::consume(uint32_t n) {
  consumed += n;
  cq.dbrec[0] = htobe32(consumed & 0xffffff);
}

std::vector<Completion> DirectCq::poll() {
  std::vector<Completion> out;
  for (; has(); ++consumed)
    out.push_back({mlx5dv_get_cqe_opcode(next()), mlx5dv_get_cqe_format(next()), *next()});
  consume(0);
  return out;
}

void DirectCq::arm(unsigned serial) {
  const uint32_t request = (serial & 3) << 28 | MLX5_CQ_DB_REQ_NOT | (consumed & 0xffffff);
  cq.dbrec[1] = htobe32(request);
  const uint64_t word = htobe64(uint64_t{request} << 32 | cq.cqn);
  std::memcpy(static_cast<std::byte*>(cq.cq_uar) + MLX5_CQ_DOORBELL, &word, sizeof word);
}

DirectEnd::DirectEnd(int number, const EndOptions& o) : End(number, o) {
  softnic_drive(o.by_hand);
  mlx5dv_obj obj{};
  obj.qp = {pair, &qp};
  EXPECT_EQ(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
  for (auto [in, out] : {std::pair{sent, &sends}, std::pair{received, &receives}}) {
    obj.cq = {in, &out->cq};
    EXPECT_EQ(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), 0);
  }
}

void DirectEnd::write(uint64_t at, const void* from, size_t bytes) {
  const size_t size = size_t{qp.sq.wqe_cnt} * 64;
  for (size_t i = 0; i < bytes; ++i)  // around the ring's end
    static_cast<std::byte*>(qp.sq.buf)[(at + i) % size] = static_cast<const std::byte*>(from)[i];
}

uint16_t DirectEnd::put(std::span<const std::byte> header, ibv_sge data, uint8_t flags,
                        uint16_t mss) {
  const uint16_t index = produced;
  const size_t segment = (14 + header.size() + 15) / 16;  // of Ethernet, in octowords
  const size_t octowords = 1 + segment + (data.length > 0 ? 1 : 0);
  mlx5_wqe_ctrl_seg ctrl{};
  mlx5dv_set_ctrl_seg(&ctrl, index, mss > 0 ? MLX5_OPCODE_TSO : MLX5_OPCODE_SEND, 0, pair->qp_num,
                      flags, static_cast<uint8_t>(octowords), 0, 0);
  mlx5_wqe_eth_seg eth{};
  eth.cs_flags = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
  eth.mss = htobe16(mss);
  eth.inline_hdr_sz = htobe16(static_cast<uint16_t>(header.size()));
  const uint64_t at = uint64_t{index} * 64;
  write(at, &ctrl, sizeof ctrl);
  write(at + 16, &eth, 14);
  write(at + 30, header.data(), header.size());
  if (data.length > 0) {
    mlx5_wqe_data_seg seg;
    mlx5dv_set_data_seg(&seg, data.length, data.lkey, data.addr);
    write(at + 16 + segment * 16, &seg, sizeof seg);
  }
  produced = static_cast<uint16_t>(produced + (octowords + 3) / 4);
  return index;
}

uint16_t DirectEnd::put_nop(unsigned octowords, uint8_t flags) {
  const uint16_t index = produced;
  mlx5_wqe_ctrl_seg ctrl{};
  mlx5dv_set_ctrl_seg(&ctrl, index, MLX5_OPCODE_NOP, 0, pair->qp_num, flags,
                      static_cast<uint8_t>(octowords), 0, 0);
  write(uint64_t{index} * 64, &ctrl, sizeof ctrl);
  produced = static_cast<uint16_t>(produced + (octowords + 3) / 4);
  return index;
}

void DirectEnd::ring(uint16_t index, int buffer) const {
  std::memcpy(static_cast<std::byte*>(qp.bf.reg) + buffer * static_cast<int>(qp.bf.size),
              block(index), 8);
}

void DirectEnd::receive(ibv_sge s) {
  auto* element = reinterpret_cast<mlx5_wqe_data_seg*>(
      static_cast<std::byte*>(qp.rq.buf) + size_t{posted & (qp.rq.wqe_cnt - 1U)} * qp.rq.stride);
  mlx5dv_set_data_seg(element, s.length, s.lkey, s.addr);
  if (qp.rq.stride > sizeof *element) mlx5dv_set_data_seg(element + 1, 0, MLX5_INVALID_LKEY, 0);
  qp.dbrec[MLX5_RCV_DBR] = htobe32(++posted);
}

}  // namespace softnic_test
