#include "tests/apparatus/softnic/extended_cq.h"

#include <cerrno>

#include "tests/apparatus/softnic/clock.h"
#include "tests/apparatus/softnic/lacks.h"
#include "tests/apparatus/softnic/nic.h"
#include "tests/apparatus/softnic/strict.h"

namespace vireo::softnic {
namespace {

constexpr uint64_t kTimes =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

Cq& own(ibv_cq_ex* cq) { return *static_cast<Cq*>(ibv_cq_ex_to_cq(cq)); }

uint64_t fields_we_have() {
  uint64_t have = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_CVLAN;
  if (!lacks("tags")) have |= IBV_WC_EX_WITH_FLOW_TAG;
  if (!lacks("stamps")) have |= kTimes;
  if (lacks("wallclock")) have &= ~uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
  return have;
}

int start_poll(ibv_cq_ex* ex, ibv_poll_cq_attr* attr) {
  Cq& cq = own(ex);
  Port& port = of(cq.context).nic->port;
  const std::lock_guard hold(port.lock);
  if (attr->comp_mask != 0) return EINVAL;
  if (cq.direct != nullptr) {
    broken_rule("ibv_start_poll: mlx5dv_init_obj gave completion queue %u away", cq.handle);
    return EINVAL;
  }
  if (cq.batch != Batch::kNone) {
    broken_rule("ibv_start_poll: the batch before was not ended by ibv_end_poll");
    return EINVAL;
  }
  if (cq.empty()) port.work();
  if (!cq.advance()) return ENOENT;
  cq.batch = Batch::kAtOne;
  return 0;
}

int next_poll(ibv_cq_ex* ex) {
  Cq& cq = own(ex);
  const std::lock_guard hold(of(cq.context).nic->port.lock);
  if (cq.batch == Batch::kNone) {
    broken_rule("ibv_next_poll: no ibv_start_poll went before");
    return EINVAL;
  }
  cq.batch = cq.advance() ? Batch::kAtOne : Batch::kPast;
  return cq.batch == Batch::kAtOne ? 0 : ENOENT;
}

void end_poll(ibv_cq_ex* ex) {
  Cq& cq = own(ex);
  const std::lock_guard hold(of(cq.context).nic->port.lock);
  if (cq.batch == Batch::kNone)
    broken_rule("ibv_end_poll: no batch; where ibv_start_poll fails, none began");
  cq.batch = Batch::kNone;
  cq.release();
}

/// The completion of which `name` is read.
const Cqe& read(ibv_cq_ex* ex, const char* name, uint64_t field, bool when_failed) {
  const Cq& cq = own(ex);
  if (cq.batch != Batch::kAtOne) broken_rule("ibv_wc_read_%s: there is no completion", name);
  if ((cq.fields & field) != field)
    broken_rule("ibv_wc_read_%s: it was not asked for when the queue was made", name);
  if (!when_failed && cq.current.wc.status != IBV_WC_SUCCESS)
    broken_rule("ibv_wc_read_%s: a completion of status %d has none", name, cq.current.wc.status);
  return cq.current;
}

const Cqe& read_received(ibv_cq_ex* ex, const char* name, uint64_t field) {
  const Cqe& e = read(ex, name, field, false);
  if (e.wc.opcode != IBV_WC_RECV)
    broken_rule("ibv_wc_read_%s: the completion of a send has none", name);
  return e;
}

ibv_wc_opcode read_opcode(ibv_cq_ex* ex) { return read(ex, "opcode", 0, false).wc.opcode; }
uint32_t read_vendor_err(ibv_cq_ex* ex) { return read(ex, "vendor_err", 0, true).wc.vendor_err; }
unsigned read_wc_flags(ibv_cq_ex* ex) { return read(ex, "wc_flags", 0, false).wc.wc_flags; }
uint32_t read_qp_num(ibv_cq_ex* ex) {
  return read(ex, "qp_num", IBV_WC_EX_WITH_QP_NUM, true).wc.qp_num;
}
uint32_t read_byte_len(ibv_cq_ex* ex) {
  return read_received(ex, "byte_len", IBV_WC_EX_WITH_BYTE_LEN).wc.byte_len;
}
__be32 read_imm_data(ibv_cq_ex* ex) {
  broken_rule("ibv_wc_read_imm_data: a raw packet has none");
  return read(ex, "imm_data", IBV_WC_EX_WITH_IMM, false).wc.imm_data;
}
uint32_t read_src_qp(ibv_cq_ex* ex) {
  return read_received(ex, "src_qp", IBV_WC_EX_WITH_SRC_QP).wc.src_qp;
}
uint32_t read_slid(ibv_cq_ex* ex) { return read_received(ex, "slid", IBV_WC_EX_WITH_SLID).wc.slid; }
uint8_t read_sl(ibv_cq_ex* ex) { return read_received(ex, "sl", IBV_WC_EX_WITH_SL).wc.sl; }
uint8_t read_dlid_path_bits(ibv_cq_ex* ex) {
  return read_received(ex, "dlid_path_bits", IBV_WC_EX_WITH_DLID_PATH_BITS).wc.dlid_path_bits;
}
uint64_t read_completion_ts(ibv_cq_ex* ex) {
  return read(ex, "completion_ts", IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, false).seen.ticks;
}
uint64_t read_completion_wallclock_ns(ibv_cq_ex* ex) {
  return read(ex, "completion_wallclock_ns", IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, false)
      .seen.wall_ns;
}
uint16_t read_cvlan(ibv_cq_ex* ex) {
  return read_received(ex, "cvlan", IBV_WC_EX_WITH_CVLAN).seen.vlan_tag;
}
uint32_t read_flow_tag(ibv_cq_ex* ex) {
  return read_received(ex, "flow_tag", IBV_WC_EX_WITH_FLOW_TAG).seen.flow_tag;
}
void read_tm_info(ibv_cq_ex* ex, ibv_wc_tm_info* info) {
  read(ex, "tm_info", IBV_WC_EX_WITH_TM_INFO, false);
  *info = {};
}

}  // namespace

void extend(Cq& cq, uint64_t fields) {
  cq.fields = fields;
  cq.tells_time = (fields & kTimes) != 0;
  ibv_cq_ex& ex = cq.ex();
  ex.comp_mask = 0;
  ex.start_poll = start_poll;
  ex.next_poll = next_poll;
  ex.end_poll = end_poll;
  ex.read_opcode = read_opcode;
  ex.read_vendor_err = read_vendor_err;
  ex.read_byte_len = read_byte_len;
  ex.read_imm_data = read_imm_data;
  ex.read_qp_num = read_qp_num;
  ex.read_src_qp = read_src_qp;
  ex.read_wc_flags = read_wc_flags;
  ex.read_slid = read_slid;
  ex.read_sl = read_sl;
  ex.read_dlid_path_bits = read_dlid_path_bits;
  ex.read_completion_ts = read_completion_ts;
  ex.read_cvlan = read_cvlan;
  ex.read_flow_tag = read_flow_tag;
  ex.read_tm_info = read_tm_info;
  ex.read_completion_wallclock_ns = read_completion_wallclock_ns;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;  // of no weight here
  const bool has_flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
  if (lacks("extended") || (attr->wc_flags & ~fields_we_have()) != 0 ||
      (attr->comp_mask & ~uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0 ||
      (has_flags && (attr->flags & ~kFlags) != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  ibv_cq* cq = ibv_create_cq(context, static_cast<int>(attr->cqe), attr->cq_context, attr->channel,
                             static_cast<int>(attr->comp_vector));
  if (cq == nullptr) return nullptr;
  Cq& made = *static_cast<Cq*>(cq);
  extend(made, attr->wc_flags);
  return &made.ex();
}

int query_rt_values(ibv_context*, ibv_values_ex* values) {
  if (lacks("clock")) return EOPNOTSUPP;
  if ((values->comp_mask & ~uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EINVAL;
  // As the drivers of mlx4 and mlx5 give it: the count, where nanoseconds would stand.
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0)
    values->raw_clock = {0, static_cast<long>(ticks_now())};
  return 0;
}

}  // namespace vireo::softnic
