#!/usr/bin/python3
"""Datagrams by the batch, and what a message's ancillary data says of them: batch_table.py's rows, recvmmsg(2) and sendmmsg(2),
UDP_SEGMENT and UDP_GRO of udp(7), and TLS by the kernel. Each on the kernel and under Vireo; both are held against what is written
here. What was sent is looked at by a receiver on the kernel. The processes (batch_member.py) stay from case to case."""
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from agent import Agent  # noqa: E402
from batch_table import (A, A2, B, B2, DONTWAIT, GRO, GROUP, MAPPED_B, MARKED, MORE, ROWS, UDP, WAITFORONE, Row,  # noqa: E402
                         option_rows)
from labkit import counters  # noqa: E402
from labkit.lab import DEVICE, Lab  # noqa: E402
from labkit.runner import Suite, Test  # noqa: E402

SECOND = "vr1"
PORT = 6060
PATIENCE = 1.5  # s: for datagrams that must come
GRACE = 0.01    # s: for those that must not
suite = Suite("batch", keep_lab=True)
answers: dict[str, list] = {}  # the kernel's, by row: where the manual leaves the errno open, Vireo's is the same


def prepare(lab: Lab) -> None:
    """A second wire, more addresses, and an address of B's that the mark 7 leads to by the second wire."""
    subprocess.run(["ip", "link", "add", SECOND, "netns", lab.netns("A"), "type", "veth", "peer", "name", SECOND, "netns", lab.netns("B")],
                   check=True)
    for host, number in (("A", 1), ("B", 2)):
        lines = [f"addr add 10.78.0.{number}/24 dev {SECOND}", f"addr add fd78::{number}/64 dev {SECOND} nodad", f"link set {SECOND} up"]
        if host == "A":
            lines += [f"addr add {A2[4]}/24 dev {DEVICE}", f"addr add {A[6]}/64 dev {DEVICE} nodad"]
            lines += [f"route add 224.0.0.0/4 dev {DEVICE}", f"route add multicast ff00::/8 dev {DEVICE} table local metric 1"]
        else:
            lines += [f"addr add {B2}/24 dev {DEVICE}", f"addr add {MARKED}/32 dev {SECOND}"]
        subprocess.run(["ip", "-n", lab.netns(host), "-batch", "-"], input="\n".join(lines), text=True, check=True)
    for host in "AB":
        for name in ("all", DEVICE, SECOND):
            lab.run(host, "sysctl", "-qw", f"net.ipv4.conf.{name}.rp_filter=0")
    first, second = (lab.run("B", "cat", f"/sys/class/net/{d}/address").stdout.strip() for d in (DEVICE, SECOND))
    lines = [f"neigh replace {B2} lladdr {first} dev {DEVICE} nud permanent", f"neigh replace 10.78.0.2 lladdr {second} dev {SECOND} nud permanent",
             f"route add {MARKED} via {B[4]} dev {DEVICE}", f"route add {MARKED} via 10.78.0.2 dev {SECOND} table 77", "rule add fwmark 7 table 77"]
    subprocess.run(["ip", "-n", lab.netns("A"), "-batch", "-"], input="\n".join(lines), text=True, check=True)


