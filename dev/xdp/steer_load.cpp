// Loading the steering program, by libbpf.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/utsname.h>

#include <algorithm>
#include <string_view>

#include "core/flow_hash.h"
#include "core/high_fd.h"
#include "core/log.h"
#include "dev/xdp/late_libbpf.h"
#include "dev/xdp/quiet_libbpf.h"
#include "dev/xdp/steer.h"
#include "dev/xdp/steer_arrays.h"
#include "dev/xdp/verifier_log.h"

namespace vireo::xdp {
namespace {

/// Host addresses per family beyond the first few; wildcard rules do not match the rest.
constexpr uint32_t kMaxAddresses = 16'384;

/// Duplicates the descriptor to a high number.
UniqueFd copy_of(int fd) { return UniqueFd(to_high_number(fcntl(fd, F_DUPFD_CLOEXEC, 3))); }

/// Logs the reason, and returns it on request. @return false: the verifier did not run.
bool is_refused(const VerifierLog& said, std::string* last_line) {
  constexpr size_t kLines = 8;
  const auto lines = said.last_lines(kLines);
  if (lines.empty()) return false;
  utsname u{};
  uname(&u);
  log<LogLevel::kInfo>("Linux {} refuses the steering program; its verifier's last lines:",
                       u.release);
  for (const std::string_view line : lines) log<LogLevel::kInfo>("  {}", line);
  if (last_line != nullptr) *last_line = lines.back();
  return true;
}

}  // namespace

Result<std::shared_ptr<Steering>> Steering::load(const Interface& interface,
                                                 const SteeringSizes& sizes, bool tags,
                                                 std::string* refusal, SteeringMember member) {
  if (auto r = load_libbpf(); !r) return std::unexpected(r.error());
  const QuietLibbpf quiet;
  const VerifierLog said;
  const bpf_object_open_opts options = said.options();
  const std::unique_ptr<steer_bpf, void (*)(steer_bpf*)> skeleton(steer_bpf::open(&options),
                                                                  steer_bpf::destroy);
  if (!skeleton) return fail(errno, "open of the steering program");
  const auto& maps = skeleton->maps;
  bpf_map__set_max_entries(maps.exact4, sizes.flows);
  bpf_map__set_max_entries(maps.exact6, sizes.flows);
  bpf_map__set_max_entries(maps.local4, sizes.listeners + kMaxAddresses);
  bpf_map__set_max_entries(maps.local6, sizes.listeners + kMaxAddresses);
  bpf_map__set_max_entries(maps.sockets, interface.queues * STEER_MEMBERS);
  skeleton->rodata->write_tags = tags ? 1 : 0;
  skeleton->rodata->hash_secret = FlowHashKey::random().k0;
  const int r = steer_bpf::load(skeleton.get());
  if (r < 0 && is_refused(said, refusal))
    return fail(ENOTSUP, "load of the steering program (the kernel's verifier refuses it)");
  if (r == -EPERM || r == -EACCES)
    return fail(EPERM, "load of the steering program (needs CAP_BPF and CAP_NET_ADMIN)");
  if (r == -ENOMEM || r == -E2BIG) return fail(ENOMEM, "maps of the steering program");
  if (r == -EMFILE || r == -ENFILE)
    return fail(-r, "descriptors of the steering program (RLIMIT_NOFILE)");
  if (r < 0) return fail(ENOTSUP, "load of the steering program");

  std::shared_ptr<Steering> made(new Steering(std::move(member)));
  // libbpf's descriptors have low numbers and cannot be moved: keep copies and close libbpf's.
  const std::pair<SteeringFd, int> kept[] = {
      {kSteerProgram, bpf_program__fd(skeleton->progs.vireo_steer)},
      {kSteerExact4, bpf_map__fd(maps.exact4)},
      {kSteerExact6, bpf_map__fd(maps.exact6)},
      {kSteerLocal4, bpf_map__fd(maps.local4)},
      {kSteerLocal6, bpf_map__fd(maps.local6)},
      {kSteerSockets, bpf_map__fd(maps.sockets)},
      {kSteerRings, bpf_map__fd(maps.rings)},
      {kSteerArrays, bpf_map__fd(maps.bss)}};
  for (const auto& [which, fd] : kept) {
    made->fds_[which] = copy_of(fd);
    if (!made->fds_[which]) return fail_errno("descriptors of the steering program");
  }
  auto counts = SteerPorts::make_memory({.arrays_bytes = sizeof(SteerArrays),
                                         .queues = interface.queues,
                                         .most_listeners = sizes.listeners,
                                         .tags = tags ? 1U : 0U});
  if (!counts) return std::unexpected(counts.error());
  made->fds_[kSteerCounts] = std::move(*counts);
  if (auto ok = made->ports_.map(made->fd(kSteerCounts), made->fd(kSteerArrays)); !ok)
    return std::unexpected(ok.error());
  return made;
}

Result<std::shared_ptr<Steering>> Steering::join(SteeringKit kit, SteeringMember member) {
  if (auto r = load_libbpf(); !r) return std::unexpected(r.error());
  std::shared_ptr<Steering> made(new Steering(std::move(member)));
  made->fds_ = std::move(kit);
  if (auto ok = made->ports_.map(made->fd(kSteerCounts), made->fd(kSteerArrays)); !ok)
    return std::unexpected(ok.error());
  made->is_shared_ = true;
  return made;
}

Result<SteeringKit> Steering::kit() {
  SteeringKit copies;
  for (size_t i = 0; i < copies.size(); ++i) {
    copies[i] = copy_of(fds_[i].get());
    if (!copies[i]) return fail_errno("descriptors of the steering program");
  }
  const std::lock_guard hold(lock_);
  is_shared_ = true;
  return copies;
}

}  // namespace vireo::xdp
