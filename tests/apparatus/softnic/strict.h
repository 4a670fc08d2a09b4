// What softnic does when the program breaks a rule of verbs: it ends the process and says which
// rule, because that is how it finds our bugs. With SOFTNIC_LENIENT=1 it answers as hardware would:
// an errno, an error completion, a queue pair in the error state. Owner: none. Thread: any.
#pragma once

namespace vireo::softnic {

bool is_lenient() noexcept;

/// Ends the process with the text (printf(3)), unless lenient.
[[gnu::format(printf, 1, 2)]] void broken_rule(const char* format, ...) noexcept;

}  // namespace vireo::softnic
