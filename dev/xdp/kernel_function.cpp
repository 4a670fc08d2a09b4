#include "dev/xdp/kernel_function.h"

#include <fcntl.h>
#include <linux/btf.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/fd.h"
#include "dev/xdp/uapi.h"
#include "dev/xdp/xsk.h"

namespace vireo::xdp {
namespace {

constexpr const char* kFile = "/sys/kernel/btf/vmlinux";

Mapping map(size_t bytes, int protection, int flags, int fd) {
  const long r = sys(SYS_mmap, 0, static_cast<long>(bytes), protection, flags, fd, 0);
  return r < 0 && r > -4096 ? Mapping() : Mapping(reinterpret_cast<void*>(r), bytes);
}

/// The kernel's BTF: mapped, or where the kernel does not map it (before 6.17), read, which takes a
/// call for each page.
Result<Mapping> read_types() {
  const UniqueFd fd(static_cast<int>(
      sys(SYS_openat, AT_FDCWD, reinterpret_cast<long>(kFile), O_RDONLY | O_CLOEXEC)));
  struct stat s{};
  if (!fd || sys(SYS_fstat, fd.get(), reinterpret_cast<long>(&s)) != 0) return fail(ENOENT, kFile);
  const auto bytes = static_cast<size_t>(s.st_size);
  if (Mapping whole = map(bytes, PROT_READ, MAP_PRIVATE, fd.get()); whole.base() != nullptr)
    return whole;
  Mapping copy = map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (copy.base() == nullptr) return fail(ENOMEM, kFile);
  for (size_t at = 0; at < bytes;) {
    const long n =
        sys(SYS_read, fd.get(), reinterpret_cast<long>(copy.base()) + static_cast<long>(at),
            static_cast<long>(bytes - at));
    if (n <= 0) return fail(n == 0 ? EIO : static_cast<int>(-n), kFile);
    at += static_cast<size_t>(n);
  }
  return copy;
}

/// Bytes that follow a type of this kind. -1: not known.
int rest_of(uint32_t info) {
  const auto members = static_cast<int>(BTF_INFO_VLEN(info));
  switch (BTF_INFO_KIND(info)) {
    case BTF_KIND_INT:
    case BTF_KIND_VAR:
    case BTF_KIND_DECL_TAG:
      return 4;
    case BTF_KIND_ARRAY:
      return sizeof(btf_array);
    case BTF_KIND_STRUCT:
    case BTF_KIND_UNION:
      return members * static_cast<int>(sizeof(btf_member));
    case BTF_KIND_ENUM:
      return members * static_cast<int>(sizeof(btf_enum));
    case BTF_KIND_ENUM64:
      return members * static_cast<int>(sizeof(btf_enum64));
    case BTF_KIND_FUNC_PROTO:
      return members * static_cast<int>(sizeof(btf_param));
    case BTF_KIND_DATASEC:
      return members * static_cast<int>(sizeof(btf_var_secinfo));
    default:
      return BTF_INFO_KIND(info) <= BTF_KIND_ENUM64 ? 0 : -1;
  }
}

}  // namespace

Result<int32_t> kernel_function(std::string_view name) {
  const auto all = read_types();
  if (!all) return std::unexpected(all.error());
  const std::string_view bytes(static_cast<const char*>(all->base()), all->length());
  btf_header h;
  if (bytes.size() < sizeof h) return fail(EINVAL, kFile);
  std::memcpy(&h, bytes.data(), sizeof h);
  const uint64_t types_at = uint64_t{h.hdr_len} + h.type_off;
  const uint64_t names_at = uint64_t{h.hdr_len} + h.str_off;
  if (h.magic != BTF_MAGIC || types_at + h.type_len > bytes.size() ||
      names_at + h.str_len > bytes.size())
    return fail(EINVAL, kFile);
  const std::string whole = '\0' + std::string(name) + '\0';
  const size_t found = bytes.substr(names_at, h.str_len).find(whole);
  if (found == std::string_view::npos) return fail(ENOENT, "function of the kernel");
  const std::string_view types = bytes.substr(types_at, h.type_len);
  int32_t number = 0;
  for (size_t at = 0; at + sizeof(btf_type) <= types.size();) {
    btf_type t;
    std::memcpy(&t, types.data() + at, sizeof t);
    ++number;
    if (t.name_off == found + 1 && BTF_INFO_KIND(t.info) == BTF_KIND_FUNC) return number;
    const int rest = rest_of(t.info);
    if (rest < 0) return fail(ENOTSUP, kFile);
    at += sizeof t + static_cast<size_t>(rest);
  }
  return fail(ENOENT, "function of the kernel");
}

}  // namespace vireo::xdp
