// One end of softnic's lock-step wire as a program of the manual pages would open it: nothing here
// is Vireo's.
// Owner: the test. Thread: one.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/apparatus/softnic/control.h"

namespace softnic_test {

struct EndOptions {
  uint32_t sends = 8, receives = 8;
  uint16_t tso_header = 0;
  bool compress = false;  ///< the receives' completions
  bool by_hand = true;    ///< rings that are given away
  bool commands = false;  ///< opened for DevX
  uint64_t fields = 0;    ///< IBV_WC_EX_WITH_*: receives complete on an extended queue
};

class End {
 public:
  static constexpr size_t kSlot = 2048;

  explicit End(int number, const EndOptions& o = {});
  ~End();

  ibv_device* device;
  ibv_context* context;
  ibv_pd* domain;
  std::vector<std::byte> memory;
  ibv_mr* region;
  ibv_comp_channel* channel;
  ibv_cq* sent;
  ibv_cq* received;
  ibv_qp* pair;
  std::vector<ibv_flow*> flows;

  std::byte* slot(size_t i) { return memory.data() + i * kSlot; }
  ibv_sge segment(size_t i, uint32_t bytes);
  /// @return the errno of ibv_post_recv(3) or ibv_post_send(3).
  int post_receive(uint64_t id, ibv_sge s);
  int post_send(uint64_t id, ibv_sge s, unsigned flags = IBV_SEND_SIGNALED);
  int move(ibv_qp_state to);
  /// Every frame comes here that no other rule wants.
  void take_all();
  std::vector<ibv_wc> poll(ibv_cq* cq);
};

/// UDP over IPv4 from 10.0.0.1:6000 to 10.0.0.2:`port`, with `payload` bytes.
std::vector<std::byte> udp_frame(uint16_t port, size_t payload, uint8_t first_mac_byte = 0x02);

}  // namespace softnic_test
