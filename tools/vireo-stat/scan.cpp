#include "tools/vireo-stat/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <memory>

#include "core/fd.h"

namespace vireo {
namespace {

struct CloseDir {
  void operator()(DIR* d) const { ::closedir(d); }
};
using Directory = std::unique_ptr<DIR, CloseDir>;

std::optional<int> number(std::string_view text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 0) return std::nullopt;
  return n;
}

std::string link_of(const std::string& path) {
  char to[256];
  const auto n = ::readlink(path.c_str(), to, sizeof to);
  return n > 0 ? std::string(to, static_cast<size_t>(n)) : std::string();
}

/// The PID in the process's innermost namespace (proc(5), NSpid); -1 if it has ended.
int inner_pid(const std::string& folder) {
  std::ifstream status(folder + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("NSpid:")) continue;
    return number(std::string_view(line).substr(line.find_last_of(" \t") + 1)).value_or(-1);
  }
  return -1;
}

/// A read-only mapping of a process's counters.
class Mapping {
 public:
  explicit Mapping(const void* at) : at_(at) {}
  Mapping(Mapping&& o) noexcept : at_(std::exchange(o.at_, nullptr)) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (at_ != nullptr) ::munmap(const_cast<void*>(at_), sizeof(StatsLayout));
  }
  const StatsLayout& layout() const { return *static_cast<const StatsLayout*>(at_); }

 private:
  const void* at_;
};

/// @return the mapping; or nullopt, with the problem in `why` (empty: the process is gone).
std::optional<Mapping> map_stats(const std::string& path, std::string& why) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == EACCES || errno == EPERM) why = "no right to read its counters";
    return std::nullopt;
  }
  struct stat st{};
  if (::fstat(fd.get(), &st) != 0 || st.st_size == 0) return std::nullopt;  // being created
  // The head, the same in all versions, is copied first: the file is mapped only if we know its
  // layout and it cannot shrink.
  struct {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;
  } head{};
  if (::pread(fd.get(), &head, sizeof head, 0) != static_cast<ssize_t>(sizeof head) ||
      head.magic != kStatsMagic) {
    if (head.magic != 0) why = "not Vireo's counters";
    return std::nullopt;
  }
  if (head.version != kStatsVersion) {
    why = fmt::format("its library writes version {} of the counters, this tool reads {}",
                      head.version, kStatsVersion);
    return std::nullopt;
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (head.bytes != sizeof(StatsLayout) || st.st_size < static_cast<off_t>(sizeof(StatsLayout)) ||
      seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    if (head.bytes != 0) why = "its counters are not whole";
    return std::nullopt;
  }
  void* at = ::mmap(nullptr, sizeof(StatsLayout), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    why = fmt::format("mmap: errno {}", errno);
    return std::nullopt;
  }
  return Mapping(at);
}

void scan_one(int pid, const std::string& proc, Scan& out) {
  const std::string folder = fmt::format("{}/{}", proc, pid);
  const Directory fds(::opendir((folder + "/fd").c_str()));
  if (!fds) {
    if (errno == EACCES || errno == EPERM) ++out.forbidden;
    return;
  }
  const std::string wanted = fmt::format("/memfd:{} (deleted)", kStatsMemfdName);
  while (const dirent* entry = ::readdir(fds.get())) {
    const std::string path = fmt::format("{}/fd/{}", folder, entry->d_name);
    if (link_of(path) != wanted) continue;
    std::string why;
    const auto mapping = map_stats(path, why);
    if (!mapping) {
      if (!why.empty()) out.unread.push_back(fmt::format("pid {}: {}", pid, why));
      continue;
    }
    // A child created by a raw clone(2) still has its parent's counters.
    ProcessReading reading = read_stats(mapping->layout());
    if (reading.pid != pid && reading.pid != inner_pid(folder)) continue;
    reading.pid = pid;
    out.processes.push_back(std::move(reading));
    return;
  }
}

}  // namespace

Scan scan_processes(std::optional<int> only, const std::string& proc) {
  Scan out;
  if (only) {
    scan_one(*only, proc, out);
    return out;
  }
  std::vector<int> pids;
  const Directory all(::opendir(proc.c_str()));
  while (const dirent* entry = all ? ::readdir(all.get()) : nullptr)
    if (const auto pid = number(entry->d_name)) pids.push_back(*pid);
  std::ranges::sort(pids);
  for (const int pid : pids) scan_one(pid, proc, out);
  return out;
}

}  // namespace vireo
