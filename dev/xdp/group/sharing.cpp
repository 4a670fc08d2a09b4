#include "dev/xdp/group/sharing.h"

#include <linux/capability.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <mutex>
#include <numeric>

#include "core/log.h"
#include "dev/xdp/group/dead_rings.h"
#include "dev/xdp/group/pause.h"
#include "dev/xdp/kernel_version.h"
#include "dev/xdp/softirqs.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

/// Most time to wait for the members, and for the control lock: who holds it may be loading the
/// steering program, which takes a third of a second on a busy host.
constexpr Duration kPatience = Duration::s(2);
/// Drivers in zero-copy mode let go of frames some time after the last socket is closed.
constexpr Duration kDriverLetsGo = Duration::s(1);
constexpr Duration kTendEvery = Duration::ms(500);
/// How long a process that joins waits until the members have given back frames, if none are left.
constexpr Duration kMembersGive = Duration::s(2);
constexpr Duration kMembersGiveEvery = Duration::ms(50);
/// Most time that a burial waits for a queue's lock.
constexpr Duration kPatienceForQueue = Duration::ms(50);

static_assert(kGroupSlots == STEER_MEMBERS);

struct Registry {
  std::mutex lock;
  std::weak_ptr<Sharing> ours;
  const std::byte* base = nullptr;
};

Registry& registry() {
  static auto* const r = [] {
    // A forked child is no member; another thread may have held the lock at the fork.
    pthread_atfork(nullptr, nullptr, [] { std::construct_at(&registry()); });
    return new Registry;
  }();
  return *r;
}

uint64_t bit_of(unsigned slot) { return uint64_t{1} << slot; }

/// Bytes that the process may pin: RLIMIT_MEMLOCK, which CAP_IPC_LOCK overrides.
size_t most_pinned() {
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct caps[2]{};
  if (sys(SYS_capget, reinterpret_cast<long>(&head), reinterpret_cast<long>(caps)) == 0 &&
      (caps[0].effective >> CAP_IPC_LOCK & 1) != 0)
    return SIZE_MAX;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return SIZE_MAX;
  return limit.rlim_cur;
}

size_t packet_bytes(const XdpGroupOptions& o) {
  constexpr size_t kPage = Arena::kHugePageBytes;
  const auto up = [](size_t n) { return (n + kPage - 1) / kPage * kPage; };
  const size_t wanted = up(std::max(o.group_bytes, 2 * o.most_bytes));
  return std::max(std::min(wanted, most_pinned() / kPage * kPage), up(o.most_bytes));
}

}  // namespace

uint32_t Sharing::sizes_to_word(const RingSizes& s) {
  return static_cast<uint32_t>(std::countr_zero(s.rx) | std::countr_zero(s.tx) << 8);
}

RingSizes Sharing::sizes_of_word(uint32_t word) {
  return {.rx = 1U << (word & 0xff), .tx = 1U << (word >> 8 & 0xff)};
}

Result<std::shared_ptr<Sharing>> Sharing::enter(const XdpGroupOptions& o) {
  auto group = Group::enter({.name = "0", .version = SharedHead::kVersion, .patience = kPatience},
                            [&] { return SharedMemory::create(packet_bytes(o), o.frame_bytes); });
  if (!group) return std::unexpected(group.error());
  auto memory = SharedMemory::map((*group)->memory_fd());
  if (!memory) return std::unexpected(memory.error());
  std::shared_ptr<Sharing> s(new Sharing(std::move(*group), std::move(*memory)));
  s->is_alone_ = s->group_->is_founder();
  s->tend(Clock::now_from_kernel());  // one that died may have what we need
  for (const Instant until = Clock::now_from_kernel() + kMembersGive;;) {
    {
      const auto control = s->control();
      if (!control) return std::unexpected(control.error());
      const auto ok = s->take_memory(*control, o);
      if (ok) break;
      if (ok.error().code != ENOMEM || Clock::now_from_kernel() >= until)
        return std::unexpected(ok.error());
    }
    pause_for(kMembersGiveEvery);
  }
  Registry& r = registry();
  const std::lock_guard hold(r.lock);
  r.ours = s;
  r.base = s->base_;
  return s;
}

