"""Time stamps and MSG_ZEROCOPY as a program sees them; stamps.py runs it on the kernel and under Vireo, with a peer on the kernel.

  stamper.py peer ADDRESS PORT              answers until it is killed
  stamper.py CASE ADDRESS PEER PORT DEVICE  one case: a line for each expectation that does not hold, then "done N", the number of them all

What is expected is written from Linux's Documentation/networking/timestamping.rst and msg_zerocopy.rst, socket(7), ip(7), recv(2).
"""
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time

SOL, MSG_ERRQUEUE, MSG_ZEROCOPY = socket.SOL_SOCKET, 0x2000, 0x4000000
STAMP, STAMPNS, STAMPING, ZEROCOPY, SELECT_ERR_QUEUE = 29, 35, 37, 60, 45
STAMP_NEW, STAMPNS_NEW, STAMPING_NEW, TS_OPT_ID = 63, 64, 65, 81
TX_HW, TX_SW, RX_HW, RX_SW, SW, RAW = 1, 2, 4, 8, 16, 64
OPT_ID, TX_SCHED, TX_ACK, OPT_CMSG, TSONLY, OPT_STATS = 128, 256, 512, 1024, 2048, 4096
OPT_PKTINFO, TX_SWHW, OPT_ID_TCP, RX_FILTER = 8192, 16384, 1 << 16, 1 << 17
SND, SCHED, ACK = 0, 1, 2
ORIGIN_STAMP, ORIGIN_ZEROCOPY = 4, 5
GSTAMP, GSTAMPNS = 0x8906, 0x8907
KERNEL = tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2])
PATIENCE = 5.0  # s
held = 0


def expect(what: str, got, wanted) -> None:
    global held
    held += 1
    if got != wanted:
        print(f"{what}: {got!r}, not {wanted!r}", flush=True)


def holds(what: str, truth, got=None) -> None:
    expect(what + ("" if truth else f" ({got!r})"), bool(truth), True)


def outcome(call, *arguments):
    """What it returns, or the name of its errno."""
    try:
        return call(*arguments)
    except OSError as e:
        return errno.errorcode[e.errno]


def patient(s):
    """It waits, but not for ever. Not by Python's timeout, under which EAGAIN cannot be seen."""
    s.settimeout(None)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        s.setsockopt(SOL, option, struct.pack("qq", int(PATIENCE), 0))
    return s


def text_of(n: int) -> bytes:
    return bytes(i * 7 % 251 for i in range(n))


def events(s, seconds: float = 0, mask: int = select.POLLIN | select.POLLOUT | select.POLLPRI) -> str:
    p = select.poll()
    p.register(s, mask)
    got = p.poll(seconds * 1000)
    bits = got[0][1] if got else 0
    return " ".join(n for n, b in (("in", 1), ("pri", 2), ("out", 4), ("err", 8), ("hup", 16)) if bits & b)


def seconds(kind: int, data: bytes) -> float:
    a, b = struct.unpack("qq", data[:16])
    return a + b / (1e6 if kind in (STAMP, STAMP_NEW) else 1e9)


class Report:
    """What recvmsg(MSG_ERRQUEUE) gave."""

    def __init__(self, s, room: int = 70000, control: int = 1024):
        self.data, cmsgs, self.flags, self.name = s.recvmsg(room, control, MSG_ERRQUEUE)
        self.cmsgs = {(level, kind): value for level, kind, value in cmsgs}
        self.kinds = [c[:2] for c in cmsgs]
        error = self.cmsgs.get((0, 11), self.cmsgs.get((41, 25), b""))
        self.error = error
        self.no, self.origin, self.type, self.code, _, self.info, self.id = struct.unpack("IBBBBII", error[:16]) if error else (0,) * 7
        stamp = next((v for (level, kind), v in self.cmsgs.items() if level == SOL and kind in (STAMPING, STAMPING_NEW)), None)
        self.time = seconds(STAMPING, stamp) if stamp else None
        self.stamp = stamp

    def __repr__(self) -> str:
        return f"{self.kinds} info {self.info} id {self.id} {len(self.data)} bytes"


def reports(s, n: int, wait: float = PATIENCE, seen: set | None = None) -> list[Report]:
    """`seen`: what a stream has reported; a segment that is sent again is reported again."""
    got, until = [], time.monotonic() + wait
    while len(got) < n and time.monotonic() < until:
        if "err" in events(s, 0.2, 0):
            try:
                r = Report(s)
            except BlockingIOError:
                continue
            if seen is None or (r.info, r.id) not in seen:
                got.append(r)
            if seen is not None:
                seen.add((r.info, r.id))
    return got


def empty(what: str, s) -> None:
    expect(f"{what}: nothing more", outcome(s.recvmsg, 10, 512, MSG_ERRQUEUE), "EAGAIN")
    holds(f"{what}: no event", "err" not in events(s), events(s))


