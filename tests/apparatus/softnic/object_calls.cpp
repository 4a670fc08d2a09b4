// The calls of libibverbs on memory, completion queues, queue pairs and flow rules.
// Source: ibv_reg_mr(3), ibv_create_cq(3), ibv_create_qp(3), ibv_modify_qp(3), ibv_post_send(3),
// ibv_poll_cq(3), ibv_create_flow(3).
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "core/high_fd.h"
#include "dev/shm/kernel_calls.h"
#include "tests/apparatus/softnic/extended_cq.h"
#include "tests/apparatus/softnic/kernel_calls.h"
#include "tests/apparatus/softnic/lacks.h"
#include "tests/apparatus/softnic/nic.h"
#include "tests/apparatus/softnic/strict.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace vireo;
using namespace vireo::softnic;

namespace {

Port& port_of(ibv_context* c) { return of(c).nic->port; }

/// For calls that return a pointer.
std::nullptr_t refuse(int error) {
  errno = error;
  return nullptr;
}

template <class T>
void forget(std::vector<std::unique_ptr<T>>& all, const T* one) {
  std::erase_if(all, [&](const auto& p) { return p.get() == one; });
}

ibv_qp* create_qp(ibv_context* context, ibv_pd* pd, const ibv_qp_init_attr& attr,
                  uint16_t tso_header) {
  Context& c = of(context);
  const ibv_qp_cap& cap = attr.cap;
  if (attr.qp_type != IBV_QPT_RAW_PACKET || attr.srq != nullptr || lacks("pairs"))
    return refuse(EOPNOTSUPP);
  if (lacks("rights")) return refuse(EPERM);
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr || pd == nullptr) return refuse(EINVAL);
  ibv_device_attr limits;
  ibv_query_device(context, &limits);
  const uint32_t most_inline = lacks("inline") ? 64 : 1024;
  if (cap.max_send_wr > static_cast<uint32_t>(limits.max_qp_wr) ||
      cap.max_recv_wr > static_cast<uint32_t>(limits.max_qp_wr) ||
      cap.max_send_sge > static_cast<uint32_t>(limits.max_sge) ||
      cap.max_recv_sge > static_cast<uint32_t>(limits.max_sge) ||
      cap.max_inline_data > most_inline ||
      tso_header > (lacks("tso") || lacks("tsopairs") ? 0 : 256))
    return refuse(EINVAL);
  const std::lock_guard hold(c.nic->port.lock);
  if (c.nic->port.faults.removed) return refuse(EIO);
  if (const int error = c.nic->plug(); error != 0) return refuse(error);
  Qp& qp = *c.qps.emplace_back(std::make_unique<Qp>(attr, tso_header));
  qp.context = context;
  qp.qp_context = attr.qp_context;
  qp.pd = pd;
  qp.send_cq = attr.send_cq;
  qp.recv_cq = attr.recv_cq;
  qp.qp_num = qp.handle = ++c.nic->last_qp;
  qp.state = IBV_QPS_RESET;
  qp.qp_type = attr.qp_type;
  ++static_cast<Pd*>(pd)->users;
  ++qp.sent().users;
  ++qp.received().users;
  c.nic->port.attach(qp);
  return &qp;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* a) {
  if ((a->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) != 0) return create_hash_pair(context, *a);
  if ((a->comp_mask & ~uint32_t{IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER}) != 0 ||
      (a->comp_mask & IBV_QP_INIT_ATTR_PD) == 0)
    return refuse(EOPNOTSUPP);
  const ibv_qp_init_attr attr{a->qp_context, a->send_cq, a->recv_cq,   a->srq,
                              a->cap,        a->qp_type, a->sq_sig_all};
  const bool tso = (a->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) != 0;
  return create_qp(context, a->pd, attr, tso ? a->max_tso_header : uint16_t{0});
}

/// True if ibv_modify_qp(3) lets a raw-packet queue pair go from one state to the other.
bool may_go(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return true;
  switch (from) {
    case IBV_QPS_RESET:
      return to == IBV_QPS_INIT;
    case IBV_QPS_INIT:
      return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
    case IBV_QPS_RTR:
    case IBV_QPS_RTS:
      return to == IBV_QPS_RTS;
    default:
      return false;
  }
}

void reset(Port& port, Qp& qp) {
  if (qp.state != IBV_QPS_RESET) port.enter_error(qp);
  qp.sent().purge(qp.qp_num);
  qp.received().purge(qp.qp_num);
  qp.sends.clear();
  qp.receives.clear();
  if (qp.direct != nullptr) {
    qp.direct->sends.clear();
    qp.direct->receives.clear();
  }
  qp.state = IBV_QPS_RESET;
}

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) {
  Port& port = port_of(qp->context);
  const std::lock_guard hold(port.lock);
  if (port.faults.removed) return refuse(EIO);
  if (const int error = refusal_of_rule(*attr); error != 0) return refuse(error);
  auto flow = port.flows.add(*static_cast<Qp*>(qp), *attr);
  if (!flow) return refuse(flow.error());
  if (const int error = port.want(**flow)) {
    port.flows.remove(*flow);
    return refuse(error);
  }
  (*flow)->context = qp->context;
  return *flow;
}

