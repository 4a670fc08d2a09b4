// Descriptors of Vireo's own, which the program must not close. They stand at high numbers, out of
// the way of programs that count theirs.
// Owner: process. Thread: any.
#pragma once

namespace vireo {

/// Moves `fd` to a high number, CLOEXEC, and remembers it. @return the new number, or `fd` if there
/// is no room above.
int protect_fd(int fd) noexcept;
void unprotect_fd(int fd) noexcept;
/// close(), dup2() onto it and close_range() must spare it.
bool is_protected_fd(int fd) noexcept;

}  // namespace vireo
