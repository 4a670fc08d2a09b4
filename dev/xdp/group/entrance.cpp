#include "dev/xdp/group/entrance.h"

#include <pthread.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

namespace vireo::xdp {
namespace {

struct Entered {
  std::mutex lock;
  std::vector<std::string> names;
};

Entered& entered() {
  static auto* const e = [] {
    // The child is in no group; another thread may have held the lock at the fork.
    pthread_atfork(nullptr, nullptr, [] { std::construct_at(&entered()); });
    return new Entered;  // never destroyed: devices may end after static destructors
  }();
  return *e;
}

}  // namespace

Result<Entrance> Entrance::open(std::string_view name) {
  Entered& e = entered();
  const std::lock_guard hold(e.lock);
  if (std::ranges::find(e.names, name) != e.names.end())
    return fail(EEXIST, "this process is in the group already");
  e.names.emplace_back(name);
  return Entrance(name);
}

Entrance::~Entrance() {
  if (name_.empty()) return;
  Entered& e = entered();
  const std::lock_guard hold(e.lock);
  std::erase(e.names, name_);
}

}  // namespace vireo::xdp
