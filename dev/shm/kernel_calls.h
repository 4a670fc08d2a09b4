// Direct system calls for functions that libvireo interposes, so that our own sockets are never
// taken for the program's. Owner: none. Thread: any. Each is as in section 2 of the manual.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace vireo::kernel {

inline int socket(int family, int type) {
  return static_cast<int>(syscall(SYS_socket, family, type, 0));
}
inline int bind(int fd, const sockaddr* a, socklen_t n) {
  return static_cast<int>(syscall(SYS_bind, fd, a, n));
}
inline int listen(int fd, int backlog) {
  return static_cast<int>(syscall(SYS_listen, fd, backlog));
}
inline int connect(int fd, const sockaddr* a, socklen_t n) {
  return static_cast<int>(syscall(SYS_connect, fd, a, n));
}
inline int accept4(int fd, int flags) {
  return static_cast<int>(syscall(SYS_accept4, fd, nullptr, nullptr, flags));
}
inline ssize_t send(int fd, const void* b, size_t n, int flags) {
  return syscall(SYS_sendto, fd, b, n, flags, nullptr, 0);
}
inline ssize_t recv(int fd, void* b, size_t n, int flags) {
  return syscall(SYS_recvfrom, fd, b, n, flags, nullptr, nullptr);
}
inline int fcntl(int fd, int cmd, void* arg) {
  return static_cast<int>(syscall(SYS_fcntl, fd, cmd, arg));
}
inline int epoll_create1(int flags) { return static_cast<int>(syscall(SYS_epoll_create1, flags)); }
inline int epoll_ctl(int fd, int op, int of, epoll_event* e) {
  return static_cast<int>(syscall(SYS_epoll_ctl, fd, op, of, e));
}

}  // namespace vireo::kernel