class Ends:
    """The process under test, on A, and the kernel's on B with its receivers."""

    def __init__(self) -> None:
        self._lab, self._stack, self._agents = None, "", {}

    def use(self, t: Test) -> None:
        if self._lab is not t.lab:
            self.end()
            prepare(t.lab)
        if self._stack != t.stack_of("A"):
            self.end()
        self._lab, self._stack = t.lab, t.stack_of("A")
        for name, host, stack in (("a", "A", self._stack), ("b", "B", "kernel")):
            if name not in self._agents:
                self._agents[name] = Agent(t, host, stack, f"{name}-{self._stack}", "batch_member.py")
                if name == "b":
                    self._receivers()

    def _receivers(self) -> None:
        many = [socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20]
        said = {4: [[0, 13, 1], [0, 12, 1], [0, 8, 1]], 6: [[41, 66, 1], [41, 51, 1], [41, 49, 1]]}
        for family, any_ in ((4, "0.0.0.0"), (6, "::")):
            options = [many, *said[family]] + ([[41, 26, 1]] if family == 6 else [])
            self.b(open=[f"r{family}", family, options, [any_, PORT], None])
        index = subprocess.run(["ip", "-n", self._lab.netns("B"), "-o", "link"], capture_output=True, text=True, check=True).stdout
        numbers = {line.split(":")[1].split("@")[0].strip(): int(line.split(":")[0]) for line in index.splitlines()}
        for device in (DEVICE, SECOND):
            at = numbers[device]
            self.b(set=["r4", 0, 35, (socket.inet_aton(GROUP[4]) + bytes(4) + at.to_bytes(4, "little")).hex()])
            self.b(set=["r6", 41, 20, (socket.inet_pton(socket.AF_INET6, GROUP[6]) + at.to_bytes(4, "little")).hex()])

    def a(self, **request):
        return self._agents["a"].ask(**request)

    def b(self, **request):
        return self._agents["b"].ask(**request)

    @property
    def pid(self) -> int:
        return self._agents["a"].pid

    def index(self, device: str) -> int:
        return int(self._lab.run("A", "cat", f"/sys/class/net/{device}/ifindex").stdout)

    def end(self) -> None:
        for agent in self._agents.values():
            agent.end()
        self._agents = {}


ends = Ends()


def is_ours(t: Test) -> bool:
    return t.stack_of("A") == "vireo" and not t.options.dry


def kernel_sent(pid: int) -> int:
    """Datagrams by the kernel's sockets of the namespace."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Udp:")]
    v6 = dict(line.split() for line in Path(f"/proc/{pid}/net/snmp6").read_text().splitlines())
    return int(lines[1][lines[0].index("OutDatagrams")]) + int(v6["Udp6OutDatagrams"])


def socket_of(number: int) -> dict:
    rows = [s for p in counters.live(ends.pid) for s in p["sockets"] if s["fd"] == number and not s["closed"]]
    return rows[-1] if rows else {}


def expect_carried(t: Test, number: int, sent: int | None = None, received: int | None = None) -> None:
    row = socket_of(number)
    t.expect(bool(row.get("carried")), f"not carried: {row.get('reason')} {row.get('detail')}")
    if sent is not None:
        t.expect((row["tx_packets"], row["os_tx_packets"]) == (sent, 0),
                 f"{row['tx_packets']} by the device, {row['os_tx_packets']} by the kernel, expected {sent} by the device")
    if received is not None:
        t.expect((row["rx_packets"], row["os_rx_packets"]) == (received, 0),
                 f"{row['rx_packets']} by the device, {row['os_rx_packets']} by the kernel, expected {received} by the device")


# ---- what is sent

def fits(got, wanted) -> bool:
    return got in wanted if isinstance(wanted, tuple) else got == wanted


def resolved(control: list) -> list:
    """Interfaces by their numbers."""
    names = {f"<{d}>": ends.index(d).to_bytes(4, "little").hex() for d in (DEVICE, SECOND)}
    out = []
    for level, kind, data in control:
        for name, number in names.items():
            data = data.replace(name, number)
        out.append([level, kind, data])
    return out


def run_row(t: Test, row: Row) -> None:
    ends.use(t)
    receiver = "r4" if row.family == 4 or row.mapped else "r6"
    ends.b(heard=[receiver, 0, 0])
    messages = [m | {"control": resolved(m["control"])} if "control" in m else m for m in row.messages]
    to = [row.to or (MAPPED_B if row.mapped else B[row.family]), PORT]
    options = [[level, name, (value + "\0" if value == DEVICE else value).encode().hex() if value in (DEVICE, SECOND) else value]
               for level, name, value in row.options]
    if row.connects:
        number, port = ends.a(open=["s", row.family, options, row.bound and [row.bound, 0], to])
    else:
        number, port = ends.a(open=["s", row.family, options, row.bound and [row.bound, 0], None])
        messages = [m | {"to": m.get("to", to)} for m in messages]
    before = kernel_sent(ends.pid)
    got = ends.a(send=["s", messages, {"many": True} if row.many else {}])
    t.expect(len(got) == len(row.results) if isinstance(row.results, list) else True, f"returned {got}, expected {row.results}")
    wrong = not fits(got, row.results) if not isinstance(row.results, list) else not all(map(fits, got, row.results))
    t.expect(not wrong, f"returned {got}, expected {row.results}")
    if t.stack_of("A") == "kernel":
        answers[row.name] = got
    elif row.name in answers:
        t.expect(got == answers[row.name], f"returned {got}, the kernel {answers[row.name]}")
    leaves_open = any(isinstance(r, tuple) for r in row.results) and any(isinstance(g, str) for g in got)
    wanted = [] if leaves_open else [[h.bytes, h.source or (A[4] if receiver == "r4" else A[6]), h.tos, h.ttl, h.by] for h in row.heard]
    heard = ends.b(heard=[receiver, len(wanted), PATIENCE]) if wanted else []
    heard += ends.b(heard=[receiver, 0, GRACE])
    seen = [[h[0], h[1], h[3], h[4], h[5]] for h in heard]
    t.expect(seen == wanted, f"heard (bytes, source, TOS, TTL, interface) {seen}, expected {wanted}")
    t.expect(all(h[6] == "good" for h in heard), "bytes are spoilt")
    moved = kernel_sent(ends.pid) - before
    if not is_ours(t):
        t.expect(moved > 0 or not wanted, "the kernel sent nothing")
    elif row.carried and wanted:
        expect_carried(t, number, sent=len(row.heard))
        t.expect(moved == 0, f"the kernel sent {moved}")


# ---- what is received: by A, from B

def receivers(t: Test, options: list, count: int = 1) -> tuple[int, list]:
    """A's socket u, connected to none, and B's s0 ... on ports of their own. -> A's descriptor, its address."""
    ends.use(t)
    number, port = ends.a(open=["u", 4, options, [A[4], 0], None])
    for i in range(count):
        ends.b(open=[f"s{i}", 4, [], [B[4], 0], [A[4], port]])
    return number, [A[4], port]


