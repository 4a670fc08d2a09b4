#!/usr/bin/python3
"""Processes that accept connections of one port: each with its own listener (SO_REUSEPORT), or workers that share the
listener of their parent. Vireo carries them in all processes; one that is busy, stopped or killed holds up no client."""
import os
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT, PROCESSES, THREADS = 5041, 3, 6
suite = Suite("shared_ports")

# An event loop that returns what comes. "sleep N" makes it sleep without coming back to its wait. Its workers print their
# numbers, or it prints its own. The listener is its own, of the program that it was before an exec, or from another process.
SERVER = """
import os, selectors, socket, sys, time
address, port, workers, origin = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
family = socket.AF_INET6 if ":" in address else socket.AF_INET

def make():
    l = socket.socket(family, socket.SOCK_STREAM)
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if not workers:
        l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    l.bind((address, port))
    l.listen(256)
    return l

if origin == "exec":
    l = make()
    l.set_inheritable(True)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:-1], str(l.fileno())])
if origin == "passed":
    here, there = socket.socketpair()
    if os.fork() == 0:
        here.close()
        l = make()
        socket.send_fds(there, [b"x"], [l.fileno()])
        there.recv(1)
        os._exit(0)
    there.close()
    l = socket.socket(fileno=socket.recv_fds(here, 1, 1)[1][0])
    here.close()
elif origin == "own":
    l = make()
else:
    l = socket.socket(fileno=int(origin))
l.setblocking(False)

def serve():
    ready = selectors.DefaultSelector()
    ready.register(l, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is l:
                try:
                    c = l.accept()[0]
                except BlockingIOError:
                    continue
                c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ready.register(c, selectors.EVENT_READ)
                continue
            c = key.fileobj
            data = c.recv(65536)
            if data.startswith(b"sleep"):
                time.sleep(float(data.split()[1]))
            if data:
                c.setblocking(True)
                c.sendall(data)
                continue
            ready.unregister(c)
            c.close()

if not workers:
    print(os.getpid(), flush=True)
    serve()
pids = []
for _ in range(workers):
    pid = os.fork()
    if pid == 0:
        serve()
    pids.append(pid)
print(*pids, flush=True)
for pid in pids:
    os.waitpid(pid, 0)
"""

# Each thread holds a connection while it opens the next one. Prints how many were served, and how long the slowest took
# to connect and to get its first answer.
CLIENT = """
import os, socket, sys, threading, time
address, port, threads, connections = sys.argv[1], *map(int, sys.argv[2:])
good, slowest = [0] * threads, [0.0] * threads

def run(n):
    held = None
    for c in range(connections):
        begun = time.monotonic()
        s = socket.create_connection((address, port), timeout=20)
        for r in range(4):
            data = os.urandom((1, 100, 1500, 40000)[(r + n) % 4]).replace(b"s", b"S")
            s.sendall(data)
            got = b""
            while len(got) < len(data):
                got += s.recv(65536) or sys.exit("end of stream")
            assert got == data
            if r == 0:
                slowest[n] = max(slowest[n], time.monotonic() - begun)
        if held:
            held.close()
        held = s
        good[n] += 1
    held.close()

all = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
for t in all:
    t.start()
for t in all:
    t.join()
print(sum(good), max(slowest), flush=True)
"""


def own_listeners(t: Test, family: int) -> list[int]:
    servers = [t.start("B", PYTHON, "-c", SERVER, t.lab.address("B", family), str(PORT), "0", "own", name=f"server{n}") for n in range(PROCESSES)]
    for server in servers:
        t.expect(wait_until(lambda: server.stdout.strip().isdigit(), 20), f"no server\n{server.tail()}")
    return [int(server.stdout) for server in servers]


def workers(t: Test, family: int, promote: str = "1", origin: str = "own") -> list[int]:
    server = t.start("B", PYTHON, "-c", SERVER, t.lab.address("B", family), str(PORT), str(PROCESSES), origin, name="server",
                     env={"VIREO_PROMOTE": promote})
    t.expect(wait_until(lambda: len(server.stdout.split()) == PROCESSES, 20), f"no workers\n{server.tail()}")
    return [int(pid) for pid in server.stdout.split()]


