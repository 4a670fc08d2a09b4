#include "tests/unit/filter/rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>

#include "stack/filter/filter.h"
#include "stack/filter/judge.h"

namespace vireo::filter {

void run(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

void enter_new_namespace() {
  ASSERT_EQ(::unshare(CLONE_NEWNET), 0) << std::strerror(errno);
  run("ip link set lo up && ip link add eth0 index 10 type veth peer name eth1 index 11 && "
      "ip addr add 10.1.0.1/24 dev eth0 && ip link set eth0 up && ip link set eth1 up");
}

void set_nft(const std::string& ruleset) {
  run(fmt::format("nft -f - <<'END'\nflush ruleset\n{}\nEND", ruleset));
}

Ruleset read_rules() {
  Clock::calibrate();
  const Filter filter;
  return *filter.rules();
}

std::string judged(const Ruleset& rules, const Flow& flow) {
  return obstacle(rules, flow).value_or("");
}
std::string judged(const Flow& flow) { return judged(read_rules(), flow); }

}  // namespace vireo::filter
