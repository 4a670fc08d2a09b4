// A program with a fmt of its own, whose symbols are exported and whose version differs: the
// library's must not meet it. Prints what its own formatter says; throws and catches, for the
// library is built without exceptions.
#include <cstdio>
#include <stdexcept>
#include <string>

#define OWN [[gnu::visibility("default"), gnu::used, gnu::noinline]]

// The names that libfmt 9 exports, with another meaning.
namespace fmt {
inline namespace v9 {
struct string_view {
  const char* data;
  unsigned long size;
};
OWN std::string vformat(string_view format) {
  if (format.size == 0) throw std::invalid_argument("mine: empty");
  return "mine: " + std::string(format.data, format.size);
}
namespace detail {
OWN void throw_format_error(const char* text) {
  throw std::runtime_error(std::string("mine: ") + text);
}
OWN void assert_fail(const char*, int, const char* text) {
  throw std::runtime_error(std::string("mine: ") + text);
}
}  // namespace detail
}  // namespace v9
}  // namespace fmt

int main() {
  std::puts(fmt::vformat({"hello", 5}).c_str());
  try {
    fmt::vformat({"", 0});
  } catch (const std::invalid_argument& e) {
    std::puts(e.what());
  }
  try {
    fmt::detail::throw_format_error("thrown");
  } catch (const std::runtime_error& e) {
    std::puts(e.what());
  }
  return 3;
}
