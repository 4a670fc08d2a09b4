// Vireo's own descriptors, which the program must not close. They have high numbers, so that they
// take none of the low numbers that programs expect to get.
// Owner: process. Thread: any.
#pragma once

namespace vireo {

/// Moves `fd` to a high number, CLOEXEC, and records it. @return the new number, or `fd` if no high
/// number is free.
int protect_fd(int fd) noexcept;
void unprotect_fd(int fd) noexcept;
/// close(), dup2() onto it and close_range() must leave it open.
bool is_protected_fd(int fd) noexcept;

}  // namespace vireo
