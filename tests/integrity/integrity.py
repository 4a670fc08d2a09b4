#!/usr/bin/python3
"""Byte-compared transfers: one connection with both directions at once, and many connections, clean and harmed.

Sizes: --quick for a look, default for every change, --full as promised (1 GiB each way; 200 connections of 10 MiB).
"""
import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.build import program  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5002
HARM = "loss=1%,reorder=1%,dup=0.1%,corrupt=0.1%,seed=7"
suite = Suite("integrity")


def size(t: Test, quick: int, usual: int, full: int) -> int:
    return quick if t.options.quick else full if t.options.full else usual


def transfer(t: Test, family: int, connections: int, length: int, client_mode: str, server_mode: str,
             seconds: float, ways: str = "both", harmed: bool = False, mode: str = "auto") -> None:
    tool, address = str(program("tests/integrity/transfer.cpp")), t.lab.address("B", family)
    common, env = (address, str(PORT), str(connections), str(length)), {"VIREO_XDP_MODE": mode}
    # Far fewer than any stack would need; where data goes one way only, a burst of it may be acknowledged at once.
    segments = connections * length // (65536 if ways == "both" else 65536 * 16)
    # Where the last segments of a connection are lost, on the wire or in a full ring, some are sent again when the process
    # that knew them has ended; the kernel answers those. No data is among them: all of it was compared by then.
    stray = max(4, connections // 5) if harmed else connections // 2 if connections > 1 else 0
    with t.proof("tcp", least=max(10, segments), allow=stray):
        server = t.start("B", tool, "server", *common, server_mode, ways, name="server", env=env)
        t.await_port("B", PORT)
        client = t.start("A", tool, "client", *common, client_mode, ways, name="client", env=env)
        client.wait(seconds)
        server.wait(30)
    sums = [json.loads(p.stdout) for p in (client, server)]
    up, down = (0 if ways == "down" else length), (0 if ways == "up" else length)
    for side, sent, received in ((sums[0], up, down), (sums[1], down, up)):
        t.expect((side["sent"], side["received"]) == (sent * connections, received * connections),
                 f"sums are {side}, due {sent * connections} and {received * connections}")
    t.note(f"{(up + down) * connections * 8 / sums[0]['seconds'] / 1e9:.3f} Gbit/s")


MIB = 1 << 20
for ends in (("vireo", "vireo"), ("vireo", "kernel"), ("kernel", "vireo"), ("kernel", "kernel")):
    pair = f"{ends[0]} to {ends[1]}"

    for family in (4, 6):
        @suite.case(f"one connection both ways at once, clean, IPv{family}, {pair}", ends, seconds=400)
        def _(t: Test, family=family) -> None:
            transfer(t, family, 1, size(t, 32 * MIB, 256 * MIB, 1024 * MIB), "threads", "threads", 380)

    @suite.case(f"one connection both ways at once, over a bridge, {pair}", ends, lab={"bridge": True}, seconds=400)
    def _(t: Test) -> None:
        transfer(t, 4, 1, size(t, 32 * MIB, 64 * MIB, 1024 * MIB), "threads", "threads", 380)

    @suite.case(f"one connection both ways at once, harmed, {pair}", ends, lab={"relay": HARM}, seconds=900)
    def _(t: Test) -> None:
        transfer(t, 4, 1, size(t, 4 * MIB, 32 * MIB, 1024 * MIB), "threads", "poll", 880, harmed=True)

    @suite.case(f"one connection both ways at once, harmed with delay, IPv6, {pair}", ends,
                lab={"relay": HARM + ",delay=1ms,jitter=100us,rate=1gbit"}, seconds=600)
    def _(t: Test) -> None:
        transfer(t, 6, 1, size(t, 1 * MIB, 4 * MIB, 32 * MIB), "poll", "threads", 580, harmed=True)

    @suite.case(f"200 connections, clean, {pair}", ends, seconds=600)
    def _(t: Test) -> None:
        transfer(t, 4, 200, size(t, MIB // 8, MIB, 10 * MIB), "poll", "poll", 580)

    @suite.case(f"200 connections, harmed, {pair}", ends, lab={"relay": HARM}, seconds=900)
    def _(t: Test) -> None:
        transfer(t, 4, 200, size(t, MIB // 32, MIB // 4, 10 * MIB), "poll", "poll", 880, harmed=True)

    @suite.case(f"50 connections of two threads each, clean, {pair}", ends, seconds=200)
    def _(t: Test) -> None:
        transfer(t, 4, 50, size(t, MIB // 8, MIB, 4 * MIB), "threads", "threads", 180)

    @suite.case(f"one way only, the other half closed from the start, {pair}", ends, seconds=100)
    def _(t: Test) -> None:
        transfer(t, 4, 1, size(t, MIB, 64 * MIB, 256 * MIB), "threads", "threads", 90, "down")


for ends in (("vireo", "kernel"), ("kernel", "vireo")):
    # There the kernel's segments arrive joined.
    @suite.case(f"one connection both ways at once, in generic mode, {ends[0]} to {ends[1]}", ends, seconds=400)
    def _(t: Test) -> None:
        transfer(t, 4, 1, size(t, 32 * MIB, 64 * MIB, 1024 * MIB), "threads", "threads", 380, mode="generic")


@suite.case("an exit waits for what its peers still have to say, doubled and slow, vireo to vireo", ("vireo", "vireo"),
            lab={"relay": "dup=100%,delay=60ms,rate=1mbit,seed=7"}, seconds=60)
def _(t: Test) -> None:
    """Copies come behind what they double, those of the last ACKs, too: they find the process that they are for."""
    tool, common = str(program("tests/integrity/transfer.cpp")), (t.lab.address("B"), str(PORT), "5", "100", "poll")
    with t.proof("tcp", least=10):
        server = t.start("B", tool, "server", *common, name="server")
        t.await_port("B", PORT)
        t.start("A", tool, "client", *common, name="client").wait(50)
        server.wait(30)


SLOW_READER = """
import socket, sys, time
l = socket.create_server((sys.argv[1], int(sys.argv[2])))
c, _ = l.accept()
c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 30000)
total = 0
while data := c.recv(20000):
    total += len(data)
    time.sleep(0.05)
print(total)
"""
WRITER = """
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
s.connect((sys.argv[1], int(sys.argv[2])))
s.sendall(bytes(int(sys.argv[3])))
"""


@suite.case("an exiting program's data arrives though its peer reads slowly, vireo to kernel", ("vireo", "kernel"))
def _(t: Test) -> None:
    reader = t.start("B", PYTHON, "-c", SLOW_READER, t.lab.address("B"), str(PORT), name="reader")
    t.await_port("B", PORT)
    writer = t.start("A", PYTHON, "-c", WRITER, t.lab.address("B"), str(PORT), str(MIB), name="writer", env={"VIREO_EXIT_LINGER": "1"})
    writer.wait(30)
    reader.wait(30)
    t.expect(int(reader.stdout) == MIB, f"{reader.stdout.strip()} of {MIB} bytes arrived")


if __name__ == "__main__":
    suite.main()
