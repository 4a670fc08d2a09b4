// Rows of udp(7).
#include <linux/udp.h>
#include <netinet/in.h>

#include "stack/sock/options/rows.h"
#include "stack/sock/options/values.h"

#ifndef UDPLITE_SEND_CSCOV
#define UDPLITE_SEND_CSCOV 10
#define UDPLITE_RECV_CSCOV 11
#endif

namespace vireo {
namespace {

template <int UdpOptions::* kMember>
int& kept(SocketOptions& o) {
  return o.udp.*kMember;
}

using namespace rows;
#define UDP(name) IPPROTO_UDP, name, #name

constexpr SocketOption kRows[] = {
    leaves(UDP(UDP_CORK)),
    kernels(UDP(UDPLITE_SEND_CSCOV)),  // UDP-Lite only
    kernels(UDP(UDPLITE_RECV_CSCOV)),
    leaves(UDP(UDP_ENCAP)),
    leaves(UDP(UDP_NO_CHECK6_TX)),
    leaves(UDP(UDP_NO_CHECK6_RX)),
    {UDP(UDP_SEGMENT), kKernels, kOurs, kOn, 0, {.kept = kept<&UdpOptions::segment>}},
    {UDP(UDP_GRO), kKernels, kOurs, kOn, 0, {.kept = kept<&UdpOptions::gro>}},
};

#undef UDP

}  // namespace

constinit const OptionLevel kUdpLevel(kRows);

}  // namespace vireo
