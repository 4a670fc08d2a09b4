// What packetdrill asks of a stack that it loads with --so_filename: a table of calls, filled in by
// packetdrill_interface_init(flags, table). `userdata` is the stack's own and comes back with each
// call. Socket calls are as libc's, errno included.
// Source: packetdrill.h of github.com/google/packetdrill (names, order and types are its ABI).
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>

extern "C" {

struct PacketdrillInterface {
  void* userdata;
  void (*free)(void*);
  int (*socket)(void*, int domain, int type, int protocol);
  int (*bind)(void*, int fd, const sockaddr*, socklen_t);
  int (*listen)(void*, int fd, int backlog);
  int (*accept)(void*, int fd, sockaddr*, socklen_t*);
  int (*connect)(void*, int fd, const sockaddr*, socklen_t);
  ssize_t (*read)(void*, int fd, void*, size_t);
  ssize_t (*readv)(void*, int fd, const iovec*, int);
  ssize_t (*recv)(void*, int fd, void*, size_t, int flags);
  ssize_t (*recvfrom)(void*, int fd, void*, size_t, int flags, sockaddr*, socklen_t*);
  ssize_t (*recvmsg)(void*, int fd, msghdr*, int flags);
  ssize_t (*write)(void*, int fd, const void*, size_t);
  ssize_t (*writev)(void*, int fd, const iovec*, int);
  ssize_t (*send)(void*, int fd, const void*, size_t, int flags);
  ssize_t (*sendto)(void*, int fd, const void*, size_t, int flags, const sockaddr*, socklen_t);
  ssize_t (*sendmsg)(void*, int fd, const msghdr*, int flags);
  int (*fcntl)(void*, int fd, int command, ...);
  int (*ioctl)(void*, int fd, unsigned long request, ...);
  int (*close)(void*, int fd);
  int (*shutdown)(void*, int fd, int how);
  int (*getsockopt)(void*, int fd, int level, int name, void*, socklen_t*);
  int (*setsockopt)(void*, int fd, int level, int name, const void*, socklen_t);
  int (*poll)(void*, pollfd*, nfds_t, int timeout);
  int (*netdev_send)(void*, const void* packet, size_t bytes);  ///< an IP packet for the stack
  /// The next IP packet that leaves; `bytes` in: room, out: length. `time_usecs` as gettimeofday.
  int (*netdev_receive)(void*, void* packet, size_t* bytes, long long* time_usecs);
  int (*usleep)(void*, useconds_t);
  int (*gettimeofday)(void*, timeval*, struct timezone*);
  int (*epoll_create)(void*, int size);
  int (*epoll_ctl)(void*, int epfd, int op, int fd, epoll_event*);
  int (*epoll_wait)(void*, int epfd, epoll_event*, int max, int timeout);
  int (*pipe)(void*, int fds[2]);
  int (*splice)(void*, int in, loff_t*, int out, loff_t*, size_t, unsigned flags);
};

/// Exported by the shared object.
void packetdrill_interface_init(const char* flags, PacketdrillInterface* table);
}
