// A message to the operator about the settings or the rules file: one line, never fatal.
// Owner: the parser; its caller logs each once. Thread: any (values).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vireo {

enum class Severity : uint8_t {
  kNote,  ///< accepted, but means something else or nothing here: for the curious (log at details)
  kWarning,  ///< not understood or out of range, and what is used instead (log at warn)
};

/// One line without a newline; names the variable or file:line:column itself.
struct Diagnostic {
  Severity severity = Severity::kWarning;
  std::string text;
};

using Diagnostics = std::vector<Diagnostic>;

}  // namespace vireo
