#include "dev/verbs/late_libibverbs.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "core/log.h"

namespace vireo::verbs {
namespace {

constinit Libibverbs g_library{};

std::string& failure() {
  static auto* text = new std::string;  // outlives static destructors
  return *text;
}

bool bind() {
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  bool all = library != nullptr;
#define VIREO_BIND(name)                                                                       \
  if (all) {                                                                                   \
    g_library.name = reinterpret_cast<decltype(g_library.name)>(dlsym(library, "ibv_" #name)); \
    all = g_library.name != nullptr;                                                           \
  }
  VIREO_LIBIBVERBS_FUNCTIONS(VIREO_BIND)
#undef VIREO_BIND
  if (!all) {
    failure() = dlerror();
    log<LogLevel::kDebug>("{}", failure());
    return false;
  }
  g_library.query_gid_table =
      reinterpret_cast<decltype(g_library.query_gid_table)>(dlsym(library, "_ibv_query_gid_table"));
  // First of all calls, as the manual requires. Before Linux 5.13, fork shares registered pages and
  // the first writer, parent or child, gets a copy that the device does not see. The driver's rings
  // need this protection; our packets are not inherited anyway. On later kernels the call returns
  // at once.
  if (const int error = g_library.fork_init(); error != 0)
    log<LogLevel::kInfo>("ibv_fork_init: {}", std::strerror(error));
  return true;
}

}  // namespace

Result<void> load_libibverbs() {
  static const bool bound = bind();
  if (!bound) return fail(ENOENT, "libibverbs.so.1 (install rdma-core)");
  return {};
}

const std::string& libibverbs_failure() { return failure(); }

const Libibverbs& library() { return g_library; }

}  // namespace vireo::verbs
