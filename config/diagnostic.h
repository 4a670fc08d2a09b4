// A message to the operator about the settings or the rules file: one line, never fatal.
// Owner: the parser; its caller logs each once. Thread: any (values).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vireo {

enum class Severity : uint8_t {
  kNote,     ///< accepted, but has another meaning or none here (log at details)
  kWarning,  ///< invalid or out of range, with the value used instead (log at warn)
};

/// One line without a newline; includes the variable's name or file:line:column.
struct Diagnostic {
  Severity severity = Severity::kWarning;
  std::string text;
};

using Diagnostics = std::vector<Diagnostic>;

}  // namespace vireo
