#!/usr/bin/python3
"""Connections of the kernel's that prove long-lived, which Vireo carries from then on (VIREO_PROMOTE=proven, and auto, the
default, where processors are free): those that a worker accepts from a listener that its parent made, and those that a parent
accepts and leaves to a child. Each server says at the end how many it carried; while the client goes on, the kernel neither
sends nor receives a segment, and every byte is right. What another process has too, or a second thread could be waiting on,
stays the kernel's."""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.process import Process, wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT, THREADS, WARM, MORE = 5033, 3, 110, 40
suite = Suite("promotion")

# A worker's loop, by the name of the call that it waits in. `extra` is what the worker does with a connection first.
SERVER = """
import array, hashlib, os, select, socket, struct, sys, threading, time
address, port, shape, extra = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
l = socket.create_server((address, port), family=family, backlog=128)
PIECE = 300 if extra == "pieces" else 1 << 16

def before(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if extra == "forks" and os.fork() == 0:
        time.sleep(60)
    if extra == "spawns" and os.posix_spawn("/bin/sleep", ["sleep", "60"], {}) == 0:
        pass
    if extra == "inherits":
        os.set_inheritable(c.fileno(), True)
        os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    if extra == "passes":
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [c.fileno()]))])
        c.passed = (here, there)
    if extra == "thread" and threading.active_count() == 1:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    if extra == "option":
        c.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR: only the kernel has it
    return c

class Connection(socket.socket): passed, vain = None, 0

def accept():
    fd = l._accept()[0]
    return before(Connection(family, socket.SOCK_STREAM, fileno=fd))

def serve_all(wait):
    # wait(new) -> which are ready
    conns = {}
    l.setblocking(False)
    for fd in iter(wait, None):
        for n in fd:
            if n == l.fileno():
                while True:
                    try: c = accept()
                    except BlockingIOError: break
                    c.setblocking(False)
                    conns[c.fileno()] = c
                    add(c)
                continue
            c, some = conns[n], False
            try:
                while data := c.recv(PIECE):
                    some = True
                    c.setblocking(True); c.sendall(data); c.setblocking(False)
            except BlockingIOError:
                c.vain += not some
                if c.vain > 10: sys.exit(f"{c.vain} times there was nothing to read")
                continue
            except ConnectionError: pass
            remove(c); del conns[n]; c.close()

def work():
    global add, remove
    if shape.startswith("epoll"):
        e = select.epoll()
        mask = select.EPOLLIN | select.EPOLLRDHUP | (select.EPOLLET if shape == "epoll-edges" else 0)
        mask |= select.EPOLLONESHOT if shape == "epoll-once" else 0
        e.register(l.fileno(), select.EPOLLIN)
        add = lambda c: e.register(c.fileno(), mask)
        remove = lambda c: e.unregister(c.fileno())
        def wait():
            got = [n for n, _ in e.poll()]
            if shape == "epoll-once":
                again = [n for n in got if n != l.fileno()]
                if len(again) != len(set(again)): os._exit(9)
                for n in again: e.modify(n, mask)
            return got
        serve_all(wait)
    elif shape == "poll":
        p = select.poll()
        p.register(l.fileno(), select.POLLIN)
        add = lambda c: p.register(c.fileno(), select.POLLIN)
        remove = lambda c: p.unregister(c.fileno())
        serve_all(lambda: [n for n, _ in p.poll()])
    elif shape == "select":
        all = {l.fileno()}
        add = lambda c: all.add(c.fileno())
        remove = lambda c: all.remove(c.fileno())
        serve_all(lambda: select.select(list(all), [], [])[0])
    while True:
        c = accept()
        serve(c)
        c.close()

def serve(c):
    if extra == "sink":  # takes all, answers what it was
        h, n = hashlib.sha256(), 0
        size = int.from_bytes(c.recv(8, socket.MSG_WAITALL), "big")
        while n < size:
            data = c.recv(1 << 16)
            if not data: return
            h.update(data); n += len(data)
        c.sendall(h.digest())
    try:
        while data := c.recv(PIECE): c.sendall(data)
    except ConnectionError: pass

def child(c, *given):
    l.close()
    for g in given: g.close()
    serve(before(c))
    c.close()
    os._exit(0)

pids = []
if shape.startswith("children"):
    import signal
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if shape == "children-late" and os.fork() == 0: os._exit(0)  # the listener is the kernel's then, as PostgreSQL's
    print("ready", flush=True)
    kept = []
    while True:
        c = l.accept()[0]
        if shape == "children-touched": c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); c.recv(1, socket.MSG_PEEK)
        if os.fork() == 0: child(c)
        if shape == "children-two" and os.fork() == 0: time.sleep(60); os._exit(0)
        if shape == "children-kept": kept.append(c)
        else: c.close()
for _ in range(3 if shape == "block" else 2):
    pid = os.fork()
    if pid == 0:
        work()
    pids.append(pid)
print("ready", *pids, flush=True)
for pid in pids:
    os.waitpid(pid, 0)
"""

