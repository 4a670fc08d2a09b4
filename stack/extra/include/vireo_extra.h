/* The extra API: zero-copy receive, receive callbacks, polling of rings, and rules at run time. It
 * is binary compatible with libvma's vma_extra.h of 2026 (names, values, layout), so that programs
 * for it run as they are, and compile with this header.
 *
 *   struct vma_api_t* api = vma_get_api();          NULL: the program runs without Vireo
 *   if (api != NULL && (api->vma_extra_supported_mask & VMA_EXTRA_API_RECVFROM_ZCOPY) != 0) ...
 *
 * Every entry of the table can be called. One whose bit is not in the mask fails with EOPNOTSUPP.
 * What each does under Vireo: docs/EXTRA_API.md.
 */
#ifndef VIREO_EXTRA_H
#define VIREO_EXTRA_H

/* The names are libvma's: one of the two headers only. */
#ifdef VMA_EXTRA_H
#error "vma_extra.h of libvma is included already"
#endif
#define VMA_EXTRA_H

#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

/* Flags of recvfrom_zcopy(): in, fail rather than copy; out, no copy was made. */
#define MSG_VMA_ZCOPY_FORCE 0x01000000
#define MSG_VMA_ZCOPY 0x00040000

/* Flag of send(2): all of a send but the doorbell, to warm the caches. */
#define VMA_SND_FLAGS_DUMMY MSG_SYN

/* Options of level SOL_SOCKET. */
#define SO_VMA_GET_API 2800          /* get, on descriptor -1: struct vma_api_t* */
#define SO_VMA_USER_DATA 2801        /* void* in completions; else the descriptor */
#define SO_VMA_RING_ALLOC_LOGIC 2810 /* set: struct vma_ring_alloc_logic_attr */
#define SO_VMA_RING_USER_MEMORY 2811 /* not supported */
#define SO_VMA_FLOW_TAG 2820         /* uint32_t */
#define SO_VMA_SHUTDOWN_RX 2821      /* set: receives no more */

/* Control messages of ioctl(), of level SOL_SOCKET. */
enum { CMSG_VMA_IOCTL_USER_ALLOC = 2900 };
enum { VMA_IOCTL_USER_ALLOC_FLAG_TX = 1 << 0, VMA_IOCTL_USER_ALLOC_FLAG_RX = 1 << 1 };
struct __attribute__((packed)) vma_cmsg_ioctl_user_alloc_t {
  uint8_t flags;
  void* (*memalloc)(size_t);
  void (*memfree)(void*);
};

/* ---- receive callback */

typedef enum {
  VMA_PACKET_DROP, /* discard it */
  VMA_PACKET_RECV, /* queue it for recv(2) */
  VMA_PACKET_HOLD  /* the program keeps it until free_packets() */
} vma_recv_callback_retval_t;

struct __attribute__((packed)) vma_info_t {
  size_t struct_sz;        /* of this structure */
  void* packet_id;         /* for free_packets() */
  struct sockaddr_in* src; /* in network byte order, as `dst` */
  struct sockaddr_in* dst;
  size_t payload_sz;
  uint32_t socket_ready_queue_pkt_count; /* what recv(2) would find */
  uint32_t socket_ready_queue_byte_count;
  struct timespec hw_timestamp; /* zero: none */
  struct timespec sw_timestamp;
};

/* Called in a thread of the program that polls, with no lock held. `iov` and `vma_info` are valid
 * until it returns. */
typedef vma_recv_callback_retval_t (*vma_recv_callback_t)(int fd, size_t sz_iov, struct iovec iov[],
                                                          struct vma_info_t* vma_info,
                                                          void* context);

/* ---- zero-copy receive */

struct __attribute__((packed)) vma_packet_t {
  void* packet_id;
  size_t sz_iov;
  struct iovec iov[];
};
/* `n_packet_num` packets, each with its pieces behind it. */
struct __attribute__((packed)) vma_packets_t {
  size_t n_packet_num;
  struct vma_packet_t pkts[];
};

/* ---- SocketXtreme: completions of a ring (VMA_SOCKETXTREME=1) */

typedef enum {
  VMA_SOCKETXTREME_PACKET = (1ULL << 32),
  VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED = (1ULL << 33)
} vma_socketxtreme_events_t;

