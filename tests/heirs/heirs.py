#!/usr/bin/python3
"""What children and other programs do with the sockets that they inherit or are passed, while or after who opened them has them.

Each script runs over Vireo and over the kernel, as the end that connects and as the end that accepts. What it prints, what its
peer sees of each connection, and its exit status must be the same. heirs_programs.py has programs of every day.
"""
import difflib
import os
import signal
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.peers import LINE_OF  # noqa: E402
from labkit.process import Process, wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5041
suite = Suite("heirs")

# The peer. Listens, and dials where a line of the file `orders` tells it to. The first line on a connection says its name and
# what to do with it; what became of it is a line in this program's output.
PEER = LINE_OF + """
import os, socket, sys, threading, time
host, port, orders = sys.argv[1], int(sys.argv[2]), sys.argv[3]
family = socket.AF_INET6 if ":" in host else socket.AF_INET

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def exactly(c, n):
    got = b""
    while len(got) < n:
        data = c.recv(n - len(got))
        if not data: return got + b"<end>"
        got += data
    return got

def serve(c):
    name, n = "unnamed", 0
    try:
        name, what, *rest = line_of(c) or ["unnamed", "nothing"]
        if what == "echo":  # until the end
            while data := c.recv(65536):
                n += len(data)
                c.sendall(data)
            say(f"{name}: end after {n}")
        elif what == "drive":  # asks and wants its own words back
            for i in range(int(rest[0])):
                text = b"%d" % i * 1000 + b"\\n"
                c.sendall(text)
                got = exactly(c, len(text))
                if got != text: return say(f"{name}: {i} answered by {got[:20]}")
            c.shutdown(socket.SHUT_WR)
            while data := c.recv(65536): n += len(data)
            say(f"{name}: all asked, then {n} and the end")
        elif what == "speak":  # after a while, unasked; then as echo
            time.sleep(float(rest[0]))
            c.sendall(b"spoken")
            while data := c.recv(65536):
                n += len(data)
                c.sendall(data)
            say(f"{name}: end after {n}")
        elif what == "bye":  # nothing more from here, after so many bytes
            c.sendall(b"x" * int(rest[0]))
            c.shutdown(socket.SHUT_WR)
            while data := c.recv(65536): n += len(data)
            say(f"{name}: end after {n}")
        elif what == "count":  # lines, of which none may be torn
            text = b""
            while data := c.recv(65536): text += data
            lines = text.split(b"\\n")
            torn = sum(len(l) != 999 or len(set(l)) != 1 for l in lines[:-1])
            say(f"{name}: {len(lines) - 1} lines, {torn} torn, then the end")
        elif what == "source":  # reads one byte, gives so many
            c.sendall(b"0123456789" * (int(rest[0]) // 10))
            while data := c.recv(65536): n += len(data)
            say(f"{name}: end after {n}")
    except OSError as e:
        say(f"{name}: {type(e).__name__} after {n}")
    finally: c.close()

def start(function, *args):
    threading.Thread(target=function, args=args, daemon=True).start()

def dial(where, to):
    c = socket.create_connection((where, to), timeout=5)
    c.settimeout(None)
    serve(c)

def ask(where, to, name, count):
    # One connection after the other, each asks once.
    good, bad = 0, []
    for i in range(count):
        try:
            with socket.create_connection((where, to), timeout=3) as c:
                c.sendall(b"%04d" % i)
                got = exactly(c, 4)
                if got == b"%04d" % i: good += 1
                else: bad.append(got)
        except OSError as e: bad.append(type(e).__name__)
    say(f"{name}: {good} of {count} served {bad[:3]}")

def gram_echo():
    while True:
        data, a = u.recvfrom(2000)
        u.sendto(data, a)

def obey():
    with open(os.open(orders, os.O_RDWR)) as lines:  # a pipe without end: each of its writers opens it anew
        for line in lines:
            what, where, to, *rest = line.split()
            if what == "dial": start(dial, where, int(to))
            elif what == "ask": start(ask, where, int(to), rest[0], int(rest[1]))

u = socket.socket(family, socket.SOCK_DGRAM)
u.bind((host, port))
start(gram_echo)
start(obey)
l = socket.create_server((host, port), family=family, backlog=50)
say("peer is up")
while True:
    start(serve, l.accept()[0])
"""

