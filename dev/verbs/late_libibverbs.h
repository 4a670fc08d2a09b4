// libibverbs, loaded when the first device is opened: most hosts have no RDMA device, and programs
// must run without rdma-core. The listed functions are called as `library().name`, without their
// prefix, because verbs.h defines macros with some of the full names.
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

/// The functions, without the prefix `ibv_`.
struct Libibverbs {
#define VIREO_MEMBER(name) decltype(&::ibv_##name) name;
  VIREO_LIBIBVERBS_FUNCTIONS(VIREO_MEMBER)
#undef VIREO_MEMBER
  /// Null in libraries older than rdma-core 32.
  decltype(&::_ibv_query_gid_table) query_gid_table;
};

/// Must succeed before library() is called. Errors: ENOENT.
Result<void> load_libibverbs();
/// The loader's message after a failure.
const std::string& libibverbs_failure();
const Libibverbs& library();

}  // namespace vireo::verbs
