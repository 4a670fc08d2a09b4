#!/usr/bin/python3
"""A server of several threads, each with sockets of its own, under VMA_RING_ALLOCATION_LOGIC_RX=thread: each thread's ring
carries its own, the kernel nothing, and the rings of threads that ended are taken over."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT, THREADS, ROUNDS = 5020, 4, 50
suite = Suite("rings")

# Two generations of threads; each thread echoes as many rounds as its number says, by TCP and by UDP, and keeps its sockets
# until the tester has looked.
SERVER = """
import os, socket, sys, threading, time
address, port, threads, rounds, go = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]

def serve(number, ready, served, leave):
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((address, port + number))
    l = socket.socket()
    l.bind((address, port + number))
    l.listen()
    ready.wait()
    c, _ = l.accept()
    while data := c.recv(100):
        c.sendall(data)
    for _ in range(rounds * (number % threads + 1)):
        data, peer = u.recvfrom(100)
        u.sendto(data, peer)
    served.wait()
    leave.wait()
    for s in (c, l, u):
        s.close()

for generation in range(2):
    ready, served, leave = (threading.Barrier(threads + 1) for _ in range(3))
    all = [threading.Thread(target=serve, args=(generation * threads + i, ready, served, leave)) for i in range(threads)]
    for t in all:
        t.start()
    ready.wait()
    print(f"ready {generation}", flush=True)
    served.wait()
    print(f"served {generation}", flush=True)
    while not os.path.exists(f"{go}{generation}"):
        time.sleep(0.02)
    leave.wait()
    for t in all:
        t.join()
    child = os.fork()  # the rings are the parent's, which goes on
    if child == 0:
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        sys.exit(f"the child ended with {status}")
    time.sleep(1.5)
print("left", flush=True)
while not os.path.exists(f"{go}2"):
    time.sleep(0.02)
"""

CLIENT = """
import socket, sys
address, port, first, threads, rounds = sys.argv[1], *map(int, sys.argv[2:6])
for number in range(first, first + threads):
    s = socket.create_connection((address, port + number))
    for i in range(rounds * (number % threads + 1)):
        s.sendall(b"t%06d" % i)
        assert s.recv(7, socket.MSG_WAITALL) == b"t%06d" % i
    s.close()
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.settimeout(5)
    u.connect((address, port + number))
    for i in range(rounds * (number % threads + 1)):
        u.send(b"u%06d" % i)
        assert u.recv(100) == b"u%06d" % i
    u.close()
"""


# Connections to as many ports; then what its peer owes it while no thread there is in a call, and how they end.
HOLDER = """
import array, errno, fcntl, socket, struct, sys, termios, time
address, port, threads, rounds = sys.argv[1], *map(int, sys.argv[2:5])
held = []
for number in range(threads):
    s = socket.create_connection((address, port + number))
    for i in range(rounds * (number + 1)):
        s.sendall(b"t%06d" % i)
        assert s.recv(7, socket.MSG_WAITALL) == b"t%06d" % i
    held.append(s)

def unacknowledged(s):
    left = array.array("i", [0])
    fcntl.ioctl(s, termios.TIOCOUTQ, left)
    return left[0]

for s in held:
    s.sendall(b"x" * 4000)
until = time.monotonic() + 2
while any(map(unacknowledged, held)) and time.monotonic() < until:
    time.sleep(0.01)
print("unacknowledged", [unacknowledged(s) for s in held], flush=True)
ends = []
for s in held:
    s.settimeout(5)
    try:
        ends.append("data" if s.recv(1) else "eof")
    except OSError as e:
        ends.append(errno.errorcode.get(e.errno, "timeout"))
print("ends", ends, flush=True)
"""

SILENT = """
import socket, sys, threading, time
address, port, threads, rounds = sys.argv[1], *map(int, sys.argv[2:5])
served = threading.Barrier(threads + 1)

def serve(number):
    l = socket.socket()
    l.bind((address, port + number))
    l.listen()
    c, _ = l.accept()
    for _ in range(rounds * (number + 1)):
        c.sendall(c.recv(7, socket.MSG_WAITALL))
    served.wait()
    time.sleep(60)

for i in range(threads):
    threading.Thread(target=serve, args=(i,), daemon=True).start()