struct vma_buff_t {
  struct vma_buff_t* next;
  void* payload;
  uint16_t len;
};
struct vma_packet_desc_t {
  size_t num_bufs;
  uint16_t total_len;
  struct vma_buff_t* buff_lst;
  struct timespec hw_timestamp;
};
struct vma_completion_t {
  struct vma_packet_desc_t packet; /* with VMA_SOCKETXTREME_PACKET */
  uint64_t events;                 /* EPOLL*, and the two above */
  uint64_t user_data;              /* the descriptor, or SO_VMA_USER_DATA */
  struct sockaddr_in src;          /* of the packet, or of the new connection */
  int listen_fd;                   /* with VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED */
};

/* ---- rings */

typedef int vma_ring_profile_key;

typedef enum {
  RING_LOGIC_PER_INTERFACE = 0,
  RING_LOGIC_PER_IP = 1,
  RING_LOGIC_PER_SOCKET = 10,
  RING_LOGIC_PER_USER_ID = 11,
  RING_LOGIC_PER_THREAD = 20,
  RING_LOGIC_PER_CORE = 30,
  RING_LOGIC_PER_CORE_ATTACH_THREADS = 31,
  RING_LOGIC_LAST
} ring_logic_t;

typedef enum {
  VMA_RING_ALLOC_MASK_RING_PROFILE_KEY = (1 << 0),
  VMA_RING_ALLOC_MASK_RING_USER_ID = (1 << 1),
  VMA_RING_ALLOC_MASK_RING_INGRESS = (1 << 2),
  VMA_RING_ALLOC_MASK_RING_ENGRESS = (1 << 3)
} vma_ring_alloc_logic_attr_comp_mask;

struct vma_ring_alloc_logic_attr {
  uint32_t comp_mask;
  ring_logic_t ring_alloc_logic;
  uint32_t ring_profile_key;
  uint32_t user_id;
  uint32_t ingress : 1;
  uint32_t engress : 1;
  uint32_t reserved : 30;
};

/* setsockopt(SO_MAX_PACING_RATE) takes it, too. */
struct vma_rate_limit_t {
  uint32_t rate;         /* kbit/s */
  uint32_t max_burst_sz; /* bytes */
  uint16_t typical_pkt_sz;
};

typedef enum {
  VMA_MODIFY_RING_CQ_MODERATION = (1 << 0),
  VMA_MODIFY_RING_CQ_ARM = (1 << 1)
} vma_modify_ring_mask;
struct vma_cq_moderation_attr {
  uint32_t cq_moderation_count;
  uint32_t cq_moderation_period_usec;
};
struct vma_cq_arm_attr {};
struct vma_modify_ring_attr {
  uint32_t comp_bit_mask;
  int ring_fd;
  union {
    struct vma_cq_moderation_attr cq_moderation;
    struct vma_cq_arm_attr cq_arm;
  };
};

struct vma_packet_queue_ring_attr {
  uint32_t comp_mask;
};
struct vma_external_mem_attr {
  uint32_t comp_mask;
};
typedef enum { VMA_RING_ATTR_LAST } vma_ring_type_attr_mask;
typedef enum { VMA_RING_PACKET, VMA_RING_EXTERNAL_MEM } vma_ring_type;
struct vma_ring_type_attr {
  uint32_t comp_mask;
  vma_ring_type ring_type;
  union {
    struct vma_packet_queue_ring_attr ring_pktq;
    struct vma_external_mem_attr ring_ext;
  };
};

/* ---- a ring's memory in hardware: declared for get_ring_direct_descriptors(), which is not
 * supported */

typedef enum { VMA_HW_PP_EN = (1 << 0), VMA_HW_PP_BURST_EN = (1 << 3) } mlx_hw_device_cap;
struct dev_data {
  uint32_t vendor_id;
  uint32_t vendor_part_id;
  uint32_t device_cap;
};
struct hw_cq_data {
  void* buf;
  volatile uint32_t* dbrec;
  uint32_t cq_size;
  uint32_t cqe_size;
  uint32_t cqn;
  void* uar;
  uint32_t* cons_idx;
};
struct hw_wq_data {
  void* buf;
  uint32_t wqe_cnt;
  uint32_t stride;
  volatile uint32_t* dbrec;
  struct hw_cq_data cq_data;
};
struct hw_rq_data {
  struct hw_wq_data wq_data;
  uint32_t* head;
  uint32_t* tail;
};
struct hw_sq_data {
  struct hw_wq_data wq_data;
  uint32_t sq_num;
  struct {
    void* reg;
    uint32_t size;
    uint32_t offset;
  } bf;
};
typedef enum { DATA_VALID_DEV, DATA_VALID_SQ, DATA_VALID_RQ } vma_mlx_hw_valid_data_mask;
struct vma_mlx_hw_device_data {
  uint32_t valid_mask;
  struct dev_data dev_data;
  struct hw_sq_data sq_data;
  struct hw_rq_data rq_data;
};

