#!/usr/bin/python3
"""The extra API (stack/extra/include/vireo_extra.h): C programs that know its header only, against an echo on the kernel."""
import json
import os
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import ROOT  # noqa: E402
from labkit.lab import DEVICE  # noqa: E402
from labkit.process import Failed, Process, wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

HERE = Path(__file__).resolve().parent
suite = Suite("extra", keep_lab=True)
PORT, PEER_PORT = 5100, 5200
VIREO = ("kernel", "vireo")
# Echoes TCP and UDP.
ECHO = """
import selectors, socket, sys
s = selectors.DefaultSelector()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind((sys.argv[1], int(sys.argv[2])))
l = socket.create_server((sys.argv[1], int(sys.argv[2])))
for x in (u, l): s.register(x, 1)
print("ready", flush=True)
while True:
    for key, _ in s.select():
        x = key.fileobj
        if x is l: s.register(l.accept()[0], 1)
        elif x is u:
            d, a = u.recvfrom(65536); u.sendto(d, a)
        else:
            d = b""
            try: d = x.recv(65536)
            except OSError: pass
            if d: x.sendall(d)
            else: s.unregister(x); x.close()
"""


def program(name: str) -> str:
    """Compiled as C, with the public header alone."""
    source, target = HERE / f"{name}.c", ROOT / "build" / "lab" / name
    newest = max(p.stat().st_mtime for p in (source, HERE / "extra_common.h", ROOT / "stack/extra/include/vireo_extra.h"))
    if not target.is_file() or target.stat().st_mtime < newest:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{name}.{os.getpid()}")
        done = subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-address-of-packed-member", "-pthread", "-o", str(part),
                               str(source), "-I", str(ROOT / "stack/extra/include")], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(done.stderr)
        part.rename(target)
    return str(target)


def echo(t: Test) -> None:
    t.start("A", PYTHON, "-u", "-c", ECHO, t.lab.address("A"), str(PEER_PORT), name="echo", stack="kernel").await_output("ready")


def run(t: Test, name: str, *arguments: str, **kwargs) -> Process:
    """To its end, which must be a success."""
    p = t.start("B", program(name), *arguments, name=f"{name}-{arguments[0]}", **kwargs)
    p.wait(20)
    t.expect(p.status == 0 and p.stdout.split()[-1:] == ["done"], f"{name} {' '.join(arguments)}: {p.status}\n{p.stdout}{p.stderr}")
    return p


def of_sockets(t: Test, p: Process) -> dict:
    """How many of its sockets were carried, and of the others why not, when it ended."""
    rows = counters.final(p.stats_file)
    t.expect(len(rows) == 1, f"{p.stats_file}: {len(rows)} processes")
    return rows[0]["decisions"]


@suite.case("layout and values of the header", lab=None, needs_library=False)
def layout(t: Test):
    subprocess.run([program("extra_layout")], check=True)


@suite.case("without Vireo there is no table", ("kernel", "kernel"))
def absent(t: Test):
    run(t, "extra_calls", "absent")


@suite.case("options, and calls that fail", VIREO)
def options(t: Test):
    p = run(t, "extra_calls", "options", t.lab.address("B"), str(PORT))
    t.expect("Vireo" in p.stderr and "descriptor" in p.stderr, f"dump_fd_stats wrote nothing: {p.stderr}")


@suite.case("a rule added at run time", VIREO)
def rules(t: Test):
    decided = of_sockets(t, run(t, "extra_calls", "rules", t.lab.address("B"), str(PORT)))
    t.expect(decided["carried"] == 3 and decided["refused"].get("rule") == 1, f"{decided}")


