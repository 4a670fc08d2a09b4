#!/usr/bin/python3
"""TCP Fast Open (RFC 7413): a client of the kernel's sends data on its SYN to a server under Vireo."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.runner import Suite, Test  # noqa: E402

PORT = 5006
suite = Suite("fast_open")

SERVER = """
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen(5)
for _ in range(3):
    c, _ = s.accept()
    data = c.recv(100)
    print(data.decode(), c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5] & 32, flush=True)
    c.sendall(data.upper())
    c.recv(1)
    c.close()
time.sleep(2)  # so that its counters are seen
"""
CLIENT = """
import socket, sys
for word in (b"one", b"two", b"three"):
    s = socket.socket()
    s.sendto(word, socket.MSG_FASTOPEN, (sys.argv[1], int(sys.argv[2])))
    got = s.recv(100)
    print(got.decode(), s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5] & 32, flush=True)
    s.close()
"""


def run(t: Test, sysctl: int) -> tuple[list[str], list[str]]:
    """@return what the server and the client printed: a word and whether it came on the SYN, a line each."""
    address = t.lab.address("B")
    t.lab.run("B", "sysctl", "-qw", f"net.ipv4.tcp_fastopen={sysctl}")
    t.lab.run("A", "sysctl", "-qw", "net.ipv4.tcp_fastopen=1")
    server = t.start("B", "/usr/bin/python3", "-c", SERVER, address, str(PORT), name="server")
    t.await_port("B", PORT)
    with t.proof("tcp", least=10):
        client = t.start("A", "/usr/bin/python3", "-c", CLIENT, address, str(PORT), name="client")
        client.wait(40)
    server.wait(20)
    return server.stdout.splitlines(), client.stdout.splitlines()


@suite.case("a kernel's client sends on its second SYN", ("kernel", "vireo"))
def _(t: Test) -> None:
    server, client = run(t, 3)
    t.expect(server == ["one 0", "two 32", "three 32"], f"the server printed {server}")
    t.expect(client == ["ONE 0", "TWO 32", "THREE 32"], f"the client printed {client}")


@suite.case("the default, client only: the listener does not", ("kernel", "vireo"))
def _(t: Test) -> None:
    server, client = run(t, 1)
    t.expect(server == ["one 0", "two 0", "three 0"], f"the server printed {server}")
    t.expect(client == ["ONE 0", "TWO 0", "THREE 0"], f"the client printed {client}")


if __name__ == "__main__":
    suite.main()
