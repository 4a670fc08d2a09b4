// A veth pair in a network namespace that ends with the test program, and what the AF_XDP tests
// need around it. Owner: the test. Thread: the test's.
#pragma once

#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/types.h"

namespace vireo::test {

/// Runs a shell command. @return true if it ended with 0.
inline bool run(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// Moves this thread, and what it starts, to a network namespace of its own, once.
/// @return false without the right to.
inline bool enter_own_namespace() {
  static const bool entered =
      geteuid() == 0 && unshare(CLONE_NEWNET) == 0 && run("ip link set lo up");
  return entered;
}

struct VethOptions {
  uint32_t mtu = 1500;
  uint32_t queues = 1;
  std::string names[2] = {"vr-xdp-0", "vr-xdp-1"};
};

/// Two joined Ethernet interfaces without addresses or traffic of their own.
class Veth {
 public:
  explicit Veth(const VethOptions& o = {}) : names_{o.names[0], o.names[1]} {
    const std::string q =
        " numrxqueues " + std::to_string(o.queues) + " numtxqueues " + std::to_string(o.queues);
    made_ = run("ip link add " + names_[0] + " address 02:00:00:00:00:01" + q +
                " type veth peer name " + names_[1] + " address 02:00:00:00:00:02" + q);
    for (const std::string& n : names_) {
      // Quiet: no neighbour discovery or multicast reports between the frames of a test.
      made_ = made_ &&
              run("ip link set " + n + " addrgenmode none arp off mtu " + std::to_string(o.mtu)) &&
              run("ip link set " + n + " up");
    }
  }
  ~Veth() { remove(); }
  Veth(const Veth&) = delete;
  Veth& operator=(const Veth&) = delete;

  bool made() const { return made_; }
  const std::string& name(int side) const { return names_[side]; }
  IfIndex index(int side) const { return IfIndex(if_nametoindex(names_[side].c_str())); }
  void remove() {
    if (made_) run("ip link del " + names_[0]);
    made_ = false;
  }

 private:
  std::string names_[2];
  bool made_ = false;
};

}  // namespace vireo::test
