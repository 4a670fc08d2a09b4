// libibverbs, loaded when the first device opens and not with the library: most hosts have no RDMA
// device, and a host without rdma-core runs every program. Only names without a macro of the same
// name in verbs.h may be called through it as they are; the others are `library().name`.
// Owner: process, never unloaded. Thread: any. Source: dlopen(3).
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "core/result.h"

#define VIREO_LIBIBVERBS_FUNCTIONS(X) \
  X(ack_cq_events)                    \
  X(alloc_pd)                         \
  X(close_device)                     \
  X(create_comp_channel)              \
  X(create_cq)                        \
  X(create_qp)                        \
  X(dealloc_pd)                       \
  X(dereg_mr)                         \
  X(destroy_comp_channel)             \
  X(destroy_cq)                       \
  X(destroy_qp)                       \
  X(fork_init)                        \
  X(free_device_list)                 \
  X(get_async_event)                  \
  X(ack_async_event)                  \
  X(get_cq_event)                     \
  X(get_device_list)                  \
  X(modify_qp)                        \
  X(open_device)                      \
  X(query_device)                     \
  X(query_port)                       \
  X(reg_mr)

namespace vireo::verbs {

/// The functions without their prefix `ibv_`.
struct Libibverbs {
#define VIREO_MEMBER(name) decltype(&::ibv_##name) name;
  VIREO_LIBIBVERBS_FUNCTIONS(VIREO_MEMBER)
#undef VIREO_MEMBER
  /// nullptr: a library before rdma-core 32.
  decltype(&::_ibv_query_gid_table) query_gid_table;
};

/// To succeed before library() is called. Errors: ENOENT.
Result<void> load_libibverbs();
/// What the loader said when it failed.
const std::string& libibverbs_failure();
const Libibverbs& library();

}  // namespace vireo::verbs
