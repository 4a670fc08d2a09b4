#include "dev/xdp/kernel_listener.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/bpf.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <vector>

#include "core/flow_hash.h"
#include "core/high_fd.h"
#include "dev/xdp/kernel_function.h"
#include "dev/xdp/kernel_listener_note.h"
#include "dev/xdp/late_libbpf.h"
#include "dev/xdp/quiet_libbpf.h"
#include "dev/xdp/uapi.h"
#include "kernel_listener.skel.h"

namespace vireo::xdp {
namespace {

constexpr auto kTcxIngress = static_cast<bpf_attach_type>(46);  // Linux 6.6
constexpr int kPlaceOfFunction = 0x7ffffff;  // KERNEL_FUNCTION in kernel_listener.bpf.c

/// The room for metadata that XDP has had since its beginning.
static_assert(sizeof(kernel_listener_note) == 32);

Result<void> name_function(bpf_program* program) {
  const auto function = kernel_function("bpf_sk_assign_tcp_reqsk");
  if (!function)
    return fail(function.error().code == ENOENT ? ENOTSUP : function.error().code,
                function.error().where);
  const bpf_insn* const first = bpf_program__insns(program);
  std::vector<bpf_insn> all(first, first + bpf_program__insn_cnt(program));
  for (bpf_insn& i : all)
    if (i.code == (BPF_JMP | BPF_CALL) && i.imm == kPlaceOfFunction) {
      i.src_reg = BPF_PSEUDO_KFUNC_CALL;
      i.imm = *function;
    }
  if (const int r = bpf_program__set_insns(program, all.data(), all.size()); r != 0)
    return fail(-r, "program at the ingress");
  return {};
}

kernel_listener_note note_of(const Handshake& h, uint64_t secret, uint32_t number) {
  return {.secret = secret,
          .agreed = {.rcv_tsval = h.peer_time,
                     .rcv_tsecr = h.our_time,
                     .mss = h.peer_mss,
                     .rcv_wscale = h.our_shift,
                     .snd_wscale = h.peer_shift,
                     .ecn_ok = h.ecn,
                     .wscale_ok = h.scales,
                     .sack_ok = h.sack,
                     .tstamp_ok = h.timestamps,
                     .usec_ts_ok = 0,
                     .reserved = {}},
          .number = number};
}

}  // namespace

Result<void> KernelListener::load() noexcept {
  if (auto ok = load_libbpf(); !ok) return ok;
  const QuietLibbpf quiet;
  const std::unique_ptr<kernel_listener_bpf, void (*)(kernel_listener_bpf*)> skeleton(
      kernel_listener_bpf::open(nullptr), kernel_listener_bpf::destroy);
  if (!skeleton) return fail(errno, "program at the ingress");
  if (auto ok = name_function(skeleton->progs.vireo_listener); !ok) return ok;
  secret_ = FlowHashKey::random().k0;
  skeleton->rodata->secret = secret_;
  if (const int r = kernel_listener_bpf::load(skeleton.get()); r != 0)
    return fail(r == -EPERM || r == -EACCES ? EPERM : ENOTSUP, "program at the ingress");
  const auto copy = [](int fd) {
    return UniqueFd(to_high_number(static_cast<int>(sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3))));
  };
  program_ = copy(bpf_program__fd(skeleton->progs.vireo_listener));
  answer_ = copy(bpf_map__fd(skeleton->maps.bss));
  if (program_ && answer_) return {};
  program_.reset();
  return fail(EMFILE, "program at the ingress");
}

Result<void> KernelListener::prepare() noexcept {
  const std::lock_guard hold(lock_);
  if (program_) return {};
  if (refused_ == 0) {
    auto loaded = load();
    if (loaded) return loaded;
    refused_ = loaded.error().code;
  }
  return fail(refused_, "program at the ingress");
}

/// @return errno.
int KernelListener::give_one(KernelPath& path, const Opening& o) noexcept {
  const kernel_listener_note note = note_of(o.agreed, secret_, ++number_);
  if (auto ok = path.give(o.ack, std::as_bytes(std::span(&note, 1))); !ok) return ok.error().code;
  // Another processor may handle it (RPS).
  for (int i = 0; i < 50; ++i) {
    const uint32_t zero = 0;
    kernel_listener_answer said{};
    if (bpf_map_lookup_elem(answer_.get(), &zero, &said) != 0) return errno;
    if (said.number == number_) return -said.error;
    const timespec nap{0, 100'000};
    sys(SYS_nanosleep, reinterpret_cast<long>(&nap));
  }
  return ETIMEDOUT;
}

Result<void> KernelListener::give(KernelPath& path, std::span<Opening> openings) noexcept {
  if (!path.is_at_home()) return fail(EPERM, "another network namespace");
  const std::lock_guard hold(lock_);
  const UniqueFd link(
      bpf_link_create(program_.get(), static_cast<int>(interface_.value()), kTcxIngress, nullptr));
  if (!link) return fail_errno("program at the ingress");
  bool is_heard = true;  // not where another program decides first
  for (Opening& o : openings) {
    o.error = is_heard ? give_one(path, o) : ETIMEDOUT;
    is_heard = o.error != ETIMEDOUT;
  }
  return {};
}

}  // namespace vireo::xdp