def from_b(sizes: list[int], by: int = 0) -> None:
    ends.b(send=[f"s{by}", [{"bytes": n} for n in sizes], {}])
    time.sleep(0.05)


def lengths(answer: dict) -> list[int]:
    return [g[0] for g in answer.get("got", [])]


cases: list[tuple] = []


def case(name: str):
    """On the kernel, and under Vireo: all of a stack's in a row, as the processes stay."""
    return lambda function: cases.append((name, function))


for _row in ROWS:
    case(_row.name)(lambda t, row=_row: run_row(t, row))


@case("options that can be read, and their limits")
def _(t):
    ends.use(t)
    number, _ = ends.a(open=["o", 4, [], ["0.0.0.0", 0], None])
    for level, option, value, wanted, reads in option_rows():
        got = [ends.a(set=["o", level, option, value]), ends.a(get=["o", level, option])]
        t.expect(got == [wanted, reads], f"{option} = {value}: {got}, expected {[wanted, reads]}")
    if is_ours(t):
        expect_carried(t, number)


@case("sendmmsg: an error after the first message ends it, without an error")
def _(t):
    ends.use(t)
    ends.b(heard=["r4", 0, 0])
    number, _ = ends.a(open=["s", 4, [], None, [B[4], PORT]])
    one, bad = {"bytes": 10}, {"bytes": 10, "control": [[0, 2, "00"]]}
    t.expect(ends.a(send=["s", [one, one, bad, one], {"many": True}]) == [10, 10], "not two")
    t.expect(ends.a(send=["s", [bad, one], {"many": True}]) == "EINVAL", "not EINVAL")
    t.expect(ends.a(send=["s", [one, one | {"bad": True}], {"many": True}]) == [10], "not one")
    t.expect(ends.a(send=["s", [one | {"bad": True}], {"many": True}]) == "EFAULT", "not EFAULT")
    t.expect(ends.a(send=["s", [one], {"many": True, "count": 0}]) == [], "none is not none")
    t.expect(ends.a(send=["s", [one], {}]) == [10], "the socket keeps an error")
    heard = ends.b(heard=["r4", 4, PATIENCE])
    t.expect(len(heard) == 4, f"heard {len(heard)}")
    if is_ours(t):
        expect_carried(t, number, sent=4)


