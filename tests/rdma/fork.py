#!/usr/bin/python3
"""Children of a fork that open sockets of their own. By AF_XDP they share the interface with their parent. An RDMA device in
software can serve one process: while the parent has it they are the kernel's, which one line says; once it is free they carry."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT, CHILDREN = 5021, 20
suite = Suite("fork")

ECHO = """
import socket, sys, threading
def serve(c):
    while data := c.recv(100):
        c.sendall(data)
    c.close()
l = socket.create_server(("", int(sys.argv[1])), backlog=64)
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
"""

# Two threads keep their own connections busy while the main one forks; each child opens a connection and a datagram socket.
PARENT = """
import os, socket, sys, threading, time
address, port, children, stop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), threading.Event()

def ask(s, n):
    for i in range(n):
        s.sendall(b"%08d" % i)
        assert s.recv(8, socket.MSG_WAITALL) == b"%08d" % i

def busy():
    with socket.create_connection((address, port)) as s:
        ask(s, 1)
        ready.wait()
        while not stop.is_set():
            ask(s, 10)

def child():
    s = socket.create_connection((address, port), timeout=5)
    ask(s, 20)
    l = socket.create_server(("", 0))
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.connect((address, port))
    u.send(b"nobody answers")
    for one in (s, l, u):
        one.close()

ready = threading.Barrier(3)
threads = [threading.Thread(target=busy) for _ in range(2)]
for t in threads:
    t.start()
ready.wait()
for n in range(children):
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    until = time.monotonic() + 10
    while (done := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < until:
        time.sleep(0.01)
    if done[0] == 0:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os._exit(print(f"child {n} hangs", flush=True) or 1)
    if done[1] != 0:
        os._exit(print(f"child {n} ended with status {done[1]}", flush=True) or 1)
stop.set()
for t in threads:
    t.join()
print("parent goes on")
"""

# The child waits until its parent, and with it the device, is gone.
HEIR = """
import os, socket, sys, time
address, port, free, seen = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]

def wait_for(file):
    while not os.path.exists(file):
        time.sleep(0.01)

def ask(s):
    s.sendall(b"hello")
    assert s.recv(5, socket.MSG_WAITALL) == b"hello"

s = socket.create_connection((address, port))
ask(s)
if os.fork() != 0:
    os._exit(0)
wait_for(free)
with socket.create_connection((address, port)) as own:
    ask(own)
    print(f"heir {os.getpid()}", flush=True)
    wait_for(seen)
"""


def start_echo(t: Test) -> None:
    t.start("B", PYTHON, "-c", ECHO, str(PORT), name="echo")
    t.await_port("B", PORT)


for which in ("xdp", "verbs", "mlx5"):
    @suite.case(f"children open sockets while threads of the parent carry, {which}", ("vireo", "kernel"), seconds=120)
    def _(t: Test, which=which) -> None:
        t.options.device = which
        start_echo(t)
        before = counters.kernel_counters(t.lab, "A")["tcp_data_out"]
        parent = t.start("A", PYTHON, "-c", PARENT, t.lab.address("B"), str(PORT), str(CHILDREN), name="parent")
        parent.wait(100)
        t.expect("parent goes on" in parent.stdout, parent.stdout)
        if t.options.dry:
            return
        said = parent.stderr.splitlines()
        sent = counters.kernel_counters(t.lab, "A")["tcp_data_out"] - before
        t.note(f"the kernel sent {sent} segments with data")
        if which == "xdp":
            t.expect(not said and sent == 0, f"the kernel sent {sent} segments of the children: {parent.stderr!r}")
        else:
            t.expect(sent >= CHILDREN and len(said) == CHILDREN and all("another process (of a fork: the parent)" in line for line in said),
                     f"one line of each child was due: {parent.stderr!r}")
        rx, tx = counters.engine_packets(t.vireo_processes("A"))
        t.expect(min(rx, tx) > 0, f"the parent carried nothing: rx {rx} tx {tx}")

    @suite.case(f"a child carries once its parent is gone, {which}", ("vireo", "kernel"), seconds=60)
    def _(t: Test, which=which) -> None:
        t.options.device = which
        start_echo(t)
        free, seen = t.logs / "free", t.logs / "seen"
        program = t.start("A", PYTHON, "-c", HEIR, t.lab.address("B"), str(PORT), str(free), str(seen), name="heir")
        program.wait(15)
        t.expect(wait_until(lambda: "xdp" not in t.lab.run("A", "ip", "link", "show", t.lab.device).stdout, 5),
                 "the device is still the parent's")
        free.touch()
        t.expect(wait_until(lambda: "heir" in program.stdout, 15), f"no heir\n{program.tail()}")
        if not t.options.dry:
            process, = counters.live(int(program.stdout.split()[1]))
            own = [s for s in process["sockets"] if not s["closed"] and s["carried"]]
            t.expect(len(own) == 1 and process["ports"][0]["mode"] in (which, "native copy"), f"not carried: {process}")
        seen.touch()


if __name__ == "__main__":
    suite.main()
