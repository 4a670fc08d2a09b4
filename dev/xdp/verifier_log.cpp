#include "dev/xdp/verifier_log.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace vireo::xdp {
namespace {

constexpr size_t kBytes = 16 << 20;

/// Statistics that the verifier prints after its messages.
bool is_count(std::string_view line) {
  return line.starts_with("processed ") || line.starts_with("verification time ") ||
         line.starts_with("stack depth ");
}

}  // namespace

VerifierLog::VerifierLog() {
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED) text_ = Mapping(at, kBytes);
}

bpf_object_open_opts VerifierLog::options() const {
  bpf_object_open_opts o{};
  o.sz = sizeof o;
  if (text_.base() == nullptr) return o;
  o.kernel_log_buf = static_cast<char*>(text_.base());
  o.kernel_log_size = text_.length();
  return o;
}

std::vector<std::string_view> VerifierLog::last_lines(size_t most) const {
  std::vector<std::string_view> lines;
  if (text_.base() == nullptr) return lines;
  const auto* const text = static_cast<const char*>(text_.base());
  std::string_view rest(text, strnlen(text, text_.length()));
  while (!rest.empty() && lines.size() < most) {
    const size_t end = rest.rfind('\n');
    const std::string_view line = end == rest.npos ? rest : rest.substr(end + 1);
    rest = end == rest.npos ? std::string_view() : rest.substr(0, end);
    if (!line.empty() && !is_count(line)) lines.push_back(line);
  }
  std::ranges::reverse(lines);
  return lines;
}

}  // namespace vireo::xdp
