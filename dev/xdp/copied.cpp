#include "dev/xdp/copied.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>

#include <cerrno>
#include <memory>

#include "copied.skel.h"
#include "core/high_fd.h"
#include "dev/xdp/late_libbpf.h"
#include "dev/xdp/quiet_libbpf.h"
#include "dev/xdp/steer_layout.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

constexpr auto kTcxIngress = static_cast<bpf_attach_type>(46);  // Linux 6.6

UniqueFd copy_of(int fd) {
  return UniqueFd(to_high_number(static_cast<int>(sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3))));
}

}  // namespace

Result<CopiedFrames> CopiedFrames::load() {
  if (auto ok = load_libbpf(); !ok) return std::unexpected(ok.error());
  const QuietLibbpf quiet;
  const std::unique_ptr<copied_bpf, void (*)(copied_bpf*)> skeleton(copied_bpf::open(nullptr),
                                                                    copied_bpf::destroy);
  if (!skeleton) return fail(errno, "programs for copied frames");
  if (const int r = copied_bpf::load(skeleton.get()); r != 0)
    return fail(r == -EPERM || r == -EACCES ? EPERM : ENOTSUP, "programs for copied frames");
  CopiedFrames made;
  made.filter_ = copy_of(bpf_program__fd(skeleton->progs.vireo_heard));
  made.marks_ = copy_of(bpf_program__fd(skeleton->progs.vireo_marks));
  made.own_ = copy_of(bpf_map__fd(skeleton->maps.own));
  if (!made.filter_ || !made.marks_ || !made.own_)
    return fail(EMFILE, "programs for copied frames");
  bpf_prog_info info{};
  uint32_t bytes = sizeof info;
  if (bpf_obj_get_info_by_fd(made.marks_.get(), &info, &bytes) != 0)
    return fail_errno("programs for copied frames");
  made.number_ = info.id;
  return made;
}

Result<UniqueFd> CopiedFrames::attach(IfIndex ifindex) noexcept {
  if (attached_.try_emplace(STEER_COPIED_MARK(ifindex.value(), 0), ifindex).first->second !=
      ifindex)
    return fail(ENOTSUP, "interfaces whose copied frames would have the same marks");
  const int link =
      bpf_link_create(marks_.get(), static_cast<int>(ifindex.value()), kTcxIngress, nullptr);
  if (link >= 0) return UniqueFd(to_high_number(link));
  return fail(link == -EPERM || link == -EMFILE ? -link : ENOTSUP,
              "program at the ingress for copied frames");
}

void CopiedFrames::set_own(uint32_t mark, bool on) const noexcept {
  const uint8_t value = 1;
  if (on)
    bpf_map_update_elem(own_.get(), &mark, &value, BPF_ANY);
  else
    bpf_map_delete_elem(own_.get(), &mark);
}

}  // namespace vireo::xdp
