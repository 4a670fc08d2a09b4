// Rows of udp(7). The options that Vireo implements are those of socket(7), ip(7) and ipv6(7).
#include <linux/udp.h>
#include <netinet/in.h>

#include "stack/sock/options/rows.h"

#ifndef UDPLITE_SEND_CSCOV
#define UDPLITE_SEND_CSCOV 10
#define UDPLITE_RECV_CSCOV 11
#endif

namespace vireo {
namespace {

using namespace rows;
#define UDP(name) IPPROTO_UDP, name, #name

constexpr SocketOption kRows[] = {
    leaves(UDP(UDP_CORK)),
    kernels(UDP(UDPLITE_SEND_CSCOV)),  // UDP-Lite only
    kernels(UDP(UDPLITE_RECV_CSCOV)),
    leaves(UDP(UDP_ENCAP)),
    leaves(UDP(UDP_NO_CHECK6_TX)),
    leaves(UDP(UDP_NO_CHECK6_RX)),
    leaves(UDP(UDP_SEGMENT)),
    leaves(UDP(UDP_GRO)),
};

#undef UDP

}  // namespace

constinit const OptionLevel kUdpLevel(kRows);

}  // namespace vireo
