#!/usr/bin/python3
"""Connections that a program has not accepted when its listener becomes the kernel's, or when one of several workers closes it
or ends: the kernel's listener has them, with all that came, and nobody is reset."""
import os
import signal
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5042
suite = Suite("unaccepted")

# Listens, and leaves accepting to a child that it forks when it is told to.
FORKS_LATE = """
import os, signal, socket, sys
address, port, connections = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
l = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind((address, port))
l.listen(256)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("listens", flush=True)
signal.sigwait([signal.SIGUSR1])
if os.fork() == 0:
    all = []  # not in the order of the client's calls: a handshake may be complete before an earlier one's last ACK has come
    for _ in range(connections):
        all.append(l.accept()[0])
        data = b""
        while not data.endswith(b"."):
            data += all[-1].recv(65536) or sys.exit("end of stream")
        all[-1].sendall(data)
    for c in all: assert c.recv(1) == b""
    print("served", flush=True)
    os._exit(0)
os.wait()
signal.sigwait([signal.SIGUSR1])
"""

# Connections that say 0 to 36,000 bytes and then wait for a server that accepts.
WAITS = """
import os, signal, socket, sys
address, port, connections = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
all = []
for n in range(connections):
    s = socket.create_connection((address, port), timeout=20)
    data = os.urandom(n * 36000 // connections).replace(b".", b",")
    s.sendall(data)
    all.append((s, data))
print("connected", flush=True)
signal.sigwait([signal.SIGUSR1])
for s, _ in all: s.sendall(b".")
for n, (s, data) in enumerate(all):
    got = b""
    while len(got) <= len(data):
        got += s.recv(65536) or sys.exit(f"connection {n}: end of stream")
    assert got == data + b".", n
    s.close()
print("good", flush=True)
"""

# An event loop in each of three workers, which a parent replaces again and again; the old ones serve what they have and end.
# "close": they close the listener at once; "exit": they end with it open, and with what they hold if that is nothing.
REPLACED = """
import os, selectors, signal, socket, sys, time
address, port, rounds, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
l = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind((address, port))
l.listen(512)
l.setblocking(False)

def serve():
    ready = selectors.DefaultSelector()
    ready.register(l, selectors.EVENT_READ)
    end, told = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(told, b"x"))
    ready.register(end, selectors.EVENT_READ)
    is_told, held = False, 0
    while not is_told or held:
        for key, _ in ready.select():
            if key.fileobj is l:
                if is_told:
                    continue
                try:
                    c = l.accept()[0]
                except BlockingIOError:
                    continue
                c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ready.register(c, selectors.EVENT_READ)
                held += 1
                continue
            if key.fileobj == end:
                os.read(end, 1)
                is_told = True
                ready.unregister(l)
                if how == "close":
                    l.close()
                continue
            c = key.fileobj
            data = c.recv(65536)
            if data:
                c.setblocking(True)
                c.sendall(data)
                continue
            ready.unregister(c)
            c.close()
            held -= 1
    sys.exit(0)

def begin():
    pids = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            serve()
        pids.append(pid)
    return pids

workers = begin()
print("serves", flush=True)
for _ in range(rounds):
    time.sleep(0.3)
    old, workers = workers, begin()
    for pid in old:
        os.kill(pid, signal.SIGTERM)
    for pid in old:
        os.waitpid(pid, 0)
print("replaced", flush=True)
time.sleep(0.5)
for pid in workers:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""

# 300 connections a second, each with two requests; prints how many went well, what went wrong, and the slowest in seconds.
LOAD = """
import asyncio, collections, os, sys, time
address, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
good, slowest, wrong = 0, 0.0, collections.Counter()

async def one(n):
    global good, slowest
    begun = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection(address, port)
        for size in (1 + n % 3000, 10):
            data = os.urandom(size)
            writer.write(data)
            assert await reader.readexactly(size) == data
            slowest = max(slowest, time.monotonic() - begun)
            await asyncio.sleep(0.01)
        writer.close()
        await writer.wait_closed()
        good += 1
    except Exception as e:
        wrong[repr(e)[:60]] += 1

async def main():
    begun, n, under_way = time.monotonic(), 0, set()
    while time.monotonic() - begun < seconds:
        while n < (time.monotonic() - begun) * 300:
            task = asyncio.create_task(asyncio.wait_for(one(n), 15))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            n += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*under_way, return_exceptions=True)
    print(n, good, round(slowest, 3), dict(wrong), flush=True)

