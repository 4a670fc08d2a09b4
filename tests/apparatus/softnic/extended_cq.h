// Completion queues whose entries are read field by field (ibv_create_cq_ex(3)): which fields is
// said when one is made. Strict: a field that was not asked for or that this completion does not
// have, reading outside a batch, a batch within a batch or one that is not ended.
// Owner: Context. Thread: the program's; a batch belongs to one thread.
#pragma once

#include <infiniband/verbs.h>

namespace vireo::softnic {

struct Cq;

/// Of verbs_context. Errors: EINVAL, EOPNOTSUPP a field or flag that is not there.
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
/// It tells these fields (IBV_WC_EX_WITH_*) from now on.
void extend(Cq& cq, uint64_t fields);
/// Of verbs_context.
int query_rt_values(ibv_context* context, ibv_values_ex* values);

}  // namespace vireo::softnic
