"""A process with UDP sockets that join multicast groups; memberships.py tells it what to do.

member.py: a line of JSON on stdin is a request, a line of JSON on stdout its answer.
  {"begin": {...}}     closes all sockets; family, interface of options, port and addresses of what follows
  {"do": [words]}      one call of the table's language (memberships_table.py): "ok", an errno's name, or what was read
  {"burst": ...}       sends numbered datagrams from sockets, one of each socket in turn
  {"drain": {...}}     reads each socket until it has had so many datagrams, and then for a moment: what each has got
  {"fence": address}   until the kernel of that host has answered an ICMP echo: what was sent before has arrived there
Structures and numbers: ip(7), ipv6(7), RFC 3678, linux/in.h, linux/in6.h.
"""
import ctypes
import errno
import json
import os
import select
import socket
import struct
import sys
import time

IP, IPV6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
IP_MULTICAST_ALL, IPV6_MULTICAST_ALL = 49, 29
IP_ADD_MEMBERSHIP, IP_DROP_MEMBERSHIP, IP_MSFILTER = 35, 36, 41
IPV6_JOIN_GROUP, IPV6_LEAVE_GROUP = 20, 21
# By IPv4's own options and by those of both protocols.
SOURCES = {"unblock": (37, 44), "block": (38, 43), "join-source": (39, 46), "leave-source": (40, 47)}
MCAST_JOIN_GROUP, MCAST_LEAVE_GROUP, MCAST_MSFILTER = 42, 45, 48
MODES = {"include": 1, "exclude": 0, "neither": 7}
AF_UNSPEC = struct.pack("H14x", 0)
NO_INTERFACE, NO_ADDRESS = 9999, "10.99.0.9"
ROOM = 256  # sources: more than any list of a case has
libc = ctypes.CDLL(None, use_errno=True)


def storage(address: str) -> bytes:
    """struct sockaddr_storage."""
    if ":" in address:
        return struct.pack("=HHI16sI100x", socket.AF_INET6, 0, 0, socket.inet_pton(socket.AF_INET6, address), 0)
    return struct.pack("=HH4s120x", socket.AF_INET, 0, socket.inet_aton(address))