asyncio.run(main())
"""


def total(t: Test, name: str) -> int:
    """A counter of the engines of all processes on B, of those that have ended, too."""
    return sum((p.get("engine") or {}).get(name, 0) for p in t.vireo_processes("B"))


def waiting(t: Test, family: int) -> None:
    address, n = t.lab.address("B", family), 40
    server = t.start("B", PYTHON, "-c", FORKS_LATE, address, str(PORT), str(n), name="server")
    t.expect(wait_until(lambda: "listens" in server.stdout, 20), f"no server\n{server.tail()}")
    before = counters.kernel_counters(t.lab, "B")
    client = t.start("A", PYTHON, "-c", WAITS, address, str(PORT), str(n), name="client")
    t.expect(wait_until(lambda: "connected" in client.stdout, 20), f"no connections\n{client.tail()}")
    os.kill(server.pid, signal.SIGUSR1)
    os.kill(client.pid, signal.SIGUSR1)
    client.wait(30)
    moved = counters.delta(before, counters.kernel_counters(t.lab, "B"))
    given = sum((e.get("engine") or {}).get("unaccepted_given", 0) for e in counters.live(server.pid))
    t.note(f"{given} of {n} connections given; kernel of B: resets {moved['tcp_rst_out']}, segments {moved['tcp_in']}")
    t.expect(client.stdout.split() == ["connected", "good"], f"{client.stdout}{client.stderr}")
    t.expect(wait_until(lambda: "served" in server.stdout, 10), f"server: {server.tail()}")
    t.expect(given == n, f"{given} of {n} connections were given to the kernel's listener")
    t.expect(moved["tcp_rst_out"] == 0, f"{moved['tcp_rst_out']} resets")
    os.kill(server.pid, signal.SIGUSR1)


def replaced(t: Test, family: int, how: str) -> None:
    address, rounds = t.lab.address("B", family), 5 if t.options.quick else 200 if t.options.full else 25
    server = t.start("B", PYTHON, "-c", REPLACED, address, str(PORT), str(rounds), how, name="server", env={"VIREO_PROMOTE": "1"})
    t.expect(wait_until(lambda: "serves" in server.stdout, 20), f"no server\n{server.tail()}")
    before = counters.kernel_counters(t.lab, "B")
    client = t.start("A", PYTHON, "-c", LOAD, address, str(PORT), str(rounds * 0.35), name="client")
    client.wait(rounds * 0.35 + 30)
    moved = counters.delta(before, counters.kernel_counters(t.lab, "B"))
    server.wait(rounds * 1.0 + 30)
    words = client.stdout.split(maxsplit=3)
    t.expect(len(words) == 4, f"client: {client.tail()}")
    begun, good, slowest, wrong = int(words[0]), int(words[1]), float(words[2]), words[3]
    accepted, given = begun - moved["tcp_passive_opens"], total(t, "unaccepted_given")
    t.note(f"{good} of {begun} connections served, the slowest {slowest} s; {accepted} opened by Vireo, {given} of them given to the kernel "
           f"unaccepted; the kernel's resets: {moved['tcp_rst_out']}")
    t.expect(good == begun, f"{begun - good} of {begun} connections failed: {wrong}")
    t.expect(accepted > 0.2 * begun, f"Vireo opened {accepted} of {begun}")
    t.expect(t.options.quick or given > 0, "nothing was given: nothing is shown")
    t.expect(slowest < 3.0, f"a connection took {slowest} s")


for number in (4, 6):
    for ends in (("kernel", "vireo"), ("vireo", "vireo")):
        suite.case(f"they wait when a child is to accept them, IPv{number}, {ends[0]} to {ends[1]}", ends)(lambda t, number=number: waiting(t, number))
suite.case("workers that close their listener", ("kernel", "vireo"), seconds=400)(lambda t: replaced(t, 4, "close"))
suite.case("workers that close their listener, IPv6, Vireo's client", ("vireo", "vireo"), seconds=400)(lambda t: replaced(t, 6, "close"))
suite.case("workers that end with their listener open", ("kernel", "vireo"), seconds=400)(lambda t: replaced(t, 4, "exit"))

if __name__ == "__main__":
    suite.main()