class Case:
    def __init__(self, me: str, peer: str, port: int, device: str):
        self.me, self.peer, self.port, self.device = me, peer, port, device
        self.v6 = ":" in me
        self.family = socket.AF_INET6 if self.v6 else socket.AF_INET
        self.recverr = (41, 25) if self.v6 else (0, 11)
        self.headers = 14 + (40 if self.v6 else 20)
        self.control = socket.socket(self.family, socket.SOCK_DGRAM)
        self.control.connect((peer, port + 1))
        patient(self.control)
        for _ in range(3):  # the neighbour is known from then on
            self.ask("nothing")
            time.sleep(0.02)

    def ask(self, *words) -> str:
        """Something of the peer."""
        self.control.send(" ".join(map(str, words)).encode())
        return self.control.recv(100).decode()

    def udp(self, connected: bool = True):
        s = patient(socket.socket(self.family, socket.SOCK_DGRAM))
        s.bind((self.me, 0))
        if connected:
            s.connect((self.peer, self.port))
        return s

    def tcp(self):
        s = patient(socket.create_connection((self.peer, self.port), PATIENCE))
        self.stream = s.getsockname()[1]
        return s

    def feed(self, s, data: bytes = b"x", wait: bool = True) -> tuple[float, float]:
        """The peer sends a datagram to `s`: between the two times it came."""
        begun = time.time()
        self.ask("datagram", s.getsockname()[0], s.getsockname()[1], data.decode())
        if wait:
            holds("a datagram came", "in" in events(s, PATIENCE, select.POLLIN))
        return begun, time.time()

    # ---- received datagrams
    def arrival_options(self) -> None:
        all_four = (STAMP, STAMPNS, STAMP_NEW, STAMPNS_NEW)
        for option in all_four:
            s = self.udp()
            expect(f"set {option}", outcome(s.setsockopt, SOL, option, 1), None)
            # Of the newer ones the first reads as set with the second: it says that there is a stamp of that layout.
            wanted = [int(o == option or (o, option) == (STAMP_NEW, STAMPNS_NEW)) for o in all_four]
            expect(f"after {option}", [s.getsockopt(SOL, o) for o in all_four], wanted)
            begun, ended = self.feed(s)
            data, cmsgs, flags, _ = s.recvmsg(10, 512)
            expect(f"ancillary data of {option}", [c[:2] for c in cmsgs], [(SOL, option)])
            expect(f"size of {option}", [len(c[2]) for c in cmsgs], [16])
            at = seconds(option, cmsgs[0][2])
            holds(f"{option}: the time of the arrival", begun - 1e-5 <= at <= ended, (begun, at, ended))
            expect(f"unset {option}", outcome(s.setsockopt, SOL, option, 0), None)
            self.feed(s)
            expect(f"without {option}", s.recvmsg(10, 512)[1], [])
        s = self.udp()
        s.setsockopt(SOL, STAMP, 1)
        s.setsockopt(SOL, STAMPNS_NEW, 1)
        expect("the last one is in force", [s.getsockopt(SOL, o) for o in all_four], [0, 0, 1, 1])

    def arrival_flags(self) -> None:
        for option in (STAMPING, STAMPING_NEW):
            s = self.udp()
            s.setsockopt(SOL, option, RX_SW | SW)
            expect("flags", struct.unpack("ii", s.getsockopt(SOL, STAMPING, 8)), (RX_SW | SW, 0))
            expect("flags of the newer", struct.unpack("ii", s.getsockopt(SOL, STAMPING_NEW, 8)), (RX_SW | SW if option == STAMPING_NEW else 0, 0))
            begun, ended = self.feed(s)
            cmsgs = s.recvmsg(10, 512)[1]
            expect("SO_TIMESTAMPING", [(c[0], c[1], len(c[2])) for c in cmsgs], [(SOL, option, 48)])
            at = seconds(option, cmsgs[0][2])
            holds("the time of the arrival", begun - 1e-5 <= at <= ended, (begun, at, ended))
            expect("no other time", cmsgs[0][2][16:], bytes(32))
            s.setsockopt(SOL, STAMPNS, 1)
            self.feed(s)
            cmsgs = s.recvmsg(10, 512)[1]
            expect("both", [c[:2] for c in cmsgs], [(SOL, STAMPNS), (SOL, STAMPING)])
            expect("of the same time", cmsgs[0][2], cmsgs[1][2][:16])
        s = self.udp()
        s.setsockopt(SOL, STAMPING, RX_SW)
        self.feed(s)
        expect("taken, not told", s.recvmsg(10, 512)[1], [])
        if KERNEL >= (6, 12):
            s.setsockopt(SOL, STAMPING, SW | RX_FILTER)
            self.feed(s)
            expect("told, not asked for", s.recvmsg(10, 512)[1], [])
            s.setsockopt(SOL, STAMPING, SW | RX_SW | RX_FILTER)
            self.feed(s)
            expect("told and asked for", [c[:2] for c in s.recvmsg(10, 512)[1]], [(SOL, STAMPING)])

    def arrival_not_reading(self) -> None:
        s = self.udp()
        s.setsockopt(SOL, STAMPNS, 1)
        s.setsockopt(SOL, STAMPING, RX_SW | SW)
        times = [self.feed(s, f"{i}".encode(), wait=False) for i in range(3)]
        time.sleep(0.3)
        stamps = []
        for begun, ended in times:
            peeked = s.recvmsg(10, 512, socket.MSG_PEEK)[1]
            data, cmsgs, _, _ = s.recvmsg(10, 512)
            expect("peeked", peeked, cmsgs)
            stamps.append(seconds(STAMPNS, cmsgs[0][2]))
            holds("not the time of the read", begun - 1e-5 <= stamps[-1] <= ended + 0.15, (begun, stamps[-1], ended))
        expect("in order", stamps, sorted(stamps))
        s.setsockopt(SOL, STAMPNS, 0)
        self.feed(s)
        data, cmsgs, flags, _ = s.recvmsg(10, socket.CMSG_LEN(16))
        holds("cut", flags & socket.MSG_CTRUNC, flags)

    def last_stamp(self) -> None:
        room = bytearray(16)
        t = self.udp()
        self.feed(t)
        t.recv(10)
        begun = time.time()
        expect("after the first", outcome(fcntl.ioctl, t, GSTAMPNS, room), 0)
        holds("a time", begun - 0.5 <= seconds(STAMPNS, bytes(room)) <= time.time(), (begun, bytes(room)))
        s = self.udp()
        expect("before the first", outcome(fcntl.ioctl, s, GSTAMP, room), "ENOENT")
        self.feed(s)
        expect("before it is read", outcome(fcntl.ioctl, s, GSTAMP, room), "ENOENT")
        s.recv(10)
        for _ in range(2):
            begun, ended = self.feed(s)
            time.sleep(0.1)
            s.recv(10)
            expect("of the last", outcome(fcntl.ioctl, s, GSTAMPNS, room), 0)
            holds("its arrival", begun - 1e-5 <= seconds(STAMPNS, bytes(room)) <= ended + 0.05, (begun, seconds(STAMPNS, bytes(room)), ended))
            expect("in microseconds", outcome(fcntl.ioctl, s, GSTAMP, room), 0)
            holds("the same", begun - 1e-5 <= seconds(STAMP, bytes(room)) <= ended + 0.05)
        last = bytes(room)
        s.setsockopt(SOL, STAMP, 1)
        self.feed(s)
        s.recv(10)
        expect("it stays while another is asked for", (outcome(fcntl.ioctl, s, GSTAMP, room), bytes(room)), (0, last))

    # ---- received data of a stream
    def arrival_stream(self) -> None:
        for option in (STAMP, STAMPNS, STAMP_NEW, STAMPNS_NEW, STAMPING, STAMPING_NEW):
            s = self.tcp()
            s.setsockopt(SOL, option, RX_SW | SW if option in (STAMPING, STAMPING_NEW) else 1)
            begun = time.time()
            self.ask("say", self.stream, "ab")
            time.sleep(0.1)
            middle = time.time()
            self.ask("say", self.stream, "cd")
            time.sleep(0.2)
            ended = time.time()
            data, cmsgs, flags, _ = s.recvmsg(10, 512)
            expect("both", data, b"abcd")
            expect(f"ancillary data of {option}", [c[:2] for c in cmsgs], [(SOL, option)])
            at = seconds(option, cmsgs[0][2])
            holds("of the last byte, when it came", middle - 1e-5 <= at <= ended - 0.1, (begun, middle, at, ended))
            self.ask("say", self.stream, "e")
            expect("with recv", s.recv(10), b"e")
            self.ask("close", self.stream)
            expect("the end has none", s.recvmsg(10, 512)[:2], (b"", []))
        s = self.tcp()
        s.setsockopt(SOL, STAMPNS, 1)
        s.setsockopt(SOL, STAMPING, RX_SW | SW)
        s.setsockopt(socket.IPPROTO_TCP, 36, 1)  # TCP_INQ
        self.ask("say", self.stream, "xyz")
        holds("it came", "in" in events(s, PATIENCE, select.POLLIN))
        expect("all three", [c[:2] for c in s.recvmsg(2, 512)[1]], [(SOL, STAMPNS), (SOL, STAMPING), (6, 36)])

    def arrival_accepted(self) -> None:
        l = patient(socket.socket(self.family, socket.SOCK_STREAM))
        l.bind((self.me, 0))
        l.setsockopt(SOL, STAMPNS, 1)
        l.setsockopt(SOL, STAMPING, TX_SW | RX_SW | SW)
        l.setsockopt(SOL, ZEROCOPY, 1)
        l.listen()
        begun = time.time()
        self.ask("connect", self.me, l.getsockname()[1], "early")
        time.sleep(0.2)
        ended = time.time()
        s, _ = l.accept()
        expect("inherited", (s.getsockopt(SOL, STAMPNS), struct.unpack("ii", s.getsockopt(SOL, STAMPING, 8))[0], s.getsockopt(SOL, ZEROCOPY)),
               (1, TX_SW | RX_SW | SW, 1))
        data, cmsgs, _, _ = s.recvmsg(10, 512)
        expect("data", data, b"early")
        expect("its times", [c[:2] for c in cmsgs], [(SOL, STAMPNS), (SOL, STAMPING)])
        holds("before accept", begun - 1e-5 <= seconds(STAMPNS, cmsgs[0][2]) <= ended - 0.1, (begun, seconds(STAMPNS, cmsgs[0][2]), ended))
        s.send(b"back")
        expect("a stamp of a send", [(r.info, r.origin) for r in reports(s, 1)], [(SND, ORIGIN_STAMP)])

    # ---- sent datagrams
    def stamped(self, flags: int, connected: bool = True):
        s = self.udp(connected)
        expect(f"set {flags}", outcome(s.setsockopt, SOL, STAMPING, flags), None)
        return s

    def departure(self) -> None:
        s = self.stamped(TX_SW | SW)
        expect("nothing yet", outcome(s.recvmsg, 10, 512, MSG_ERRQUEUE), "EAGAIN")
        begun = time.time()
        text = text_of(100)
        s.send(text)
        holds("an error event", "err" in events(s, PATIENCE, 0))
        expect("no error", s.getsockopt(SOL, socket.SO_ERROR), 0)
        r = Report(s)
        holds("its time", begun - 1e-5 <= r.time <= time.time(), (begun, r.time))
        expect("no other time", r.stamp[16:], bytes(32))
        expect("ancillary data in order", r.kinds, [(SOL, STAMPING), self.recverr])
        expect("the error", (r.no, r.origin, r.type, r.code, r.info, r.id), (errno.ENOMSG, ORIGIN_STAMP, 0, 0, SND, 0))
        expect("its size", len(r.error), 44 if self.v6 else 32)
        expect("flags", r.flags, MSG_ERRQUEUE)
        expect("the frame", (len(r.data), r.data[-100:]), (self.headers + 8 + 100, text))
        expect("its type", r.data[12:14].hex(), "86dd" if self.v6 else "0800")
        expect("its port", struct.unpack("!HH", r.data[self.headers:self.headers + 4]), (s.getsockname()[1], self.port))
        if self.v6:
            expect("the offender", r.error[16:18] + r.error[24:40], struct.pack("H", socket.AF_INET6) + socket.inet_pton(socket.AF_INET6, self.me))
        else:
            expect("the offender", r.error[16:32], bytes(16))
        empty("departure", s)
        s.send(text)
        holds("an event", "err" in events(s, PATIENCE, 0))
        r = Report(s, 50)
        expect("cut", (len(r.data), r.flags), (50, MSG_ERRQUEUE | socket.MSG_TRUNC))
        s.send(text)
        holds("an event", "err" in events(s, PATIENCE, 0))
        r = Report(s, 500, socket.CMSG_SPACE(48))
        expect("no room for the second", (r.kinds, r.flags), ([(SOL, STAMPING)], MSG_ERRQUEUE | socket.MSG_CTRUNC))
        s.send(text)
        holds("an event", "err" in events(s, PATIENCE, 0))
        expect("recv", s.recv(500, MSG_ERRQUEUE)[-100:], text)
        s.setsockopt(SOL, STAMPING, TX_SW)
        s.send(text)
        expect("not told", [r.kinds for r in reports(s, 1)], [[self.recverr]])
        s.setsockopt(SOL, STAMPING, 0)
        s.send(text)
        empty("off", s)

    def departure_numbers(self) -> None:
        s = self.stamped(TX_SW | SW | OPT_ID | TSONLY)
        for i in range(3):
            s.send(text_of(10 + i))
        got = reports(s, 3)
        expect("numbers", [(r.info, r.id, r.data) for r in got], [(SND, i, b"") for i in range(3)])
        expect("in order", [r.time for r in got], sorted(r.time for r in got))
        expect("the offender", {r.error[16:] for r in got}, {bytes(28 if self.v6 else 16)})
        s.setsockopt(SOL, STAMPING, TX_SW | SW | OPT_ID | TSONLY | TX_SCHED)
        s.send(b"x")
        got = reports(s, 2)
        expect("two kinds, and on with the numbers", [(r.info, r.id) for r in got], [(SCHED, 3), (SND, 3)])
        expect("one after the other", [r.time for r in got], sorted(r.time for r in got))
        s.setsockopt(SOL, STAMPING, TX_SW | SW)
        s.send(b"x")
        expect("without", [r.id for r in reports(s, 1)], [0])
        s.setsockopt(SOL, STAMPING, TX_SW | SW | OPT_ID)
        s.send(b"x")
        s.send(b"y")
        expect("anew", [r.id for r in reports(s, 2)], [0, 1])
        s.setsockopt(SOL, STAMPING, TX_ACK | SW | OPT_ID)
        s.send(b"x")
        empty("no ACK of a datagram", s)
        s.setsockopt(SOL, STAMPING, TX_SW | SW | OPT_ID)
        s.send(b"x")
        expect("none was counted", [r.id for r in reports(s, 1)], [2])
        t = self.stamped(TX_SW | SW | OPT_ID, connected=False)
        for i in range(2):
            t.sendto(b"z", (self.peer, self.port))
        t.sendmsg([b"a", b"b"], [], 0, (self.peer, self.port))
        got = reports(t, 3)
        expect("to an address", [(r.id, r.data[self.headers + 8:]) for r in got], [(0, b"z"), (1, b"z"), (2, b"ab")])
        expect("too long", outcome(t.sendto, bytes(70000), (self.peer, self.port)), "EMSGSIZE")
        t.sendto(b"z", (self.peer, self.port))
        expect("which was not counted", [r.id for r in reports(t, 1)], [3])
        # The kernel queues a datagram for a neighbour that it does not know, and the next may be Vireo's.
        for i in range(6):
            if i % 2 == 1:
                quiet = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "VMA_", "VIREO_"))}
                subprocess.run(["ip", "neigh", "flush", "dev", self.device], env=quiet, stderr=subprocess.DEVNULL)
            t.sendto(b"%d" % i, (self.peer, self.port))
            time.sleep(0.02)
        got = {r.id: r.data[self.headers + 8:] for r in reports(t, 6)}
        expect("whoever sent it", got, {4 + i: b"%d" % i for i in range(6)})

    def departure_calls(self) -> None:
        s = self.stamped(SW | OPT_ID | TSONLY)

        def send(kind: int, value: bytes):
            return outcome(s.sendmsg, [b"x"], [(SOL, kind, value)])

        s.send(b"x")
        empty("not asked for", s)
        for kind in (STAMPING, STAMPING_NEW):
            expect("asked for by the call", send(kind, struct.pack("I", TX_SW)), 1)
        expect("and the next", send(STAMPING, struct.pack("I", TX_SW | TX_SCHED)), 1)
        expect("numbered", [(r.info, r.id) for r in reports(s, 4)], [(SND, 0), (SND, 1), (SCHED, 2), (SND, 2)])
        s.send(b"x")
        empty("not asked for again", s)
        s.setsockopt(SOL, STAMPING, TX_SW | SW | OPT_ID | TSONLY)
        expect("unless the call says no", send(STAMPING, struct.pack("I", 0)), 1)
        empty("the call says no", s)
        expect("other flags", send(STAMPING, struct.pack("I", SW)), "EINVAL")
        expect("size", send(STAMPING, struct.pack("H", TX_SW)), "EINVAL")
        if KERNEL >= (6, 13):
            expect("its own number", send(TS_OPT_ID, struct.pack("I", 4711)), 1)
            expect("numbers", [r.id for r in reports(s, 1)], [4711])
            s.setsockopt(SOL, STAMPING, TX_SW | SW)
            expect("without numbers", send(TS_OPT_ID, struct.pack("I", 1)), "EINVAL")

    def departure_others(self) -> None:
        """Reports beside what else a send may ask for."""
        s = self.stamped(TX_SW | TX_SCHED | SW | OPT_ID | TSONLY)
        segment = [(socket.IPPROTO_UDP, 103, struct.pack("H", 100))]  # UDP_SEGMENT
        expect("cut into ten", s.sendmsg([bytes(1000)], segment), 1000)
        expect("one of each kind", [(r.info, r.id) for r in reports(s, 2)], [(SCHED, 0), (SND, 0)])
        empty("nothing of the others", s)
        s.send(b"a", socket.MSG_MORE)
        s.send(b"b")
        for r in reports(s, 10, 0.3): holds("one datagram", r.info in (SCHED, SND), r)
        s.send(b"x")
        holds("the next has its own", len(reports(s, 2)) == 2)

        # Neither bound nor connected: it gets its flow by this call.
        s = socket.socket(self.family, socket.SOCK_DGRAM)
        s.setsockopt(SOL, STAMPING, SW | OPT_ID | TSONLY)
        asks = [(SOL, STAMPING, struct.pack("I", TX_SW))]
        for n in range(3):
            expect("sent", s.sendmsg([b"x"], asks, 0, (self.peer, self.port)), 1)
            expect("told", [(r.info, r.id) for r in reports(s, 1)], [(SND, n)])

        # The kernel's socket holds the beginning: it gets the rest, too.
        s = self.udp()
        self.feed(s)
        s.sendmsg([b"A"], asks, socket.MSG_MORE)
        s.send(b"B")
        s.setsockopt(SOL, STAMPING, TX_SW | SW | OPT_ID)
        s.send(b"C")
        got = [r.data[-2:] for r in reports(s, 2, 1)]
        holds("what came before is not in it", any(d[1:] == b"C" and d[:1] not in b"AB" for d in got), got)

    def departure_names(self) -> None:
        s = self.stamped(TX_SW | SW | OPT_CMSG)
        index = socket.if_nametoindex(self.device)
        if self.v6:
            s.setsockopt(socket.IPPROTO_IPV6, 49, 1)  # IPV6_RECVPKTINFO
        else:
            s.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
            s.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL
        s.send(b"x")
        got = reports(s, 1)
        raw = [socket.inet_pton(self.family, a) for a in (self.me, self.peer)]
        if self.v6:
            expect("kinds", [r.kinds for r in got], [[(SOL, STAMPING), (41, 50), (41, 25)]])
            expect("IPV6_PKTINFO", [r.cmsgs.get((41, 50)) for r in got], [raw[1] + struct.pack("I", index)])
        else:
            expect("kinds", [r.kinds for r in got], [[(SOL, STAMPING), (0, 8), (0, 2), (0, 11)]])
            expect("IP_PKTINFO", [r.cmsgs.get((0, 8)) for r in got], [struct.pack("i", index) + raw[0] + raw[1]])
            expect("the offender", [r.error[16:24] for r in got], [struct.pack("H", socket.AF_INET) + bytes(2) + raw[0]])
        s.setsockopt(SOL, STAMPNS, 1)
        s.setsockopt(SOL, STAMPING, TX_SW | SW | TSONLY)
        s.send(b"x")
        got = reports(s, 1)
        expect("with SO_TIMESTAMPNS", [r.kinds for r in got], [[(SOL, STAMPNS), (SOL, STAMPING), self.recverr]])
        for r in got:
            expect("the same time", r.cmsgs[SOL, STAMPNS], r.stamp[:16])
        s.setsockopt(SOL, STAMPING_NEW, TX_SW | SW | TSONLY)
        s.send(b"x")
        expect("the newer kinds", [r.kinds for r in reports(s, 1)], [[(SOL, STAMPNS_NEW), (SOL, STAMPING_NEW), self.recverr]])

    def flags(self) -> None:
        s, t = self.udp(), socket.socket(self.family, socket.SOCK_STREAM)
        c = self.tcp()

        def allowed(value: int) -> list:
            return [outcome(x.setsockopt, SOL, STAMPING, value) for x in (s, t, c)]

        expect("unknown flags", allowed(1 << 30), ["EINVAL"] * 3)
        expect("statistics with data", allowed(OPT_STATS | SW), ["EINVAL"] * 3)
        expect("a size", [outcome(x.setsockopt, SOL, STAMPING, b"ab") for x in (s, t, c)], ["EINVAL"] * 3)
        expect("numbers", allowed(OPT_ID | SW), [None, "EINVAL", None])
        t.bind((self.me, 0))
        t.listen()
        expect("numbers of a listener", outcome(t.setsockopt, SOL, STAMPING, OPT_ID), "EINVAL")
        if KERNEL >= (6, 2):
            expect("OPT_ID_TCP alone", allowed(OPT_ID_TCP | SW), ["EINVAL"] * 3)
        expect("what holds", [struct.unpack("ii", x.getsockopt(SOL, STAMPING, 8))[0] for x in (s, t, c)], [OPT_ID | SW, 0, OPT_ID | SW])
        for value, wanted in ((2, "EINVAL"), (-1, "EINVAL"), (1, None)):
            expect(f"SO_ZEROCOPY {value}", [outcome(x.setsockopt, SOL, ZEROCOPY, value) for x in (s, c)], [wanted] * 2)
        expect("SO_ZEROCOPY", [x.getsockopt(SOL, ZEROCOPY) for x in (s, c)], [1, 1])
        c.send(b"x")
        s.send(b"x")

    # ---- events
    def waiting(self) -> None:
        s = self.stamped(TX_SW | SW | OPT_ID | TSONLY)
        e = select.epoll()
        e.register(s, select.EPOLLIN | select.EPOLLET)
        e.poll(0)
        for i in range(3):
            s.send(b"x")
            expect(f"an edge {i}", e.poll(PATIENCE), [(s.fileno(), select.EPOLLERR)])
            expect("but one", e.poll(0), [])
        expect("all are there", [r.id for r in reports(s, 3)], [0, 1, 2])
        expect("level", events(s), "out")
        late = threading.Timer(0.1, s.send, (b"x",))
        late.start()
        holds("poll waits for it", "err" in events(s, PATIENCE, 0))
        late.join()
        expect("not without the option", events(s, 0, select.POLLPRI), "err")
        s.setsockopt(SOL, SELECT_ERR_QUEUE, 1)
        expect("priority", events(s, 0, select.POLLPRI), "pri err")
        expect("select", [len(x) for x in select.select([s], [], [s], 0)], [1, 0, 1])
        reports(s, 1)
        expect("select of nothing", [len(x) for x in select.select([s], [], [s], 0)], [0, 0, 0])
        self.feed(s)
        s.send(b"x")
        holds("an event", "err" in events(s, PATIENCE, 0))
        expect("it is no error", s.recv(10), b"x")
        reports(s, 1)
        s.setsockopt(SOL, socket.SO_RCVBUF, 10000)
        for _ in range(2):
            for _ in range(100):
                s.send(b"x")
            some = len(reports(s, 100, 0.5))
            holds("the receive buffer is a limit", 20 <= some <= 26, some)  # 24 on x86-64; the size of a sk_buff is the kernel's

    # ---- a stream
    def stream(self) -> None:
        all_kinds = TX_SW | TX_SCHED | TX_ACK | SW | OPT_ID
        s, seen = self.tcp(), set()
        expect("set", outcome(s.setsockopt, SOL, STAMPING, all_kinds | TSONLY), None)
        begun = time.time()
        s.send(text_of(100))
        got = reports(s, 3, seen=seen)
        expect("numbers are of the last byte", [(r.info, r.id, r.data) for r in got], [(SCHED, 99, b""), (SND, 99, b""), (ACK, 99, b"")])
        expect("in order", [begun - 1e-5] + [r.time for r in got], sorted([begun - 1e-5] + [r.time for r in got]))
        expect("the error", {(r.no, r.origin, r.type, r.code) for r in got}, {(errno.ENOMSG, ORIGIN_STAMP, 0, 0)})
        expect("ancillary data", {tuple(r.kinds) for r in got}, {((SOL, STAMPING), self.recverr)})
        s.sendmsg([text_of(20), text_of(30)])
        expect("on with the numbers", [(r.info, r.id) for r in reports(s, 3, seen=seen)], [(k, 149) for k in (SCHED, SND, ACK)])
        s.sendall(text_of(300000))
        got = reports(s, 3, seen=seen)
        expect("a long call has one number", {(r.info, r.id) for r in got}, {(k, 300149) for k in (SCHED, SND, ACK)})
        expect("no other", [r.id for r in reports(s, 1, 0.1, seen)], [])
        expect("the peer has it", self.ask("count", self.stream), "300150")
        s.setsockopt(SOL, STAMPING, all_kinds)
        text = text_of(70)
        s.send(text)
        got = {r.info: r for r in reports(s, 3, seen=seen)}
        expect("kinds", sorted(got), [SND, SCHED, ACK])
        for kind in (SND, SCHED):
            frame = got[kind].data
            expect("the frame", (frame[12:14].hex(), frame[-70:]), ("86dd" if self.v6 else "0800", text))
            expect("its port", struct.unpack("!HH", frame[self.headers:self.headers + 4]), (s.getsockname()[1], self.port))
            holds("its length", self.headers + 20 + 70 <= len(frame) <= self.headers + 60 + 70, len(frame))
        expect("of the ACK the data", got[ACK].data, text)
        s.setsockopt(SOL, STAMPING, TX_SW | SW)
        s.send(b"xyz")
        expect("without numbers", [(r.info, r.id) for r in reports(s, 1, seen=seen)], [(SND, 0)])
        self.ask("count", self.stream)  # until all is acknowledged: from there on it numbers
        s.setsockopt(SOL, STAMPING, TX_SW | SW | TSONLY | OPT_ID)
        s.send(b"xyz")
        expect("anew", [(r.info, r.id) for r in reports(s, 1, seen=seen)], [(SND, 2)])
        if KERNEL >= (6, 2):
            s.setsockopt(SOL, STAMPING, 0)
            s.setsockopt(SOL, STAMPING, TX_SW | SW | TSONLY | OPT_ID | OPT_ID_TCP)
            s.send(b"xy")
            expect("OPT_ID_TCP", [(r.info, r.id) for r in reports(s, 1, seen=seen)], [(SND, 1)])
        s.setsockopt(SOL, STAMPING, 0)
        s.send(b"x")
        expect("off", reports(s, 1, 0.1), [])
        self.ask("say", self.stream, "hello")
        expect("and it reads", s.recv(10), b"hello")

    def stream_calls(self) -> None:
        s = self.tcp()
        s.setsockopt(SOL, STAMPING, SW | OPT_ID | TSONLY)

        def send(data: bytes, kind: int, value: bytes):
            return outcome(s.sendmsg, [data], [(SOL, kind, value)])

        s.send(b"0123456789")
        empty("not asked for", s)
        expect("asked for by the call", send(b"abc", STAMPING, struct.pack("I", TX_SW)), 3)
        expect("number", [(r.info, r.id) for r in reports(s, 1)], [(SND, 12)])
        expect("asked for by the call", send(b"abc", STAMPING_NEW, struct.pack("I", TX_ACK)), 3)
        expect("number", [(r.info, r.id) for r in reports(s, 1)], [(ACK, 15)])
        s.send(b"x")
        empty("not asked for again", s)
        expect("other flags", send(b"x", STAMPING, struct.pack("I", SW)), "EINVAL")
        expect("its own number", send(b"x", TS_OPT_ID, struct.pack("I", 1)), "EINVAL")
        expect("another level is ignored", outcome(s.sendmsg, [b"x"], [(socket.IPPROTO_IP, 1, b"1234")]), 1)
        expect("the peer has it", self.ask("count", self.stream), "18")
        e = select.epoll()
        e.register(s, select.EPOLLIN | select.EPOLLET)
        e.poll(0)
        s.setsockopt(SOL, STAMPING, TX_SW | TX_ACK | SW | OPT_ID | TSONLY)
        s.send(b"x")
        seen = 0
        until = time.monotonic() + PATIENCE
        while seen != 2 and time.monotonic() < until:
            for _, bits in e.poll(1):
                holds("an edge", bits & select.EPOLLERR, bits)
            seen += len(reports(s, 2, 0.01))
        expect("both came with edges", seen, 2)
        s.setblocking(False)
        sent = 0
        try:
            while True:
                sent += s.send(bytes(100000))
        except BlockingIOError:
            pass
        s.setblocking(True)
        got = {r.id for r in reports(s, 10000, 1)}
        holds("a part of a call has the number of its end", 17 + 1 + sent in got or KERNEL < (6, 2), (sent, sorted(got)[-3:]))

    def stream_statistics(self) -> None:
        """What Vireo does not have: the kernel goes on with the connection."""
        s = self.tcp()
        s.send(b"first")
        expect("the peer has it", self.ask("count", self.stream), "5")
        expect("set", outcome(s.setsockopt, SOL, STAMPING, TX_SW | SW | TSONLY | OPT_ID | OPT_STATS), None)
        s.send(b"second")
        holds("an event", "err" in events(s, PATIENCE, 0))
        expect("SCM_TIMESTAMPING_OPT_STATS", [(r.kinds, r.id) for r in reports(s, 1)], [([(SOL, STAMPING), (SOL, 54), self.recverr], 5)])
        expect("the peer has it", self.ask("count", self.stream), "11")

    # ---- MSG_ZEROCOPY
    def copies(self, s, n: int) -> list:
        """Ranges that cover n calls."""
        seen, until = [], time.monotonic() + PATIENCE
        while len(seen) < n and time.monotonic() < until:
            for r in reports(s, 1, 1):
                expect("the error", (r.no, r.origin, r.type, r.kinds, r.flags, r.data, r.code & ~1),
                       (0, ORIGIN_ZEROCOPY, 0, [self.recverr], MSG_ERRQUEUE, b"", 0))
                seen += range(r.info, r.id + 1)
        return seen

    def zerocopy(self) -> None:
        for kind in ("stream", "datagram"):
            s = self.tcp() if kind == "stream" else self.udp()
            size = 50000 if kind == "stream" else 1000
            s.send(text_of(size), MSG_ZEROCOPY)
            empty(f"{kind}: the flag is ignored without the option", s)
            s.setsockopt(SOL, ZEROCOPY, 1)
            s.send(text_of(10))
            empty(f"{kind}: no flag", s)
            for i in range(3):
                expect("sent", s.send(text_of(size), MSG_ZEROCOPY), size)
            expect(f"{kind}: each call, in order", self.copies(s, 3), [0, 1, 2])
            expect("sent", s.sendmsg([b"a", text_of(size - 1)], [], MSG_ZEROCOPY), size)
            holds("an event", "err" in events(s, PATIENCE, 0))
            expect(f"{kind}: the next", self.copies(s, 1), [3])
            empty(kind, s)
            if kind == "stream":
                expect("the peer has it", self.ask("count", self.stream), str(5 * size + 10))
        s = self.stamped(TX_SW | SW | OPT_ID | TSONLY)
        s.setsockopt(SOL, ZEROCOPY, 1)
        s.send(text_of(1000), MSG_ZEROCOPY)
        got = sorted((r.origin, r.info, r.id) for r in reports(s, 2))
        expect("with stamps", got, [(ORIGIN_STAMP, SND, 0), (ORIGIN_ZEROCOPY, 0, 0)])