/* ---- the table. Each returns -1 with errno on failure. */

typedef enum {
  VMA_EXTRA_API_REGISTER_RECV_CALLBACK = (1 << 0),
  VMA_EXTRA_API_RECVFROM_ZCOPY = (1 << 1),
  VMA_EXTRA_API_FREE_PACKETS = (1 << 2),
  VMA_EXTRA_API_ADD_CONF_RULE = (1 << 3),
  VMA_EXTRA_API_THREAD_OFFLOAD = (1 << 4),
  VMA_EXTRA_API_DUMP_FD_STATS = (1 << 5),
  VMA_EXTRA_API_SOCKETXTREME_POLL = (1 << 6),
  VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS = (1 << 7),
  VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF = (1 << 8),
  VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF = (1 << 9),
  VMA_EXTRA_API_GET_SOCKET_RINGS_NUM = (1 << 10),
  VMA_EXTRA_API_GET_SOCKET_RINGS_FDS = (1 << 11),
  VMA_EXTRA_API_GET_SOCKET_TX_RING_FD = (1 << 12),
  VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER = (1 << 13),
  VMA_EXTRA_API_GET_RING_DIRECT_DESCRIPTORS = (1 << 14),
  VMA_EXTRA_API_ADD_RING_PROFILE = (1 << 16),
  VMA_EXTRA_API_REGISTER_MEMORY_ON_RING = (1 << 17),
  VMA_EXTRA_API_DEREGISTER_MEMORY_ON_RING = (1 << 18),
  VMA_EXTRA_API_MODIFY_RING = (1 << 20),
  VMA_EXTRA_API_IOCTL = (1 << 21)
} vma_extra_api_mask;

struct __attribute__((packed)) vma_api_t {
  int (*register_recv_callback)(int s, vma_recv_callback_t callback, void* context);
  int (*recvfrom_zcopy)(int s, void* buf, size_t len, int* flags, struct sockaddr* from,
                        socklen_t* fromlen);
  int (*free_packets)(int s, struct vma_packet_t* pkts, size_t count);
  int (*add_conf_rule)(const char* config_line);
  int (*thread_offload)(int offload, pthread_t tid);
  int (*socketxtreme_poll)(int fd, struct vma_completion_t* completions, unsigned int ncompletions,
                           int flags);
  int (*get_socket_rings_num)(int fd);
  int (*get_socket_rings_fds)(int fd, int* ring_fds, int ring_fds_sz);
  int (*get_socket_tx_ring_fd)(int sock_fd, struct sockaddr* to, socklen_t tolen);
  int (*socketxtreme_free_vma_packets)(struct vma_packet_desc_t* packets, int num);
  int (*socketxtreme_ref_vma_buff)(struct vma_buff_t* buff);
  int (*socketxtreme_free_vma_buff)(struct vma_buff_t* buff);
  int (*dump_fd_stats)(int fd, int log_level);
  int (*vma_add_ring_profile)(struct vma_ring_type_attr* profile, int* key);
  int (*get_socket_network_header)(int fd, void* ptr, uint16_t* len);
  int (*get_ring_direct_descriptors)(int fd, struct vma_mlx_hw_device_data* data);
  int (*register_memory_on_ring)(int fd, void* addr, size_t length, uint32_t* key);
  int (*deregister_memory_on_ring)(int fd, void* addr, size_t length);
  int (*vma_modify_ring)(struct vma_modify_ring_attr* mr_data);
  uint64_t vma_extra_supported_mask; /* VMA_EXTRA_API_* */
  int (*ioctl)(void* cmsg_hdr, size_t cmsg_len);
};

static inline struct vma_api_t* vma_get_api(void) {
  struct vma_api_t* api = NULL;
  socklen_t len = sizeof(api);
  return getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &api, &len) == 0 ? api : NULL;
}

#endif