int destroy_flow(ibv_flow* flow) {
  Port& port = port_of(flow->context);
  const std::lock_guard hold(port.lock);
  port.unwant(*static_cast<Flow*>(flow));
  port.flows.remove(static_cast<Flow*>(flow));
  return 0;
}

int poll_cq(ibv_cq* cq, int most, ibv_wc* out) {
  Port& port = port_of(cq->context);
  const std::lock_guard hold(port.lock);
  Cq& q = *static_cast<Cq*>(cq);
  if (q.direct != nullptr) {
    broken_rule("ibv_poll_cq: mlx5dv_init_obj gave completion queue %u away", cq->handle);
    return -1;
  }
  if (q.batch != Batch::kNone) {
    broken_rule("ibv_poll_cq: a batch of ibv_start_poll is open");
    return -1;
  }
  if (q.empty()) port.work();
  return static_cast<int>(q.poll({out, static_cast<size_t>(std::max(most, 0))}));
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  Port& port = port_of(cq->context);
  const std::lock_guard hold(port.lock);
  Cq& q = *static_cast<Cq*>(cq);
  if (q.direct != nullptr) {
    broken_rule("ibv_req_notify_cq: mlx5dv_init_obj gave completion queue %u away", cq->handle);
    return EINVAL;
  }
  if (q.armed != Armed::kAny) q.armed = solicited_only != 0 ? Armed::kSolicited : Armed::kAny;
  // A completion that nobody polled yet fires at once (ibv_req_notify_cq(3) leaves it open).
  if (!q.empty() && solicited_only == 0) {
    q.tell();
  } else {
    port.arm();
  }
  return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  Port& port = port_of(qp->context);
  const std::lock_guard hold(port.lock);
  return port.post(*static_cast<Qp*>(qp), wr, bad);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Port& port = port_of(qp->context);
  const std::lock_guard hold(port.lock);
  return port.post(*static_cast<Qp*>(qp), wr, bad);
}

int modify_cq(ibv_cq*, ibv_modify_cq_attr*) { return 0; }  // nothing here is ever delayed

}  // namespace

namespace vireo::softnic {

void fill_operations(Context& c) {
  c.ibv_create_flow = create_flow;
  c.ibv_destroy_flow = destroy_flow;
  c.create_qp_ex = create_qp_ex;
  c.modify_cq = modify_cq;
  c.create_cq_ex = create_cq_ex;
  c.query_rt_values = query_rt_values;
  fill_work_queue_operations(c);
  ibv_context_ops& ops = c.context.ops;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
}

void destroy(Context& c, Qp& qp) {
  Port& port = c.nic->port;
  if (qp.table != nullptr) {
    --qp.table->users;
  } else {
    reset(port, qp);
    --qp.sent().users;
    --qp.received().users;
  }
  port.detach(qp);
  if (qp.direct != nullptr) port.note_direct(-1);
  --static_cast<Pd*>(qp.pd)->users;
  forget(c.qps, &qp);
  c.nic->unplug();
}

}  // namespace vireo::softnic

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  Context& c = of(context);
  const std::lock_guard hold(c.nic->port.lock);
  Pd& pd = *c.pds.emplace_back(std::make_unique<Pd>());
  pd.context = context;
  pd.handle = static_cast<uint32_t>(c.pds.size());
  return &pd;
}

int ibv_dealloc_pd(ibv_pd* pd) {
  Context& c = of(pd->context);
  const std::lock_guard hold(c.nic->port.lock);
  auto* own = static_cast<Pd*>(pd);
  if (own->users > 0) return EBUSY;
  forget(c.pds, own);
  return 0;
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
  if (lacks("memory")) return refuse(ENOMEM);
  if (length == 0) return refuse(EINVAL);
  if (iova != reinterpret_cast<uintptr_t>(address)) return refuse(EOPNOTSUPP);
  Port& port = port_of(pd->context);
  const std::lock_guard hold(port.lock);
  return port.memory.add(*static_cast<Pd*>(pd), address, length, access);
}
ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
  return ibv_reg_mr_iova2(pd, address, length, iova, static_cast<unsigned>(access));
}
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  return ibv_reg_mr_iova(pd, address, length, reinterpret_cast<uintptr_t>(address), access);
}

