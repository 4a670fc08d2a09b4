// Any rules file parses, each message is one printable line with its place, and every look-up ends.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "config/pattern.h"
#include "config/rules.h"

namespace {

void require(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vireo;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Diagnostics diagnostics;
  const Rules rules = Rules::parse(text, "f", diagnostics);

  const auto lines = static_cast<size_t>(std::ranges::count(text, '\n')) + 1;
  require(diagnostics.size() <= 2 * lines);
  require(rules.size() <= lines);
  for (const auto& d : diagnostics) {
    require(d.text.starts_with("f:"));
    for (const char c : d.text) require(c >= ' ' && c <= '~');
  }

  const Endpoint ends[] = {
      {}, {IpAddr::v4(be32(0x0a000001)), 80, 0}, {*IpAddr::parse("2001:db8::1"), 53, 0}};
  for (const auto role : {Role::kTcpServer, Role::kTcpClient, Role::kUdpSender, Role::kUdpReceiver,
                          Role::kUdpConnect})
    for (const auto& local : ends)
      for (const auto& remote : ends) {
        const Transport t = rules.lookup("/bin/prog", "id", role, local, remote);
        require(t == Transport::kVireo || rules.size() > 0);
      }
  const size_t half = size / 2;
  matches_pattern(text.substr(0, half), text.substr(half));
  return 0;
}
