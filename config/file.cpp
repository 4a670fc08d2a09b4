#include "config/file.h"

#include <cstdio>
#include <memory>

namespace vireo {

Result<std::string> read_file(const std::string& path, size_t most) {
  struct Close {
    void operator()(FILE* f) const { std::fclose(f); }
  };
  const std::unique_ptr<FILE, Close> file(std::fopen(path.c_str(), "re"));
  if (!file) return fail_errno("open");
  std::string text;
  char buf[4096];
  while (const size_t n = std::fread(buf, 1, sizeof buf, file.get())) {
    if (n > most - text.size()) return fail(EFBIG, "read");
    text.append(buf, n);
  }
  if (std::ferror(file.get()) != 0) return fail_errno("read");
  return text;
}

}  // namespace vireo