def load(t: Test, family: int, connections: int) -> float:
    """@return the slowest connection's seconds. Each was served."""
    client = t.start("A", PYTHON, "-c", CLIENT, t.lab.address("B", family), str(PORT), str(THREADS), str(connections))
    client.wait(90)
    words = client.stdout.split()
    t.expect(len(words) == 2 and int(words[0]) == THREADS * connections, f"client: {client.tail()}")
    return float(words[1])


def carried_by(pids: list[int]) -> list[int]:
    return [sum(e["decisions"]["carried"] for e in counters.live(pid) if "decisions" in e) for pid in pids]


def moved(t: Test, before: dict) -> dict:
    after = counters.kernel_counters(t.lab, "B")
    return {name: after[name] - before[name] for name in after}


def end(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGTERM)


def rounds(t: Test) -> int:
    return 10 if t.options.quick else 400 if t.options.full else 60


def all_take_part(t: Test, family: int) -> None:
    pids = own_listeners(t, family)
    before, had = counters.kernel_counters(t.lab, "B"), carried_by(pids)
    slowest = load(t, family, rounds(t))
    kernel, got = moved(t, before), [now - then for now, then in zip(carried_by(pids), had)]
    t.note(f"connections by process: {got}; slowest {slowest:.3f} s; kernel of B: {kernel}")
    t.expect(sum(got) == THREADS * rounds(t), f"{sum(got)} of {THREADS * rounds(t)} connections were carried")
    if t.case.ends[0] == "kernel":  # Vireo's clients use few ports
        t.expect(min(got) >= sum(got) / PROCESSES / 3, f"the processes got {got}")
    for name in ("tcp_passive_opens", "tcp_data_out", "tcp_rst_out"):
        t.expect(kernel[name] == 0, f"{name}: {kernel[name]}")
    end(pids)


def workers_join(t: Test, family: int, promote: str = "1", origin: str = "own") -> None:
    pids = workers(t, family, promote, origin)
    load(t, family, 5 if promote == "1" else 30)  # by then each serves several connections at once
    before, had = counters.kernel_counters(t.lab, "B"), carried_by(pids)
    slowest = load(t, family, rounds(t))
    kernel, got = moved(t, before), [now - then for now, then in zip(carried_by(pids), had)]
    total = THREADS * rounds(t)
    t.note(f"connections by worker: {got}; slowest {slowest:.3f} s; kernel of B: {kernel}")
    t.expect(sum(got) >= 0.9 * total, f"{sum(got)} of {total} connections were carried")
    # By promotion alone, the kernel would have accepted each; what falls to it may be promoted, too.
    t.expect(kernel["tcp_passive_opens"] <= 0.1 * total, f"the kernel accepted {kernel['tcp_passive_opens']} of {total}")
    t.expect(kernel["tcp_rst_out"] == 0, f"the kernel sent {kernel['tcp_rst_out']} resets")
    end(pids)


def hold_up(t: Test, servers, seize, patience: float) -> None:
    """All connections are served although one process does not serve."""
    pids = servers(t, 4)
    load(t, 4, 5)
    release = seize(t, pids)
    there = [p for p in pids if os.path.exists(f"/proc/{p}")]
    before, had = counters.kernel_counters(t.lab, "B"), carried_by(there)
    each = 4 if t.options.quick else 20
    slowest = load(t, 4, each)
    kernel, got = moved(t, before), [now - then for now, then in zip(carried_by(there), had)]
    t.note(f"slowest {slowest:.3f} s; connections by process: {got}; kernel of B: {kernel}")
    t.expect(slowest < patience, f"a connection took {slowest:.3f} s")
    t.expect(sum(got) >= 0.9 * THREADS * each, f"{sum(got)} of {THREADS * each} connections were carried")
    t.expect(kernel["tcp_rst_out"] == 0, f"the kernel sent {kernel['tcp_rst_out']} resets")
    end(release())


