#!/usr/bin/python3
"""A carried socket that another process is to have becomes the kernel's: passed by SCM_RIGHTS, or accepted and then forked for."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5007
suite = Suite("hand_over")

# The peer: an echo server, and one that dials and talks.
PEER = """
import socket, sys, threading
what, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
def echo(c):
    while data := c.recv(65536):
        c.sendall(data)
    c.close()
if what == "echo":
    l = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    while True:
        threading.Thread(target=echo, args=(l.accept()[0],), daemon=True).start()
for i in range(int(sys.argv[4])):
    c = socket.create_connection((host, port))
    got = b""
    for n in (1, 1000, 100_000):
        text = bytes([65 + i % 26]) * n
        def write(): c.sendall(text)
        t = threading.Thread(target=write)
        t.start()
        got = b""
        while len(got) < n:
            data = c.recv(65536)
            assert data, f"{i}: the end after {len(got)} bytes of {n}"
            got += data
        t.join()
        assert got == text, f"{i}: other bytes"
    c.shutdown(socket.SHUT_WR)
    assert c.recv(1) == b"", "more than was sent"
    c.close()
print("talked", sys.argv[4])
"""

# Sends on a connection, has something unread and something not acknowledged, passes it to a process that was there before, and
# goes on with another. Prints what both got.
PASSING = """
import os, socket, struct, sys, time
host, port = sys.argv[1], int(sys.argv[2])
mine, other = socket.socketpair()
child = os.fork()
def exactly(s, n):
    got = b""
    while len(got) < n:
        data = s.recv(n - len(got))
        if not data: return got + b"<end>"
        got += data
    return got
if child == 0:
    mine.close()
    _, (fd,), _, _ = socket.recv_fds(other, 10, 1)
    s = socket.socket(fileno=fd)
    print("child has", s.family.name, s.getpeername()[1] == port, s.getsockopt(6, 1), s.gettimeout())
    print("child reads", exactly(s, 7))
    s.sendall(b"from the child")
    print("child reads", exactly(s, 14))
    text = os.urandom(1 << 20)
    import threading
    t = threading.Thread(target=s.sendall, args=(text,)); t.start()
    print("child's megabyte", exactly(s, len(text)) == text); t.join()
    s.shutdown(socket.SHUT_WR)
    print("child reads", s.recv(10))
    os._exit(0)
other.close()
s = socket.create_connection((host, port))
keep = socket.create_connection((host, port))
s.setsockopt(6, 1, 1)
s.sendall(b"first"); print("parent reads", exactly(s, 5))
s.sendall(b"unread!"); time.sleep(0.2)
sys.stdout.flush()
socket.send_fds(mine, [b"x"], [s.fileno()])
s.close()
print("child ends", os.waitpid(child, 0)[1])
keep.sendall(b"goes on"); print("parent reads", exactly(keep, 7))
"""

# The classic: accepts, forks, closes its copy; the child serves.
FORKING = """
import os, socket, sys
host, port, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
l = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=50)
for _ in range(n):
    c, _ = l.accept()
    if os.fork() == 0:
        l.close()
        while data := c.recv(65536):
            c.sendall(data)
        os._exit(0)
    c.close()
for _ in range(n):
    os.wait()
print("served", n)
"""


# And the other: a master that listens, and workers that accept. Whoever was first serves.
WORKERS = """
import os, selectors, signal, socket, sys
host, port, n = sys.argv[1], int(sys.argv[2]), 3
l = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=50)
l.setblocking(False)
workers = []
for _ in range(n):
    workers.append(os.fork())
    if workers[-1] == 0:
        s = selectors.DefaultSelector()
        s.register(l, selectors.EVENT_READ)
        while True:
            for key, _ in s.select():
                if key.fileobj is l:
                    try: c = l.accept()[0]
                    except BlockingIOError: continue
                    s.register(c, selectors.EVENT_READ)
                elif data := key.fileobj.recv(65536):
                    key.fileobj.setblocking(True)
                    key.fileobj.sendall(data)
                else:
                    s.unregister(key.fileobj)
                    key.fileobj.close()
first = socket.create_connection((sys.argv[3], port + 1))  # the master has one that is carried
first.sendall(b"hello"); assert first.recv(5) == b"hello"
try: signal.pause()
except KeyboardInterrupt: pass
for w in workers: os.kill(w, signal.SIGKILL)
"""


def is_carried(t: Test, host: str) -> None:
    if not t.options.dry:
        rx, tx = counters.engine_packets(t.vireo_processes(host))
        t.expect(min(rx, tx) > 0, f"nothing was carried: rx {rx} tx {tx}")


for family in (4, 6):
    @suite.case(f"a connection is passed to another process, IPv{family}", ("vireo", "kernel"))
    def _(t: Test, family=family) -> None:
        address = t.lab.address("B", family)
        t.start("B", PYTHON, "-c", PEER, "echo", address, str(PORT), name="echo", stack="kernel")
        t.await_port("B", PORT)
        texts = []
        for stack in ("kernel", "vireo"):
            done = t.start("A", PYTHON, "-u", "-c", PASSING, address, str(PORT), name=f"passing-{stack}", stack=stack)
            done.wait(30)
            texts.append(done.stdout)
            t.expect(done.stderr == "", f"on stderr: {done.stderr}")
        t.expect(texts[0] == texts[1], f"--- kernel\n{texts[0]}\n--- vireo\n{texts[1]}")
        t.expect("child's megabyte True" in texts[0], texts[0])
        is_carried(t, "A")

    @suite.case(f"a server that forks for each connection, IPv{family}", ("kernel", "vireo"))
    def _(t: Test, family=family) -> None:
        address, n = t.lab.address("B", family), "70"
        server = t.start("B", PYTHON, "-c", FORKING, address, str(PORT), n, name="forking")
        t.await_port("B", PORT)
        client = t.start("A", PYTHON, "-c", PEER, "dial", address, str(PORT), n, name="dial")
        client.wait(50)
        server.wait(20)
        t.expect(client.stdout == f"talked {n}\n" and server.stdout == f"served {n}\n",
                 f"client printed {client.stdout!r}, server {server.stdout!r}")
        t.expect(server.stderr == "", f"on stderr: {server.stderr}")
        is_carried(t, "B")


    @suite.case(f"a server that forks its workers, IPv{family}", ("kernel", "vireo"))
    def _(t: Test, family=family) -> None:
        address, peer, n = t.lab.address("B", family), t.lab.address("A", family), "30"
        t.start("A", PYTHON, "-c", PEER, "echo", peer, str(PORT + 1), name="echo")
        t.await_port("A", PORT + 1)
        server = t.start("B", PYTHON, "-c", WORKERS, address, str(PORT), peer, name="workers")
        t.await_port("B", PORT)
        client = t.start("A", PYTHON, "-c", PEER, "dial", address, str(PORT), n, name="dial")
        client.wait(30)
        t.expect(client.stdout == f"talked {n}\n", f"client printed {client.stdout!r}")
        t.stop(server)
        t.expect(server.stderr == "", f"on stderr: {server.stderr}")
        is_carried(t, "B")


if __name__ == "__main__":
    suite.main()
