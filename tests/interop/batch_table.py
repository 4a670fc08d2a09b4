"""What a message's ancillary data and UDP_SEGMENT make of it: the table of batch.py. All of it is data.

The expectations are of cmsg(3), ip(7), ipv6(7), udp(7), RFC 3542, and of Linux where it decides: net/ipv4/udp.c udp_sendmsg(),
net/ipv4/ip_sockglue.c ip_cmsg_send(), net/ipv6/datagram.c ip6_datagram_send_ctl(), net/core/sock.c __sock_cmsg_send(), and its
selftests net/udpgso.c, net/cmsg_sender.c.
"""
import socket
import struct
from dataclasses import dataclass, field

IP, IPV6, UDP, SOL = socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.IPPROTO_UDP, socket.SOL_SOCKET
TOS, TTL, PKTINFO, MULTICAST_LOOP, MULTICAST_TTL = 1, 2, 8, 34, 33
PKTINFO6, HOPLIMIT, TCLASS, DONTFRAG = 50, 52, 67, 62
MARK, PRIORITY = 36, 12
SEGMENT, GRO = 103, 104
DONTWAIT, MORE, WAITFORONE = socket.MSG_DONTWAIT, 0x8000, 0x10000

# The source that Linux chooses, and another of A's: in IPv6 the newest is the first.
A, A2 = {4: "10.77.0.1", 6: "fd77::11"}, {4: "10.77.0.11", 6: "fd77::1"}
B = {4: "10.77.0.2", 6: "fd77::2"}
A_SECOND, B2 = "10.78.0.1", "10.77.0.12"
MAPPED_B, MARKED = "::ffff:10.77.0.2", "10.90.0.1"
GROUP = {4: "239.77.2.1", 6: "ff15::77:2:1"}


@dataclass
class Heard:
    """By the receiver."""
    bytes: int
    tos: int = 0
    ttl: int = 64
    source: str = ""  # A's own
    by: str = "vr0"


@dataclass
class Row:
    name: str
    family: int
    messages: list[dict]
    results: list | str | tuple  # of each message: bytes, or an errno's name; several: as this kernel has it. One for all: sendmmsg fails
    heard: list[Heard]
    options: list = field(default_factory=list)
    connects: bool = True  # else the address is with the message
    bound: str = ""
    to: str = ""
    mapped: bool = False  # a socket of IPv6 to an address of IPv4
    many: bool = False    # by sendmmsg
    carried: bool = True


def u8(n: int) -> str:
    return struct.pack("=B", n & 255).hex()


def u16(n: int) -> str:
    return struct.pack("=H", n).hex()


def u32(n: int) -> str:
    return struct.pack("=I", n & 0xffffffff).hex()


def info4(source: str = "0.0.0.0", device: str = "") -> str:
    """struct in_pktinfo; batch.py puts the interface's number in."""
    return (f"<{device}>" if device else u32(0)) + socket.inet_aton(source).hex() + "00" * 4


def info6(source: str = "::", device: str = "") -> str:
    return socket.inet_pton(socket.AF_INET6, source).hex() + (f"<{device}>" if device else u32(0))


def m(*control: list, bytes: int = 10, **more) -> dict:  # noqa: A002
    return {"bytes": bytes, "control": list(control), **more}


PLAIN = {"bytes": 10}
TEN = Heard(10)


def bad(name: str, family: int, control: list, error="EINVAL", **more) -> Row:
    return Row(name, family, [m(control)], [error], [], **more)


def raw(name: str, data: str, error: str = "EINVAL") -> Row:
    return Row(name, 4, [{"bytes": 10, "raw": data}], [error], [])


def head(length: int, level: int, kind: int) -> str:
    return struct.pack("=Qii", length, level, kind).hex()