# Each thread has one connection: asks `warm` times within at least 0.5 s, waits for the file `gate`, and asks `more` times.
# With `pipelined`, the questions of a turn are sent together, so that some wait unread.
CLIENT = """
import os, socket, sys, threading, time
address, port, gate, threads, warm, more, shape = sys.argv[1], int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:7]), sys.argv[7]
good, warmed = [0] * threads, threading.Barrier(threads + 1)

def ask(s, sizes):
    data = os.urandom(sum(sizes))
    s.sendall(data)
    got = b""
    while len(got) < len(data):
        piece = s.recv(1 << 16)
        if not piece: raise SystemExit("end of stream")
        got += piece
    assert got == data, "other bytes"

def run(n):
    with socket.create_connection((address, port), timeout=10) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        def sizes(r): return [100] if shape == "small" else [(1, 100, 1400, 20000)[(r + n + k) % 4] for k in range(3 if shape == "pipelined" else 1)]
        for r in range(warm):
            ask(s, sizes(r))
            time.sleep(0.012)
        warmed.wait()
        while not os.path.exists(gate): time.sleep(0.01)
        for r in range(more):
            ask(s, sizes(r))
            time.sleep(0.002)
        if n % 2 and shape != "held":  # by somebody else, who does not close it
            s.shutdown(socket.SHUT_WR)
            assert s.recv(1) == b""
    good[n] = 1

all = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(threads)]
for t in all: t.start()
try: warmed.wait(30)
except threading.BrokenBarrierError: sys.exit("not warm")
print("warm", flush=True)
for t in all: t.join(30)
print(sum(good), "good", flush=True)
"""

# One connection, one way, without a pause or with so small ones that the receiver keeps up.
SENDER = """
import hashlib, os, socket, sys, time
address, port, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
block = os.urandom(1 << 20)
size = int(sys.argv[4]) << 20
with socket.create_connection((address, port), timeout=20) as s:
    s.sendall(size.to_bytes(8, "big"))
    h = hashlib.sha256()
    for k in range(size >> 20):
        piece = block[k % 4096:] + block[:k % 4096]
        h.update(piece)
        for at in range(0, len(piece), 1 << 15):
            s.sendall(piece[at:at + (1 << 15)])
            if pause: time.sleep(pause)
    got = s.recv(32, socket.MSG_WAITALL)
    print("same" if got == h.digest() else "other bytes", flush=True)
    for _ in range(5):
        s.sendall(b"x"); assert s.recv(1) == b"x"
print("good", flush=True)
"""


def own(server: Process) -> list[dict]:
    """The server's children under Vireo: by what they wrote when they ended, and the living."""
    group = {int(p) for p in subprocess.run(["pgrep", "-g", str(server.pid)], capture_output=True, text=True).stdout.split()}
    live = {p["pid"]: p for p in counters.live() if p["pid"] in group}
    return [p for pid, p in ({p["pid"]: p for p in counters.final(server.stats_file)} | live).items() if pid != server.pid]


def carried(server: Process) -> tuple[int, int, int]:
    """Connections that they carried; packets received and sent."""
    processes = own(server)
    return (sum(p.get("decisions", {}).get("carried", 0) for p in processes), *counters.engine_packets(processes))


def begin(t: Test, address: str, shape: str, extra: str, promote: str | None, prefix: tuple[str, ...] = ()) -> Process:
    env = {"VIREO_PROMOTE": promote} if promote is not None else {}
    server = t.start("B", PYTHON, "-c", SERVER, address, str(PORT), shape, extra, name="server", env=env, prefix=prefix)
    t.expect(wait_until(lambda: server.stdout.startswith("ready"), 20), f"no server\n{server.tail()}")
    return server


def end(server: Process) -> None:
    for pid in map(int, server.stdout.split()[1:]):
        os.kill(pid, signal.SIGTERM)
    server.stop(signal.SIGTERM, 10)


