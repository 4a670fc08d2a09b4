#include "stack/filter/ruleset.h"

#include <algorithm>

namespace vireo::filter {
namespace {

template <class T>
const T* find(const std::vector<T>& in, std::string_view name) {
  const auto it = std::ranges::find(in, name, &T::name);
  return it == in.end() ? nullptr : &*it;
}

template <class T>
T& at(std::vector<T>& in, std::string_view name) {
  const auto it = std::ranges::find(in, name, &T::name);
  return it != in.end() ? *it : in.emplace_back(T{.name = std::string(name)});
}

}  // namespace

const Chain* Table::chain(std::string_view which) const { return find(chains, which); }
const Set* Table::set(std::string_view which) const { return find(sets, which); }
Chain& Table::chain_at(std::string_view which) { return at(chains, which); }
Set& Table::set_at(std::string_view which) { return at(sets, which); }

Table& Ruleset::table_at(Family family, std::string_view family_name, std::string_view name) {
  const auto it = std::ranges::find_if(
      tables, [&](const Table& t) { return t.family_name == family_name && t.name == name; });
  if (it != tables.end()) return *it;
  return tables.emplace_back(
      Table{.family = family, .family_name = std::string(family_name), .name = std::string(name)});
}

}  // namespace vireo::filter