@suite.case("a thread whose sockets are the kernel's", VIREO)
def threads(t: Test):
    echo(t)
    before = counters.kernel_counters(t.lab, "B")
    decided = of_sockets(t, run(t, "extra_calls", "threads", t.lab.address("A"), str(PEER_PORT)))
    t.expect(decided["carried"] == 3 and decided["refused"].get("disabled") == 1, f"{decided}")
    opened = counters.delta(before, counters.kernel_counters(t.lab, "B"))["tcp_active_opens"]
    t.expect(opened == 1, f"the kernel opened {opened} connections, not the one")
    decided = of_sockets(t, run(t, "extra_calls", "threads", t.lab.address("A"), str(PEER_PORT),
                                env={"VMA_OFFLOADED_SOCKETS": "0", "NOT_BY_DEFAULT": "1"}))
    t.expect(decided["carried"] == 1 and decided["refused"].get("disabled") == 3, f"{decided}")


@suite.case("rings, and the headers of a connection", VIREO)
def rings(t: Test):
    echo(t)
    with t.proof(allow=2, hosts="B"):
        run(t, "extra_calls", "rings", t.lab.address("B"), str(PORT), t.lab.address("A"), str(PEER_PORT))


def value(p: Process, name: str) -> int:
    return counters.live(p.pid)[0]["engine"][name]


def settled(p: Process, name: str, wanted, seconds: float = 5) -> bool:
    """The counter satisfies `wanted` now or soon: some are set once a second."""
    return bool(wait_until(lambda: wanted(value(p, name)), seconds, 0.1))


def is_back(n: int, free: int) -> bool:
    """All buffers are free that were before. A receive ring that grows with the traffic takes 512 at a time."""
    return (free - n + 16) % 512 <= 32


class Told:
    """A program that goes on when it is told to."""

    def __init__(self, t: Test, name: str, *arguments: str, **env: str):
        pipe = t.logs / f"tell-{name}-{arguments[0]}"
        os.mkfifo(pipe)
        self._tell = os.open(pipe, os.O_RDWR)
        # Alone on its interface, so that its packet memory is its own, and stays as it is.
        self.process = t.start("B", program(name), *arguments, name=f"{name}-{arguments[0]}", stdin=pipe,
                               env={"VIREO_GROUP_BYTES": "0"} | env)
        self._t = t

    def say(self, until: str) -> None:
        os.write(self._tell, b"\n")
        self.process.await_output(until)

    def end(self) -> None:
        os.write(self._tell, b"\n")
        self.process.wait(20)
        p = self.process
        self._t.expect(p.status == 0 and p.stdout.split()[-1:] == ["done"], f"{p.shown}: {p.status}\n{p.stdout}{p.stderr}")


def frames_at(t: Test, host: str) -> int:
    """That its interface has received."""
    return int(t.lab.run(host, "cat", f"/sys/class/net/{DEVICE}/statistics/rx_packets", check=True).stdout)


@suite.case("dummy sends", VIREO)
def dummies(t: Test):
    echo(t)
    p = Told(t, "extra_dummy", t.lab.address("A"), str(PEER_PORT))
    p.process.await_output("ready")
    kernel, sent, came = counters.kernel_counters(t.lab, "B"), value(p.process, "tx_packets"), frames_at(t, "A")
    free = value(p.process, "pool_free")
    p.say("warm")
    # Of 8000 sends nothing left; a connection was opened and shut meanwhile, and the kernels may ask for neighbours.
    left, arrived = value(p.process, "tx_packets") - sent, frames_at(t, "A") - came
    moved = counters.delta(kernel, counters.kernel_counters(t.lab, "B"))
    t.expect(left <= 6, f"Vireo sent {left} packets")
    t.expect(arrived <= 12, f"{arrived} frames came to the peer")
    t.expect(moved["udp_out"] == 0 and moved["tcp_out"] == 0, f"the kernel sent: {moved}")
    t.expect(settled(p.process, "pool_free", lambda n: abs(n - free) < 8), f"free buffers: {free}, then {value(p.process, 'pool_free')}")
    t.note(f"{left} packets and {arrived} frames of 8000 sends")
    p.end()


