// Objects that a program has the firmware make by commands (DevX), and rules by the device's own
// match values: as much of both as receiving with LRO needs. A command is big-endian, its fields
// are counted in bits from its beginning on.
// Owner: Context. Thread: holder of the port's lock. Source: mlx5dv_devx_obj_create(3),
// mlx5dv_create_flow(3); Linux's mlx5_ifc.h for numbers and places of fields.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/apparatus/softnic/queue_pair.h"

namespace vireo::softnic {
struct Context;
}

/// A transport domain, or a TIR: what rules send frames to, and what sends them on to a queue.
struct mlx5dv_devx_obj {
  vireo::softnic::Context* context;
  uint32_t number;
  std::unique_ptr<vireo::softnic::Qp> tir;  ///< as a pair whose table has that queue alone
  vireo::softnic::Table table;
  unsigned users = 0;  ///< of a transport domain
  mlx5dv_devx_obj* domain = nullptr;
};

struct mlx5dv_flow_matcher {
  vireo::softnic::Context* context;
  uint16_t priority;
  std::vector<uint8_t> mask;
};

namespace vireo::softnic {
/// Of a context that ends; holder of the port's lock.
void destroy_firmware_objects(Context& c);
}  // namespace vireo::softnic