# What each script begins with. `role` says which end it is: connection() connects, or lets the peer dial and accepts.
COMMON = """
import array, ctypes, errno, fcntl, os, select, signal, socket, struct, subprocess, sys, termios, threading, time
role, host, port, own, orders, seen = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5], sys.argv[6]
family = socket.AF_INET6 if ":" in host else socket.AF_INET

class Silence(Exception): pass

def on_alarm(*_): raise Silence
signal.signal(signal.SIGALRM, on_alarm)

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def tried(call, seconds=2):
    # Its value; or the error's name; or that nothing came
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try: return call()
    except OSError as e: return errno.errorcode.get(e.errno, type(e).__name__)
    except Silence: return "nothing came"
    finally: signal.setitimer(signal.ITIMER_REAL, 0)

def listening(backlog=50):
    return socket.create_server((own, 0), family=family, backlog=backlog)

def order(*words):
    with open(orders, "w") as f: print(*words, file=f)

l = listening() if role == "server" else None

def silent_connection():
    if role == "client": return socket.create_connection((host, port))
    order("dial", own, l.getsockname()[1])
    return l.accept()[0]

def connection(what):
    s = silent_connection()
    s.sendall(what.encode() + b"\\n")
    return s

def received(s, n, seconds=2):
    got = b""
    def all():
        nonlocal got
        while len(got) < n:
            data = s.recv(n - len(got))
            if not data: return "end"
            got += data
    wrong = tried(all, seconds)
    return f"{got.decode()} and {wrong}" if wrong else got.decode()

def asked(s, text):
    # What the echo says
    wrong = tried(lambda: s.sendall(text.encode()))
    return wrong if wrong else received(s, len(text))

def much(s, n=1 << 20):
    # So many bytes there and back
    text, got = os.urandom(n), b""
    def feed():
        try: s.sendall(text)
        except OSError as e: say("sendall:", type(e).__name__)
    t = threading.Thread(target=feed, daemon=True); t.start()
    def drain():
        nonlocal got
        while len(got) < n:
            data = s.recv(65536)
            if not data: return "end"
            got += data
    wrong = tried(drain, 5)
    return wrong or ("all back" if got == text else "other bytes")

def peer_saw(name, seconds=2.0):
    # Its line about that connection
    until = time.monotonic() + seconds
    while True:
        for line in open(seen):
            if line.startswith(name + ":") and line.endswith("\\n"): return "peer saw " + line.strip()
        if time.monotonic() > until: return f"peer sees {name} open"
        time.sleep(0.02)

def fork(run, *closed):
    pid = os.fork()
    if pid: return pid
    status = 0
    try:
        if l is not None and "keep" not in closed: l.close()
        run()
    except SystemExit as e: status = e.code or 0
    except BaseException as e: say("child:", repr(e)); status = 1
    os._exit(status)

def ended(pid, seconds=5):
    # How it ended
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        p, status = os.waitpid(pid, os.WNOHANG)
        if p: return f"status {os.waitstatus_to_exitcode(status)}"
        time.sleep(0.01)
    os.kill(pid, 9); os.waitpid(pid, 0)
    return "did not end"

class Gate:
    # Opened by one process, passed by one other, any number of times
    def __init__(self): self.r, self.w = os.pipe()
    def open(self): os.write(self.w, b"x")
    def pass_(self):
        if not select.select([self.r], [], [], 6)[0]: say("gate: nobody came"); os._exit(3)
        os.read(self.r, 1)
# ----
"""