/// Maps the packet memory, and takes our part of it. The founder makes it; nobody joins before the
/// founder serves.
Result<void> Sharing::take_memory(const Control& control, const XdpGroupOptions& o) {
  if (memory_.head().frame_bytes != o.frame_bytes)
    return fail(ENOTSUP, "the group's frames have another size");
  UniqueFd packets;
  if (group_->is_founder()) {
    auto made = Arena::create_shared(memory_.head().packet_bytes, o.huge_pages);
    if (!made) return std::unexpected(made.error());
    packets = std::move(*made);
    const int fds[] = {packets.get()};
    auto ok = group_->deposit(control, {.kind = static_cast<uint32_t>(Kind::kPackets)}, fds);
    if (!ok) return ok;
  } else {
    auto ok = group_->for_each_deposit(
        control, [](const Deposit& d) { return d.kind == static_cast<uint32_t>(Kind::kPackets); },
        [&](const Deposit&, std::span<UniqueFd> fds) { packets = std::move(fds[0]); });
    if (!ok) return ok;
    if (!packets) return fail(EPROTO, "packet memory of the group");
  }
  const auto most = static_cast<uint32_t>(o.most_bytes / o.frame_bytes);
  if (memory_.grant(slot(), most, kMinFrames) == 0)
    return fail(ENOMEM, "the packet memory of the group is used up (VIREO_GROUP_BYTES)");
  auto arena = Arena::map_shared(packets.get(), memory_.owners(slot()));
  if (!arena) return std::unexpected(arena.error());
  arena_ = std::move(*arena);
  base_ = arena_.bytes().data();
  return {};
}

std::shared_ptr<Sharing> Sharing::of(const Arena& arena) {
  if (!arena.owners()) return nullptr;
  Registry& r = registry();
  const std::lock_guard hold(r.lock);
  return arena.bytes().data() == r.base ? r.ours.lock() : nullptr;
}

Result<CopiedFrames*> Sharing::copied() noexcept {
  const std::lock_guard hold(copied_lock_);
  if (!copied_) {
    copied_ = CopiedFrames::load();
    if (*copied_) memory_.head().ingress[slot()].store((*copied_)->number());
  }
  if (!*copied_) return std::unexpected(copied_->error());
  return &**copied_;
}

int Sharing::filter_of_copied() noexcept {
  const auto c = copied();
  return c ? (*c)->filter() : -1;
}

bool Sharing::has_program(uint32_t number) const noexcept {
  return std::ranges::any_of(memory_.head().ingress, [&](const auto& n) { return n == number; });
}

Sharing::~Sharing() {
  const auto control = this->control();
  memory_.head().ingress[slot()].store(0);
  if (control)
    memory_.take_back(slot());
  else
    (void)group_.release();  // a stopped member has the lock: the others will bury us
}

Result<Sharing::Control> Sharing::control() { return group_->control(kPatience); }

// ---- interfaces

Result<Sharing::OpenInterface> Sharing::find(const Control& control, IfIndex ifindex) {
  SharedInterface* const i = memory_.interface_of(ifindex);
  if (i == nullptr) return fail(ENOSPC, "interfaces that processes share are used up");
  OpenInterface found{.steering = nullptr, .how = i->how};
  const auto is_it = is_interface(ifindex.value());
  Result<void> joined;
  const auto join = [&](const Deposit&, std::span<UniqueFd> fds) {
    auto steering = this->join(fds);
    if (steering)
      found.steering = std::move(*steering);
    else
      joined = std::unexpected(steering.error());
  };
  auto ok = group_->for_each_deposit(control, is_it, join);
  if (!ok) return std::unexpected(ok.error());
  if (!joined) return std::unexpected(joined.error());
  if (found.steering != nullptr && found.steering->is_attached()) {
    i->users.fetch_or(bit_of(slot()), std::memory_order_relaxed);
    open_.push_back({ifindex, found.steering});
    return found;
  }
  // An earlier interface of this number, or one whose program was detached.
  (void)group_->withdraw(control, is_it);
  return OpenInterface();
}

