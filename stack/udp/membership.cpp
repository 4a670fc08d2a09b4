#include "stack/udp/membership.h"

#include <utility>

namespace vireo::udp {
namespace {

size_t max_sources(const IpAddr& group) {
  return group.is_v4() ? Membership::kMaxSourcesV4 : Membership::kMaxSourcesV6;
}

/// A list may only be changed in the mode it was made in; an empty one may change sides.
bool mode_fits(const Group& g, SourceMode mode) { return g.mode == mode || g.sources.empty(); }

}  // namespace

Group* Membership::find(const IpAddr& group, IfIndex ifindex) noexcept {
  for (Group& g : groups_)
    if (g.group == group && g.ifindex == ifindex) return &g;
  return nullptr;
}

void Membership::erase(const Group& g) { groups_.erase(groups_.begin() + (&g - groups_.data())); }

Result<void> Membership::join(const IpAddr& group, IfIndex ifindex) {
  if (!group.is_multicast()) return fail(EINVAL, "join: not a multicast address");
  if (find(group, ifindex) != nullptr) return fail(EADDRINUSE, "join: joined already");
  const auto v4 =
      std::count_if(groups_.begin(), groups_.end(), [](const Group& g) { return g.group.is_v4(); });
  if (group.is_v4() && static_cast<size_t>(v4) >= kMaxGroups)
    return fail(ENOBUFS, "join: igmp_max_memberships");
  groups_.push_back({group, ifindex, SourceMode::kExclude, {}});
  return {};
}

Result<void> Membership::leave(const IpAddr& group, IfIndex ifindex) {
  const Group* g = find(group, ifindex);
  if (g == nullptr) return fail(EADDRNOTAVAIL, "leave: not joined");
  erase(*g);
  return {};
}

Result<void> Membership::add_source(Group& g, SourceMode mode, const IpAddr& source) {
  if (!mode_fits(g, mode)) return fail(EINVAL, "source filter: the other mode is in use");
  if (g.sources.size() >= max_sources(g.group)) return fail(ENOBUFS, "source filter: igmp_max_msf");
  if (std::find(g.sources.begin(), g.sources.end(), source) != g.sources.end())
    return fail(EADDRNOTAVAIL, "source filter: listed already");
  g.mode = mode;
  g.sources.push_back(source);
  return {};
}

Result<void> Membership::remove_source(Group& g, SourceMode mode, const IpAddr& source) {
  if (!mode_fits(g, mode)) return fail(EINVAL, "source filter: the other mode is in use");
  g.mode = mode;  // as Linux: asking is enough to change the mode of an empty list
  const auto it = std::find(g.sources.begin(), g.sources.end(), source);
  if (it == g.sources.end()) return fail(EADDRNOTAVAIL, "source filter: not listed");
  g.sources.erase(it);
  return {};
}

Result<void> Membership::join_source(const IpAddr& group, const IpAddr& source, IfIndex ifindex) {
  const bool was_member = find(group, ifindex) != nullptr;
  if (!was_member) {
    if (auto r = join(group, ifindex); !r) return r;
  }
  return add_source(*find(group, ifindex), SourceMode::kInclude, source);
}

Result<void> Membership::leave_source(const IpAddr& group, const IpAddr& source, IfIndex ifindex) {
  Group* g = find(group, ifindex);
  if (g == nullptr) return fail(EINVAL, "leave source: not joined");
  if (auto r = remove_source(*g, SourceMode::kInclude, source); !r) return r;
  if (g->sources.empty()) erase(*g);  // nobody to hear is no membership
  return {};
}

Result<void> Membership::block(const IpAddr& group, const IpAddr& source, IfIndex ifindex) {
  Group* g = find(group, ifindex);
  if (g == nullptr) return fail(EINVAL, "block source: not joined");
  return add_source(*g, SourceMode::kExclude, source);
}

Result<void> Membership::unblock(const IpAddr& group, const IpAddr& source, IfIndex ifindex) {
  Group* g = find(group, ifindex);
  if (g == nullptr) return fail(EINVAL, "unblock source: not joined");
  return remove_source(*g, SourceMode::kExclude, source);
}

Result<void> Membership::set_filter(const IpAddr& group, IfIndex ifindex, SourceMode mode,
                                    std::vector<IpAddr> sources) {
  Group* g = find(group, ifindex);
  if (g == nullptr) return fail(EINVAL, "set filter: not joined");
  if (sources.size() > max_sources(group)) return fail(ENOBUFS, "set filter: igmp_max_msf");
  if (mode == SourceMode::kInclude && sources.empty()) {
    erase(*g);
    return {};
  }
  g->mode = mode;
  g->sources = std::move(sources);
  return {};
}

}  // namespace vireo::udp
