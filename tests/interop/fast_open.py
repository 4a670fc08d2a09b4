#!/usr/bin/python3
"""TCP Fast Open (RFC 7413) between the kernel and Vireo: data on the SYN, and what calls answer when there is none."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.runner import Suite, Test  # noqa: E402

PORT = 5006
suite = Suite("fast_open")

SERVER = """
import socket, sys, time
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen(5)
for _ in range(int(sys.argv[3])):
    c, _ = s.accept()
    data = b""
    while not data.endswith(b"."):
        data += c.recv(100000)
    print(len(data), data[:5].decode(), c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5] & 32, flush=True)
    c.sendall(data.upper())
    c.recv(1)
    c.close()
time.sleep(2)  # so that its counters are seen
"""
# What every client begins with: ask(how) sends a word by the call that `how` names and prints the answer.
CLIENT = """
import errno, select, socket, sys
to = (sys.argv[1], int(sys.argv[2]))
TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE = 30, 34
def new(*options):
    s = socket.socket(socket.AF_INET6 if ":" in to[0] else socket.AF_INET)
    for o in options:
        s.setsockopt(socket.IPPROTO_TCP, o, 1)
    return s
def name(call, *arguments):
    try:
        return call(*arguments)
    except OSError as e:
        return errno.errorcode[e.errno]
def await_(s, bits):
    p = select.poll()
    p.register(s, bits)
    return (p.poll(5000) or [(0, 0)])[0][1]
def end(s, n, *said):
    got = b""
    s.setblocking(True)
    while len(got) < n:
        got += s.recv(100000)
    print(*said, len(got), got[:5].decode(), s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5] & 32, flush=True)
    s.close()
"""


def run(t: Test, client: str, count: int, server_bits: int = 3, client_bits: int = 1,
        least: int = 6, allow: int = 0, family: int = 4) -> tuple[list[str], list[str]]:
    """@return what the server and the client printed."""
    address = t.lab.address("B", family)
    t.lab.run("B", "sysctl", "-qw", f"net.ipv4.tcp_fastopen={server_bits}")
    t.lab.run("A", "sysctl", "-qw", f"net.ipv4.tcp_fastopen={client_bits}")
    server = t.start("B", "/usr/bin/python3", "-c", SERVER, address, str(PORT), str(count), name="server")
    t.await_port("B", PORT)
    with t.proof("tcp", least=least, allow=allow):
        program = t.start("A", "/usr/bin/python3", "-c", CLIENT + client, address, str(PORT), name="client")
        program.wait(40)
    server.wait(20)
    return server.stdout.splitlines(), program.stdout.splitlines()


THREE = """
for word in (b"one..", b"two..", b"three."):
    s = new()
    n = s.sendto(word, socket.MSG_FASTOPEN, to)
    end(s, n)
"""


def three(t: Test, server_bits: int, on_syn: int, family: int = 4) -> None:
    server, client = run(t, THREE, 3, server_bits, family=family)
    t.expect(server == ["5 one.. 0", f"5 two.. {on_syn}", f"6 three {on_syn}"], f"the server printed {server}")
    t.expect(client == ["5 ONE.. 0", f"5 TWO.. {on_syn}", f"6 THREE {on_syn}"], f"the client printed {client}")


ENDS = (("kernel", "vireo"), ("vireo", "kernel"), ("vireo", "vireo"), ("kernel", "kernel"))
for ends in ENDS[:3]:
    @suite.case(f"{ends[0]} to {ends[1]}: the second SYN has data", ends)
    def _(t: Test) -> None:
        three(t, 3, 32)

    @suite.case(f"{ends[0]} to {ends[1]}: the second SYN has data, IPv6", ends)
    def _(t: Test) -> None:
        three(t, 3, 32, 6)

    @suite.case(f"{ends[0]} to {ends[1]}: the default, client only: the listener does not", ends)
    def _(t: Test) -> None:
        three(t, 1, 0)

# Each a listener and one connection of it: pairs of a port and a key.
KEYED_SERVER = """
import socket, sys, time
TCP_FASTOPEN_KEY = 33
listeners = []
for port, key in zip(sys.argv[2::2], sys.argv[3::2]):
    s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
    if key:
        s.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_KEY, bytes.fromhex(key))
    s.bind((sys.argv[1], int(port)))
    s.listen(5)
    listeners.append(s)