Result<void> Sharing::publish(const Control& control, IfIndex ifindex, uint32_t how,
                              const std::shared_ptr<Steering>& steering) {
  SharedInterface* const i = memory_.interface_of(ifindex);
  i->how = how;
  i->users.store(bit_of(slot()), std::memory_order_relaxed);
  const auto kit = steering->kit();
  if (!kit) return std::unexpected(kit.error());
  std::array<int, kSteeringFds> fds;
  std::ranges::transform(*kit, fds.begin(), &UniqueFd::get);
  auto ok = group_->deposit(
      control, {.kind = static_cast<uint32_t>(Kind::kInterface), .a = ifindex.value()}, fds);
  if (ok) open_.push_back({ifindex, steering});
  return ok;
}

Result<std::shared_ptr<Steering>> Sharing::join(std::span<UniqueFd> fds) {
  SteeringKit kit;
  if (fds.size() != kit.size()) return fail(EPROTO, "steering program of the group");
  std::ranges::move(fds, kit.begin());
  return Steering::join(std::move(kit), member());
}

SteeringMember Sharing::member() {
  return {.slot = slot(), .is_alive = [this](unsigned other) { return is_alive(other); }};
}

void Sharing::leave(IfIndex ifindex) noexcept {
  const auto control = this->control();
  if (!control) return;
  std::erase_if(open_, [&](const Open& o) { return o.ifindex == ifindex; });
  leave_interfaces(*control, slot(), ifindex.value());
}

Bank::Which Sharing::is_interface(uint32_t ifindex) {
  return [=](const Deposit& d) {
    return d.kind == static_cast<uint32_t>(Kind::kInterface) &&
           (ifindex == kAnyInterface || d.a == ifindex);
  };
}

void Sharing::leave_interfaces(const Control& control, unsigned slot, uint32_t ifindex) noexcept {
  for (SharedInterface& i : memory_.head().interfaces) {
    if (ifindex != kAnyInterface && i.ifindex != ifindex) continue;
    if (i.users.fetch_and(~bit_of(slot), std::memory_order_relaxed) != bit_of(slot)) continue;
    (void)group_->withdraw(control, is_interface(i.ifindex));
  }
}

// ---- queues

Result<Sharing::OpenQueue> Sharing::open_queue(IfIndex ifindex, QueueId id, const QueueShape& shape,
                                               const std::function<Result<Xsk>()>& first) {
  const auto control = this->control();
  if (!control) return std::unexpected(control.error());
  const auto number = memory_.queue_of(ifindex, id);
  if (!number) return std::unexpected(number.error());
  SharedQueue& q = memory_.head().queues[*number];
  const uint64_t users = q.users.load(std::memory_order_relaxed);
  if ((users & bit_of(slot())) != 0) return fail(EBUSY, "the queue is open");
  OpenQueue o;
  Result<Xsk> xsk = fail(EPROTO, "queue of the group");
  if (users == 0) {
    xsk = first();
    q.fill_entries = shape.sizes.fill;
    q.completion_entries = shape.sizes.tx;
    q.chunk_bytes = shape.chunk_bytes;
    q.multi_frame = shape.multi_frame ? 1 : 0;
    q.is_zero_copy = xsk && xsk->is_zero_copy() ? 1 : 0;
  } else {
    if (q.chunk_bytes != shape.chunk_bytes) return fail(ENOTSUP, "frames of another size");
    const auto beside = [&](const Deposit&, std::span<UniqueFd> fds) {
      if (!xsk)
        xsk = Xsk::open_beside(fds[0].get(), ifindex, id, shape.sizes,
                               {.tx = q.completion_entries, .fill = q.fill_entries});
    };
    auto ok = group_->for_each_deposit(*control, is_queue(*number), beside);
    if (!ok) return std::unexpected(ok.error());
  }
  if (!xsk) return std::unexpected(xsk.error());
  o.multi_frame = q.multi_frame != 0;
  const int fds[] = {xsk->fd(), xsk->tx_fd()};
  auto ok = group_->deposit(*control,
                            {.kind = static_cast<uint32_t>(Kind::kQueue),
                             .slot = slot(),
                             .a = *number,
                             .b = sizes_to_word(shape.sizes)},
                            fds);
  if (!ok) return std::unexpected(ok.error());
  q.users.fetch_or(bit_of(slot()), std::memory_order_relaxed);
  o.rings = std::make_unique<SharedRings>(rings_setup(*number));
  // Frames of an earlier use that came back.
  if (!o.rings->hold(xsk->fill, xsk->completion, kPatienceForQueue)) {
    (void)group_->withdraw(*control, is_queue(*number, slot()));
    leave_queue(*number, slot());
    return fail(ETIMEDOUT, "a stopped process holds the queue");
  }
  o.rings->own_returns().head.store(o.rings->own_returns().tail.load());
  o.rings->release();
  o.xsk = std::move(*xsk);
  o.is_shared = !is_alone_;
  return o;
}

