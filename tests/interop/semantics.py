#!/usr/bin/python3
"""One script of socket calls on the kernel's sockets and on Vireo's: every answer is the same (semantics.cpp)."""
import difflib
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import program  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5006
suite = Suite("semantics")

# What is done to a connection, by its first line; and datagrams: as many answers as asked for, the empty one comes back.
PEER = """
import socket, struct, sys, threading, time
port, ends = int(sys.argv[1]), {}

def end_of(c):
    try:
        while True:
            if not c.recv(4096):
                return "eof"
    except OSError as e:
        return type(e).__name__

def serve(c, peer):
    line = b""
    while not line.endswith(b"\\n"):
        byte = c.recv(1)
        if not byte:
            return c.close()
        line += byte
    what, *numbers = line.decode().split()
    numbers = [int(n) for n in numbers]
    if what == "echo":
        while data := c.recv(4096):
            c.sendall(data)
    elif what in ("send", "sendclose", "sendreset"):
        if numbers[0]:
            c.sendall(b"x" * numbers[0])
        if what == "send":
            end_of(c)
        if what == "sendreset":
            time.sleep(0.1)
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif what == "slow":
        for _ in range(numbers[0]):
            time.sleep(numbers[1] / 1000)
            c.sendall(b"s")
        end_of(c)
    elif what == "later":
        time.sleep(numbers[0] / 1000)
        c.sendall(b"l")
        end_of(c)
    elif what == "sink":
        n = 0
        while data := c.recv(4096):
            n += len(data)
        c.sendall(b"%d" % n)
    elif what == "hold":
        time.sleep(8)
    elif what == "how":
        if numbers[0] == 3:
            c.sendall(b"unread")
        ends[numbers[0]] = end_of(c)
    elif what == "tell":
        c.sendall(repr(sorted(ends.items())).encode())
        ends.clear()
    elif what == "dial":
        d = socket.create_connection((peer[0], numbers[0]))
        d.sendall(b"dialled")
        end_of(d)
        d.close()
    c.close()

def safely(c, peer):
    try:
        serve(c, peer)
    except OSError:
        c.close()

def datagrams():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(("", port))
    while True:
        data, peer = u.recvfrom(70000)
        for i in range(int(data) if data.isdigit() else 1):
            u.sendto(b"answer %d, of 20 bytes"[:20] % i if data else b"", peer)

threading.Thread(target=datagrams, daemon=True).start()
l = socket.create_server(("", port), backlog=64)
while True:
    threading.Thread(target=safely, args=l.accept(), daemon=True).start()
"""


# Calls of connections and datagrams; odd arguments, pipes, files, ancillary data; descriptors and who waits for them; io_uring; what
# programs do beside calls of sockets; signals, calls by number, and calls that libc and the kernel make; pointers that lead nowhere.
SCRIPTS = {"semantics": 300, "semantics_io": 250, "semantics_fds": 250, "semantics_ring": 15, "semantics_programs": 40,
           "semantics_signals": 40, "semantics_faults": 150}  # by the answers they have at least


def answers(t: Test, script: str, stack: str, spec: str) -> list[str]:
    done = t.start("A", str(program(f"tests/interop/{script}.cpp")), t.lab.address("B"), str(PORT), name=f"script-{stack}",
                   stack=stack, env={"VMA_SPEC": spec})
    done.wait(60)
    return done.stdout.splitlines()


def compare(t: Test, script: str, spec: str) -> None:
    t.start("B", PYTHON, "-c", PEER, str(PORT), name="peer", stack="kernel")
    t.await_port("B", PORT)
    t.lab.run("B", "sysctl", "-w", "net.ipv4.icmp_ratelimit=0")  # each error is told
    kernel, ours = (answers(t, script, stack, spec) for stack in ("kernel", "vireo"))
    t.expect(len(kernel) > SCRIPTS[script], "\n".join(kernel[-10:]))
    differ = [line for line in difflib.unified_diff(kernel, ours, "kernel", "vireo", lineterm="", n=1)]
    t.expect(not differ, "\n".join(differ))
    if not t.options.dry:
        rx, tx = counters.engine_packets(t.vireo_processes("A"))
        t.expect(min(rx, tx) > 0, f"nothing was carried: rx {rx} tx {tx}")


for script in SCRIPTS:
    for spec in ("none", "latency"):  # asleep, and never sleeping
        suite.case(f"{script}: every answer is the kernel's, profile {spec}", ("vireo", "kernel"), seconds=150)(
            lambda t, script=script, spec=spec: compare(t, script, spec))


@suite.case("a process ends with the last thread of its own", ("vireo", "kernel"), seconds=30)
def _(t: Test) -> None:
    t.start("B", PYTHON, "-c", PEER, str(PORT), name="peer", stack="kernel")
    t.await_port("B", PORT)
    with t.proof("tcp", least=3, hosts="A"):
        done = t.start("A", str(program("tests/interop/last_thread.cpp")), t.lab.address("B"), str(PORT), name="threads")
        done.wait(10)
    t.expect(done.stdout == "echo: yes\n", f"it printed {done.stdout!r}")


@suite.case("numbers beyond the table: nothing is lost, nothing leaks", ("vireo", "kernel"), seconds=30)
def _(t: Test) -> None:
    t.start("B", PYTHON, "-c", PEER, str(PORT), name="peer", stack="kernel")
    t.await_port("B", PORT)
    with t.proof("tcp", least=3, hosts="A"):
        done = t.start("A", str(program("tests/interop/beyond_table.cpp", "-rdynamic")), t.lab.address("B"), str(PORT), name="beyond")
        done.wait(10)
    t.expect(done.stdout == "accept: EMFILE, EMFILE\nopen: the same\naccepted: dialled\ndup: EMFILE\ndup2: EBADF\nopen: the same\n",
             f"it printed {done.stdout!r}")


if __name__ == "__main__":
    suite.main()