for s in listeners:
    c, _ = s.accept()
    data = c.recv(100)
    print(c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5] & 32, flush=True)
    c.sendall(data.upper())
    c.recv(1)
    c.close()
"""
EACH = """
for port, word in enumerate((b"one..", b"two..", b"three."), to[1]):
    s = new()
    n = s.sendto(word, socket.MSG_FASTOPEN, (to[0], port))
    end(s, n)
"""
KEY = {digits: digits * 16 for digits in ("11", "22")}
COUNTED = ("fast_opens", "fast_opens_old_key", "fast_opens_refused")


def hand_on(t: Test, servers: list[tuple[str, str]], on_syn: list[int], counted: dict[str, tuple[int, int, int]],
            family: int = 4) -> None:
    """A client goes from server to server of one address, a port and a key (of hexadecimal digits, empty: none of its
    own) each, and shows each the cookie that it had from the one before.

    on_syn: whether data went with the SYN, by TCP_INFO. counted: COUNTED by the kernel and by Vireo on the servers'
    host."""
    address = t.lab.address("B", family)
    for host in "AB":
        t.lab.run(host, "sysctl", "-qw", "net.ipv4.tcp_fastopen=3")
    started = {}
    for stack in ("kernel", "vireo"):  # of a host, one process on each: an interface has one Vireo
        ports = [port for port, (which, _) in enumerate(servers, PORT) if which == stack]
        pairs = [word for port in ports for word in (str(port), servers[port - PORT][1])]
        started[stack] = t.start("B", "/usr/bin/python3", "-c", KEYED_SERVER, address, *pairs, name=f"server-{stack}",
                                 stack=stack)
        t.await_port("B", ports[-1])
    before = {host: counters.kernel_counters(t.lab, host) for host in "AB"}
    client = t.start("A", "/usr/bin/python3", "-c", CLIENT + EACH, address, str(PORT), name="client")
    client.wait(40)
    t.expect([line.split()[2] for line in client.stdout.splitlines()] == [str(32 * n) for n in on_syn],
             f"the client printed {client.stdout.splitlines()}")
    for stack, server in started.items():
        server.wait(20)
        t.expect(server.stdout.split() == [str(32 * n) for n, (which, _) in zip(on_syn, servers) if which == stack],
                 f"the server on {stack} printed {server.stdout!r}")
    moved = {host: counters.delta(before[host], counters.kernel_counters(t.lab, host)) for host in "AB"}
    if t.options.dry:
        return
    engines = [p["engine"] for p in t.vireo_processes("B")]
    seen = {"kernel": tuple(moved["B"][name] for name in COUNTED),
            "vireo": tuple(sum(e[name] for e in engines) for name in COUNTED)}
    t.note(f"{', '.join(COUNTED)}: " + ", ".join(f"{stack} {n}" for stack, n in seen.items()))
    t.expect(seen == counted, f"{COUNTED} are {seen} instead of {counted}")
    if t.stack_of("A") == "kernel":
        t.expect(moved["A"]["fast_active"] == sum(on_syn), f"the client's kernel counted {moved['A']}")


OTHER = {"kernel": "vireo", "vireo": "kernel"}
for ends, giver, family in [(ends, giver, family) for ends in (("kernel", "vireo"), ("vireo", "vireo"))
                            for giver in OTHER for family in (4, 6)]:
    said = f"{ends[0]} client, " + ("IPv6, " if family == 6 else "")

    @suite.case(said + f"one key: a cookie from {giver} opens at {OTHER[giver]}, and back", ends)
    def _(t: Test, giver: str = giver, family: int = family) -> None:
        hand_on(t, [(giver, KEY["11"]), (OTHER[giver], KEY["11"]), (giver, KEY["11"])], [0, 1, 1],
                {"kernel": (1, 0, 0), "vireo": (1, 0, 0)}, family)

    @suite.case(said + f"a changed key: from {giver}'s old one by {OTHER[giver]}'s backup to {giver}'s new one", ends)
    def _(t: Test, giver: str = giver, family: int = family) -> None:
        hand_on(t, [(giver, KEY["11"]), (OTHER[giver], KEY["22"] + KEY["11"]), (giver, KEY["22"])], [0, 1, 1],
                {giver: (1, 0, 0), OTHER[giver]: (1, 1, 0)}, family)

for giver in OTHER:
    @suite.case(f"a cookie of another key: {OTHER[giver]} does not take {giver}'s, and gives its own",
                ("kernel", "vireo"))
    def _(t: Test, giver: str = giver) -> None:
        hand_on(t, [(giver, KEY["11"]), (OTHER[giver], KEY["22"]), (OTHER[giver], KEY["22"])], [0, 0, 1],
                {giver: (0, 0, 0), OTHER[giver]: (1, 0, 1)})

    @suite.case(f"net.ipv4.tcp_fastopen_key: a cookie from {giver} opens at {OTHER[giver]}", ("kernel", "vireo"))
    def _(t: Test, giver: str = giver) -> None:
        t.lab.run("B", "sysctl", "-qw", "net.ipv4.tcp_fastopen_key=" + "-".join(["11" * 4] * 4))
        hand_on(t, [(giver, ""), (OTHER[giver], ""), (giver, KEY["11"])], [0, 1, 1],
                {"kernel": (1, 0, 0), "vireo": (1, 0, 0)})

    @suite.case(f"net.ipv4.tcp_fastopen_key, two: a cookie of the backup from {giver} opens at {OTHER[giver]}",
                ("kernel", "vireo"))
    def _(t: Test, giver: str = giver) -> None:
        both = ",".join("-".join([digits * 4] * 4) for digits in ("22", "11"))
        t.lab.run("B", "sysctl", "-qw", f"net.ipv4.tcp_fastopen_key={both}")
        hand_on(t, [(giver, KEY["11"]), (OTHER[giver], ""), (giver, KEY["22"])], [0, 1, 1],
                {giver: (1, 0, 0), OTHER[giver]: (1, 1, 0)})

CALLS = """
s = new()
s.setblocking(False)
print(name(s.sendto, b"first.", socket.MSG_FASTOPEN, to), flush=True)
await_(s, select.POLLOUT)
print(name(s.sendto, b"first.", socket.MSG_FASTOPEN, to), flush=True)
print(name(s.sendto, b"first.", socket.MSG_FASTOPEN, to), flush=True)
end(s, 6, "asks")
s = new()
s.setblocking(False)
print(name(s.sendto, b"again.", socket.MSG_FASTOPEN, to), flush=True)
end(s, 6, "with the SYN")
s = new()
s.setblocking(False)
n = name(s.sendto, b"x" * 99999 + b".", socket.MSG_FASTOPEN, to)
print("a segment" if 1000 < n < 1500 else n, flush=True)
s.setblocking(True)
s.sendall((b"x" * 99999 + b".")[n:])
end(s, 100000, "more than one")
s = new()
print(s.sendto(b"y" * 99999 + b".", socket.MSG_FASTOPEN, to))
end(s, 100000, "blocking")
s = new(TCP_FASTOPEN_CONNECT)
print(name(s.connect, to), name(s.getpeername), await_(s, select.POLLOUT | select.POLLIN), flush=True)
print(name(s.send, b"later."), flush=True)
end(s, 6, "connect")
s = new(TCP_FASTOPEN_CONNECT)
s.setblocking(False)
print(name(s.connect, to), name(s.connect, to), flush=True)
print(name(s.send, b"never blocks."), flush=True)
end(s, 13, "connect, non-blocking")
s = new(TCP_FASTOPEN_NO_COOKIE)
print(name(s.sendto, b"shows none.", socket.MSG_FASTOPEN, to), flush=True)
end(s, 11, "no cookie")
s = new()
s.connect(to)
print(name(s.sendto, b"late.", socket.MSG_FASTOPEN, to), flush=True)
print(name(s.setsockopt, socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1), flush=True)
s.sendall(b"plain.")
end(s, 6, "plain")
s = new()
print(name(s.sendto, b"none.", socket.MSG_FASTOPEN, (to[0], to[1] + 1)), flush=True)
print(name(s.sendto, b"then it works.", socket.MSG_FASTOPEN, to), flush=True)
end(s, 14, "after a refusal")
"""
ANSWERS = [
    "EINPROGRESS", "6", "EISCONN", "asks 6 FIRST 0",
    "6", "with the SYN 6 AGAIN 32",
    "a segment", "more than one 100000 XXXXX 32",
    "100000", "blocking 100000 YYYYY 32",
    "None ENOTCONN 4", "6", "connect 6 LATER 32",
    "None EISCONN", "13", "connect, non-blocking 13 NEVER 32",
    "11", "no cookie 11 SHOWS 0",
    "EISCONN", "EINVAL", "plain 6 PLAIN 0",
    "ECONNREFUSED", "14", "after a refusal 14 THEN  32",
]

for ends, family in [(ends, family) for ends in ENDS for family in (4, 6)]:
    @suite.case(f"{ends[0]} to {ends[1]}: what the calls answer" + (", IPv6" if family == 6 else ""), ends)
    def _(t: Test, family: int = family) -> None:
        server, client = run(t, CALLS, 9, allow=2, family=family)  # the SYN that is refused, and its RST
        wrong = [f"{w!r} instead of {r!r}" for w, r in zip(client, ANSWERS) if w != r]
        t.expect(client == ANSWERS, f"the client printed {'; '.join(wrong) or client}")
        t.expect(len(server) == 9, f"the server printed {server}")

for ends in ENDS:
    @suite.case(f"{ends[0]} to {ends[1]}: data without cookies where both operators say so", ends)
    def _(t: Test) -> None:
        server, client = run(t, THREE, 3, 0x203, 5)
        t.expect(client == ["5 ONE.. 32", "5 TWO.. 32", "6 THREE 32"], f"the client printed {client}")

OFF = """
s = new()
print(name(s.sendto, b"no.", socket.MSG_FASTOPEN, to), name(s.setsockopt, socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1))
s.connect(to)
s.sendall(b"plain.")
print(name(s.sendto, b"no.", socket.MSG_FASTOPEN, to))
end(s, 6)
"""

for ends in (("vireo", "kernel"), ("kernel", "kernel")):
    @suite.case(f"{ends[0]} to {ends[1]}: switched off", ends)
    def _(t: Test) -> None:
        _, client = run(t, OFF, 1, 3, 0, 3)
        t.expect(client == ["ENOTSUP ENOTSUP", "ENOTSUP", "6 PLAIN 0"], f"the client printed {client}")

LOOPBACK = """
import threading
l = socket.socket()
l.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
l.bind(("127.0.0.1", 0))
l.listen(5)
def serve():
    for _ in range(2):
        c, _ = l.accept()
        c.sendall(c.recv(100).upper())
        c.recv(1)
threading.Thread(target=serve).start()
for how in (0, TCP_FASTOPEN_CONNECT):
    if how:
        s = new(how)
        s.connect(l.getsockname())
        n = s.send(b"there")
    else:
        s = new()
        n = s.sendto(b"there", socket.MSG_FASTOPEN, l.getsockname())
    end(s, n)
"""


@suite.case("vireo, to an address that the kernel serves: the kernel's own Fast Open", ("vireo", "kernel"))
def _(t: Test) -> None:
    t.lab.run("A", "sysctl", "-qw", "net.ipv4.tcp_fastopen=3")
    program = t.start("A", "/usr/bin/python3", "-c", CLIENT + LOOPBACK, "127.0.0.1", "1", name="client")
    program.wait(20)
    client = program.stdout.splitlines()
    t.expect(client == ["5 THERE 0", "5 THERE 32"], f"the client printed {client}")


if __name__ == "__main__":
    suite.main()