served.wait()
print("silent", flush=True)
time.sleep(60)
"""


def run(t: Test, device: str, several: bool, env: dict[str, str]) -> None:
    t.options.device = device
    address, go = t.lab.address("B"), t.logs / "go"
    with t.proof("both", least=2 * ROUNDS * sum(range(1, THREADS + 1))):
        server = t.start("B", PYTHON, "-c", SERVER, address, str(PORT), str(THREADS), str(ROUNDS), str(go), name="server",
                         env={"VMA_RING_ALLOCATION_LOGIC_RX": "20", "VMA_RING_ALLOCATION_LOGIC_TX": "20"} | env)
        before = [0] * THREADS
        for generation in range(2):
            server.await_output(f"ready {generation}")
            first = generation * THREADS
            t.start("A", PYTHON, "-c", CLIENT, address, str(PORT), str(first), str(THREADS), str(ROUNDS),
                    name=f"client{generation}").wait(60)
            server.await_output(f"served {generation}")
            if not t.options.dry:
                before = look(t, server.pid, first, before, several)
            Path(f"{go}{generation}").touch()
        server.await_output("left")
        if not t.options.dry:
            process = counters.live(server.pid)[0]
            t.expect(not [s for s in process["sockets"] if not s["closed"]], f"left open: {process['sockets']}")
        t.snapshot()
        Path(f"{go}2").touch()
        server.wait(20)


def look(t: Test, pid: int, first: int, before: list[int], several: bool) -> list[int]:
    """What each ring has received since; by a port's own sockets and no others."""
    process = counters.live(pid)[0]
    rings = process["rings"]
    t.expect(len(rings) == (THREADS if several else 1), f"there are {len(rings)} rings")
    sizes = {r["pool_size"] for r in rings}  # the packet memory is the process's: 32 rings may be
    t.expect(sizes == {2048 if several else 16384}, f"packets of the rings: {sizes}")
    now = [r["rx_packets"] for r in rings] + [0] * (THREADS - len(rings))
    used = []
    for number in range(first, first + THREADS):
        own = [s for s in process["sockets"] if not s["closed"] and s["local"].endswith(f":{PORT + number}")]
        t.expect(len(own) == 3 and all(s["carried"] for s in own), f"sockets of thread {number}: {own}")
        ring, = {s["ring"] for s in own} if several else {0}
        used.append(ring)
        if not several:
            continue
        # Each question, and some of TCP's own: the handshake, acknowledgments, the end.
        questions = 2 * ROUNDS * (number % THREADS + 1)
        came = now[ring] - before[ring]
        t.expect(questions <= came <= 1.6 * questions + 20, f"thread {number}, ring {ring}: {came} frames for {questions} questions")
        t.expect(came >= sum(s["rx_packets"] for s in own), f"thread {number}: its sockets have more than its ring: {own}")
    t.expect(not several or sorted(used) == list(range(THREADS)), f"rings of the threads: {used}")
    t.note(f"rings of the threads: {used}")
    return now


for which in ("verbs", "mlx5"):
    @suite.case(f"four threads, a ring each, by {which}", ("kernel", "vireo"), seconds=120)
    def _(t: Test, which=which) -> None:
        run(t, which, True, {})


for which in ("verbs", "mlx5"):
    @suite.case(f"rings that no thread polls acknowledge, and the peers of all hear of a kill, by {which}", ("kernel", "vireo"),
                seconds=60)
    def _(t: Test, which=which) -> None:
        t.options.device = which
        arguments = t.lab.address("B"), str(PORT), str(THREADS), str(ROUNDS)
        server = t.start("B", PYTHON, "-c", SILENT, *arguments, name="server", env={"VMA_RING_ALLOCATION_LOGIC_RX": "20"})
        for number in range(THREADS):
            t.await_port("B", PORT + number)
        holder = t.start("A", PYTHON, "-c", HOLDER, *arguments, name="holder")
        server.await_output("silent")
        holder.await_output("unacknowledged")
        t.expect(f"unacknowledged {[0] * THREADS}" in holder.stdout, holder.stdout)
        if not t.options.dry:
            t.expect(len(counters.live(server.pid)[0]["rings"]) == THREADS, "not a ring each")
        server.kill()
        holder.wait(20)
        t.expect(f"ends {['ECONNRESET'] * THREADS}" in holder.stdout, holder.stdout)


@suite.case("AF_XDP has one ring for all threads, and says so once", ("kernel", "vireo"), seconds=120)
def _(t: Test) -> None:
    log = t.logs / "vireo.log"
    run(t, "xdp", False, {"VMA_LOG_FILE": str(log), "VMA_TRACELEVEL": "info"})
    if not t.options.dry:
        said = [line for line in log.read_text().splitlines() if "VMA_RING_ALLOCATION_LOGIC_RX" in line]
        t.expect(len(said) == 1 and "one ring" in said[0], str(said))


if __name__ == "__main__":
    suite.main()