Bank::Which Sharing::is_queue(unsigned number, unsigned slot) {
  return [=](const Deposit& d) {
    return d.kind == static_cast<uint32_t>(Kind::kQueue) &&
           (number == kAnyQueue || d.a == number) && (slot == kAnySlot || d.slot == slot);
  };
}

void Sharing::close_queue(unsigned number, const std::function<void()>& return_frames) noexcept {
  const auto control = this->control();
  // Nobody holds its sockets any more, so that the kernel closes them.
  if (!control || !group_->withdraw(*control, is_queue(number, slot()))) {
    log<LogLevel::kWarn>("a queue could not be left: it is closed when this process ends");
    return;
  }
  if (return_frames) return_frames();
  leave_queue(number, slot());
}

void Sharing::leave_queue(unsigned number, unsigned slot) noexcept {
  SharedQueue& q = memory_.head().queues[number];
  if (q.users.fetch_and(~bit_of(slot), std::memory_order_relaxed) != bit_of(slot)) return;
  // A driver in zero-copy mode may use its frames for some time: SharedMemory::queue_of().
  if (q.is_zero_copy == 0) memory_.take_back_queue(number);
  const Duration until = q.is_zero_copy != 0 ? kDriverLetsGo : Duration();
  q.unused_from = (Clock::now_from_kernel() + until).ns();
}

// ---- burial

Duration Sharing::tend(Instant now) noexcept {
  if (is_alone_) return Duration::max();
  if (const Duration since = now - tended_; since < kTendEvery) return kTendEvery - since;
  tended_ = now;
  look_at_memory();
  group_->bury_dead([this](const Control& control, unsigned slot) { return bury(control, slot); });
  return kTendEvery;
}

/// Below an eighth there is enough for few to join; with a quarter again, members may have all that
/// was granted to them.
void Sharing::look_at_memory() noexcept {
  const uint32_t unused = memory_.count(FrameOwners::kNobody);
  const uint32_t all = memory_.head().frames;
  if (unused < all / 8)
    is_short_.store(true, std::memory_order_relaxed);
  else if (unused > all / 4)
    is_short_.store(false, std::memory_order_relaxed);
}

void Sharing::write_stats(GroupStats& to) const noexcept {
  uint32_t frames[256] = {};  // by owner
  const FrameOwners o = memory_.owners(slot());
  for (const uint8_t owner : o.owner) ++frames[owner];
  to.members.set(static_cast<uint64_t>(std::popcount(group_->members())));
  to.slot.set(slot());
  to.frames.set(o.owner.size());
  to.own.set(frames[o.me]);
  to.queued.set(std::accumulate(&frames[FrameOwners::of_queue(0)], std::end(frames), uint64_t{0}));
  to.unused.set(frames[FrameOwners::kNobody]);
  to.left.set(frames[FrameOwners::kGone]);
}

void Sharing::retire() noexcept {
  if (is_alone_) return;
  const auto control = this->control();
  if (!control) return;
  for (const Open& o : open_)
    if (const auto steering = o.steering.lock()) steering->remove_all_of(slot());
}

