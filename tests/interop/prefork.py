#!/usr/bin/python3
"""Servers whose workers share a listener that their parent made. The kernel accepts; the worker that gets the connection
carries it from then on (VIREO_PROMOTE): the kernel sends no data and no reset, and every byte arrives."""
import os
import signal
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT, WORKERS, THREADS, ROUNDS, AGAINS = 5031, 3, 4, 12, 40
suite = Suite("prefork")

SERVER = """
import os, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
l = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family, backlog=128)
workers = []
for _ in range(int(sys.argv[3])):
    pid = os.fork()
    if pid == 0:
        while True:
            c = l.accept()[0]
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := c.recv(65536):
                c.sendall(data)
            c.close()
    workers.append(pid)
print(*workers, flush=True)
for pid in workers:
    os.waitpid(pid, 0)
"""

# Each thread opens connections one after another; the request is on its way before the worker has the connection. Every
# second connection is closed by the client first, the others by the server.
CLIENT = """
import os, socket, sys, threading
address, port, threads, connections, rounds = sys.argv[1], *map(int, sys.argv[2:])
good = [0] * threads

def run(n):
    for c in range(connections):
        with socket.create_connection((address, port), timeout=10) as s:
            for r in range(rounds):
                data = os.urandom((1, 100, 1500, 40000)[(r + n) % 4])
                s.sendall(data)
                got = b""
                while len(got) < len(data):
                    got += s.recv(65536) or sys.exit("end of stream")
                assert got == data
            if c % 2:
                s.shutdown(socket.SHUT_WR)
                assert s.recv(1) == b""
        good[n] += 1

all = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
for t in all:
    t.start()
for t in all:
    t.join()
print(sum(good), "good", flush=True)
"""


def serve_many(t: Test, family: int, promote: bool) -> None:
    connections = 5 if t.options.quick else 500 if t.options.full else 50
    all_of_them = connections * THREADS
    address = t.lab.address("B", family)
    env = {"VIREO_PROMOTE": "1" if promote else "0"}
    server = t.start("B", PYTHON, "-c", SERVER, address, str(PORT), str(WORKERS), name="server", env=env)
    t.expect(wait_until(lambda: len(server.stdout.split()) == WORKERS, 20), f"no workers\n{server.tail()}")
    workers = [int(pid) for pid in server.stdout.split()]
    before = counters.kernel_counters(t.lab, "B")
    client = t.start("A", PYTHON, "-c", CLIENT, address, str(PORT), str(THREADS), str(connections), str(ROUNDS), name="client")
    client.wait(60)
    after = counters.kernel_counters(t.lab, "B")
    t.expect(f"{all_of_them} good" in client.stdout, f"client: {client.tail()}")
    moved = {name: after[name] - before[name] for name in after}
    engines = [e for pid in workers for e in counters.live(pid)]
    carried = sum(e["decisions"]["carried"] for e in engines if "decisions" in e)
    t.note(f"{carried} of {all_of_them} connections carried; kernel of B: {moved}")
    t.expect(moved["tcp_passive_opens"] == all_of_them, "the kernel accepts each connection, as it has the listener")
    if promote:
        t.expect(carried == all_of_them, f"only {carried} of {all_of_them} connections were carried")
        t.expect(moved["tcp_data_out"] == 0, f"the kernel sent {moved['tcp_data_out']} segments with data")
        t.expect(moved["tcp_rst_out"] == 0, f"the kernel sent {moved['tcp_rst_out']} resets")
        received, sent = counters.engine_packets(engines)
        t.expect(min(received, sent) >= all_of_them * ROUNDS // 2, f"Vireo received {received} and sent {sent} packets")
    else:
        t.expect(carried == 0, f"{carried} carried without being asked to")
        t.expect(moved["tcp_data_out"] >= all_of_them * ROUNDS, f"the kernel sent only {moved['tcp_data_out']} segments with data")
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    server.wait(10)


# Vireo's clients use a port again at once. A SYN can still be too early: before a helper has seen the last ACK.
AGAIN = """
import socket, sys, time
slow, ports = 0, set()
for _ in range(int(sys.argv[3])):
    begun = time.monotonic()
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as s:
        slow += time.monotonic() - begun > 0.9  # its SYN was lost
        ports.add(s.getsockname()[1])
        s.sendall(b"x")
        assert s.recv(1) == b"x"
print(slow, len(ports), flush=True)
"""


def same_port_again(t: Test) -> None:
    address = t.lab.address("B", 4)
    server = t.start("B", PYTHON, "-c", SERVER, address, str(PORT), str(WORKERS), name="server", env={"VIREO_PROMOTE": "1"})
    t.expect(wait_until(lambda: len(server.stdout.split()) == WORKERS, 20), f"no workers\n{server.tail()}")
    workers = [int(pid) for pid in server.stdout.split()]
    client = t.start("A", PYTHON, "-c", AGAIN, address, str(PORT), str(AGAINS), name="client")
    client.wait(60)
    t.expect(len(client.stdout.split()) == 2, f"client: {client.tail()}")
    slow, ports = map(int, client.stdout.split())
    t.note(f"{slow} SYNs lost, {ports} ports")
    # A port is free again when the peer's FIN has come; until then the client takes another.
    t.expect(ports <= AGAINS * 3 // 4, f"the client takes other ports, {ports} for {AGAINS}: nothing is shown")
    t.expect(slow <= AGAINS // 10, f"{slow} of {AGAINS} SYNs were lost")
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    server.wait(10)


for number in (4, 6):
    for ends in (("kernel", "vireo"), ("vireo", "vireo")):
        suite.case(f"workers of one listener, IPv{number}, {ends[0]} to {ends[1]}", ends, seconds=120)(lambda t, number=number: serve_many(t, number, True))
suite.case("one port for many connections", ("vireo", "vireo"), seconds=90)(same_port_again)
suite.case("workers of one listener, not asked to carry", ("kernel", "vireo"), seconds=120)(lambda t: serve_many(t, 4, False))

if __name__ == "__main__":
    suite.main()