def converse(t: Test, family: int, shape: str, extra: str = "", *, promoted: bool = True, promote: str | None = "proven",
             client: str = "plain", warm: int = WARM, prefix: tuple[str, ...] = (), least: int | None = None) -> None:
    address = t.lab.address("B", family)
    server = begin(t, address, shape, extra, promote, prefix)
    base = carried(server)[0]
    gate = t.logs / "gate"
    threads = 3 if shape == "block" else THREADS
    peer = t.start("A", PYTHON, "-c", CLIENT, address, str(PORT), str(gate), str(threads), str(warm), str(MORE), client, name="client")
    t.expect(wait_until(lambda: "warm" in peer.stdout or not peer.running, 40) and peer.running, f"client: {peer.tail()}\n{server.tail()}")
    time.sleep(0.2)
    before, mine = counters.kernel_counters(t.lab, "B"), carried(server)
    gate.touch()
    peer.wait(40)
    time.sleep(0.2)
    moved, after = counters.delta(before, counters.kernel_counters(t.lab, "B")), carried(server)
    took = mine[0] - base
    t.note(f"{took} of {threads} carried; then kernel: {moved['tcp_in']} in, {moved['tcp_out']} out, {moved['tcp_rst_out']} resets; Vireo {after[1] - mine[1]} in, {after[2] - mine[2]} out")
    t.expect(f"{threads} good" in peer.stdout, f"client: {peer.tail()}\n{server.tail()}")
    t.expect(moved["tcp_rst_out"] == 0, f"the kernel sent {moved['tcp_rst_out']} resets")
    if least is not None:
        t.expect(took >= least, f"{took} of {threads} connections were carried")
    elif promoted:
        t.expect(took == threads, f"{took} of {threads} connections were carried")
        t.expect(moved["tcp_in"] == moved["tcp_out"] == 0, f"the kernel received {moved['tcp_in']} and sent {moved['tcp_out']} segments")
    else:
        t.expect(took == 0, f"{took} connections were carried")
        t.expect(moved["tcp_data_out"] >= threads * MORE, f"the kernel sent only {moved['tcp_data_out']} segments with data")
    end(server)


def stream(t: Test, family: int, shape: str, pause: float = 0.0003) -> None:
    """Promoted amid a stream: nothing is lost for good. Where the receiver cannot keep up, too much is unread at all times."""
    address = t.lab.address("B", family)
    megabytes = 60 if pause else 600
    server = begin(t, address, shape, "sink", "proven")
    base = carried(server)[0]
    before = counters.kernel_counters(t.lab, "B")
    begun = time.monotonic()
    peer = t.start("A", PYTHON, "-c", SENDER, address, str(PORT), str(pause), str(megabytes), name="client")
    peer.wait(60)
    moved = counters.delta(before, counters.kernel_counters(t.lab, "B"))
    took, received, _ = carried(server)
    t.note(f"{took - base} carried, {megabytes / (time.monotonic() - begun):.0f} MB/s; kernel {moved['tcp_in']} in, Vireo {received} in; {moved['tcp_rst_out']} resets")
    t.expect("same" in peer.stdout and "good" in peer.stdout, f"client: {peer.tail()}\n{server.tail()}")
    t.expect(took - base == 1 or pause == 0, f"{took - base} connections were carried")
    t.expect(received > moved["tcp_in"] or pause == 0, "the kernel received most of it")
    t.expect(moved["tcp_rst_out"] == 0, f"the kernel sent {moved['tcp_rst_out']} resets")
    end(server)


def rules(t: Test) -> int:
    """Entries for single connections in the steering tables of host B."""
    found = 0
    for line in subprocess.run(["bpftool", "map", "list"], capture_output=True, text=True).stdout.splitlines():
        if m := re.match(r"(\d+): \S+  name (exact[46])", line):
            dump = subprocess.run(["bpftool", "map", "dump", "id", m[1]], capture_output=True, text=True).stdout
            found += len(re.findall(r"^key:|\"key\"", dump, re.M))
    return found


def leaks(t: Test, shape: str) -> None:
    address = t.lab.address("B", 4)
    server = begin(t, address, shape, "", "proven")
    pids = [int(p) for p in server.stdout.split()[1:]] or [server.pid]

    def descriptors() -> list[int]:
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]

    def load() -> None:
        gate = t.logs / "gate"
        gate.touch()
        peer = t.start("A", PYTHON, "-c", CLIENT, address, str(PORT), str(gate), "6", str(WARM), "3", "plain", name="client")
        peer.wait(40)
        t.expect("6 good" in peer.stdout, f"client: {peer.tail()}\n{server.tail()}")
        time.sleep(0.5)
    load()
    load()
    first, had, base = descriptors(), rules(t), carried(server)[0]
    for _ in range(3):
        load()
    wait_until(lambda: descriptors() <= first and rules(t) <= had, 3)
    took, now, has = carried(server)[0] - base, descriptors(), rules(t)
    t.note(f"{took} carried; descriptors {first} then {now}; rules {had} then {has}")
    t.expect(took == 18, f"only {took} of 18 were carried")
    t.expect(all(b <= a for a, b in zip(first, now)), f"descriptors: {first}, then {now}")
    t.expect(has <= had, f"rules: {had}, then {has}")
    end(server)


