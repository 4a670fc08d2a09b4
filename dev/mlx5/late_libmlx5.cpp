#include "dev/mlx5/late_libmlx5.h"

#include <dlfcn.h>

#include "core/log.h"

namespace vireo::mlx5 {
namespace {

constinit Libmlx5 g_library{};

bool bind() {
  void* const library = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto symbol = [&](auto& to, const char* name) {
    if (library != nullptr) to = reinterpret_cast<std::decay_t<decltype(to)>>(dlsym(library, name));
    return to != nullptr;
  };
  const bool all = symbol(g_library.is_supported, "mlx5dv_is_supported") &&
                   symbol(g_library.query_device, "mlx5dv_query_device") &&
                   symbol(g_library.init_obj, "mlx5dv_init_obj") &&
                   symbol(g_library.create_cq, "mlx5dv_create_cq");
  symbol(g_library.create_wq, "mlx5dv_create_wq");
  symbol(g_library.open_device, "mlx5dv_open_device");
  symbol(g_library.general_cmd, "mlx5dv_devx_general_cmd");
  symbol(g_library.obj_create, "mlx5dv_devx_obj_create");
  symbol(g_library.obj_destroy, "mlx5dv_devx_obj_destroy");
  symbol(g_library.create_matcher, "mlx5dv_create_flow_matcher");
  symbol(g_library.destroy_matcher, "mlx5dv_destroy_flow_matcher");
  symbol(g_library.create_flow, "mlx5dv_create_flow");
  symbol(g_library.get_clock_info, "mlx5dv_get_clock_info");
  if (!all) log<LogLevel::kDebug>("{}", dlerror());
  return all;
}

}  // namespace

Result<void> load_libmlx5() {
  static const bool bound = bind();
  if (!bound) return fail(ENOENT, "libmlx5.so.1 (install rdma-core)");
  return {};
}

const Libmlx5& library() { return g_library; }

}  // namespace vireo::mlx5
