#!/usr/bin/python3
"""Who a program is to the kernel changes while it runs: what it opens then belongs to the new user, or to the other network namespace."""
import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.build import program  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5008
suite = Suite("identity")

# Answers each connection, and each datagram, with the address that it sees; who asked closes first, so that its port may be had again.
PEER = """
import socket, sys, threading
port = int(sys.argv[1])
def datagrams():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(("", port))
    while True:
        _, peer = u.recvfrom(10)
        u.sendto(peer[0].encode(), peer)
def answer(c, peer):
    c.recv(1)
    c.sendall(peer[0].encode())
    c.recv(1)
    c.close()
threading.Thread(target=datagrams, daemon=True).start()
l = socket.create_server(("", port))
while True:
    threading.Thread(target=answer, args=l.accept(), daemon=True).start()
"""

ASKING = """
import ctypes, json, os, socket, sys, threading
host, port, elsewhere = sys.argv[1], int(sys.argv[2]), sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
SYS_setns, SYS_setresuid = {"x86_64": (308, 117), "aarch64": (268, 147)}[os.uname().machine]
def enter(fd, by_number=False):
    if (libc.syscall(SYS_setns, fd, 0) if by_number else libc.setns(fd, CLONE_NEWNET)) != 0:
        raise OSError(ctypes.get_errno(), "setns")
def ask(kind=socket.SOCK_STREAM, made=None):
    with made or socket.socket(socket.AF_INET, kind) as s:
        s.settimeout(5)
        s.connect((host, port))
        s.send(b"x")
        return [s.recv(100).decode(), s.getsockname()[0]]
def ask_both():
    return ask() + ask(socket.SOCK_DGRAM)
"""


def start_peer(t: Test) -> None:
    t.start("B", PYTHON, "-c", PEER, str(PORT), name="peer", stack="kernel")
    t.await_port("B", PORT)


def tell(t: Test, script: str) -> tuple:
    """What the script prints that asks the peer, and how many of its sockets were carried or why not."""
    start_peer(t)
    client = t.start("A", PYTHON, "-c", script, t.lab.address("B"), str(PORT), f"/run/netns/{t.lab.netns('B')}", name="client")
    client.wait(40)
    if t.options.dry:
        return None, None
    process, = [p for p in t.vireo_processes("A") if p.get("pid") == client.pid]
    return json.loads(client.stdout), process["decisions"]


MOVING = ASKING + """
there, home = os.open(elsewhere, os.O_RDONLY), os.open("/proc/thread-self/ns/net", os.O_RDONLY)
told = {"home": [ask_both() for _ in range(5)]}
of_home = socket.socket()
enter(there)
told["there"] = [ask_both() for _ in range(5)]
of_there = socket.socket()
told["of home"] = ask(made=of_home)
in_thread = []
t = threading.Thread(target=lambda: in_thread.append(ask_both()))  # it is where the thread is that made it
t.start()
t.join()
told["thread"] = in_thread
enter(home, by_number=True)
told["of there"] = ask(made=of_there)
told["back"] = [ask_both() for _ in range(5)]
print(json.dumps(told))
"""


@suite.case("a thread enters another network namespace", ("vireo", "kernel"))
def _(t: Test) -> None:
    told, decisions = tell(t, MOVING)
    if t.options.dry:
        return
    a, b = t.lab.address("A"), t.lab.address("B")
    t.expect(told["home"] == told["back"] == [[a] * 4] * 5, f"at home: {told}")
    t.expect(told["there"] == [[b] * 4] * 5 and told["thread"] == [[b] * 4], f"elsewhere: {told}")
    t.expect(told["of home"] == [a, a] and told["of there"] == [b, b], f"a socket is of where it was made: {told}")
    t.expect(decisions["carried"] == 21, f"of 21 at home were carried: {decisions}")
    t.expect(decisions["refused"].get("namespace") == 13, f"13 of elsewhere say why: {decisions}")


# Where it begins elsewhere, the interfaces are not taken from there.
FIRST_ELSEWHERE = ASKING + """
there, home = os.open(elsewhere, os.O_RDONLY), os.open("/proc/thread-self/ns/net", os.O_RDONLY)
of_home = socket.socket()
enter(there)
told = {"there": [ask_both() for _ in range(3)], "of home": ask(made=of_home)}
enter(home)
told["back"] = [ask_both() for _ in range(5)]
print(json.dumps(told))
"""


@suite.case("its first sockets are those of another network namespace", ("vireo", "kernel"))
def _(t: Test) -> None:
    told, decisions = tell(t, FIRST_ELSEWHERE)
    if t.options.dry:
        return
    a, b = t.lab.address("A"), t.lab.address("B")
    t.expect(told == {"there": [[b] * 4] * 3, "of home": [a, a], "back": [[a] * 4] * 5}, str(told))
    t.expect(decisions["carried"] == 10, f"those made at home after it are carried: {decisions}")
    # Home's own, too: it connects while nobody has home's interfaces yet.
    t.expect(decisions["refused"].get("namespace") == 7, f"7 that could not be say why: {decisions}")


# A socket's inode says whose it is: what firewalls and accounting go by.
USERS = ASKING + """
def owner():
    s = socket.socket()
    uid = os.fstat(s.fileno()).st_uid
    ask(made=s)
    return uid
told = [owner() for _ in range(5)]
os.seteuid(65534)
told += [owner() for _ in range(5)]
os.seteuid(0)
told += [owner() for _ in range(5)]
libc.setfsuid(1)
told += [owner() for _ in range(5)]
libc.setfsuid(0)
os.setresuid(0, 65533, 0)
told += [owner() for _ in range(5)]
os.setreuid(0, 0)
changed, of_another = threading.Event(), []  # the kernel's own call is of one thread
def stays():
    changed.wait(20)
    of_another.extend(owner() for _ in range(5))
t = threading.Thread(target=stays)
t.start()
libc.syscall(SYS_setresuid, 0, 65532, 0)
told += [owner() for _ in range(5)]
changed.set()
t.join()
print(json.dumps(told + of_another))
"""


@suite.case("another user", ("vireo", "kernel"))
def _(t: Test) -> None:
    told, decisions = tell(t, USERS)
    if t.options.dry:
        return
    t.expect(told == [u for user in (0, 65534, 0, 1, 65533, 65532, 0) for u in [user] * 5], str(told))
    t.expect(decisions["carried"] == 35, f"all were carried: {decisions}")


# Nothing of ours was called before.
@suite.case("the first call enters another network namespace", ("vireo", "kernel"))
def _(t: Test) -> None:
    start_peer(t)
    leaver = t.start("A", str(program("tests/interop/leaver.cpp")), t.lab.address("B"), str(PORT), name="leaver")
    leaver.wait(20)
    t.expect(t.options.dry or leaver.stdout == "ENETUNREACH\n", f"{leaver.stdout} {leaver.stderr}")


if __name__ == "__main__":
    suite.main()