def short(t: Test) -> None:
    """Fifteen questions each, one connection after the other, so that no worker joins the listener: none is carried, and no
    worker has made an engine for one."""
    address = t.lab.address("B", 4)
    server = begin(t, address, "epoll", "", "proven")
    gate = t.logs / "gate"
    gate.touch()
    for _ in range(10):
        t.start("A", PYTHON, "-c", CLIENT, address, str(PORT), str(gate), "1", "14", "1", "small", name="client").wait(40)
    took, received, _ = carried(server)
    t.note(f"{took} carried, {received} packets received by Vireo")
    t.expect(took == received == 0, f"{took} were carried")
    end(server)


def crowded(t: Test) -> None:
    """The workers wait for their processor longer than they run, as others take it."""
    one = ("taskset", "-c", "0")
    others = [t.start("B", PYTHON, "-c", "while True: pass", stack="kernel", name=f"other{n}", prefix=one) for n in range(3)]
    converse(t, 4, "epoll", promoted=False, promote=None, client="held", prefix=one)
    for other in others:
        other.kill()


for number in (4, 6):
    for shape in ("epoll", "epoll-edges", "poll", "select", "block"):
        suite.case(f"a worker that waits by {shape}, IPv{number}", ("kernel", "vireo"), seconds=90)(lambda t, n=number, s=shape: converse(t, n, s))
    for shape in ("children", "children-touched", "children-late"):
        suite.case(f"a parent that accepts: {shape}, IPv{number}", ("kernel", "vireo"), seconds=90)(lambda t, n=number, s=shape: converse(t, n, s))
    suite.case(f"unread data at that moment, IPv{number}", ("kernel", "vireo"), seconds=90)(lambda t, n=number: converse(t, n, "epoll", "pieces", client="pipelined"))
    suite.case(f"the peer sends all the time, IPv{number}", ("kernel", "vireo"), seconds=120)(lambda t, n=number: stream(t, n, "block"))
suite.case("the peer sends all the time, to a child", ("kernel", "vireo"), seconds=120)(lambda t: stream(t, 4, "children"))
suite.case("the peer sends as fast as it goes", ("kernel", "vireo"), seconds=120)(lambda t: stream(t, 4, "block", 0))
suite.case("carried by default", ("kernel", "vireo"), seconds=90)(lambda t: converse(t, 4, "epoll", promote=None, least=1))
suite.case("not carried: processors are short", ("kernel", "vireo"), seconds=90)(crowded)
suite.case("both ends carry", ("vireo", "vireo"), seconds=90)(lambda t: converse(t, 4, "epoll"))
suite.case("a child that runs another program without it", ("kernel", "vireo"), seconds=90)(lambda t: converse(t, 4, "epoll", "spawns"))
for what, shape, extra in (("a worker that has forked", "epoll", "forks"), ("a worker that has passed it on", "epoll", "passes"),
                           ("a worker with a second thread", "epoll", "thread"), ("a program that inherited it", "epoll", "inherits"),
                           ("an option that the kernel alone has", "epoll", "option"), ("a worker that asks once", "epoll-once", ""),
                           ("a parent that keeps it", "children-kept", ""), ("a parent with two children", "children-two", ""),
                           ("a child that has forked", "children", "forks")):
    suite.case(f"not carried: {what}", ("kernel", "vireo"), seconds=90)(lambda t, s=shape, e=extra: converse(t, 4, s, e, promoted=False, client="held"))
suite.case("not carried: short connections", ("kernel", "vireo"), seconds=90)(short)
suite.case("not carried: VIREO_PROMOTE=0", ("kernel", "vireo"), seconds=90)(lambda t: converse(t, 4, "epoll", promoted=False, promote="0"))
for shape in ("epoll", "children"):
    suite.case(f"nothing is left behind: {shape}", ("kernel", "vireo"), seconds=120)(lambda t, s=shape: leaks(t, s))



if __name__ == "__main__":
    suite.main()