# Sends a pattern. tcp: so many bytes, in writes of odd sizes. udp: datagrams of these sizes, then an empty one. Stops at a reset.
FEED = """
import socket, sys, time
kind, host, port, *rest = sys.argv[1:]
rest = [int(n) for n in rest]
def pattern(n): return bytes((((i * 2654435761) & (2**64 - 1)) >> 11) & 255 for i in range(n))
most = pattern(rest[0] if kind == "tcp" else max(rest))
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.connect((host, int(port)))
try:
    if kind == "tcp":
        sys.stdin.readline()  # once it has looked at an empty connection
        at, step = 0, 1
        while at < len(most):
            s.sendall(most[at:at + step]); at += step; step = (step * 7 + 13) % 40000 + 1
    else:
        for i, n in enumerate(rest):
            s.send(most[:n])
            if i % 16 == 15: time.sleep(0.002)
        s.send(b"")
except ConnectionError: pass
"""


def feed(t: Test, to: Told, kind: str, *sizes: int) -> None:
    """Once `to` says "go"."""
    pipe = t.logs / "feed"
    os.mkfifo(pipe)
    tell = os.open(pipe, os.O_RDWR)
    t.start("A", PYTHON, "-u", "-c", FEED, kind, t.lab.address("B"), str(PORT), *map(str, sizes), name="feed", stack="kernel", stdin=pipe)
    to.process.await_output("go")
    os.write(tell, b"\n")


@suite.case("a stream without a copy", VIREO)
def stream(t: Test):
    size = 400_000 if t.options.quick else 4_000_000
    with t.proof(least=5, allow=2, hosts="B"):
        p = Told(t, "extra_zcopy", "tcp", t.lab.address("B"), str(PORT))
        p.process.await_output("ready")
        free = value(p.process, "pool_free")
        feed(t, p, "tcp", size)
        p.process.await_output("empty", 20)
        t.expect(f"{size} bytes," in p.process.stdout and " 0 copied" in p.process.stdout, p.process.stdout)
        t.expect(settled(p.process, "pool_free", lambda n: is_back(n, free)), f"free buffers: {free}, then {value(p.process, 'pool_free')}")
        t.note(p.process.stdout.split("\n")[-3])
        p.end()


@suite.case("datagrams without a copy", VIREO)
def datagrams(t: Test):
    sizes = [1, 100, 1400, 1472, 3000, 8000, 20, 5] * (20 if t.options.quick else 200)
    p = Told(t, "extra_zcopy", "udp", t.lab.address("B"), str(PORT))
    p.process.await_output("go")
    free, came, kernels = value(p.process, "pool_free"), value(p.process, "rx_packets"), counters.kernel_counters(t.lab, "B")
    feed(t, p, "udp", *sizes)
    p.process.await_output("empty", 20)
    t.expect(f"{len(sizes) + 1} lent, 0 copied" in p.process.stdout, p.process.stdout)
    t.expect(value(p.process, "rx_packets") - came > len(sizes), "Vireo's engine did not receive them")
    t.expect(counters.delta(kernels, counters.kernel_counters(t.lab, "B"))["udp_in"] == 0, "the kernel received some")
    t.expect(settled(p.process, "pool_free", lambda n: is_back(n, free)), f"free buffers: {free}, then {value(p.process, 'pool_free')}")
    p.end()


def greedy(kind: str):
    @suite.case(f"who gives no {kind} packet back gets copies", VIREO)
    def case(t: Test):
        p = Told(t, "extra_zcopy", f"greedy-{kind}", t.lab.address("B"), str(PORT), VMA_RX_BYTES_MIN="65536")
        p.process.await_output("ready")
        free = value(p.process, "pool_free")
        feed(t, p, kind, *([8_000_000] if kind == "tcp" else [1400] * 3000))
        p.process.await_output("full", 20)
        t.expect(settled(p.process, "pool_free", lambda n: n < free - 20), f"free buffers: {free}, then {value(p.process, 'pool_free')}")
        t.expect(value(p.process, "pool_free") > free / 4, "it took most of the memory")
        p.say("empty")
        t.expect(settled(p.process, "pool_free", lambda n: is_back(n, free)), f"free buffers after close: {free}, then {value(p.process, 'pool_free')}")
        t.note(p.process.stdout.split("\n")[-4])
        p.end()


for kind in ("tcp", "udp"):
    greedy(kind)