int ibv_dereg_mr(ibv_mr* mr) {
  Port& port = port_of(mr->context);
  const std::lock_guard hold(port.lock);
  port.memory.remove(*static_cast<Mr*>(mr));
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  Context& c = of(context);
  auto channel = std::make_unique<Channel>();
  channel->counter.reset(to_high_number(kernel::eventfd()));
  channel->set.reset(to_high_number(kernel::epoll_create1(EPOLL_CLOEXEC)));
  if (!channel->counter || !channel->set) return nullptr;
  channel->context = context;
  channel->fd = channel->set.get();
  channel->refcnt = 0;
  if (!channel->watch(channel->counter.get())) return nullptr;
  const std::lock_guard hold(c.nic->port.lock);
  c.nic->port.attach(*channel);
  return c.channels.emplace_back(std::move(channel)).get();
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  Context& c = of(channel->context);
  const std::lock_guard hold(c.nic->port.lock);
  if (channel->refcnt > 0) return EBUSY;
  auto* own = static_cast<Channel*>(channel);
  c.nic->port.detach(*own);
  forget(c.channels, own);
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context,
                      ibv_comp_channel* channel, int vector) {
  ibv_device_attr limits;
  ibv_query_device(context, &limits);
  if (entries < 1 || entries > limits.max_cqe || vector != 0) return refuse(EINVAL);
  Context& c = of(context);
  const std::lock_guard hold(c.nic->port.lock);
  if (c.nic->port.faults.removed) return refuse(EIO);
  Cq& cq = *c.cqs.emplace_back(std::make_unique<Cq>());
  cq.context = context;
  cq.channel = channel;
  cq.to = static_cast<Channel*>(channel);
  cq.cq_context = cq_context;
  cq.handle = static_cast<uint32_t>(c.cqs.size());
  cq.ring.resize(std::bit_ceil(static_cast<uint32_t>(entries)));
  cq.cqe = static_cast<int>(cq.ring.size());
  if (channel != nullptr) ++channel->refcnt;
  return &cq;
}

int ibv_destroy_cq(ibv_cq* cq) {
  Context& c = of(cq->context);
  const std::lock_guard hold(c.nic->port.lock);
  auto* own = static_cast<Cq*>(cq);
  if (own->users > 0) return EBUSY;
  if (own->batch != Batch::kNone)
    broken_rule("ibv_destroy_cq: its last batch was not ended by ibv_end_poll");
  if (own->comp_events_completed != own->events_given)
    broken_rule("ibv_destroy_cq: %u events were got and %u acknowledged: it would wait for ever",
                own->events_given, own->comp_events_completed);
  if (own->to != nullptr) {
    --own->to->refcnt;
    auto& events = own->to->events;
    if (std::erase(events, own) > 0 && events.empty())
      (void)kernel::read_counter(own->to->counter.get());
  }
  if (own->direct != nullptr) c.nic->port.detach(*own);
  forget(c.cqs, own);
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  Port& port = port_of(channel->context);
  auto& own = *static_cast<Channel*>(channel);
  for (;;) {
    {
      const std::lock_guard hold(port.lock);
      port.woken();
      if (!own.events.empty()) {
        Cq& told = *own.events.front();
        own.events.pop_front();
        if (own.events.empty()) (void)kernel::read_counter(own.counter.get());
        ++told.events_given;
        *cq = &told;
        *cq_context = told.cq_context;
        return 0;
      }
    }
    if ((kernel::fcntl(channel->fd, F_GETFL, nullptr) & O_NONBLOCK) != 0) {
      errno = EAGAIN;
      return -1;
    }
    kernel::wait_readable(channel->fd);
  }
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned n) {
  const std::lock_guard hold(port_of(cq->context).lock);
  auto& own = *static_cast<Cq*>(cq);
  if (n > own.events_given - own.comp_events_completed)
    broken_rule("ibv_ack_cq_events: %u, of %u that are not acknowledged yet", n,
                own.events_given - own.comp_events_completed);
  own.comp_events_completed += n;
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return create_qp(pd->context, pd, *attr, 0);
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  const std::lock_guard hold(port_of(qp->context).lock);
  const auto& own = *static_cast<Qp*>(qp);
  *attr = {};
  attr->qp_state = attr->cur_qp_state = own.state;
  attr->cap = own.init.cap;
  attr->port_num = 1;
  if (init != nullptr) *init = own.init;
  return 0;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  Port& port = port_of(qp->context);
  const std::lock_guard hold(port.lock);
  auto& own = *static_cast<Qp*>(qp);
  if (own.table != nullptr) return EOPNOTSUPP;
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr->cur_qp_state != own.state) return EINVAL;
  if ((mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_PORT)) != 0) return EINVAL;
  if ((mask & IBV_QP_STATE) == 0) return 0;
  const ibv_qp_state to = attr->qp_state;
  if (!may_go(own.state, to)) return EINVAL;
  const bool names_port = (mask & IBV_QP_PORT) != 0;
  if ((own.state == IBV_QPS_RESET && to == IBV_QPS_INIT) != names_port &&
      !(own.state == IBV_QPS_INIT && to == IBV_QPS_INIT))
    return EINVAL;
  if (names_port && attr->port_num != 1) return EINVAL;
  if (port.faults.removed && to != IBV_QPS_RESET && to != IBV_QPS_ERR) return EIO;
  if (to == IBV_QPS_RESET)
    reset(port, own);
  else if (to == IBV_QPS_ERR)
    port.enter_error(own);
  own.state = to;
  return 0;
}

int ibv_destroy_qp(ibv_qp* qp) {
  Context& c = of(qp->context);
  const std::lock_guard hold(c.nic->port.lock);
  auto& own = *static_cast<Qp*>(qp);
  if (c.nic->port.flows.has_rules_of(own)) return EBUSY;
  destroy(c, own);
  return 0;
}

}  // extern "C"
