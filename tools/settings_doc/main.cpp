// settings_doc man|markdown|dump|unread ROOT: the manual, the settings as read from this
// environment, or settings that no code reads.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/file.h"
#include "config/settings.h"
#include "tools/settings_doc/manual.h"

namespace {

int usage() {
  std::fputs(
      "usage: settings_doc man          vireo(7) in troff\n"
      "       settings_doc markdown     the settings and profiles as tables\n"
      "       settings_doc dump         this environment as Vireo reads it\n"
      "       settings_doc unread ROOT  settings that the sources under ROOT do not read; exit 1 "
      "if any\n",
      stderr);
  return 2;
}

int print(const std::string& text) {
  const bool ok =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return ok ? 0 : 1;
}

int dump() {
  const auto p = vireo::parse_settings(environ);
  for (const auto& d : p.diagnostics) std::fprintf(stderr, "%s\n", d.text.c_str());
  return print(vireo::dump_settings(p));
}

int unread(const std::string& root) {
  namespace fs = std::filesystem;
  std::vector<std::string> sources;
  for (const auto* folder : {"core", "stack", "dev", "tools"}) {
    std::error_code ec;
    for (const auto& e : fs::recursive_directory_iterator(fs::path(root) / folder, ec)) {
      const auto ext = e.path().extension();
      if (ext != ".h" && ext != ".cpp") continue;
      if (auto text = vireo::read_file(e.path().string(), 16 << 20))
        sources.push_back(std::move(*text));
    }
  }
  if (sources.empty()) {
    std::fprintf(stderr, "settings_doc: no sources under %s\n", root.c_str());
    return 2;
  }
  const auto names = vireo::unread_settings(sources);
  for (const auto& n : names) std::printf("%s\n", n.c_str());
  return names.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "man" && argc == 2) return print(vireo::manual_page());
  if (command == "markdown" && argc == 2) return print(vireo::manual_markdown());
  if (command == "dump" && argc == 2) return dump();
  if (command == "unread" && argc == 3) return unread(argv[2]);
  return usage();
}