# Sends numbered datagrams, each awaited to be answered now and then, so that none is lost.
ASK = """
import random, socket, sys
host, port, n, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), 5
random.seed(seed)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5); s.connect((host, port))
sent = []
for i in range(n):
    sent.append(f"{random.choice('rdh') if i < n - 1 else 'q'}{i}".encode())
    s.send(sent[-1])
    if i % 20 == 19 or i == n - 1:
        got = []
        try:
            while len(got) < len(sent): got.append(s.recv(64))
        except TimeoutError: pass
        assert got == sent, (got, sent)
        sent = []
print("answered", flush=True)
sys.stdin.readline()
s.send(b"d")
"""


def callback(how: str):
    @suite.case(f"a receive callback, and {how}", VIREO)
    def case(t: Test):
        n = 400 if t.options.quick else 3000
        with t.proof("udp", least=n, allow=2, hosts="B"):
            p = Told(t, "extra_callback", how, t.lab.address("B"), str(PORT))
            p.process.await_output("ready")
            pipe = t.logs / "asks"
            os.mkfifo(pipe)
            tell = os.open(pipe, os.O_RDWR)
            asker = t.start("A", PYTHON, "-u", "-c", ASK, t.lab.address("B"), str(PORT), str(n), name="ask", stack="kernel", stdin=pipe)
            asker.await_output("answered", 20)
            p.process.await_output("empty", 20)
            t.expect(f"{n} shown" in p.process.stdout, p.process.stdout)
            t.note(p.process.stdout.split("\n")[-3])
            os.write(tell, b"\n")
            p.end()


for how in ("recv", "poll", "select", "epoll"):
    callback(how)

# Connections and datagrams in turn, each echoed whole.
CLIENTS = """
import os, socket, sys
host, port, connections, rounds = sys.argv[1], *map(int, sys.argv[2:])
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect((host, port)); u.settimeout(5)
all_ = [socket.create_connection((host, port), 5) for _ in range(connections)]
for r in range(rounds):
    for i, s in enumerate(all_):
        d = os.urandom(1 + (r * 7919 + i * 104729) % 9000)
        s.sendall(d)
        got = b""
        while len(got) < len(d):
            more = s.recv(65536); assert more; got += more
        assert got == d
    d = os.urandom(1 + r * 131 % 1400); u.send(d); assert u.recv(2000) == d
for s in all_: s.shutdown(socket.SHUT_WR); assert s.recv(1) == b""
print("done", flush=True)
"""


@suite.case("SocketXtreme: it is off", VIREO)
def xtreme_off(t: Test):
    run(t, "extra_xtreme", "off", t.lab.address("B"), str(PORT))


@suite.case("SocketXtreme: an echo", VIREO)
def xtreme_serve(t: Test):
    connections, rounds = 8, 10 if t.options.quick else 200
    with t.proof("both", least=connections * rounds, allow=2, hosts="B"):
        p = Told(t, "extra_xtreme", "serve", t.lab.address("B"), str(PORT), str(connections), VMA_SOCKETXTREME="1")
        p.process.await_output("ready")
        free = value(p.process, "pool_free")
        clients = t.start("A", PYTHON, "-u", "-c", CLIENTS, t.lab.address("B"), str(PORT), str(connections), str(rounds), name="clients", stack="kernel")
        clients.await_output("done", 30)
        p.process.await_output("empty", 20)
        t.expect(f"{connections} connections," in p.process.stdout and f"{rounds} datagrams" in p.process.stdout, p.process.stdout)
        t.expect(settled(p.process, "pool_free", lambda n: is_back(n, free)), f"free buffers: {free}, then {value(p.process, 'pool_free')}")
        t.note(p.process.stdout.split("\n")[-3])
        p.end()


@suite.case("SocketXtreme: a client", VIREO)
def xtreme_connect(t: Test):
    echo(t)
    with t.proof(least=3, allow=2, hosts="B"):
        run(t, "extra_xtreme", "connect", t.lab.address("A"), str(PEER_PORT), env={"VMA_SOCKETXTREME": "1"})


if __name__ == "__main__":
    suite.main()
