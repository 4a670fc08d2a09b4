#!/usr/bin/python3
"""A carried socket that another process is to have becomes the kernel's: passed by SCM_RIGHTS, or accepted and then forked for."""
import json
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.peers import LINE_OF  # noqa: E402
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

EXACTLY = """
def exactly(s, n):
    got = b""
    while len(got) < n:
        data = s.recv(n - len(got))
        if not data: return got + b"<end>"
        got += data
    return got
"""

# Sends on a connection, has something unread and something not acknowledged, passes it to a process that was there before, and
# goes on with another. Prints what both got.
PASSING = EXACTLY + """
import os, socket, struct, sys, time
host, port = sys.argv[1], int(sys.argv[2])
mine, other = socket.socketpair()
child = os.fork()
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


# What each of the scripts below begins with. A: ours, PEER: what the peer does is the first line of its connection.
COMMON = EXACTLY + """
import array, fcntl, hashlib, os, select, signal, socket, struct, sys, threading, time
host, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in host else socket.AF_INET
def dial(what):
    s = socket.create_connection((host, port))
    s.sendall(what.encode() + b"\\n")
    return s
def error_of(call):
    try: return call()
    except OSError as e: return type(e).__name__
def receiver(serve, *keep):
    # A process that is there before the socket is, and is given it. -> pass it a socket; wait for its end
    mine, other = socket.socketpair()
    child = os.fork()
    if child == 0:
        mine.close()
        _, fds, _, _ = socket.recv_fds(other, 10, 9)
        try: serve(*[socket.socket(fileno=fd) for fd in fds])
        except BaseException as e: print("child:", repr(e))
        sys.stdout.flush()
        os._exit(0)
    other.close()
    def give(*sockets):
        sys.stdout.flush()
        socket.send_fds(mine, [b"x"], [s.fileno() for s in sockets])
    def wait():
        print("child ends", os.waitpid(child, 0)[1])
    return give, wait