# What is compared with the kernel: each script's output and what its peer saw. Both roles, but for those whose title has one.
SCRIPTS = {
    "the child goes on, the parent closes": """
s = connection("a echo")
say(asked(s, "before"))
def child():
    g.pass_()
    for n in (1, 100, 10_000): say(len(asked(s, "c" * n)))
    say(much(s)); s.close()
g = Gate()
pid = fork(child); s.close(); g.open()
say(ended(pid, 8), peer_saw("a"))
""",
    "the child goes on with what was unread and unacknowledged": """
s = connection("a echo")
s.sendall(b"unread"); time.sleep(0.1); s.sendall(b"on its way")
def child():
    say(received(s, 16)); say(asked(s, "child")); s.close()
pid = fork(child); s.close()
say(ended(pid), peer_saw("a"))
""",
    "the child goes on with a connection that nobody had used": """
s = silent_connection()
def child():
    s.sendall(b"a echo\\n"); say(asked(s, "child")); s.close()
pid = fork(child); s.close()
say(ended(pid), peer_saw("a"))
""",
    "both write and read in turn": """
s = connection("a echo")
g, h = Gate(), Gate()
def child():
    for i in range(5): g.pass_(); say("child", asked(s, f"c{i}")); h.open()
    g.pass_(); say("child", asked(s, "last")); s.close(); h.open()
pid = fork(child)
for i in range(5): say("parent", asked(s, f"p{i}")); g.open(); h.pass_()
g.open(); h.pass_(); say("parent", asked(s, "after")); say(peer_saw("a", 0.2)); s.close()
say(ended(pid), peer_saw("a"))
""",
    "one writes, the other reads": """
s = connection("a echo")
def child(): say(received(s, 300_000, 5) == "w" * 300_000)
pid = fork(child)
say(tried(lambda: s.sendall(b"w" * 300_000), 5)); say(ended(pid)); s.close()
say(peer_saw("a"))
""",
    "one waits in recv while the other asks": """
s = connection("a echo")
g = Gate()
def child(): time.sleep(0.3); say(tried(lambda: s.send(b"asked"))); g.pass_()
pid = fork(child)
got = received(s, 5); g.open(); status = ended(pid); say(got, status); s.close()
say(peer_saw("a"))
""",
    "both read what was unread, each a part": """
s = connection("a echo")
s.sendall(b"0123456789"); time.sleep(0.2)
g, h = Gate(), Gate()
def child(): g.pass_(); say("child", received(s, 5)); h.open()
say("parent", received(s, 2))
pid = fork(child)
say("parent", received(s, 1)); g.open(); h.pass_(); say("parent", received(s, 2)); s.close()
say(ended(pid), peer_saw("a"))
""",
    "both write at once and no line is torn": """
s = connection("a count")
def writes(c):
    def run():
        for _ in range(150): s.sendall(c * 999 + b"\\n")
    say(tried(run, 5))
pid = fork(lambda: writes(b"c")); writes(b"p")
say(ended(pid)); s.close(); say(peer_saw("a"))
""",
    "two children share it, the parent has closed": """
s = connection("a echo")
g, h = Gate(), Gate()
def first():
    for i in range(3): say("first", asked(s, f"f{i}")); g.open(); h.pass_()
def second():
    for i in range(3): g.pass_(); say("second", asked(s, f"s{i}")); h.open()
a, b = fork(first), fork(second); s.close()
say(ended(a), ended(b), peer_saw("a"))
""",
    "the parent exits, the child goes on": """
for how in ("exit", "_exit"):
    def parent():
        s = connection(f"{how} echo")
        say(asked(s, "parent"))
        def child():
            g.pass_(); time.sleep(0.1); say(asked(s, "child")); say(much(s, 100_000)); s.close(); h.open()
        fork(child)
        if how == "_exit": os._exit(3)
        ctypes.CDLL(None).exit(3)
    g, h = Gate(), Gate()
    pid = fork(parent, "keep"); say(how, ended(pid)); g.open(); h.pass_()
    say(peer_saw(how))
""",
    "the program exits, its child goes on": """
s = connection("a echo")
say(asked(s, "parent"))
def child():
    while os.getppid() == parent: time.sleep(0.01)
    say(asked(s, "child")); say(much(s, 100_000)); s.close(); say(peer_saw("a")); say("done")
parent = os.getpid()
fork(child)
sys.exit(5)
""",
    "daemon() after the connection is made": """
s = connection("a echo")
say(asked(s, "before"))
ctypes.CDLL(None).daemon(1, 1)
say(asked(s, "daemon")); say(much(s, 100_000)); s.close(); say(peer_saw("a")); say("done")
""",
    "the child closes, the parent goes on": """
for how in ("close", "_exit", "exit", "killed"):
    s = connection(f"{how} echo")
    say(asked(s, "before"))
    def child():
        if how == "close": s.close()
        elif how == "exit": ctypes.CDLL(None).exit(0)
        elif how == "killed": os.kill(os.getpid(), 9)
    pid = fork(child); say(how, ended(pid)); say(peer_saw(how, 0.2)); say(asked(s, "parent"))
    say(much(s, 100_000)); s.close(); say(peer_saw(how))
""",
    "the end comes when the last one closes": """
s = connection("a echo"); t = connection("b echo")
g = Gate()
def child(): g.pass_(); s.close(); g2.open(); g.pass_()
g2 = Gate()
pid = fork(child); s.close(); t.close()
say(peer_saw("a", 0.2), peer_saw("b", 0.1)); g.open(); g2.pass_(); say(peer_saw("a"), peer_saw("b", 0.1)); g.open()
say(ended(pid), peer_saw("b"))
""",
    "the parent has closed and the child is killed": """
s = connection("clean echo"); t = connection("unread echo")
g = Gate()
def child():
    say(asked(s, "child")); t.sendall(b"unread"); time.sleep(0.2); g.open(); time.sleep(9)
pid = fork(child); s.close(); t.close(); g.pass_()
say(peer_saw("clean", 0.1)); os.kill(pid, 9); say(ended(pid)); say(peer_saw("clean"), peer_saw("unread"))
""",
    "the grandchild uses it, the child is gone": """
s = connection("a echo")
say(asked(s, "before"))
g, h = Gate(), Gate()
def grandchild(): g.pass_(); say(asked(s, "grandchild")); say(much(s, 100_000)); s.close(); h.open()
def child():
    say(asked(s, "child"))
    if os.fork() == 0: grandchild(); os._exit(0)
pid = fork(child); s.close(); say(ended(pid)); g.open(); h.pass_()
say(peer_saw("a"))
""",
    "the child is another program, by its standard input and output": """
s = connection("a drive 5")
say(received(s, 5)); say(received(s, 5))
# What was read before has to be answered by this program: the other one does the rest.
s.sendall(b"0" * 10)
def child(): os.dup2(s.fileno(), 0); os.dup2(s.fileno(), 1); s.close(); os.execvp("cat", ["cat"])
pid = fork(child); s.close()
say(ended(pid), peer_saw("a"))
""",
    "the child is another program, which is not preloaded": """
s = connection("a drive 5")
def child():
    os.dup2(s.fileno(), 0); os.dup2(s.fileno(), 1); s.close()
    os.execve("/usr/bin/cat", ["cat"], {})
pid = fork(child); s.close()
say(ended(pid), peer_saw("a"))
""",
    "the child is another program, by another number": """
s = connection("a drive 5")
def child(): os.dup2(s.fileno(), 5); s.close(); os.execvp("sh", ["sh", "-c", "cat <&5 >&5"])
pid = fork(child); s.close()
say(ended(pid), peer_saw("a"))
""",
    "the child is another program that knows sockets": """
s = connection("a drive 5")
text = '''
import socket, sys
s = socket.socket(fileno=9)
print(s.family.name, s.type.name, s.getpeername()[0], flush=True)
while data := s.recv(65536): s.sendall(data)
s.shutdown(socket.SHUT_RDWR)
'''
def child(): os.dup2(s.fileno(), 9); s.close(); os.execv(sys.executable, [sys.executable, "-c", text])
pid = fork(child); s.close()
say(ended(pid), peer_saw("a"))
""",
    "this program becomes another one": """
s = connection("a drive 5")
say(received(s, 3)); s.sendall(b"000")
os.dup2(s.fileno(), 0); s.close()
os.execvp("sh", ["sh", "-c", "cat <&0 >&0"])
""",
    "subprocess has it as standard input and output": """
s = connection("a drive 5")
p = subprocess.Popen(["cat"], stdin=s, stdout=s); s.close()
say(tried(lambda: p.wait(5))); say(peer_saw("a"))
""",
    "a program writes its output to it while this one reads": """
s = connection("a echo")
say(asked(s, "before"))
p = subprocess.Popen(["sh", "-c", "for i in 1 2 3; do echo line $i; done"], stdout=s, stdin=subprocess.DEVNULL)
say(received(s, 21).split("\\n")); say(p.wait()); say(asked(s, "after")); s.close(); say(peer_saw("a"))
""",
    "system() and popen() by one whose connections are not close-on-exec": """
s = connection("a echo"); s.set_inheritable(True)
if l: l.set_inheritable(True)
libc = ctypes.CDLL(None)
say(asked(s, "before"), libc.system(b"true"), asked(s, "between"), os.popen("echo popen").read().strip(), asked(s, "after"))
p = subprocess.Popen(["true"], close_fds=False); say(p.wait(), asked(s, "last")); say(much(s, 100_000))
s.close(); say(peer_saw("a"))
""",
    "names, options and what can be read, in the child": """
s = connection("a echo")
s.sendall(b"0123456789"); time.sleep(0.2)
s.setsockopt(6, 1, 1); s.setsockopt(1, 9, 1)
def readable(): n = array.array("i", [0]); fcntl.ioctl(s, termios.FIONREAD, n); return n[0]
def child():
    say(tried(lambda: s.getpeername()[0] == host), tried(lambda: s.getsockname()[0] == own), tried(lambda: s.getpeername()[1] == s.getsockname()[1]))
    say([tried(lambda: s.getsockopt(*o)) for o in ((6, 1), (1, 9), (1, 3), (1, 4), (1, 2))])
    say("state", tried(lambda: s.getsockopt(6, 11, 1)), "readable", tried(readable)); say(received(s, 4), tried(readable))
    s.setsockopt(6, 1, 0); s.setblocking(False); g.open(); h.pass_()
    say(tried(lambda: s.recv(1)))
g, h = Gate(), Gate()
pid = fork(child); g.pass_()
say(tried(readable), s.getsockopt(6, 1), bool(fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK), tried(lambda: s.recv(6)), tried(lambda: s.recv(6)))
h.open(); say(ended(pid)); s.close(); say(peer_saw("a"))
""",
    "shutdown in one counts for the other": """
s = connection("a echo"); t = connection("b echo")
g = Gate()
def child(): say(asked(s, "child")); say(tried(lambda: s.shutdown(socket.SHUT_WR))); say(tried(lambda: t.shutdown(socket.SHUT_RDWR))); g.open(); time.sleep(0.5)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
pid = fork(child); g.pass_()
say(peer_saw("a"), peer_saw("b")); say(tried(lambda: s.send(b"x")), tried(lambda: s.recv(1)), tried(lambda: t.recv(1)), tried(lambda: t.send(b"x")))
say(ended(pid))
""",
    "the peer's end and its reset come to both": """
s = connection("a bye 10")
def child(): g.pass_(); say("child", received(s, 5), tried(lambda: s.recv(5))); s.sendall(b"from the child")
g = Gate()
time.sleep(0.2)
pid = fork(child); say("parent", received(s, 5)); g.open(); say(ended(pid))
say("parent", tried(lambda: s.recv(5))); s.close(); say(peer_saw("a"))
""",
    "poll, select and epoll on an inherited connection": """
def child_of(s, e, name):
    def child():
        p = select.poll(); p.register(s, select.POLLIN | select.POLLOUT)
        say("poll", tried(lambda: [ev for _, ev in p.poll(500)]))
        q = select.epoll(); q.register(s, select.EPOLLIN)
        say("before", tried(lambda: len(q.poll(0.05))), tried(lambda: len(e.poll(0.05)) if e else 0))
        say("new set", tried(lambda: [ev for _, ev in q.poll(2)]))
        if e: say("old set", tried(lambda: [ev for _, ev in e.poll(2)]))
        say("select", tried(lambda: len(select.select([s], [], [], 2)[0])), received(s, 6), tried(lambda: len(q.poll(0.05))))
        say(asked(s, "asked")); s.close()
        say("after", tried(lambda: len(q.poll(0.05))))
    return child
for name, made in (("new", False), ("old", True)):
    s = connection(f"{name} speak 0.5")
    e = select.epoll() if made else None
    if e: e.register(s, select.EPOLLIN)
    pid = fork(child_of(s, e, name))
    if not e: s.close()
    say(ended(pid)); s.close(); say(peer_saw(name))
""",
    "epoll in the parent while the child closes or reads": """
s = connection("a speak 0.5"); t = connection("b echo")
e = select.epoll(); e.register(s, select.EPOLLIN); e.register(t, select.EPOLLIN | select.EPOLLET)
def child(): s.close(); t.close()
pid = fork(child); say(ended(pid)); say(tried(lambda: len(e.poll(2)))); say(received(s, 6))
def reads(): say("child", received(t, 2))
t.sendall(b"0123"); say(tried(lambda: len(e.poll(2))))
pid = fork(reads); say(ended(pid), received(t, 2), tried(lambda: len(e.poll(0.05))))
t.sendall(b"4"); say(tried(lambda: len(e.poll(2))), received(t, 1))
s.close(); t.close(); say(peer_saw("a"), peer_saw("b"))
""",
    "passed to an unrelated process, then used by both": """
text = sys.orig_argv[2].split("# ----")[0] + '''
m = socket.socket(fileno=9)
_, (fd,), _, _ = socket.recv_fds(m, 10, 1)
s = socket.socket(fileno=fd)
for i in range(3): m.recv(1); say("other", asked(s, f"o{i}")); m.send(b"x")
say("other", much(s, 100_000)); m.send(b"x"); m.recv(1); s.close()
'''
for name, environment in (("preloaded", os.environ), ("not", {})):
    mine, theirs = socket.socketpair()
    def child(): os.dup2(theirs.fileno(), 9); os.execve(sys.executable, [sys.executable, "-c", text, "client", *sys.argv[2:]], environment)
    pid = fork(child); theirs.close()
    s = connection(f"{name} echo"); say(asked(s, "before"))
    socket.send_fds(mine, [b"x"], [s.fileno()])
    for i in range(3): say(asked(s, f"p{i}")); mine.send(b"x"); mine.recv(1)
    mine.recv(1); say(asked(s, "after")); s.close(); say(peer_saw(name, 0.1)); mine.send(b"x")
    say(ended(pid), peer_saw(name))
""",
    "a datagram socket is shared: whoever reads gets the next": """
u = socket.socket(family, socket.SOCK_DGRAM)
if role == "client": u.connect((host, port)); send = u.send
else: u.bind((own, 0)); send = lambda data: u.sendto(data, (host, port))
def got(n=100): data = tried(lambda: u.recvfrom(n)); return data if isinstance(data, str) else (data[0].decode(), data[1][:2] == (host, port))
send(b"before"); say(got())
g, h = Gate(), Gate()
def child():
    for i in range(3): g.pass_(); say("child", got()); h.open()
    g.pass_(); send(b"child"); say("child", got())
    h.open(); g.pass_()
    p = select.poll(); p.register(u, select.POLLIN)
    send(b"polled"); say(tried(lambda: [ev for _, ev in p.poll(2000)]), got()); u.close()
pid = fork(child)
for i in range(3): send(b"for parent %d" % i); say("parent", got()); send(b"for child %d" % i); g.open(); h.pass_()
g.open(); h.pass_(); u.close(); g.open(); say(ended(pid))
""",
    "a datagram socket: both wait, each gets one": """
u = socket.socket(family, socket.SOCK_DGRAM)
u.bind((own, 0))
r, w = os.pipe()
def child(): data = tried(lambda: u.recv(100)); os.write(w, data.encode() if isinstance(data, str) else data)
pids = [fork(child), fork(child)]
time.sleep(0.4); u.sendto(b"one ", (host, port)); time.sleep(0.1); u.sendto(b"two ", (host, port))
say([ended(p) for p in pids], sorted(os.read(r, 100).decode().split(" ")))
u.sendto(b"three", (host, port)); say(tried(lambda: u.recv(10)))
""",
    "the child has a datagram socket, the parent is gone": """
def parent():
    u = socket.socket(family, socket.SOCK_DGRAM); u.bind((own, 0))
    u.sendto(b"unread", (host, port)); time.sleep(0.2)
    def child():
        g.pass_(); say(tried(lambda: u.recv(100))); u.sendto(b"child", (host, port)); say(tried(lambda: u.recv(100)))
        u.connect((host, port)); u.send(b"connected"); say(tried(lambda: u.recv(100))); h.open()
    fork(child); os._exit(0)
g, h = Gate(), Gate()
pid = fork(parent); say(ended(pid)); g.open(); h.pass_()
""",
    "a datagram socket is another program's input": """
u = socket.socket(family, socket.SOCK_DGRAM)
u.bind((own, 0)); u.connect((host, port)); u.send(b"first"); say(tried(lambda: u.recv(10)))
p = subprocess.Popen(["sh", "-c", "echo from sh >&0; head -c 8"], stdin=u, stdout=subprocess.PIPE)
say(tried(lambda: p.communicate(timeout=4)[0])); u.send(b"last"); say(tried(lambda: u.recv(10)))
""",
    "server: parent and two children accept, the parent closes, a child is killed": """
def serve(m):
    while True:
        c, _ = m.accept()
        while data := c.recv(100): c.sendall(data)
        c.close()
for fresh in (True, False):
    m = listening(); name = "fresh" if fresh else "used"
    if not fresh: order("ask", own, m.getsockname()[1], "first", 1); c, _ = m.accept(); c.sendall(c.recv(4)); c.close(); say(peer_saw("first"))
    ask = lambda what: order("ask", own, m_port, name + what, 20)
    m_port = m.getsockname()[1]
    kids = [fork(lambda: serve(m)), fork(lambda: serve(m))]
    ask("-three")
    until = time.monotonic() + 6
    while peer_saw(name + "-three", 0).endswith("open") and time.monotonic() < until:
        c = tried(lambda: m.accept()[0], 0.3)
        if isinstance(c, str): continue
        while data := tried(lambda: c.recv(100)): c.sendall(data)
        c.close()
    say(peer_saw(name + "-three", 1)); m.close()
    ask("-two"); say(peer_saw(name + "-two", 6))
    os.kill(kids[0], 9); say(ended(kids[0])); ask("-one"); say(peer_saw(name + "-one", 6))
    os.kill(kids[1], 9); say(ended(kids[1])); ask("-none"); say(peer_saw(name + "-none", 6))
""",
    "server: workers wait by epoll, the parent only watches": """
def worker():
    m.setblocking(False)
    e = select.epoll(); e.register(m, select.EPOLLIN | select.EPOLLEXCLUSIVE); known = {}
    while True:
        for fd, _ in e.poll():
            if fd == m.fileno():
                try: c, _ = m.accept()
                except BlockingIOError: continue
                known[c.fileno()] = c; e.register(c, select.EPOLLIN)
            elif data := known[fd].recv(100): known[fd].sendall(data)
            else: known.pop(fd).close()
m = listening()
kids = [fork(worker) for _ in range(3)]
order("ask", own, m.getsockname()[1], "all", 30); say(peer_saw("all", 6))
os.kill(kids[0], 9); say(ended(kids[0])); kids[0] = fork(worker)
order("ask", own, m.getsockname()[1], "again", 30); say(peer_saw("again", 6))
for k in kids: os.kill(k, 15); say(ended(k))
""",
    "server: who is not yet accepted when the parent closes or exits": """
for how in ("closes", "exits"):
    g, h, n = Gate(), Gate(), Gate()
    def parent():
        m = listening()
        def child():
            g.pass_(); time.sleep(0.1)
            for i in range(3):
                c = tried(lambda: m.accept()[0])
                if isinstance(c, str): say(c); break
                c.sendall(b"%s%d echo\\n" % (how.encode(), i)); say(asked(c, "child")); c.close(); say(peer_saw(f"{how}{i}"))
            h.open()
        pid = fork(child)
        for _ in range(3): order("dial", own, m.getsockname()[1])
        time.sleep(0.4)
        if how == "exits": os._exit(0)
        m.close(); g.open(); say(ended(pid))
    pid = fork(parent)
    if how == "exits": say(ended(pid)); g.open()
    h.pass_()
    if how == "closes": say(ended(pid))
""",
    "server: a child only looks at a listener while clients wait": """
m = listening(); order("dial", own, m.getsockname()[1])
c, _ = m.accept(); c.sendall(b"kept echo\\n"); say(asked(c, "before"))
for _ in range(3): order("dial", own, m.getsockname()[1])
time.sleep(0.4)
def child():
    say(m.getsockopt(1, 2), m.getsockname()[0] == own)
    e = select.epoll(); e.register(m, select.EPOLLIN); e.close(); m.close()
say(ended(fork(child)))
for i in range(3):
    k, _ = m.accept(); k.sendall(b"k%d echo\\n" % i); say(asked(k, "waited")); k.close(); say(peer_saw(f"k{i}"))
c.close(); say(peer_saw("kept"))
""",
    "server: a listener is another program's, after it has accepted": """
m = listening(); order("dial", own, m.getsockname()[1])
c, _ = m.accept(); c.sendall(b"kept echo\\n"); say(asked(c, "before"))
text = '''
import socket
m = socket.socket(fileno=3)
for i in range(3):
    c, _ = m.accept(); data = c.recv(4); c.sendall(data); c.close()
'''
def child(): os.dup2(m.fileno(), 3); os.execv(sys.executable, [sys.executable, "-c", text])
at = m.getsockname()[1]
pid = fork(child); m.close(); order("ask", own, at, "asked", 3)
say(peer_saw("asked", 5), ended(pid)); say(asked(c, "after")); c.close(); say(peer_saw("kept"))
""",
}