@case("MSG_MORE: what is held leaves with the rest")
def _(t):
    ends.use(t)
    for connects, bound in ((True, None), (False, None), (False, ["0.0.0.0", 0])):
        ends.b(heard=["r4", 0, 0])
        to = [B[4], PORT]
        ends.a(open=["s", 4, [], bound, to if connects else None])
        one = {"bytes": 5} if connects else {"bytes": 5, "to": to}
        for flags, many in ((MORE, False), (MORE, False), (0, False), (0, False), (MORE, False), (0, True)):
            t.expect(ends.a(send=["s", [one] * (2 if many else 1), {"flags": flags, "many": many}]) == [5] * (2 if many else 1), "a send")
        heard = [h[0] for h in ends.b(heard=["r4", 4, PATIENCE])]
        t.expect(heard == [15, 5, 10, 5], f"heard {heard}")


@case("sendmmsg: at most 1024, to two peers in turn")
def _(t):
    ends.use(t)
    ends.b(heard=["r4", 0, 0])
    number, _ = ends.a(open=["s", 4, [], ["0.0.0.0", 0], None])
    messages = [{"bytes": 20, "to": [B2 if i % 2 else B[4], PORT]} for i in range(1030)]
    got = ends.a(send=["s", messages, {"many": True}])
    t.expect(got == [20] * 1024, f"sent {len(got)}")
    heard = ends.b(heard=["r4", 1024, PATIENCE])
    t.expect(len(heard) == 1024, f"heard {len(heard)}")
    if is_ours(t):
        expect_carried(t, number, sent=1024)


@case("recvmmsg: what lies there")
def _(t):
    number, _ = receivers(t, [])
    from_b([1, 2, 3, 4, 5])
    got = [lengths(ends.a(receive=["u", {"many": True, "most": n, "flags": DONTWAIT}])) for n in (2, 8)]
    t.expect(got == [[1, 2], [3, 4, 5]], f"{got}")
    t.expect(ends.a(receive=["u", {"many": True, "most": 2, "flags": DONTWAIT}])["error"] == "EAGAIN", "more came")
    from_b([7, 8])
    t.expect(lengths(ends.a(receive=["u", {"many": True, "most": 2}])) == [7, 8], "not both")
    from_b([20, 3])
    got = ends.a(receive=["u", {"many": True, "most": 2, "room": 5}])["got"]
    t.expect([g[:2] for g in got] == [[5, socket.MSG_TRUNC], [3, 0]], f"{got}")
    from_b([0, 6])
    t.expect(lengths(ends.a(receive=["u", {"many": True, "most": 4, "flags": DONTWAIT}])) == [0, 6], "an empty one")
    from_b([9])
    t.expect([lengths(ends.a(receive=["u", {"many": True, "most": 2, "flags": f}])) for f in (socket.MSG_PEEK, DONTWAIT)] == [[9, 9], [9]],
             "a peek of two is not twice the first")
    if is_ours(t):
        expect_carried(t, number, received=12)


@case("recvmmsg: waits for all, or for one")
def _(t):
    number, to = receivers(t, [])
    ends.b(later=[0.2, "s0", 2, to])
    got = ends.a(receive=["u", {"many": True, "most": 2}])
    t.expect(lengths(got) == [5, 5] and got["took"] > 0.1, f"all: {got}")
    ends.b(later=[0.2, "s0", 1, to])
    got = ends.a(receive=["u", {"many": True, "most": 3, "flags": WAITFORONE}])
    t.expect(lengths(got) == [5] and 0.1 < got["took"] < 2, f"one: {got}")
    from_b([1, 2])
    got = ends.a(receive=["u", {"many": True, "most": 3, "flags": WAITFORONE}])
    t.expect(lengths(got) == [1, 2], f"what there is: {got}")
    if is_ours(t):
        expect_carried(t, number, received=5)