def busy(t: Test, pids: list[int]):
    """Two of three sleep within their loops. Who gets these connections is not known: so there are some more."""
    lines = ("import socket, sys, time\n"
             "all = [socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) for _ in range(2)]\n"
             "for s in all: s.sendall(b'sleep 8')\n"
             "print('asleep', flush=True)\n"
             "time.sleep(9)\n")
    sleeper = t.start("A", PYTHON, "-c", lines, t.lab.address("B", 4), str(PORT), stack="kernel", name="sleeper")
    t.expect(wait_until(lambda: "asleep" in sleeper.stdout, 10), f"no sleeper\n{sleeper.tail()}")
    time.sleep(0.2)

    def release() -> list[int]:
        t.expect(sleeper.running, "it did not sleep long enough: nothing is shown")
        return pids
    return release


AT_ONCE = """
import socket, sys, time
address, port, slowest = sys.argv[1], int(sys.argv[2]), 0.0
dial = lambda: socket.create_connection((address, port), timeout=20)
for _ in range(int(sys.argv[3])):
    sleeper = dial()
    sleeper.sendall(b"x")
    sleeper.recv(1)
    begun = time.monotonic()
    sleeper.sendall(b"sleep 2")
    all = [dial() for _ in range(20)]
    for s in all: s.sendall(b"x")
    for s in all: assert s.recv(1) == b"x"
    slowest = max(slowest, time.monotonic() - begun)
    for s in all: s.close()
    sleeper.recv(7)
    sleeper.close()
print(slowest, flush=True)
"""


def left_waiting(t: Test) -> None:
    """A worker goes to sleep with connections in its queue: the others serve them."""
    pids, rounds = workers(t, 4), 2 if t.options.quick else 4
    load(t, 4, 5)
    client = t.start("A", PYTHON, "-c", AT_ONCE, t.lab.address("B", 4), str(PORT), str(rounds), name="at_once")
    client.wait(60)
    given = sum((e.get("engine") or {}).get("unaccepted_given", 0) for pid in pids for e in counters.live(pid))
    slowest = float(client.stdout or 99)
    t.note(f"slowest {slowest:.3f} s; {given} connections given to the kernel's listener")
    t.expect(given > 0, "no connection was left waiting: nothing is shown")
    t.expect(slowest < 1.0, f"a connection took {slowest:.3f} s")
    end(pids)


def stopped(t: Test, pids: list[int]):
    os.kill(pids[0], signal.SIGSTOP)
    time.sleep(2)

    def release() -> list[int]:
        os.kill(pids[0], signal.SIGCONT)
        return pids
    return release


def killed(t: Test, pids: list[int]):
    os.kill(pids[0], signal.SIGKILL)
    time.sleep(2)
    return lambda: pids[1:]


for number in (4, 6):
    for ends in (("kernel", "vireo"), ("vireo", "vireo")):
        suite.case(f"a listener each, IPv{number}, {ends[0]} to {ends[1]}", ends, seconds=150)(lambda t, number=number: all_take_part(t, number))
        suite.case(f"workers of one listener, IPv{number}, {ends[0]} to {ends[1]}", ends, seconds=150)(lambda t, number=number: workers_join(t, number))
suite.case("workers of one listener, VIREO_PROMOTE=proven", ("kernel", "vireo"), seconds=150)(lambda t: workers_join(t, 4, "proven"))
for origin in ("exec", "passed"):
    for number, promote in ((4, "1"), (6, "proven")):
        suite.case(f"workers of a listener from another program: {origin}, IPv{number}, VIREO_PROMOTE={promote}", ("kernel", "vireo"),
                   seconds=150)(lambda t, number=number, promote=promote, origin=origin: workers_join(t, number, promote, origin))
suite.case("two of three workers are busy", ("kernel", "vireo"), seconds=90)(lambda t: hold_up(t, workers, busy, 2.5))
suite.case("a worker sleeps while connections wait for it", ("kernel", "vireo"), seconds=90)(left_waiting)
suite.case("a worker is stopped", ("kernel", "vireo"), seconds=90)(lambda t: hold_up(t, workers, stopped, 0.9))
suite.case("a worker is killed", ("kernel", "vireo"), seconds=90)(lambda t: hold_up(t, workers, killed, 0.9))
suite.case("one of them is killed", ("kernel", "vireo"), seconds=90)(lambda t: hold_up(t, own_listeners, killed, 0.9))

if __name__ == "__main__":
    suite.main()
