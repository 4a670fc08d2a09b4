// The attributes of an rtnetlink message (netlink(7), linux/netlink.h: struct nlattr). Owner: none
// (pure functions). Thread: any. Parsing stops at an attribute that does not fit.
#pragma once

#include <linux/netlink.h>

#include <cstring>

namespace vireo::net {

/// Bytes of the payload.
inline int attribute_length(const nlattr* a) { return a->nla_len - NLA_HDRLEN; }
inline const char* attribute_data(const nlattr* a) {
  return reinterpret_cast<const char*>(a) + NLA_HDRLEN;
}

/// The attributes of types 0..Max in `bytes` bytes, by type; the last one of a type counts.
template <int Max>
class Attributes {
 public:
  Attributes(const void* first, int bytes) {
    auto* p = static_cast<const char*>(first);
    while (bytes >= static_cast<int>(NLA_HDRLEN)) {
      auto* a = reinterpret_cast<const nlattr*>(p);
      if (a->nla_len < NLA_HDRLEN || a->nla_len > bytes) return;
      const int type = a->nla_type & NLA_TYPE_MASK;
      if (type <= Max) by_type_[type] = a;
      const auto step = static_cast<int>(NLA_ALIGN(a->nla_len));
      p += step;
      bytes -= step;
    }
  }
  /// The attributes nested in `a`; none if it is nullptr.
  explicit Attributes(const nlattr* a)
      : Attributes(a != nullptr ? attribute_data(a) : nullptr,
                   a != nullptr ? attribute_length(a) : 0) {}

  const nlattr* operator[](int type) const { return by_type_[type]; }

 private:
  const nlattr* by_type_[Max + 1] = {};
};

/// The family's header of a message, e.g. rtmsg; nullptr if the message is too short.
template <class Header>
const Header* header_of(const nlmsghdr& m) {
  if (m.nlmsg_len < NLMSG_LENGTH(sizeof(Header))) return nullptr;
  return reinterpret_cast<const Header*>(reinterpret_cast<const char*>(&m) + NLMSG_HDRLEN);
}

/// The attributes behind that header.
template <int Max, class Header>
Attributes<Max> attributes_of(const nlmsghdr& m, const Header* h) {
  constexpr int kBefore = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(Header));
  return {reinterpret_cast<const char*>(h) + NLMSG_ALIGN(sizeof(Header)),
          static_cast<int>(m.nlmsg_len) - kBefore};
}

}  // namespace vireo::net