# Where nothing need be carried: the listener is forked for before it has accepted.
HANDED_OVER = ("the parent exits, the child goes on", "passed to an unrelated process, then used by both", "server: workers wait by epoll, the parent only watches",
               "server: who is not yet accepted when the parent closes or exits", "a datagram socket: both wait, each gets one")


def left_behind(t: Test, host: str, *known: Process) -> list[str]:
    """Programs in the host's namespace that are none of `known`; a mourner may outlive its program by a second or so."""
    rows = []
    for pid in t.lab.run("A", "ip", "netns", "pids", t.lab.netns(host)).stdout.split():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if int(pid) not in [p.pid for p in known] and words and "mourner" not in words:
            rows.append(f"{pid} {words[:80]}")
    return rows


def played(t: Test, role: str, family: int, script: str, stack: str) -> tuple[str, str]:
    """Runs a script. @return what it and its peer said and how it ended; what is on stderr, and what stays behind"""
    mine, others = ("A", "B") if role == "client" else ("B", "A")
    orders, port = t.logs / f"orders-{stack}", PORT + (stack == "kernel")
    os.mkfifo(orders)
    peer = t.start(others, PYTHON, "-c", PEER, t.lab.address(others, family), str(port), str(orders), name=f"peer-{stack}", stack="kernel")
    peer.await_output("peer is up")
    program = t.start(mine, PYTHON, "-c", COMMON + script, role, t.lab.address(others, family), str(port), t.lab.address(mine, family),
                      str(orders), str(peer.out_file), name=stack, stack=stack)
    program.wait(25, None)
    if 'say("done")' in script:
        wait_until(lambda: "done\n" in program.stdout, 10)
    wait_until(lambda: not left_behind(t, mine), 1)
    stays = left_behind(t, mine)
    for row in stays:
        os.kill(int(row.split()[0]), signal.SIGKILL)
    heard = "\n".join(sorted(line for line in peer.stdout.splitlines() if line != "peer is up"))
    peer.kill()
    text = f"{program.stdout}status {program.status}\n{heard}\n"
    return text, "\n".join([program.stderr.rstrip()] * bool(program.stderr) + [f"stays behind: {row}" for row in stays])