/// Takes back all that a dead member had: its rules first, so that no more frames come to its RX
/// rings; then the frames in its rings; then its own.
bool Sharing::bury(const Control& control, unsigned slot) noexcept {
  bool is_done = true;
  const auto all_interfaces = group_->for_each_deposit(
      control, is_interface(kAnyInterface), [&](const Deposit& d, std::span<UniqueFd> fds) {
        const auto ours =
            std::ranges::find(open_, d.a, [](const Open& o) { return o.ifindex.value(); });
        // One that joins for this alone has nothing else there.
        Result<std::shared_ptr<Steering>> steering =
            ours != open_.end() ? ours->steering.lock() : nullptr;
        if (steering && *steering == nullptr) steering = join(fds);
        if (steering && *steering != nullptr)
          (*steering)->remove_all_of(slot);
        else
          is_done = false;
      });
  if (!all_interfaces || !is_done) return false;
  memory_.head().ingress[slot].store(0);
  wait_for_softirqs();
  std::vector<DeadRings> rings;
  const auto all_queues = group_->for_each_deposit(
      control, is_queue(kAnyQueue, slot), [&](const Deposit& d, std::span<UniqueFd> fds) {
        SharedQueue& q = memory_.head().queues[d.a];
        auto one = DeadRings::map({&q, d.a, slot, sizes_of_word(d.b)}, fds[0].get(), fds[1].get(),
                                  rings_setup(d.a));
        if (one)
          rings.push_back(std::move(*one));
        else
          is_done = false;
      });
  // All at once: a frame may be in flight on several queues.
  size_t locked = 0;
  is_done = is_done && all_queues;
  while (is_done && locked < rings.size() && rings[locked].lock(kPatienceForQueue)) ++locked;
  is_done = is_done && locked == rings.size();  // else a stopped member holds a lock
  if (is_done) {
    for (DeadRings& r : rings) r.empty();
    memory_.take_back(slot);
  }
  for (size_t i = 0; i < locked; ++i) rings[i].unlock();
  if (!is_done) return false;
  rings.clear();
  // Its sockets are closed now, and the slot's next member holds no lock that it does not know of.
  if (!group_->withdraw(control, [&](const Deposit& d) { return d.slot == slot; })) return false;
  for (unsigned i = 0; i < SharedHead::kMaxQueues; ++i) {
    free_locks_of(slot, memory_.head().queues[i]);
    leave_queue(i, slot);
  }
  leave_interfaces(control, slot, kAnyInterface);
  log<LogLevel::kInfo>("process {} has ended: its part of shared interfaces is taken back",
                       group_->pid_of(slot));
  return true;
}

/// Locks that it held of a queue that it had not open: for a burial of its own.
void Sharing::free_locks_of(unsigned slot, SharedQueue& q) noexcept {
  const auto is_alive = [this](unsigned other) { return this->is_alive(other); };
  for (SharedLock* const lock : {&q.lock, &q.sending}) {
    if (!lock->is_held_by(slot)) continue;
    SharedLockWait wait;
    if (lock->lock(this->slot(), wait, kPatienceForQueue, is_alive) != SharedLock::Took::kNo)
      lock->unlock();
  }
}

void Sharing::top_up(PacketPool& pool, uint32_t posted) noexcept {
  const uint32_t have = memory_.count(FrameOwners::of_member(slot())) + posted;
  const uint32_t quota = this->quota(pool.size());
  if (have >= quota) return;
  const auto control = group_->control(Duration());
  if (!control) return;
  // Some are left for processes that join.
  const uint32_t kept = memory_.head().frames / 8;
  const uint32_t unused = memory_.count(FrameOwners::kNobody);
  if (unused <= kept) return;
  memory_.give(slot(), std::min(quota - have, (unused - kept) / 2),
               [&](uint32_t frame) { pool.adopt(frame); });
}

SharedRings::Setup Sharing::rings_setup(unsigned number) {
  SharedQueue& q = memory_.head().queues[number];
  return {.queue = &q,
          .number = number,
          .slot = slot(),
          .owners = memory_.owners(slot()),
          .frame_shift = static_cast<uint32_t>(std::countr_zero(q.chunk_bytes)),
          .is_alive = [this](unsigned other) { return is_alive(other); }};
}

}  // namespace vireo::xdp

namespace vireo {

bool kernel_shares_queues() noexcept { return xdp::kernel_version() >= 6004; }

Result<std::shared_ptr<DeviceGroup>> enter_xdp_group(const XdpGroupOptions& options) {
  return xdp::Sharing::enter(options);
}

}  // namespace vireo
