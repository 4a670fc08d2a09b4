#include "tools/vireo-doctor/host.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/if_xdp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "core/arena.h"
#include "core/fd.h"
#include "dev/xdp/trial.h"

namespace vireo::doctor {
namespace {

bool has_capability(unsigned which) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return (data[which / 32].effective >> (which % 32) & 1U) != 0;
}

/// An RDMA device needs only the first of them (ibv_create_qp(3), ibv_create_flow(3)).
Check check_rights(bool for_xdp) {
  std::string missing;
  const auto need = [&](bool have, const char* name) {
    if (!have) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  need(has_capability(CAP_NET_RAW), "CAP_NET_RAW");
  if (for_xdp) {
    need(has_capability(CAP_NET_ADMIN), "CAP_NET_ADMIN");
    need(has_capability(CAP_BPF) || has_capability(CAP_SYS_ADMIN), "CAP_BPF");
  }
  if (missing.empty())
    return {Level::kOk, "rights",
            for_xdp ? "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF" : "CAP_NET_RAW", "",
            Carriage::kRights};
  return {Level::kFail, "rights", missing + " missing",
          "run as root, or with ambient capabilities (setpriv --ambient-caps, AmbientCapabilities= "
          "of systemd); with capabilities of the file the loader ignores LD_PRELOAD",
          Carriage::kRights};
}

Check check_memlock(const Settings& s) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const auto need = static_cast<uint64_t>(s.arena_bytes.value());
  if (has_capability(CAP_IPC_LOCK))
    return {Level::kOk, "locked memory", "no limit (CAP_IPC_LOCK)", "", Carriage::kMemory};
  if (limit.rlim_cur == RLIM_INFINITY)
    return {Level::kOk, "locked memory", "no limit", "", Carriage::kMemory};
  const std::string text = fmt::format("limit {} KiB, VIREO_ARENA_BYTES takes {} KiB",
                                       limit.rlim_cur / 1024, need / 1024);
  if (limit.rlim_cur >= need) return {Level::kOk, "locked memory", text, "", Carriage::kMemory};
  return {Level::kFail, "locked memory", text,
          "raise it (ulimit -l, LimitMEMLOCK= of systemd) or lower VIREO_ARENA_BYTES",
          Carriage::kMemory};
}

long number_in(const char* path) {
  long n = -1;
  std::ifstream(path) >> n;
  return n;
}

Check check_huge_pages(const Settings& s) {
  const long free = number_in("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  const auto bytes = static_cast<size_t>(s.arena_bytes.value());
  const auto need = static_cast<long>((bytes + Arena::kHugePageBytes - 1) / Arena::kHugePageBytes);
  if (s.mem_alloc_type != MemAlloc::kHuge)
    return {Level::kOk, "huge pages", "not asked for (VMA_MEM_ALLOC_TYPE)", "", {}};
  if (free < 0) return {Level::kNote, "huge pages", "this kernel has none of 2 MiB", "", {}};
  const std::string text = fmt::format("{} of 2 MiB free, a process takes {}", free, need);
  if (free >= need) return {Level::kOk, "huge pages", text, "", {}};
  return {Level::kNote,
          "huge pages",
          text + ": ordinary pages are used instead",
          fmt::format("sysctl vm.nr_hugepages={}", need),
          {}};
}

Check check_kernel() {
  utsname u{};
  ::uname(&u);
  unsigned major = 0;
  unsigned minor = 0;
  (void)std::sscanf(u.release, "%u.%u", &major, &minor);
  const unsigned version = major * 1000 + minor;
  // 5.9: XDP programs as links; 5.4: need-wakeup; 6.6: frames in several buffers.
  if (version < 5009)
    return {Level::kFail, "kernel",
            fmt::format("Linux {}, 5.9 is the oldest that will do", u.release), "a newer kernel",
            Carriage::kDevice};
  if (version < 6001)
    return {Level::kNote,
            "kernel",
            fmt::format("Linux {}: 6.1 is the oldest that is tested", u.release),
            "",
            {}};
  if (version < 6006)
    return {
        Level::kNote,
        "kernel",
        fmt::format("Linux {}: no frames in several buffers (6.6), so no jumbo frames", u.release),
        "",
        {}};
  return {Level::kOk, "kernel", fmt::format("Linux {}", u.release), "", {}};
}

Check check_af_xdp() {
  const UniqueFd fd(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (fd) return {Level::kOk, "AF_XDP", "the kernel has it", "", {}};
  if (errno == EPERM || errno == EACCES)
    return {Level::kFail, "AF_XDP", "refused for lack of rights", "see rights", Carriage::kRights};
  return {Level::kFail, "AF_XDP", fmt::format("refused: {}", std::strerror(errno)),
          "a kernel with CONFIG_XDP_SOCKETS", Carriage::kDevice};
}

/// Loads the program on this kernel: verifiers differ between releases.
Check check_steering() {
  std::string refusal;
  const auto loaded = xdp::try_steering(refusal);
  if (loaded) return {Level::kOk, "steering", "the kernel loads it", "", {}};
  const Carriage why = carriage_of_errno(loaded.error().code);
  if (refusal.empty())
    return {Level::kFail, "steering",
            fmt::format("{}: {}", loaded.error().where, std::strerror(loaded.error().code)), "",
            why};
  utsname u{};
  ::uname(&u);
  return {Level::kFail, "steering",
          fmt::format("the verifier of Linux {} refuses it: {}", u.release, refusal),
          "a kernel that docs/BEHAVIOUR.md names; VMA_TRACELEVEL=info shows more of its lines",
          why};
}

Check check_rings(const Settings& s) {
  if (!s.io_uring)
    return {Level::kOk, "io_uring", "sockets are carried all the same (VIREO_IO_URING=0)", "", {}};
  constexpr long kOffForAll = 2;
  if (number_in("/proc/sys/kernel/io_uring_disabled") == kOffForAll)
    return {Level::kOk, "io_uring", "switched off in this kernel", "", {}};
  return {Level::kOk,
          "io_uring",
          "a program that makes a ring has its sockets on the kernel, unless VIREO_IO_URING=0",
          "",
          {}};
}

/// Connections that continue in the kernel (stack/sock/repair.h).
Check check_passing() {
  if (has_capability(CAP_NET_ADMIN))
    return {Level::kOk, "passed sockets", "go on in the kernel", "", {}};
  return {Level::kNote,
          "passed sockets",
          "without CAP_NET_ADMIN a connection that is passed to another process (SCM_RIGHTS), or "
          "accepted before a fork, is of no use there",
          "CAP_NET_ADMIN, or a rule `use os` for such programs",
          {}};
}

Check check_switch(const Settings& s) {
  if (s.device == DeviceChoice::kOff)
    return {Level::kFail, "switch", "VIREO_DEVICE=off", "unset it", Carriage::kDisabled};
  if (!s.offloaded_sockets)
    return {Level::kFail, "switch", "VMA_OFFLOADED_SOCKETS=0", "unset it", Carriage::kDisabled};
  return {Level::kOk, "switch", "on", "", {}};
}

std::string_view origin_text(Origin o) {
  switch (o) {
    case Origin::kDefault:
      return "default";
    case Origin::kProfile:
      return "profile";
    case Origin::kImplied:
      return "implied by another setting";
    case Origin::kEnvironment:
      return "environment";
  }
  return "?";
}

}  // namespace

std::vector<Check> check_host(const Settings& s) {
  std::vector<Check> out{check_switch(s)};
  const auto of_xdp = [&out](Check c) {
    c.of_xdp = true;
    out.push_back(std::move(c));
  };
  of_xdp(check_kernel());
  if (is_rdma(s.device)) {
    out.push_back(check_rights(false));
  } else if (s.device != DeviceChoice::kShm) {
    Check rights = check_rights(true);
    const bool may_load = rights.level != Level::kFail;
    of_xdp(std::move(rights));
    of_xdp(check_af_xdp());
    if (may_load) of_xdp(check_steering());
  }
  if (s.device != DeviceChoice::kShm) out.push_back(check_memlock(s));
  out.push_back(check_huge_pages(s));
  out.push_back(check_rings(s));
  out.push_back(check_passing());
  return out;
}

std::vector<SettingLine> changed_settings(const ParsedSettings& p) {
  std::vector<SettingLine> out;
  const auto rows = setting_rows();
  for (size_t i = 0; i < kSettingCount; ++i) {
    const auto id = static_cast<SettingId>(i);
    if (p.origin_of(id) == Origin::kDefault) continue;
    std::string origin(origin_text(p.origin_of(id)));
    if (!rows[i].is_used) {
      // Settings of a profile that exist for libvma only are not listed; those the user set are.
      if (p.origin_of(id) != Origin::kEnvironment) continue;
      origin += fmt::format("; no effect: {}", rows[i].meaning);
    }
    out.push_back({std::string(rows[i].env), setting_text(p.settings, id), std::move(origin)});
  }
  return out;
}

}  // namespace vireo::doctor