@case("recvmmsg: the timeout is looked at after each message, and what is left is told")
def _(t):
    number, to = receivers(t, [[socket.SOL_SOCKET, socket.SO_RCVTIMEO, "01" + "00" * 15]])
    from_b([1, 2, 3])
    got = ends.a(receive=["u", {"many": True, "most": 3, "timeout": 0}])
    t.expect(lengths(got) == [1] and got["left"] == 0, f"no time: {got}")
    got = ends.a(receive=["u", {"many": True, "most": 2, "timeout": 5}])
    t.expect(lengths(got) == [2, 3] and 4 < got["left"] <= 5, f"time enough: {got}")
    ends.b(later=[0.3, "s0", 1, to])
    got = ends.a(receive=["u", {"many": True, "most": 2, "timeout": 0.1}])
    t.expect(lengths(got) == [5] and got["left"] == 0 and got["took"] > 0.2, f"no message, no look: {got}")
    got = ends.a(receive=["u", {"many": True, "most": 2, "timeout": 2}])
    t.expect(got.get("error") == "EAGAIN" and 0.8 < got["took"], f"SO_RCVTIMEO: {got}")
    if is_ours(t):
        expect_carried(t, number, received=4)


@case("recvmmsg: an error after the first message is the next call's")
def _(t):
    number, _ = receivers(t, [])
    from_b([1, 2, 3])
    got = ends.a(receive=["u", {"many": True, "most": 3, "bad": 1, "flags": DONTWAIT}])
    t.expect(lengths(got) == [1], f"{got}")
    got = ends.a(receive=["u", {"many": True, "most": 3, "flags": DONTWAIT}])
    t.expect(got.get("error") == "EFAULT", f"the next: {got}")
    got = ends.a(receive=["u", {"many": True, "most": 3, "flags": DONTWAIT}])
    t.expect(lengths(got) == [3], f"the second is lost: {got}")
    from_b([1, 2])
    ends.a(receive=["u", {"many": True, "most": 3, "bad": 1, "flags": DONTWAIT}])
    t.expect([ends.a(get=["u", socket.SOL_SOCKET, socket.SO_ERROR]) for _ in range(2)] == [14, 0], "SO_ERROR")
    from_b([1])
    got = ends.a(receive=["u", {"many": True, "most": 1, "bad": 0, "flags": DONTWAIT}])
    t.expect(got.get("error") == "EFAULT", f"the first: {got}")
    if is_ours(t):
        expect_carried(t, number, received=6)


# ---- UDP_GRO: on Linux what is joined is the device's choice, so that either is right there

