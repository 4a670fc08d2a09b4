// The source filter of a multicast membership (RFC 3376 §3.1, RFC 3810 §4.2): the senders that it
// wants, or does not want. Owner: the membership. Guard: its owner's.
#pragma once

#include <algorithm>
#include <vector>

#include "core/address.h"

namespace vireo {

struct SourceFilter {
  bool includes = false;        ///< INCLUDE: only `sources`; else EXCLUDE: all others
  std::vector<IpAddr> sources;  ///< sorted

  /// Whether a datagram from `source` is wanted.
  bool admits(const IpAddr& source) const noexcept {
    return std::ranges::binary_search(sources, source) == includes;
  }
  bool admits_all() const noexcept { return !includes && sources.empty(); }
  bool operator==(const SourceFilter&) const = default;
};

}  // namespace vireo