def cut(name: str, family: int, n: int, size: int, heard: list[int] | None = None, result=None, **more) -> Row:
    """One message of n bytes, by UDP_SEGMENT as option and as ancillary data: two rows would differ in that alone."""
    sizes = [size] * (n // size) + [n % size] * (n % size != 0) if heard is None else heard
    return Row(name, family, [{"bytes": n, "pieces": more.pop("pieces", 1)}], [n if result is None else result], [Heard(s) for s in sizes],
               options=[[UDP, SEGMENT, size]], **more)


def told(name: str, family: int, n: int, size: int, heard: list[int] | None = None, result=None, **more) -> Row:
    row = cut(name, family, n, size, heard, result, **more)
    row.options = []
    row.messages[0]["control"] = [[UDP, SEGMENT, u16(size)]]
    return row


MTU4, MTU6 = 1472, 1452  # payload of a packet of 1500 bytes
ROWS = [
    # ---- header fields of one datagram
    Row("IP_TOS of one datagram", 4, [m([IP, TOS, u32(0x28)]), PLAIN, m([IP, TOS, u32(0)])], [10] * 3, [Heard(10, 0x28), TEN, TEN]),
    Row("IP_TOS in one byte, with the bits of ECN", 4, [m([IP, TOS, u8(0xb9)])], [10], [Heard(10, 0xb9)]),
    Row("IP_TOS over the socket's", 4, [m([IP, TOS, u32(8)]), PLAIN], [10, 10], [Heard(10, 8), Heard(10, 0x10)], options=[[IP, TOS, 0x10]]),
    bad("IP_TOS of two bytes", 4, [IP, TOS, u16(8)]),
    bad("IP_TOS of 256", 4, [IP, TOS, u32(256)]),
    bad("IP_TOS of -1", 4, [IP, TOS, u32(-1)]),
    Row("IP_TTL of one datagram", 4, [m([IP, TTL, u32(33)]), PLAIN, m([IP, TTL, u32(255)])], [10] * 3, [Heard(10, ttl=33), TEN, Heard(10, ttl=255)]),
    bad("IP_TTL of 0", 4, [IP, TTL, u32(0)]),
    bad("IP_TTL of 256", 4, [IP, TTL, u32(256)]),
    bad("IP_TTL of one byte", 4, [IP, TTL, u8(3)]),
    Row("TOS and TTL, to an address with the message", 4, [m([IP, TOS, u32(4)], [IP, TTL, u32(9)]), PLAIN, m([IP, TTL, u32(9)])], [10] * 3,
        [Heard(10, 4, 9), TEN, Heard(10, 0, 9)], connects=False),
    Row("on a socket bound to an address", 4, [m([IP, TTL, u32(9)])], [10], [Heard(10, 0, 9, source=A2[4])], bound=A2[4]),
    Row("the same three times", 4, [m([IP, TOS, u32(4)])] * 3, [10] * 3, [Heard(10, 4)] * 3),
    Row("TTL of a datagram to a group", 4, [m([IP, TTL, u32(5)]), PLAIN], [10, 10], [Heard(10, ttl=5), Heard(10, ttl=3)],
        options=[[IP, MULTICAST_LOOP, 0], [IP, MULTICAST_TTL, 3]], to=GROUP[4]),
    Row("IPV6_TCLASS of one datagram", 6, [m([IPV6, TCLASS, u32(0x28)]), PLAIN, m([IPV6, TCLASS, u32(0)])], [10] * 3, [Heard(10, 0x28), TEN, TEN]),
    Row("IPV6_TCLASS over the socket's", 6, [m([IPV6, TCLASS, u32(0xb9)]), PLAIN], [10] * 2, [Heard(10, 0xb9), Heard(10, 0x40)],
        options=[[IPV6, TCLASS, 0x40]]),
    bad("IPV6_TCLASS of 256", 6, [IPV6, TCLASS, u32(256)]),
    bad("IPV6_TCLASS of -2", 6, [IPV6, TCLASS, u32(-2)]),
    bad("IPV6_TCLASS of one byte", 6, [IPV6, TCLASS, u8(1)]),
    Row("IPV6_HOPLIMIT of one datagram", 6, [m([IPV6, HOPLIMIT, u32(33)]), PLAIN, m([IPV6, HOPLIMIT, u32(-1)])], [10] * 3,
        [Heard(10, ttl=33), TEN, TEN]),
    bad("IPV6_HOPLIMIT of 256", 6, [IPV6, HOPLIMIT, u32(256)]),
    bad("IPV6_HOPLIMIT of two bytes", 6, [IPV6, HOPLIMIT, u16(3)]),
    Row("hop limit of a datagram to a group", 6, [m([IPV6, HOPLIMIT, u32(5)])], [10], [Heard(10, ttl=5)], options=[[IPV6, 19, 0]], to=GROUP[6]),
    # ---- source and interface
    Row("IP_PKTINFO: the source", 4, [m([IP, PKTINFO, info4(A2[4])]), PLAIN, m([IP, PKTINFO, info4(A[4])])], [10] * 3,
        [Heard(10, source=A2[4]), TEN, TEN], connects=False),
    Row("IP_PKTINFO: the source, on a connected socket", 4, [m([IP, PKTINFO, info4(A2[4])]), PLAIN], [10, 10], [Heard(10, source=A2[4]), TEN]),
    Row("IP_PKTINFO: no source is the route's", 4, [m([IP, PKTINFO, info4()])], [10], [TEN], bound=A2[4]),
    Row("IP_PKTINFO: source and interface", 4, [m([IP, PKTINFO, info4(A2[4], "vr0")], [IP, TOS, u32(4)])], [10], [Heard(10, 4, source=A2[4])]),
    Row("IP_PKTINFO: the interface of a group", 4, [m([IP, PKTINFO, info4("0.0.0.0", "vr1")]), PLAIN, m([IP, PKTINFO, info4(A2[4], "vr1")])],
        [10] * 3, [Heard(10, ttl=1, source=A_SECOND, by="vr1"), Heard(10, ttl=1), Heard(10, ttl=1, source=A2[4], by="vr1")],
        options=[[IP, MULTICAST_LOOP, 0]], connects=False, to=GROUP[4]),
    bad("IP_PKTINFO: a foreign source", 4, [IP, PKTINFO, info4("10.77.0.99")], ("EINVAL", "ENETUNREACH")),
    bad("IP_PKTINFO: a source that is a group", 4, [IP, PKTINFO, info4(GROUP[4])], ("EINVAL", "ENETUNREACH")),
    bad("IP_PKTINFO: no such interface", 4, [IP, PKTINFO, u32(4711) + "00" * 8], "ENODEV"),
    bad("IP_PKTINFO: too short", 4, [IP, PKTINFO, "00" * 8]),
    bad("IP_PKTINFO: too long", 4, [IP, PKTINFO, "00" * 16]),
    Row("IPV6_PKTINFO: the source", 6, [m([IPV6, PKTINFO6, info6(A2[6])]), PLAIN, m([IPV6, PKTINFO6, info6()])], [10] * 3,
        [Heard(10, source=A2[6]), TEN, TEN], connects=False),
    Row("IPV6_PKTINFO: no source is the socket's", 6, [m([IPV6, PKTINFO6, info6("::", "vr0")])], [10], [Heard(10, source=A2[6])], bound=A2[6]),
    Row("IPV6_PKTINFO: the interface of a group", 6, [m([IPV6, PKTINFO6, info6("fd78::1", "vr1")], [IPV6, HOPLIMIT, u32(2)])], [10],
        [Heard(10, ttl=2, source="fd78::1", by="vr1")], options=[[IPV6, 19, 0]], connects=False, to=GROUP[6]),
    bad("IPV6_PKTINFO: a foreign source", 6, [IPV6, PKTINFO6, info6("fd77::99")]),
    bad("IPV6_PKTINFO: a link-local source without an interface", 6, [IPV6, PKTINFO6, info6("fe80::1")]),
    bad("IPV6_PKTINFO: no such interface", 6, [IPV6, PKTINFO6, info6() [:32] + u32(4711)], "ENODEV"),
    bad("IPV6_PKTINFO: not the interface to which the socket is bound", 6, [IPV6, PKTINFO6, info6("::", "vr1")], options=[[SOL, 25, "vr0"]]),
    bad("IPV6_PKTINFO: too short", 6, [IPV6, PKTINFO6, "00" * 16]),
    # ---- the other protocol
    Row("IPv4 from a socket of IPv6", 6, [m([IP, TOS, u32(8)], [IP, TTL, u32(7)]), PLAIN], [10, 10], [Heard(10, 8, 7), TEN], mapped=True),
    Row("IPv4 from a socket of IPv6: IPv6's is ignored", 6, [m([IPV6, TCLASS, "00"], [IPV6, HOPLIMIT, u32(999)])], [10], [TEN], mapped=True),
    Row("IPv4 from a socket of IPv6: IPV6_PKTINFO of a mapped address", 6, [m([IPV6, PKTINFO6, info6("::ffff:" + A2[4])])], [10],
        [Heard(10, source=A2[4])], mapped=True),
    bad("IPv4 from a socket of IPv6: IPV6_PKTINFO of another", 6, [IPV6, PKTINFO6, info6(A2[6])], mapped=True),
    Row("IPv6 ignores IPv4's", 6, [m([IP, TOS, "0000"], [IP, TTL, u32(999)])], [10], [TEN]),
    Row("IPv4 ignores IPv6's", 4, [m([IPV6, TCLASS, "00"], [IPV6, PKTINFO6, ""])], [10], [TEN]),
    # ---- IPV6_DONTFRAG
    Row("IPV6_DONTFRAG", 6, [m([IPV6, DONTFRAG, u32(1)], bytes=3000), m([IPV6, DONTFRAG, u32(1)], bytes=MTU6)], ["EMSGSIZE", MTU6], [Heard(MTU6)]),
    Row("IPV6_DONTFRAG over the socket's", 6, [m([IPV6, DONTFRAG, u32(0)], bytes=3000), {"bytes": 3000}], [3000, "EMSGSIZE"], [Heard(3000)],
        options=[[IPV6, DONTFRAG, 1]], carried=False),
    bad("IPV6_DONTFRAG of 2", 6, [IPV6, DONTFRAG, u32(2)]),
    # ---- the socket's level
    Row("SO_MARK selects the route", 4, [m([SOL, MARK, u32(7)]), PLAIN], [10, 10], [Heard(10, source=A_SECOND, by="vr1"), TEN], connects=False, to=MARKED),
    bad("SO_MARK of two bytes", 4, [SOL, MARK, "0700"]),
    Row("SO_PRIORITY", 4, [m([SOL, PRIORITY, u32(5)])], [(10, "EINVAL")], [TEN]),
    bad("an unknown one of SOL_SOCKET", 4, [SOL, 999, u32(0)]),
    bad("an unknown one of IPPROTO_IP", 4, [IP, 99, u32(0)]),
    bad("an unknown one of IPPROTO_IPV6", 6, [IPV6, 99, u32(0)]),
    bad("an unknown one of IPPROTO_UDP", 4, [UDP, 99, u32(0)]),
    Row("an unknown level is ignored", 4, [m([99, 1, "00"])], [10], [TEN]),
    # ---- malformed
    raw("a message shorter than its head", head(15, IP, TOS) + "00" * 8),
    raw("a message longer than all", head(17, IP, TOS)),
    raw("the second is too long", head(20, IP, TTL) + u32(9) + "00" * 4 + head(40, IP, TOS) + "00" * 8),
    Row("less than a head is nothing", 4, [{"bytes": 10, "raw": "ff" * 15}], [10], [TEN]),
    Row("less than a head behind the first is nothing", 4, [{"bytes": 10, "raw": head(20, IP, TTL) + u32(9) + "ff" * 12}], [10], [Heard(10, ttl=9)]),
    # ---- UDP_SEGMENT
    cut("UDP_SEGMENT: three and a rest", 4, 3500, 1000),
    cut("UDP_SEGMENT: in pieces of memory", 4, 5000, 700, pieces=13),
    cut("UDP_SEGMENT: no rest", 4, 4000, 1000),
    cut("UDP_SEGMENT: to an address with the message", 4, 3000, 1000, connects=False),
    cut("UDP_SEGMENT: one, as long as that", 4, 1000, 1000),
    cut("UDP_SEGMENT: one, and shorter", 4, 10, 1000),
    cut("UDP_SEGMENT: one, and shorter than a size above the MTU", 4, 10, 3000, [10], (10, "EINVAL"), carried=False),
    cut("UDP_SEGMENT: an empty one", 4, 0, 1000, [0]),
    cut("UDP_SEGMENT: each fills a packet", 4, 3 * MTU4, MTU4),
    cut("UDP_SEGMENT: each is longer than a packet", 4, 3 * (MTU4 + 1), MTU4 + 1, [], ("EMSGSIZE", "EINVAL")),
    cut("UDP_SEGMENT: one longer than a packet", 4, MTU4 + 1, MTU4 + 1, [], ("EMSGSIZE", "EINVAL")),
    cut("UDP_SEGMENT: 64", 4, 64 * 10, 10),
    cut("UDP_SEGMENT: all that a message may have", 4, 65507, 1400),
    cut("UDP_SEGMENT: more than a message may have", 4, 65508, 1400, [], "EMSGSIZE"),
    cut("UDP_SEGMENT: more than 128", 4, 129 * 10, 10, [], "EINVAL"),
    cut("UDP_SEGMENT, IPv6: each fills a packet", 6, 3 * MTU6 + 1, MTU6),
    cut("UDP_SEGMENT, IPv6: each is longer than a packet", 6, 2 * (MTU6 + 1), MTU6 + 1, [], ("EMSGSIZE", "EINVAL")),
    told("UDP_SEGMENT of one message", 4, 3500, 1000),
    told("UDP_SEGMENT of one message, IPv6", 6, 3500, 1000),
    told("UDP_SEGMENT of one message, to an address with it", 4, 3500, 1000, connects=False),
    Row("UDP_SEGMENT of one message over the socket's", 4, [m([UDP, SEGMENT, u16(400)], bytes=1200), {"bytes": 1200}, m([UDP, SEGMENT, u16(0)], bytes=1200)],
        [1200] * 3, [Heard(400)] * 3 + [Heard(500), Heard(500), Heard(200)] + [Heard(1200)], options=[[UDP, SEGMENT, 500]]),
    Row("UDP_SEGMENT beside IP_TOS and IP_PKTINFO", 4, [m([IP, TOS, u8(2)], [UDP, SEGMENT, u16(500)], [IP, PKTINFO, info4(A2[4])], bytes=1200)], [1200],
        [Heard(500, 2, source=A2[4])] * 2 + [Heard(200, 2, source=A2[4])]),
    bad("UDP_SEGMENT of four bytes", 4, [UDP, SEGMENT, u32(500)]),
    Row("UDP_SEGMENT: 65 to 128, where the kernel has so many", 4, [m([UDP, SEGMENT, u16(10)], bytes=65 * 10)] * 2, [(650, "EINVAL")] * 2,
        [Heard(10)] * 130, carried=False),
    # ---- by sendmmsg
    Row("sendmmsg, each as it asks", 4, [m([IP, TOS, u32(4)]), PLAIN, m([UDP, SEGMENT, u16(6)]), m([IP, TTL, u32(5)]), {"bytes": 0}, PLAIN],
        [10, 10, 10, 10, 0, 10], [Heard(10, 4), TEN, Heard(6), Heard(4), Heard(10, ttl=5), Heard(0), TEN], many=True),
    Row("sendmmsg of IPv6", 6, [PLAIN, m([IPV6, TCLASS, u32(4)]), PLAIN], [10] * 3, [TEN, Heard(10, 4), TEN], many=True),
    Row("sendmmsg to two peers", 4, [PLAIN, PLAIN | {"to": [B2, 6060]}] * 3, [10] * 6, [TEN] * 6, connects=False, many=True),
    Row("sendmmsg of UDP_SEGMENT", 4, [{"bytes": 1500}] * 3, [1500] * 3, [Heard(1000), Heard(500)] * 3, options=[[UDP, SEGMENT, 1000]], many=True),
]


def option_rows() -> list[tuple]:
    """Level, option, value, what setsockopt says, and what getsockopt says then."""
    return [(UDP, SEGMENT, 1000, "ok", 1000), (UDP, SEGMENT, 65535, "ok", 65535), (UDP, SEGMENT, 65536, "EINVAL", 65535),
            (UDP, SEGMENT, -1, "EINVAL", 65535), (UDP, SEGMENT, 0, "ok", 0), (UDP, GRO, 1, "ok", 1), (UDP, GRO, 7, "ok", 1), (UDP, GRO, 0, "ok", 0)]