for title, script in SCRIPTS.items():
    for role in ("client", "server"):
        if title.startswith("server: ") and role == "client":
            continue
        for family in (4, 6) if "--full" in sys.argv else (4,) if role == "client" else (6,):
            ends = ("vireo", "kernel") if role == "client" else ("kernel", "vireo")
            name = title if title.startswith("server: ") else f"{role}: {title}"

            @suite.case(f"{name}, IPv{family}", ends)
            def _(t: Test, title=title, role=role, family=family, script=script) -> None:
                got, wrong = played(t, role, family, script, "vireo")
                wanted, also_wrong = played(t, role, family, script, "kernel")
                t.expect(not also_wrong and "child:" not in wanted and "nothing came" not in wanted, f"the kernel's run:\n{wanted}{also_wrong}")
                t.expect(got == wanted, "\n".join(difflib.unified_diff(wanted.splitlines(), got.splitlines(), "kernel", "vireo", "", "", 1, "")) + f"\n{wrong}")
                t.expect(not wrong, wrong)
                if not t.options.dry and title not in HANDED_OVER:
                    rx, tx = counters.engine_packets(t.vireo_processes("A" if role == "client" else "B"))
                    t.expect(min(rx, tx) > 0, f"nothing was carried: rx {rx} tx {tx}")
                    t.note(f"vireo rx {rx} tx {tx}")


if __name__ == "__main__":
    suite.main()
