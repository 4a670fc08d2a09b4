#!/usr/bin/python3
"""Datagrams above the MTU come in fragments: Vireo puts them together, in order with the others, and leaves those of the kernel's
ports to the kernel. Each case runs on the kernel, too."""
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

suite = Suite("fragments")
PORT = 5009
# Takes datagrams once all of them are there, prints the numbers and lengths of those that are right, and answers the last.
SERVER = """
import socket, sys, zlib
port = int(sys.argv[1])
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
s.bind(("::", port))
print("ready", flush=True)
for line in sys.stdin:
    got, who = [], None
    s.settimeout(2)
    for _ in range(int(line)):
        try: d, who = s.recvfrom(70000)
        except TimeoutError: got.append("lost"); break
        number, crc = d[:4], d[4:8]
        got.append(f"{int.from_bytes(number, 'big')}:{len(d)}" if zlib.crc32(d[8:]) == int.from_bytes(crc, 'big') else "harmed")
    print(*got, flush=True)
    if who: s.sendto(b"." * 9000, who)
"""
# Sends datagrams of these lengths, and waits for the answer.
CLIENT = """
import os, socket, sys, time, zlib
host, port, lengths = sys.argv[1], int(sys.argv[2]), [int(n) for n in sys.argv[3:]]
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
s.settimeout(10)
s.connect((host, port))
for i, n in enumerate(lengths):
    body = os.urandom(n - 8)
    s.send(i.to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body)
print("sent", flush=True)
print(len(s.recv(70000)), flush=True)
"""
MIXED = [8, 2000, 9, 1472, 1473, 10, 3000, 65507, 11, 8000, 12, 40000, 1452, 1453, 13]


class Server:
    """Takes what has come when it is told to."""

    def __init__(self, t: Test, port: int = PORT, **kwargs):
        pipe = t.logs / f"take-{port}"
        os.mkfifo(pipe)
        self.tell = os.open(pipe, os.O_RDWR)
        self.process = t.start("B", PYTHON, "-u", "-c", SERVER, str(port), name=f"server-{port}", stdin=pipe, **kwargs)
        self.process.await_output("ready")
        self.port = port

    def take(self, n: int) -> list[str]:
        before = len(self.process.stdout.splitlines())
        os.write(self.tell, f"{n}\n".encode())
        wait_until(lambda: len(self.process.stdout.splitlines()) > before, 20)
        return self.process.stdout.splitlines()[before].split()

    def engine(self) -> dict:
        return counters.live(self.process.pid)[0]["engine"]


def exchange(t: Test, server: Server, lengths: list[int], v6: bool) -> list[str]:
    """What the server got of them, read when all were sent."""
    host = t.lab.address("B", 6 if v6 else 4)
    client = t.start("A", PYTHON, "-u", "-c", CLIENT, host, str(server.port), *map(str, lengths), name="client", stack="kernel")
    client.await_output("sent")
    got = server.take(len(lengths))
    client.wait(20)
    t.expect(client.stdout.split() == ["sent", "9000"], f"answer: {client.stdout} {client.stderr}")
    return got


def reassembled(t: Test, v6: bool) -> int:
    """By B's kernel."""
    text = t.lab.run("B", "cat", "/proc/net/snmp", "/proc/net/snmp6", check=True).stdout
    if v6:
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Ip6ReasmOKs"))
    head, values = (line.split() for line in text.splitlines() if line.startswith("Ip:"))
    return int(values[head.index("ReasmOKs")])


def is_on_vireo(t: Test) -> bool:
    return t.stack_of("B") == "vireo" and not t.options.dry


def both(name: str):
    def register(function):
        for stack in ("kernel", "vireo"):
            for v6 in (False, True):
                suite.case(f"{name}, IPv{6 if v6 else 4} on {stack}", ("kernel", stack))(
                    lambda t, v6=v6: function(t, v6))
        return function
    return register


def wanted(lengths: list[int]) -> list[str]:
    return [f"{i}:{n}" for i, n in enumerate(lengths)]


@both("in order with datagrams of one packet")
def in_order(t: Test, v6: bool):
    server = Server(t)
    exchange(t, server, [8], v6)  # neighbours are known from here on
    before = reassembled(t, v6)
    for lengths in ([8, 2000, 9], [8, 2000], [2000, 8], MIXED):
        got = exchange(t, server, lengths, v6)
        t.expect(got == wanted(lengths), f"{lengths}: {got}")
    if is_on_vireo(t):
        count = server.engine()["reassembled"]
        large = sum(n > (1452 if v6 else 1472) for lengths in ([2000], [2000], [2000], MIXED) for n in lengths)
        t.expect(count == large, f"Vireo put {count} together, {large} were sent")
        t.expect(reassembled(t, v6) == before, "the kernel put some together, too")
        t.expect(server.engine()["reassembly_fails"] == 0, "some were not put together")


@both("those of the kernel's ports beside those of a carried socket")
def kernels_own(t: Test, v6: bool):
    server, other = Server(t), Server(t, PORT + 1, stack="kernel")
    for _ in range(3):
        for who in (server, other):
            got = exchange(t, who, MIXED, v6)
            t.expect(got == wanted(MIXED), f"port {who.port}: {got}")
    if is_on_vireo(t):
        t.expect(server.engine()["rx_unknown_flow"] == 0, "Vireo took what was not its own")


@both("a host with rules in its packet filter shows it each")
def with_rules(t: Test, v6: bool):
    server = Server(t)
    exchange(t, server, MIXED, v6)
    done = t.lab.run("B", "nft", "add table inet f { chain in { type filter hook input priority 0; tcp dport 9 drop; }; }")
    t.expect(done.returncode == 0, done.stderr)

    def is_the_kernels() -> bool:
        count = reassembled(t, v6)
        exchange(t, server, [2000], v6)
        return reassembled(t, v6) > count
    t.expect(wait_until(is_the_kernels, 10), "the kernel sees none")
    before, carried = reassembled(t, v6), server.engine()["reassembled"] if is_on_vireo(t) else 0
    got = exchange(t, server, [2000, 3000, 65507], v6)
    t.expect(got == wanted([2000, 3000, 65507]), f"{got}")
    t.expect(reassembled(t, v6) == before + 3, "the kernel's packet filter did not see them")
    if is_on_vireo(t):
        t.expect(server.engine()["reassembled"] == carried, "Vireo took some")


if __name__ == "__main__":
    suite.main()
