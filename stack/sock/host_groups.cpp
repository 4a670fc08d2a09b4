#include "stack/sock/host_groups.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "core/fd.h"
#include "core/high_fd.h"
#include "stack/sock/look_interval.h"
#include "stack/sock/stack.h"

namespace vireo {
namespace {

/// A file of /proc, of this thread's namespace; nullopt: it cannot be read.
std::optional<std::string> read_file(const char* path) {
  const UniqueFd fd(to_high_number(
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0))));
  if (!fd) return std::nullopt;
  std::string all;
  for (char part[4096];;) {
    const long n = ::syscall(SYS_read, fd.get(), part, sizeof part);
    if (n < 0) return std::nullopt;
    if (n == 0) return all;
    all.append(part, static_cast<size_t>(n));
  }
}

/// Sorted; nullopt: the lists cannot be read.
std::optional<std::vector<IpAddr>> joined_groups() {
  const auto igmp = read_file("/proc/thread-self/net/igmp");
  if (!igmp) return std::nullopt;
  std::vector<IpAddr> all;
  HostGroups::parse(*igmp, read_file("/proc/thread-self/net/igmp6").value_or(""), all);
  std::ranges::sort(all);
  return all;
}

bool is_among(const std::optional<std::vector<IpAddr>>& joined, const IpAddr& group) {
  return !joined || std::ranges::binary_search(*joined, group);
}

/// The words of a line.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; (at = line.find_first_not_of(" \t", at)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

template <class F>
void for_each_line(std::string_view text, F&& fn) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    fn(text.substr(at, end - at));
    at = end + 1;
  }
}

/// All of `text`.
template <class T>
bool parse_hex(std::string_view text, T& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to, 16);
  return error == std::errc() && end == text.data() + text.size();
}

struct LastAnswer {
  IpAddr group;
  const HostGroups* of = nullptr;
  uint32_t generation = 0;
  bool has_member = false;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit LastAnswer t_last;

}  // namespace

void HostGroups::parse(std::string_view igmp, std::string_view igmp6, std::vector<IpAddr>& to) {
  for_each_line(igmp, [&](std::string_view line) {
    if (!line.starts_with('\t')) return;  // an interface
    const auto words = words_of(line);
    uint32_t raw = 0;
    if (!words.empty() && words[0].size() == 8 && parse_hex(words[0], raw))
      to.push_back(IpAddr::v4(std::bit_cast<be32>(raw)));
  });
  for_each_line(igmp6, [&](std::string_view line) {
    const auto words = words_of(line);
    if (words.size() < 3 || words[2].size() != 32) return;
    uint8_t bytes[16];
    for (size_t i = 0; i < sizeof bytes; ++i)
      if (!parse_hex(words[2].substr(2 * i, 2), bytes[i])) return;
    to.push_back(IpAddr::v6(bytes));
  });
}

const HostGroups::Known* HostGroups::find(const IpAddr& group) const {
  const auto k = std::ranges::lower_bound(sent_to_, group, {}, &Known::group);
  return k != sent_to_.end() && k->group == group ? &*k : nullptr;
}

bool HostGroups::has_member(const IpAddr& group, Stack& stack) {
  LastAnswer& last = t_last;
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  if (last.of == this && last.generation == generation && last.group == group) [[likely]]
    return last.has_member;
  const auto answer = [&](bool has) {
    last = {group, this, generation, has};
    return has;
  };
  {
    const LockGuard guard(lock_);
    if (const Known* const k = find(group)) return answer(k->has_member);
  }
  const bool has = is_among(joined_groups(), group);
  if (!is_active_.exchange(true, std::memory_order_relaxed)) stack.wake_helper();
  const LockGuard guard(lock_);
  if (find(group) == nullptr)
    sent_to_.insert(std::ranges::lower_bound(sent_to_, group, {}, &Known::group), {group, has});
  return answer(has);
}

Duration HostGroups::tend(Instant now) {
  if (!is_active_.load(std::memory_order_relaxed)) return Duration::max();
  if (now < due_) return due_ - now;
  const LookInterval interval;
  const auto joined = joined_groups();
  {
    const LockGuard guard(lock_);
    bool is_changed = false;
    for (Known& k : sent_to_) {
      const bool has = is_among(joined, k.group);
      is_changed |= std::exchange(k.has_member, has) != has;
    }
    if (is_changed) generation_.fetch_add(1, std::memory_order_relaxed);
  }
  due_ = now + interval.next();
  return due_ - now;
}

void HostGroups::fork_child() noexcept {
  lock_.reset_after_fork();
  sent_to_.clear();
  generation_.fetch_add(1, std::memory_order_relaxed);
  is_active_.store(false, std::memory_order_relaxed);
  due_ = {};
}

}  // namespace vireo
