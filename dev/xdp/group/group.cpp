#include "dev/xdp/group/group.h"

#include <unistd.h>

#include <algorithm>
#include <bit>

#include "core/high_fd.h"
#include "dev/xdp/group/entrance.h"
#include "dev/xdp/group/pause.h"
#include "dev/xdp/group/rendezvous.h"
#include "dev/xdp/group/table.h"
#include "dev/xdp/uapi.h"

namespace vireo::xdp {
namespace {

constexpr Duration kLockRetryDelay = Duration::us(100);
constexpr Duration kLeavePatience = Duration::ms(200);

pid_t this_process() { return static_cast<pid_t>(sys(SYS_getpid)); }

/// Makes what the founder brings.
Result<void> found(SharedFds& fds, const Group::MakeMemory& make_memory) {
  auto memory = make_memory();
  if (!memory) return std::unexpected(memory.error());
  auto table = Table::create();
  if (!table) return std::unexpected(table.error());
  auto bank = Bank::create();
  if (!bank) return std::unexpected(bank.error());
  fds[kMemoryFd] = to_high_number(std::move(*memory));
  fds[kTableFd] = std::move(*table);
  fds[kBankTailFd] = std::move(bank->tail);
  fds[kBankHeadFd] = std::move(bank->head);
  return {};
}

}  // namespace

struct Group::State {
  const pid_t owner;
  const uid_t uid;
  const uint32_t version;
  const bool founder;
  const Entrance entrance;
  const SharedFds fds;
  Table table;
  Bank bank{fds[kBankTailFd].get(), fds[kBankHeadFd].get()};
  std::mutex lock{};  ///< the control lock, among threads
  unsigned slot = kMaxMembers;
};

static_assert(Group::kMaxMembers == kGroupSlots);

Result<std::unique_ptr<Group>> Group::enter(const Options& options, const MakeMemory& make_memory) {
  const Instant deadline = Clock::now_from_kernel() + options.patience;
  const uid_t uid = geteuid();
  auto entrance = Entrance::open(options.name);
  if (!entrance) return std::unexpected(entrance.error());
  auto fds = find_group({options.name, uid, options.version}, deadline);
  if (!fds) return std::unexpected(fds.error());
  const bool founder = !(*fds)[kTableFd];
  if (founder) {
    if (auto ok = found(*fds, make_memory); !ok) return std::unexpected(ok.error());
  }
  auto table = Table::map((*fds)[kTableFd].get());
  if (!table) return std::unexpected(table.error());
  std::unique_ptr<Group> group(new Group(
      std::unique_ptr<State>(new State{this_process(), uid, options.version, founder,
                                       std::move(*entrance), std::move(*fds), std::move(*table)})));
  auto control = group->control(deadline - Clock::now_from_kernel());
  if (!control) return std::unexpected(control.error());
  const auto slot = group->state_->table.take_slot();
  if (!slot) return std::unexpected(slot.error());
  group->state_->slot = *slot;
  if (founder) {
    if (auto ok = start_listening(group->fd()); !ok) return std::unexpected(ok.error());
  }
  return group;
}

Group::Group(std::unique_ptr<State> state) : state_(std::move(state)) {}

Group::~Group() {
  // In a forked child, what is open or mapped by these numbers may be something else.
  if (this_process() != state_->owner) {
    (void)state_.release();
    return;
  }
  if (slot() == kMaxMembers) return;
  const auto held = control(kLeavePatience);
  // Otherwise its lock goes with the table's descriptor, and the others bury it.
  if (held && withdraw(*held, [this](const Deposit& d) { return d.slot == slot(); }))
    state_->table.free_slot(slot());
}

bool Group::is_founder() const noexcept { return state_->founder; }

unsigned Group::slot() const noexcept { return state_->slot; }

int Group::memory_fd() const noexcept { return state_->fds[kMemoryFd].get(); }

int Group::fd() const noexcept { return state_->fds[kListenerFd].get(); }

bool Group::serve() noexcept { return answer_joiners(state_->uid, state_->version, state_->fds); }

Result<Group::Control> Group::control(Duration patience) noexcept {
  const Instant deadline = Clock::now_from_kernel() + patience;
  for (;;) {
    std::unique_lock held(state_->lock, std::try_to_lock);
    if (held && state_->table.try_lock()) return Control(this, std::move(held));
    if (held) held.unlock();
    if (Clock::now_from_kernel() >= deadline)
      return fail(ETIMEDOUT, "a process holds the group's lock (stopped?)");
    pause_for(kLockRetryDelay);
  }
}

void Group::unlock() noexcept { state_->table.unlock(); }

uint64_t Group::members() const noexcept { return state_->table.used(); }

bool Group::is_alive(unsigned slot) const noexcept {
  return slot == state_->slot || state_->table.is_held_by_other(slot);
}

pid_t Group::pid_of(unsigned slot) const noexcept { return state_->table.pid(slot); }

uint64_t Group::dead() const noexcept {
  uint64_t dead = 0;
  for (uint64_t left = members(); left != 0; left &= left - 1)
    if (!is_alive(static_cast<unsigned>(std::countr_zero(left)))) dead |= left & -left;
  return dead;
}

void Group::bury_dead(const Bury& bury) noexcept {
  if (dead() == 0) return;
  const auto held = control(Duration());
  if (!held) return;
  // Anew: another process may have buried them, and the slots have new members.
  for (uint64_t left = dead(); left != 0; left &= left - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(left));
    if (bury(*held, slot) && withdraw(*held, [slot](const Deposit& d) { return d.slot == slot; }))
      state_->table.free_slot(slot);
  }
}

FlowHashKey Group::secret() const noexcept { return state_->table.secret(); }

Result<void> Group::deposit(const Control&, const Deposit& d, std::span<const int> fds) noexcept {
  return state_->bank.deposit(state_->table.next_number(), d, fds);
}

Result<void> Group::for_each_deposit(const Control&, const Bank::Which& which,
                                     const Bank::Visit& visit) noexcept {
  return state_->bank.for_each(which, visit);
}

Result<void> Group::withdraw(const Control&, const Bank::Which& which) noexcept {
  return state_->bank.withdraw(which);
}

}  // namespace vireo::xdp