# ---- the peer
def peer(address: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    data, control = (socket.socket(family, socket.SOCK_DGRAM) for _ in range(2))
    data.bind((address, port))
    control.bind((address, port + 1))
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(SOL, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen()
    streams: dict[int, list] = {}  # by the other end's port: the connection, the bytes that came

    def swallow(mine: list, end: int) -> None:
        while isinstance(data := outcome(mine[0].recv, 1 << 16), bytes) and data:
            mine[1] += len(data)
        if streams.get(end) is mine:  # the port may be used again
            del streams[end]

    def serve() -> None:
        while True:
            s, who = listener.accept()
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            mine = streams[who[1]] = [s, 0]
            threading.Thread(target=swallow, args=(mine, who[1]), daemon=True).start()

    def stream(port: str) -> list:
        while int(port) not in streams:
            time.sleep(0.001)
        return streams[int(port)]

    threading.Thread(target=serve, daemon=True).start()
    print("ready", flush=True)
    while True:
        words, who = control.recvfrom(1000)
        words = words.decode().split()
        answer = "ok"
        if words[0] == "datagram":
            data.sendto(words[3].encode(), (words[1], int(words[2])))
        elif words[0] == "say":
            stream(words[1])[0].send(words[2].encode())
        elif words[0] == "close":
            stream(words[1])[0].shutdown(socket.SHUT_WR)
        elif words[0] == "connect":
            s = socket.create_connection((words[1], int(words[2])))
            s.send(words[3].encode())
            streams[int(words[2])] = [s, 0]
        elif words[0] == "count":
            mine, before = stream(words[1]), -1
            while mine[1] != before:
                before = mine[1]
                time.sleep(0.1)
            answer = str(before)
        control.sendto(answer.encode(), who)


if __name__ == "__main__":
    if sys.argv[1] == "peer":
        peer(sys.argv[2], int(sys.argv[3]))
    else:
        getattr(Case(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]), sys.argv[1])()
        print("done", held, flush=True)