def joined(t: Test, sizes: list[int], wanted: list[list[int]], room: int = 65535, flags: int = 0) -> None:
    """B's datagrams of `sizes`. wanted, under Vireo: of each message bytes, and the size of those in it; 0: it is one."""
    from_b(sizes)
    got, left = [], sum(sizes)
    while left > 0:
        answer = ends.a(receive=["u", {"room": room, "flags": flags}])
        t.expect("got" in answer, f"{answer}")
        length, flag, size, _ = answer["got"][0]
        t.expect(flag == 0 and size < max(length, 1), f"{answer}")
        got.append([length, size])
        left -= length
    parts = []
    for length, size in got:
        parts += [size] * (length // size) + [length % size] * (length % size != 0) if size else [length]
    t.expect(parts == sizes, f"{got} is not {sizes}")
    if is_ours(t):
        t.expect(got == wanted, f"{got}, expected {wanted}")


@case("UDP_GRO: equal ones that lie there come as one")
def _(t):
    number, _ = receivers(t, [[UDP, GRO, 1], [socket.SOL_SOCKET, socket.SO_RCVTIMEO, "02" + "00" * 15]], count=2)
    t.expect(ends.a(get=["u", UDP, GRO]) == 1, "it is off")
    joined(t, [100], [[100, 0]])
    joined(t, [100] * 10, [[1000, 100]])
    joined(t, [100, 100, 60, 100, 100], [[260, 100], [200, 100]])
    joined(t, [60, 100, 100], [[60, 0], [200, 100]])
    joined(t, [100] * 5, [[200, 100], [200, 100], [100, 0]], room=250)
    joined(t, [1400] * 46, [[64400, 1400]])
    joined(t, [10] * 70, [[640, 10], [60, 10]])
    ends.b(send=["s0", [{"bytes": 50}], {}])
    ends.b(send=["s1", [{"bytes": 50}], {}])
    time.sleep(0.05)
    got = [ends.a(receive=["u", {"room": 65535}])["got"][0][:3] for _ in range(2)]
    t.expect(got == [[50, 0, 0]] * 2, f"of two peers: {got}")
    if is_ours(t):
        expect_carried(t, number, received=1 + 10 + 5 + 3 + 5 + 46 + 70 + 2)
    t.expect(ends.a(set=["u", UDP, GRO, 0]) == "ok", "off")
    joined(t, [100] * 3, [[100, 0]] * 3)


@case("UDP_GRO: by recvmmsg, beside IP_PKTINFO; without room for its size one by one")
def _(t):
    number, _ = receivers(t, [[UDP, GRO, 1], [0, 8, 1]])
    from_b([100, 100, 100, 50, 70, 70])
    got = ends.a(receive=["u", {"many": True, "most": 6, "room": 65535, "flags": DONTWAIT}])
    if is_ours(t):
        t.expect([g[:3] for g in got["got"]] == [[350, 0, 100], [140, 0, 70]], f"{got}")
    t.expect(sum(lengths(got)) == 490, f"{got}")
    from_b([100, 100])
    got = [ends.a(receive=["u", {"room": 65535, "control": 0, "flags": DONTWAIT}]) for _ in range(2)]
    if is_ours(t):
        t.expect([lengths(g) for g in got] == [[100], [100]], f"{got}")
        expect_carried(t, number, received=8)


# ---- TCP

def connection(t: Test) -> int:
    ends.use(t)
    ends.b(listen=["l", [B[4], 6061]])
    number = ends.a(connect=["c", [B[4], 6061]])
    ends.b(accept=["d", "l"])
    ends.a(talk=["c", "hello"])
    t.expect(ends.b(listen_to=["d", 5]) == "hello", "the first bytes")
    if is_ours(t):
        expect_carried(t, number)
    return number


@case("ancillary data on a stream: what concerns datagrams is ignored")
def _(t):
    number = connection(t)
    for control, wanted in (([[0, 1, "10000000"]], 1), ([[0, 2, "00"]], 1), ([[41, 67, "ffff0000"]], 1), ([[17, 103, "0100"]], 1),
                            ([[1, 36, "0700"]], "EINVAL"), ([[1, 999, "00000000"]], "EINVAL"), ([[1, 36, "07000000"]], 1)):
        got = ends.a(spoil=["c", control])
        t.expect(got == wanted, f"{control}: {got}, expected {wanted}")
    t.expect(ends.b(listen_to=["d", 5]) == "xxxxx", "five bytes")
    if is_ours(t):
        expect_carried(t, number)


@case("TLS by the kernel takes the connection with it, where the kernel has it")
def _(t):
    number = connection(t)
    t.expect(ends.a(tls=["c", "nothing", []]) == ["ENOENT"], "an unknown one")
    answers_ = ends.a(tls=["c", "tls", [1, 5]])
    if answers_[0] == "ENOENT":  # this kernel has none: the program finds that out, and the connection goes on
        t.note("this kernel has no TLS")
        if is_ours(t):
            expect_carried(t, number)
    else:
        t.expect(answers_ == ["ok"] * 3, f"{answers_}")
        t.expect(ends.b(tls=["d", "tls", [5, 1]]) == ["ok"] * 3, "the peer's")
        if is_ours(t):
            row = socket_of(number)
            t.expect(not row["carried"] and row["detail"] == "TCP_ULP", f"{row}")
    for i in range(3):
        ends.a(talk=["c", f"there {i}"])
        t.expect(ends.b(listen_to=["d", 7]) == f"there {i}", "there")
        ends.b(talk=["d", f"back {i}"])
        t.expect(ends.a(listen_to=["c", 6]) == f"back {i}", "back")


for _stack in ("kernel", "vireo"):
    for _name, _function in cases:
        suite.case(f"{_name}; on {_stack}", (_stack, "kernel"), seconds=40)(_function)

if __name__ == "__main__":
    try:
        suite.main()
    finally:
        ends.end()
