#include "dev/xdp/late_libbpf.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>

#include "core/log.h"

#define VIREO_TEXT(x) #x
#define VIREO_VALUE_TEXT(macro) VIREO_TEXT(macro)

#define VIREO_LIBBPF_FUNCTIONS(X) \
  X(bpf_link_create)              \
  X(bpf_map__fd)                  \
  X(bpf_map__set_max_entries)     \
  X(bpf_map_create)               \
  X(bpf_map_delete_elem)          \
  X(bpf_map_get_next_key)         \
  X(bpf_map_lookup_elem)          \
  X(bpf_map_update_elem)          \
  X(bpf_obj_get_info_by_fd)       \
  X(bpf_object__destroy_skeleton) \
  X(bpf_object__load_skeleton)    \
  X(bpf_object__open_skeleton)    \
  X(bpf_program__fd)              \
  X(bpf_program__insn_cnt)        \
  X(bpf_program__insns)           \
  X(bpf_program__set_insns)       \
  X(libbpf_set_print)

namespace vireo::xdp {
namespace {

struct Functions {
#define VIREO_MEMBER(name) decltype(&::name) name;
  VIREO_LIBBPF_FUNCTIONS(VIREO_MEMBER)
#undef VIREO_MEMBER
};
constinit Functions g_libbpf{};

bool bind() {
  // Never without the version: the skeleton requires one ABI.
  constexpr char kName[] = "libbpf.so." VIREO_VALUE_TEXT(LIBBPF_MAJOR_VERSION);
  void* const library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  bool all = library != nullptr;
#define VIREO_BIND(name)                                                              \
  if (all) {                                                                          \
    g_libbpf.name = reinterpret_cast<decltype(g_libbpf.name)>(dlsym(library, #name)); \
    all = g_libbpf.name != nullptr;                                                   \
  }
  VIREO_LIBBPF_FUNCTIONS(VIREO_BIND)
#undef VIREO_BIND
  if (!all) log<LogLevel::kDebug>("{}", dlerror());
  return all;
}

}  // namespace

Result<void> load_libbpf() {
  static const bool bound = bind();
  if (!bound)
    return fail(ENOENT, "libbpf.so." VIREO_VALUE_TEXT(LIBBPF_MAJOR_VERSION) " (install libbpf)");
  return {};
}

}  // namespace vireo::xdp

using vireo::xdp::g_libbpf;

int bpf_link_create(int prog, int target, bpf_attach_type type, const bpf_link_create_opts* o) {
  return g_libbpf.bpf_link_create(prog, target, type, o);
}
int bpf_map__fd(const bpf_map* map) { return g_libbpf.bpf_map__fd(map); }
int bpf_map__set_max_entries(bpf_map* map, __u32 entries) {
  return g_libbpf.bpf_map__set_max_entries(map, entries);
}
int bpf_map_create(bpf_map_type type, const char* name, __u32 key_bytes, __u32 value_bytes,
                   __u32 entries, const bpf_map_create_opts* o) {
  return g_libbpf.bpf_map_create(type, name, key_bytes, value_bytes, entries, o);
}
int bpf_map_delete_elem(int fd, const void* key) { return g_libbpf.bpf_map_delete_elem(fd, key); }
int bpf_map_get_next_key(int fd, const void* key, void* next) {
  return g_libbpf.bpf_map_get_next_key(fd, key, next);
}
int bpf_map_lookup_elem(int fd, const void* key, void* value) {
  return g_libbpf.bpf_map_lookup_elem(fd, key, value);
}
int bpf_map_update_elem(int fd, const void* key, const void* value, __u64 flags) {
  return g_libbpf.bpf_map_update_elem(fd, key, value, flags);
}
int bpf_obj_get_info_by_fd(int fd, void* info, __u32* bytes) {
  return g_libbpf.bpf_obj_get_info_by_fd(fd, info, bytes);
}
void bpf_object__destroy_skeleton(bpf_object_skeleton* s) {
  g_libbpf.bpf_object__destroy_skeleton(s);
}
int bpf_object__load_skeleton(bpf_object_skeleton* s) {
  return g_libbpf.bpf_object__load_skeleton(s);
}
int bpf_object__open_skeleton(bpf_object_skeleton* s, const bpf_object_open_opts* o) {
  return g_libbpf.bpf_object__open_skeleton(s, o);
}
int bpf_program__fd(const bpf_program* program) { return g_libbpf.bpf_program__fd(program); }
size_t bpf_program__insn_cnt(const struct bpf_program* program) {
  return g_libbpf.bpf_program__insn_cnt(program);
}
const bpf_insn* bpf_program__insns(const struct bpf_program* program) {
  return g_libbpf.bpf_program__insns(program);
}
int bpf_program__set_insns(struct bpf_program* program, bpf_insn* all, size_t n) {
  return g_libbpf.bpf_program__set_insns(program, all, n);
}
libbpf_print_fn_t libbpf_set_print(libbpf_print_fn_t print) {
  return g_libbpf.libbpf_set_print(print);
}