class Member:
    def __init__(self) -> None:
        self.sockets: dict[str, socket.socket] = {}

    def begin(self, api: str, port: int, names: dict[str, str], wires: dict[str, str]) -> None:
        """names: addresses by name; wires: this host's own IPv4 address by interface."""
        for s in self.sockets.values():
            s.close()
        self.sockets = {}
        self.api, self.port, self.names, self.wires = api, port, names, wires
        self.v6 = api.startswith("IPv6")
        self.level = IPV6 if self.v6 else IP
        self.protocol_independent = self.v6 or api.endswith("RFC 3678")

    # ---- names
    def where(self, name: str, plus: int = 0) -> tuple:
        """A socket address. Link-local groups need a scope in IPv6."""
        address = {"any": "::" if self.v6 else ""}.get(name) or self.names.get(name, "")
        port = self.port + plus
        if ":" not in address:
            return address, port
        return address, port, 0, socket.if_nametoindex("vr0") if address.startswith("ff02") else 0

    def index(self, interface: str) -> int:
        if interface == "none":
            return NO_INTERFACE
        return 0 if self.api.endswith("any interface") else socket.if_nametoindex(interface)

    def own_address(self, interface: str) -> bytes:
        """By which IPv4's options name an interface."""
        if self.api.endswith("any interface") and interface != "none":
            return bytes(4)
        return socket.inet_aton(self.wires.get(interface, NO_ADDRESS))

    # ---- structures
    def membership(self, group: str, interface: str) -> bytes:
        if self.v6:
            return socket.inet_pton(socket.AF_INET6, group) + struct.pack("i", self.index(interface))
        if self.api.endswith("by index"):
            return socket.inet_aton(group) + bytes(4) + struct.pack("i", self.index(interface))
        return socket.inet_aton(group) + self.own_address(interface)

    def filter_head(self, group: str, interface: str, mode: int, count: int) -> bytes:
        if self.protocol_independent:
            return struct.pack("=I4x128sII", self.index(interface), storage(group), mode, count)
        return socket.inet_aton(group) + self.own_address(interface) + struct.pack("II", mode, count)

    def filter_source(self, address: str) -> bytes:
        return storage(address) if self.protocol_independent else socket.inet_aton(address)

    def made_up(self, number: int) -> str:
        """A source that sends nothing."""
        return f"fd99::{number:x}" if self.v6 else f"10.99.1.{number}"

    # ---- options
    def change_membership(self, s: socket.socket, join: bool, group: str, interface: str = "vr0") -> None:
        if self.api.endswith("RFC 3678"):
            number = MCAST_JOIN_GROUP if join else MCAST_LEAVE_GROUP
            s.setsockopt(self.level, number, struct.pack("=I4x", self.index(interface)) + storage(group))
        elif self.v6:
            s.setsockopt(IPV6, IPV6_JOIN_GROUP if join else IPV6_LEAVE_GROUP, self.membership(group, interface))
        else:
            s.setsockopt(IP, IP_ADD_MEMBERSHIP if join else IP_DROP_MEMBERSHIP, self.membership(group, interface))

    def change_source(self, s: socket.socket, verb: str, group: str, source: str, interface: str = "vr0") -> None:
        own, both = SOURCES[verb]
        if self.protocol_independent:
            s.setsockopt(self.level, both, struct.pack("=I4x", self.index(interface)) + storage(group) + storage(source))
        else:
            s.setsockopt(IP, own, socket.inet_aton(group) + self.own_address(interface) + socket.inet_aton(source))

    def set_filter(self, s: socket.socket, group: str, mode: str, sources: list[str], claimed: int | None = None) -> None:
        value = self.filter_head(group, "vr0", MODES[mode], len(sources) if claimed is None else claimed)
        value += b"".join(map(self.filter_source, sources))
        s.setsockopt(self.level, MCAST_MSFILTER if self.protocol_independent else IP_MSFILTER, value)

    def get_filter(self, s: socket.socket, group: str, room: int = ROOM) -> str:
        """Mode and sources; "of N" if there are more than the room given."""
        head = self.filter_head(group, "vr0", 0, room)
        each = len(self.filter_source(self.names["A"]))
        buffer = ctypes.create_string_buffer(head + bytes(each * room), len(head) + each * room)
        length = ctypes.c_uint32(len(buffer))
        number = MCAST_MSFILTER if self.protocol_independent else IP_MSFILTER
        if libc.getsockopt(s.fileno(), self.level, number, buffer, ctypes.byref(length)) != 0:
            raise OSError(ctypes.get_errno(), "getsockopt")
        mode, count = struct.unpack_from("II", buffer, len(head) - 8)
        listed = []
        for at in range(len(head), length.value, each):
            if not self.protocol_independent:
                listed.append(socket.inet_ntoa(buffer[at:at + 4]))
            elif self.v6:
                listed.append(socket.inet_ntop(socket.AF_INET6, buffer[at + 8:at + 24]))
            else:
                listed.append(socket.inet_ntoa(buffer[at + 4:at + 8]))
        names = {address: name for name, address in self.names.items()}
        words = [{0: "exclude", 1: "include"}[mode], *sorted(names.get(a, a) for a in listed)]
        return " ".join(words + ([f"of {count}"] if count != len(listed) else []))

    # ---- the language
    def opened(self, name: str, family: int | None = None) -> socket.socket:
        """The socket of that name. All are non-blocking and have room for what a case sends."""
        if name not in self.sockets:
            s = socket.socket(family or (socket.AF_INET6 if self.v6 else socket.AF_INET), socket.SOCK_DGRAM)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            s.setblocking(False)
            self.sockets[name] = s
        return self.sockets[name]

    def bind(self, name: str, verb: str, to: str) -> None:
        address, _, plus = to.partition(":")
        s = self.opened(name)
        if verb == "share":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if verb == "reuseport":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind(self.where(address, int(plus or 0)))

    def bind_dual(self, name: str, v6only: int) -> None:
        s = self.opened(name, socket.AF_INET6)
        s.setsockopt(IPV6, socket.IPV6_V6ONLY, v6only)
        s.bind(("::", self.port))

    def send_by(self, s: socket.socket, interface: str) -> None:
        if self.v6:
            s.setsockopt(IPV6, socket.IPV6_MULTICAST_IF, self.index(interface))
        elif self.api.endswith("IPv4"):
            s.setsockopt(IP, socket.IP_MULTICAST_IF, self.own_address(interface))
        else:
            s.setsockopt(IP, socket.IP_MULTICAST_IF, bytes(8) + struct.pack("i", self.index(interface)))

    def connect(self, s: socket.socket, to: str) -> None:
        if to != "nobody":
            s.connect(self.where(to))
        elif libc.connect(s.fileno(), AF_UNSPEC, len(AF_UNSPEC)) != 0:
            raise OSError(ctypes.get_errno(), "connect")

    def join_other_family(self, s: socket.socket) -> None:
        """A group of the other family, by the option of both."""
        group = "239.77.0.1" if self.v6 else "ff15::77:1"
        s.setsockopt(self.level, MCAST_JOIN_GROUP, struct.pack("=I4x", self.index("vr0")) + storage(group))

    def do(self, name: str, verb: str, *args: str) -> str:
        if verb in ("bind", "share", "reuseport"):
            return self.bind(name, verb, *args)
        if verb in ("dual", "only-IPv6"):
            return self.bind_dual(name, int(verb != "dual"))
        if verb == "stream":
            self.sockets[name] = socket.socket(socket.AF_INET6 if self.v6 else socket.AF_INET, socket.SOCK_STREAM)
            return None
        if verb == "close":
            return self.sockets.pop(name).close()
        s = self.opened(name)
        if verb == "open":
            return None
        if verb in ("connect", "device"):
            if verb == "connect":
                return self.connect(s, *args)
            return s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, args[0].encode())
        if verb == "source":  # sends from this address by this interface, to a port like its own
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(self.where(name))
            if self.v6:
                return s.setsockopt(IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex(args[0]))
            return s.setsockopt(IP, socket.IP_MULTICAST_IF, bytes(8) + struct.pack("i", socket.if_nametoindex(args[0])))
        if verb == "if":
            return self.send_by(s, *args)
        if verb in ("all", "loop"):
            option = {"all": (IP_MULTICAST_ALL, IPV6_MULTICAST_ALL), "loop": (socket.IP_MULTICAST_LOOP, socket.IPV6_MULTICAST_LOOP)}
            number = option[verb][self.v6]
            return s.setsockopt(self.level, number, int(args[0])) if args else str(s.getsockopt(self.level, number))
        group, rest = self.names[args[0]], args[1:]
        if verb in ("join", "leave"):
            return self.change_membership(s, verb == "join", group, *rest)
        if verb == "join-many":  # groups beside this one
            for number in range(int(rest[0])):
                self.change_membership(s, True, f"239.77.9.{number}")
            return None
        if verb == "join-other-family":
            return self.join_other_family(s)
        if verb == "join-short":
            return s.setsockopt(self.level, IPV6_JOIN_GROUP if self.v6 else IP_ADD_MEMBERSHIP, self.membership(group, "vr0")[:7])
        if verb == "join-by-IPv6":
            return s.setsockopt(IPV6, IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, "ff15::77:1") + bytes(4))
        if verb == "read-join":
            return str(s.getsockopt(self.level, IPV6_JOIN_GROUP if self.v6 else IP_ADD_MEMBERSHIP, 20))
        if verb in SOURCES:
            return self.change_source(s, verb, group, self.names[rest[0]], *rest[1:])
        if verb in ("join-sources", "block-sources"):  # so many that do not send
            for number in range(1, int(rest[0]) + 1):
                self.change_source(s, "block" if verb == "block-sources" else "join-source", group, self.made_up(number))
            return None
        if verb == "filter":
            return self.set_filter(s, group, rest[0], [self.names[n] for n in rest[1:]])
        if verb == "filter-many":
            return self.set_filter(s, group, rest[0], [self.made_up(n) for n in range(1, int(rest[1]) + 1)])
        if verb == "filter-short":  # says that it has five
            return self.set_filter(s, group, rest[0], [self.names["A"]], 5)
        if verb == "get-filter":
            return self.get_filter(s, group, *map(int, rest))
        raise ValueError(f"no verb {verb}")

    # ---- traffic
    def burst(self, senders: list[list], mark: str, first: int, last: int) -> None:
        """Numbers first to last - 1. On one processor: what a sender's frames pass beneath has a queue for each."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
        for number in range(first, last):
            for name, to, plus in senders:
                self.sockets[name].sendto(f"{mark} {name} {number}".encode(), self.where(to, plus))
        os.sched_setaffinity(0, before)

    def drain(self, wanted: dict[str, int], patience: float, grace: float) -> dict[str, list[str]]:
        got: dict[str, list[str]] = {name: [] for name in self.sockets}
        names = {s.fileno(): name for name, s in self.sockets.items()}
        waiter = select.poll()
        for number in names:
            waiter.register(number, select.POLLIN)
        until = time.monotonic() + patience
        is_complete = False
        while True:
            if not is_complete and all(len(got[name]) >= n for name, n in wanted.items()):
                is_complete, until = True, time.monotonic() + grace
            rest = until - time.monotonic()
            if rest <= 0:
                return got
            for number, _ in waiter.poll(rest * 1000):
                name = names[number]
                try:
                    while len(got[name]) < 1000:
                        got[name].append(self.sockets[name].recv(100).decode())
                except BlockingIOError:
                    pass
                except OSError as error:
                    got[name].append(errno.errorcode[error.errno])


def fence(address: str, number: int, patience: float = 3) -> bool:
    """One ICMP echo (RFC 792) and its reply."""
    head = struct.pack("!BBHHH", 8, 0, 0, 77, number)
    total = sum(struct.unpack("!4H", head))
    head = head[:2] + struct.pack("!H", ~((total & 0xffff) + (total >> 16)) & 0xffff) + head[4:]
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as s:
        s.sendto(head, (address, 0))
        until = time.monotonic() + patience
        while (rest := until - time.monotonic()) > 0:
            s.settimeout(rest)
            try:
                answer = s.recv(200)
            except TimeoutError:
                break
            if answer[20] == 0 and answer[24:28] == head[4:8]:
                return True
    return False


def answer(member: Member, request: dict, number: int):
    if "begin" in request:
        return member.begin(**request["begin"])
    if "do" in request:
        try:
            return member.do(*request["do"]) or "ok"
        except OSError as error:
            return errno.errorcode[error.errno]
    if "burst" in request:
        return member.burst(**request["burst"])
    if "drain" in request:
        return member.drain(**request["drain"])
    if "fence" in request:
        return fence(request["fence"], number & 0xffff)
    return {name: s.fileno() for name, s in member.sockets.items()}  # "numbers"


def main() -> None:
    member = Member()
    print(json.dumps("ready"), flush=True)
    for number, line in enumerate(sys.stdin):
        print(json.dumps(answer(member, json.loads(line), number)), flush=True)


if __name__ == "__main__":
    main()