"""

# The first line says what is done with a connection.
PEERS = LINE_OF + """
import hashlib, socket, sys, threading, time
host, port = sys.argv[1], int(sys.argv[2])
def serve(c):
    what, *rest = line_of(c) or ["nothing"]
    if what == "echo":
        while data := c.recv(65536): c.sendall(data)
    elif what == "sink":  # reads after a while; says how much, and what
        time.sleep(float(rest[0]))
        n, sha = 0, hashlib.sha256()
        while data := c.recv(65536):
            n += len(data); sha.update(data)
        c.sendall(b"%d %s\\n" % (n, sha.hexdigest().encode()))
    elif what == "source":  # so many bytes, of a kind, then the end
        c.sendall(b"0123456789" * (int(rest[0]) // 10))
        c.shutdown(socket.SHUT_WR)
        while c.recv(65536): pass
    elif what == "stream":  # so many blocks, each with its number, so many a second
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = time.monotonic()
        for i in range(int(rest[0])):
            c.sendall(i.to_bytes(4, "big") * 250)
            while time.monotonic() - begin < i / int(rest[1]): pass
        c.shutdown(socket.SHUT_WR)
        while c.recv(65536): pass
    elif what == "datagrams":  # so many, numbered, to that port, so many a second
        u = socket.socket(l.family, socket.SOCK_DGRAM)
        u.connect((c.getpeername()[0], int(rest[0])))
        begin = time.monotonic()
        for i in range(int(rest[1])):
            u.send(i.to_bytes(4, "big") * 16)
            while time.monotonic() - begin < i / int(rest[2]): pass
        c.sendall(b"sent\\n")
    elif what == "dial":  # and speaks when it is told to
        d = socket.create_connection((rest[0], int(rest[1])))
        line_of(c)
        d.sendall(b"hello")
        c.sendall(d.recv(5) + b"\\n")
        d.close()
    c.close()
def safely(c):
    try: serve(c)
    except OSError: c.close()
l = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=50)
while True:
    threading.Thread(target=safely, args=(l.accept()[0],), daemon=True).start()
"""

# What is compared with the kernel: each script's output, line by line.
COMPARED = {
    "options and timeouts go with it": """
def show(s):
    ask = lambda level, name: s.getsockopt(level, name)
    print("options", [ask(6, n) for n in (1, 4, 5, 6, 8, 18)], [ask(1, n) for n in (2, 9, 10, 12, 18)])
    print("linger", s.getsockopt(1, 13, 8), "timeouts", s.getsockopt(1, 20, 16), s.getsockopt(1, 21, 16))
    print("buffers", ask(1, 7), ask(1, 8), "fixed", ask(1, 72), "cc", s.getsockopt(6, 13, 16).rstrip(b"\\0"), "device", s.getsockopt(1, 25, 16))
    print("ip", ask(41, 67) if family == socket.AF_INET6 else ask(0, 1), ask(41, 16) if family == socket.AF_INET6 else ask(0, 2))
    print("names", s.getsockname()[0], s.getpeername(), bool(fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK))
    start = time.monotonic()
    print("recv", error_of(lambda: s.recv(1)), 0.2 < time.monotonic() - start < 3)
def child(s):
    time.sleep(1)  # so that the other's recv ends first
    show(s); s.sendall(b"x"); print(exactly(s, 1))
give, wait = receiver(child)
s = dial("echo")
for name, v in ((1, 1), (4, 33), (5, 11), (6, 3), (8, 7), (18, 20000)): s.setsockopt(6, name, v)
for name, v in ((2, 1), (9, 1), (10, 1), (12, 5), (18, 1)): s.setsockopt(1, name, v)
s.setsockopt(1, 13, struct.pack("ii", 1, 3))
s.setsockopt(1, 20, struct.pack("ll", 0, 300000)); s.setsockopt(1, 21, struct.pack("ll", 7, 0))
s.setsockopt(1, 7, 70000); s.setsockopt(1, 8, 90000); s.setsockopt(6, 13, b"reno")
if family == socket.AF_INET6: s.setsockopt(41, 67, 32); s.setsockopt(41, 16, 77)
else: s.setsockopt(0, 1, 16); s.setsockopt(0, 2, 77)
give(s); show(s); s.close(); wait()
""",
    "all that waits to be sent arrives, however small the buffers": """
def child(s):
    s.shutdown(socket.SHUT_WR)
    print("the peer has the same:", s.makefile().readline() == os.read(r, 1000).decode())
for size in (0, 30000):
    r, w = os.pipe()
    give, wait = receiver(child)
    s = dial("sink 0.7")
    if size: s.setsockopt(1, 7, size)
    s.setblocking(False)
    sha, n = hashlib.sha256(), 0
    text = bytes(range(256)) * 64
    while n < 20_000_000:
        try: took = s.send(text)
        except BlockingIOError: break
        sha.update(text[:took]); n += took
    os.write(w, b"%d %s\\n" % (n, sha.hexdigest().encode()))
    s.setblocking(True)
    give(s); s.close(); wait()
""",
    "all that is unread is there to be read, however small the buffer": """
def child(s):
    data, n = hashlib.sha256(), 0
    while part := s.recv(50000): data.update(part); n += len(part)
    print(n, data.hexdigest(), "buffers fixed", s.getsockopt(1, 72))
for size, total in ((0, 3_000_000), (20000, 200_000)):
    give, wait = receiver(child)
    s = socket.socket(family)
    if size: s.setsockopt(1, 8, size)
    s.connect((host, port))
    s.sendall(b"source %d\\n" % total)
    exactly(s, 10)
    time.sleep(0.3)
    give(s); s.close(); wait()
""",
    "who sleeps goes on: recv, send, accept, poll, epoll and splice": """
def child(*mine):
    time.sleep(0.2)
    mine[0].sendall(b"ping"); mine[1].sendall(b"poll"); mine[2].sendall(b"wait"); mine[3].sendall(b"pipe")
    time.sleep(0.5)
give, wait = receiver(child)
r, p, e, q = (dial("echo") for _ in range(4))
d, x = dial("sink 1"), dial("sink 1")
l = socket.create_server((sys.argv[3], 0), family=family)
got, text = {}, os.urandom(20_000_000)
def reads(): got["recv"] = error_of(lambda: exactly(r, 4))
def said(s, data): return s.makefile().readline().strip() == "%d %s" % (len(data), hashlib.sha256(data).hexdigest())
def writes():
    got["send"] = error_of(lambda: d.sendall(text))
    d.shutdown(socket.SHUT_WR); got["sink"] = said(d, text)
def accepts(): got["accept"] = error_of(lambda: l.accept()[0].recv(5))
def polls():
    a = select.poll(); a.register(p, select.POLLIN)
    got["poll"] = [ev for _, ev in a.poll(5000)], error_of(lambda: exactly(p, 4))
def waits():
    a = select.epoll(); a.register(e, select.EPOLLIN)
    got["epoll"] = [ev for _, ev in a.poll(5)], error_of(lambda: exactly(e, 4))
def pipes():
    i, o = os.pipe()
    got["to pipe"] = error_of(lambda: os.splice(q.fileno(), o, 4)) if hasattr(os, "splice") else 4
    got["piped"] = os.read(i, 4) if hasattr(os, "splice") else b"pipe"
def feeds():
    i, o = os.pipe()
    def fill():
        with os.fdopen(o, "wb") as f: f.write(text)
    f = threading.Thread(target=fill); f.start()
    n = 0
    while n < len(text):
        if (took := error_of(lambda: os.splice(i, x.fileno(), 65536))) in (0, "BrokenPipeError"): break
        n += took
    x.shutdown(socket.SHUT_WR); got["from pipe"] = said(x, text); f.join()
threads = [threading.Thread(target=f, daemon=True) for f in (reads, writes, accepts, polls, waits, pipes, feeds)]
for t in threads: t.start()
time.sleep(0.5)
give(r, p, e, q, l, d, x)
c = socket.create_connection(l.getsockname()[:2]); c.sendall(b"hello")
wait()
for t in threads: t.join(5)
for name in sorted(got): print(name, got[name])
""",
    "either end may have said that it has no more": """
def child(s):
    if ours: print("peer", s.makefile().readline())
    else:
        print(len(exactly(s, 50000)), s.recv(10)); s.sendall(b"still there"); s.shutdown(socket.SHUT_WR)
    print("the end", s.recv(10))
for ours, early, what in ((True, True, "sink 0.5"), (True, False, "sink 0.5"), (False, False, "source 50000")):
    give, wait = receiver(child)
    s = dial(what)
    if ours:
        s.sendall(b"o" * (200_000 if early else 1000))
        s.shutdown(socket.SHUT_WR)
        try: s.send(b"x")
        except BrokenPipeError: print("no more")
    if not early: time.sleep(0.3)
    give(s); s.close(); wait()
""",
    "an epoll and a dup of it go on": """
def child(s): s.sendall(b"ping")
give, wait = receiver(child)
s = dial("echo"); d = s.dup()
e = select.epoll(); e.register(s, select.EPOLLIN, ); e2 = select.epoll(); e2.register(d, select.EPOLLIN | select.EPOLLET)
print("before", e.poll(0.1), e2.poll(0.1))
give(s); wait()
print("after", len(e.poll(2)), len(e2.poll(2)), [ev for _, ev in e.poll(2)], len(e2.poll(0.1)), exactly(d, 4), e.poll(0.1))
p = select.poll(); p.register(s, select.POLLIN | select.POLLOUT)
d.sendall(b"pong"); time.sleep(0.2)
print([ev for _, ev in p.poll(1000)], len(e2.poll(1)), exactly(s, 4))
d.close(); s.shutdown(socket.SHUT_WR); print(e.poll(2) != [], s.recv(1))
""",
    "who sleeps in recv goes on when another thread forks": """
def serve(c):
    while data := c.recv(100): c.sendall(data)
    print("served")
l = socket.create_server((sys.argv[3], 0), family=family)
c = []
def accepts(): c.append(l.accept()[0]); serve(c[0])
t = threading.Thread(target=accepts); t.start()
time.sleep(0.2)
peer = socket.create_connection((host, port)); peer.sendall(b"dial %s %d\\n" % (sys.argv[3].encode(), l.getsockname()[1]))
time.sleep(0.3)
child = os.fork()
if child == 0: os._exit(0)
os.waitpid(child, 0)
peer.sendall(b"go\\n"); line = peer.makefile().readline()
t.join(10); print(line, t.is_alive())
""",
    "no kernel socket that another has serves again": """
def child(s):
    print("child has", s.type.name)
    time.sleep(0.5)
    inodes.append(os.fstat(s.fileno()).st_ino)
    os.write(w, b"%d\\n" % inodes[0])
for end in ("", "urgent"):
    inodes = []
    r, w = os.pipe()
    for _ in range(5): dial("echo").close(); time.sleep(0.01)
    give, wait = receiver(child)
    s = dial("echo")
    if end: s.send(b"!", socket.MSG_OOB)  # such a one stays ours
    give(s); s.close()
    new = [socket.socket(family) for _ in range(20)]
    wait()
    theirs = int(os.read(r, 100))
    print("another", theirs not in [os.fstat(n.fileno()).st_ino for n in new])
""",
}


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


for title, script in COMPARED.items():
    for family in (4, 6):
        @suite.case(f"{title}, IPv{family}", ("vireo", "kernel"))
        def _(t: Test, script=script, family=family) -> None:
            own, address = t.lab.address("A", family), t.lab.address("B", family)
            t.start("B", PYTHON, "-c", PEERS, address, str(PORT), name="peers", stack="kernel")
            t.await_port("B", PORT)
            texts = []
            for stack in ("kernel", "vireo"):
                done = t.start("A", PYTHON, "-u", "-c", COMMON + script, address, str(PORT), own, name=stack, stack=stack)
                done.wait(25)
                texts.append(done.stdout)
                said = [line for line in done.stderr.splitlines() if "urgent data is under way" not in line]
                t.expect(not said, "on stderr: " + "\n".join(said))
            t.expect(texts[0] == texts[1], f"--- kernel\n{texts[0]}\n--- vireo\n{texts[1]}")
            t.expect("child:" not in texts[0] and len(texts[0]) > 5, texts[0])
            is_carried(t, "A")


# Serves by children as FORKING, at a port that one after the other listens at, each as soon as it can.
SUCCESSORS = """
import os, socket, sys
host, port = sys.argv[1], int(sys.argv[2])
for _ in range(3):
    l = socket.create_server((host, port), backlog=50)  # has SO_REUSEADDR
    c, _ = l.accept()
    r, w = os.pipe()
    if os.fork() == 0:
        l.close(); os.write(w, b"x")
        while data := c.recv(65536): c.sendall(data)
        os._exit(0)
    os.read(r, 1)  # the child has closed its copy of the listener
    c.close(); l.close()
print("listened 3 times")
for _ in range(3): os.wait()
"""


@suite.case("one listens anew while the children serve", ("kernel", "vireo"))
def _(t: Test) -> None:
    address = t.lab.address("B")
    server = t.start("B", PYTHON, "-u", "-c", SUCCESSORS, address, str(PORT), name="successors")
    held = []
    for _ in range(3):
        t.await_port("B", PORT)
        held.append(t.start("A", PYTHON, "-u", "-c", "import socket, sys, time\nc = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
                            "c.sendall(b'hello'); print(c.recv(5)); time.sleep(4); c.sendall(b'again'); print(c.recv(5))",
                            address, str(PORT), name="holds"))
        held[-1].await_output("hello")
    for client in held:
        client.wait(20)
        t.expect(client.stdout == "b'hello'\nb'again'\n", f"client printed {client.stdout!r}")
    server.wait(20)
    t.expect(server.stdout == "listened 3 times\n" and server.stderr == "", server.stdout + server.stderr)
    is_carried(t, "B")


def exact_rules() -> int:
    """Entries of all maps of exact rules that steering programs of this machine have."""
    shown = json.loads(subprocess.run(["bpftool", "-j", "map", "show"], capture_output=True, text=True, check=True).stdout)
    dumps = [subprocess.run(["bpftool", "-j", "map", "dump", "id", str(m["id"])], capture_output=True, text=True).stdout
             for m in shown if m.get("name") == "exact4"]
    return sum(len(json.loads(d)) for d in dumps if d)


@suite.case("rules of connections that are over go", ("kernel", "vireo"))
def _(t: Test) -> None:
    address, n = t.lab.address("B"), "400"
    before = exact_rules()
    server = t.start("B", PYTHON, "-c", FORKING.replace("for _ in range(n):\n    os.wait()", "import signal; signal.pause()"), address, str(PORT), n,
                     name="forking")
    t.await_port("B", PORT)
    dial = "import socket, sys\nfor _ in range(int(sys.argv[3])):\n    c = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n" \
           "    c.sendall(b'x'); c.recv(1); c.close()"  # the client is first: the server keeps no TIME-WAIT
    client = t.start("A", PYTHON, "-c", dial, address, str(PORT), n, name="dial")
    client.wait(50)
    rules = exact_rules() - before
    t.note(f"{rules} rules")
    t.expect(rules <= 140, f"{rules} rules after {n} connections that are over")
    t.expect(rules > 0 or t.options.dry, "no rule at all: nothing was handed over")
    t.stop(server)


# One port of the client's for the first and the last, and seventy others between: the rule of the first has gone by then.
AGAIN = """
import socket, struct, sys, time
host, port = sys.argv[1], int(sys.argv[2])
def once(source):
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    c.bind(("", source)); c.connect((host, port))
    c.sendall(b"x"); assert c.recv(1) == b"x"
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no TIME-WAIT, here nor there
    c.close()
once(40000)
time.sleep(0.2)
for _ in range(70): once(0)
start = time.monotonic(); once(40000)
print("again", time.monotonic() - start < 0.9)
"""


@suite.case("a client comes again by the same port", ("kernel", "vireo"))
def _(t: Test) -> None:
    address = t.lab.address("B")
    t.start("B", PYTHON, "-c", FORKING.replace("c.recv(65536):", "received(c):").replace("for _ in range(n):", """
def received(c):
    try: return c.recv(100)
    except ConnectionResetError: return b""
for _ in range(n):""", 1), address, str(PORT), "73", name="forking")
    t.await_port("B", PORT)
    client = t.start("A", PYTHON, "-c", AGAIN, address, str(PORT), name="client")
    client.wait(30)
    t.expect(client.stdout == "again True\n", client.stdout)
    is_carried(t, "B")


# Rights are given away once all is set up: the connection stays whose it is.
WITHOUT_RIGHTS = COMMON + """
def child(s): print("child has one")
give, wait = receiver(child)
s = dial("echo")
s.sendall(b"before"); print(exactly(s, 6))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
give(s); wait()
s.sendall(b"after"); print(exactly(s, 5))
give, wait = receiver(child)
give(s); wait()
"""


@suite.case("without the right it stays the sender's, and one line says so", ("vireo", "kernel"))
def _(t: Test) -> None:
    address = t.lab.address("B")
    t.start("B", PYTHON, "-c", PEERS, address, str(PORT), name="peers", stack="kernel")
    t.await_port("B", PORT)
    client = t.start("A", PYTHON, "-u", "-c", WITHOUT_RIGHTS, address, str(PORT), name="client")
    client.wait(20)
    t.expect(client.stdout.split("\n")[::2][:2] == ["b'before'", "child ends 0"], client.stdout)
    t.expect("b'after'" in client.stdout, client.stdout)
    lines = client.stderr.splitlines()
    t.expect(t.options.dry or (len(lines) == 1 and "TCP_REPAIR: Operation not permitted" in lines[0]), client.stderr)
    is_carried(t, "A")


# An option that only the kernel has, set amid a connection, by one that has something unread.
WITH_OPTION = COMMON + """
IP_RECVERR = 11
def goes_on(s):
    print(exactly(s, 6), s.getsockopt(0, IP_RECVERR))
    s.sendall(b"after"); print(exactly(s, 5))
    text = os.urandom(1 << 20)
    t = threading.Thread(target=s.sendall, args=(text,)); t.start()
    print(exactly(s, len(text)) == text); t.join()
s = dial("echo")
s.sendall(b"before"); print(exactly(s, 6))
s.sendall(b"unread"); time.sleep(0.2)
s.setsockopt(0, IP_RECVERR, 1)
goes_on(s)
"""


@suite.case("an option that only the kernel has makes a connection the kernel's", ("vireo", "kernel"))
def _(t: Test) -> None:
    address = t.lab.address("B")
    t.start("B", PYTHON, "-c", PEERS, address, str(PORT), name="peers", stack="kernel")
    t.await_port("B", PORT)
    client = t.start("A", PYTHON, "-u", "-c", WITH_OPTION, address, str(PORT), name="client")
    client.wait(20)
    t.expect(client.stdout.split("\n")[:4] == ["b'before'", "b'unread' 1", "b'after'", "True"], client.stdout + client.stderr)
    is_carried(t, "A")


# Connections on which the peer sends all the time, each passed on amid that.
STREAMS = COMMON + """
connections, blocks = int(sys.argv[3]), 2000
wanted = hashlib.sha256(b"".join(i.to_bytes(4, "big") * 250 for i in range(blocks)))
mine, other = socket.socketpair()
child = os.fork()
if child == 0:
    mine.close()
    good = 0
    while True:
        head, fds, _, _ = socket.recv_fds(other, 4, 1)
        if not fds: break
        s = socket.socket(fileno=fds[0])
        sha = hashlib.sha256(exactly(other, int.from_bytes(head, "big")))
        while data := s.recv(65536): sha.update(data)
        s.close()
        good += sha.digest() == wanted.digest()
        other.sendall(b"x")
    print("good", good, flush=True)
    os._exit(0)
other.close()
for i in range(connections):
    s = dial("stream %d 30000" % blocks)
    got = exactly(s, 1 + i * 1009 % 200_000)
    socket.send_fds(mine, [len(got).to_bytes(4, "big")], [s.fileno()])
    s.close()
    mine.sendall(got)
    mine.recv(1)
mine.close()
print("child ends", os.waitpid(child, 0)[1])
"""


def given(t: Test) -> int:
    """Frames that Vireo received and gave to the kernel."""
    return sum((p.get("engine") or {}).get("given_to_kernel", 0) for p in t.vireo_processes("A"))


# In generic mode frames are longer: the peer's kernel leaves it to a NIC to segment them. And they come to the kernel out of order.
for way, family, env in (("IPv4", 4, {}), ("IPv6", 6, {}), ("IPv4 in generic mode", 4, {"VIREO_XDP_MODE": "generic"})):
    @suite.case(f"nothing that is under way is lost, {way}", ("vireo", "kernel"), seconds=120)
    def _(t: Test, family=family, env=env) -> None:
        address, n = t.lab.address("B", family), 60 if t.options.quick else 1000 if t.options.full else 200
        t.start("B", PYTHON, "-c", PEERS, address, str(PORT), name="peers", stack="kernel")
        t.await_port("B", PORT)
        before = counters.kernel_counters(t.lab, "B")
        client = t.start("A", PYTHON, "-u", "-c", STREAMS, address, str(PORT), str(n), name="client", env=env)
        client.wait(60 + n / 4)
        moved = counters.delta(before, counters.kernel_counters(t.lab, "B"))
        lost = moved["tcp_retrans"] - moved["tcp_retrans_surplus"]
        t.note(f"{n} connections: timeouts {moved['tcp_timeouts']}, in vain {moved['tcp_timeouts_undone']}; segments repeated "
               f"{moved['tcp_retrans']}, in vain {moved['tcp_retrans_surplus']}; {given(t)} given to the kernel")
        t.expect(client.stdout == f"good {n}\nchild ends 0\n", client.stdout + client.stderr)
        # On a busy machine an acknowledgement may come late: that is no loss, and the peer notices.
        t.expect(env or moved["tcp_timeouts"] <= moved["tcp_timeouts_undone"], f"the peer had {moved['tcp_timeouts']} timeouts")
        t.expect(lost <= 5 * n, f"{lost} segments were lost")
        is_carried(t, "A")


# Sockets to which numbered datagrams come all the time, each passed on amid that.
DATAGRAMS = COMMON + """
lost, late, total = 0, 0, 1500
def child(u):
    numbers = []
    u.settimeout(10)
    try:
        while True:
            numbers.append(int.from_bytes(u.recv(100)[:4], "big"))
            if numbers[-1] == total - 1: u.settimeout(0.3)
    except TimeoutError: pass
    os.write(w, b"".join(n.to_bytes(4, "big") for n in numbers))
    os.close(w)
for i in range(int(sys.argv[3])):
    r, w = os.pipe()
    give, wait = receiver(child)
    os.close(w)
    u = socket.socket(family, socket.SOCK_DGRAM)
    u.setsockopt(1, 33, 4 << 20)  # SO_RCVBUFFORCE: who reads late loses nothing
    u.bind((sys.argv[4], 0))
    c = dial("datagrams %d %d 20000" % (u.getsockname()[1], total))
    mine = [int.from_bytes(u.recv(100)[:4], "big") for _ in range(100 + i)]
    give(u)
    u.close()
    c.makefile().readline()
    with os.fdopen(r, "rb") as f: data = f.read()
    theirs = [int.from_bytes(data[k:k + 4], "big") for k in range(0, len(data), 4)]
    all = set(mine + theirs)
    assert len(all) == len(mine) + len(theirs), "some came twice"
    lost += total - len(all)
    late += sum(b < a for a, b in zip(theirs, theirs[1:]))
    os.wait()
print("lost", lost)
print("late", late, file=sys.stderr)
"""

for family in (4, 6):
    @suite.case(f"no datagram that is under way is lost, IPv{family}", ("vireo", "kernel"), seconds=120)
    def _(t: Test, family=family) -> None:
        own, address, n = t.lab.address("A", family), t.lab.address("B", family), 5 if t.options.quick else 20
        t.start("B", PYTHON, "-c", PEERS, address, str(PORT), name="peers", stack="kernel")
        t.await_port("B", PORT)
        client = t.start("A", PYTHON, "-u", "-c", DATAGRAMS, address, str(PORT), str(n), own, name="client")
        client.wait(100)
        t.note(f"{n} sockets: {client.stdout.strip()}, {client.stderr.strip()}, {given(t)} given to the kernel")
        t.expect(client.stdout == "lost 0\n", client.stdout + client.stderr)
        is_carried(t, "A")


if __name__ == "__main__":
    suite.main()
