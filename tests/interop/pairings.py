#!/usr/bin/python3
"""Real programs in every pairing of Vireo and the kernel as client (host A) and server (host B), IPv4 and IPv6.

Each case runs the program, checks what it transferred, compares the form of what it printed with a run of the kernel
on both ends (numbers aside), and proves who carried the packets.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.build import program  # noqa: E402
from labkit.process import Failed  # noqa: E402
from labkit.runner import Suite, Test  # noqa: E402

PORT = 5001
PAIRS = [(client, server) for client in ("vireo", "kernel") for server in ("vireo", "kernel")]
suite = Suite("interop")
_reference: dict[tuple, list[str]] = {}


def pairing(title: str, seconds: float = 60):
    """Registers the case for each pairing and family; the function gets the test and the family."""
    def register(function):
        for family in (4, 6):
            for ends in PAIRS:
                suite.case(f"{title}, IPv{family}, {ends[0]} to {ends[1]}", ends, seconds=seconds)(
                    lambda t, family=family: function(t, family))
        return function
    return register


def form(text: str) -> list[str]:
    """A program's output without what differs between any two runs: numbers, colours, order of equal lines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = [re.sub(r"\s+", " ", re.sub(r"[0-9]+(\.[0-9]+)?", "#", line)).strip() for line in text.splitlines()]
    return sorted({line for line in lines if line})


def same_form(t: Test, what: tuple, run) -> None:
    """Compares the output of run(stack or None) with that of the kernel on both ends, which is made once."""
    got = form(run(None))
    if t.case.ends == ("kernel", "kernel"):
        _reference[what] = got
        return
    if what not in _reference:
        _reference[what] = form(run("kernel"))
    wanted = _reference[what]
    if got != wanted:
        raise Failed("output differs from the kernel's:\n" +
                     "\n".join([f"  only here:   {x}" for x in got if x not in wanted] +
                               [f"  only kernel: {x}" for x in wanted if x not in got]))


# ---- sockperf --------------------------------------------------------------------------------------------------

def sockperf_knows_ipv6() -> bool:
    """Debian 12's 3.7 does not; its usage text names no IPv6."""
    return "ipv6" in subprocess.run(["sockperf", "server", "--help"], capture_output=True, text=True).stdout.lower()


def pingpong(t: Test, family: int, tcp: bool, stack: str | None) -> str:
    """In sockperf's place where it lacks the family: the same exchange, every reply compared."""
    tool, protocol, address = str(program("tests/integrity/pingpong.cpp")), "tcp" if tcp else "udp", t.lab.address("B", family)
    server = t.start("B", tool, "server", protocol, address, str(PORT), stack=stack, name="pingpong-server", cpu=0)
    t.await_port("B", PORT, protocol)
    client = t.start("A", tool, "client", protocol, address, str(PORT), "1", stack=stack, name="pingpong-client", cpu=1)
    client.wait(30)
    t.stop(server)
    if stack is None:
        t.note(client.stdout.strip())
    return client.stdout + client.stderr


def sockperf(t: Test, family: int, tcp: bool, stack: str | None) -> str:
    if family == 6 and not sockperf_knows_ipv6():
        return pingpong(t, family, tcp, stack)
    address = t.lab.address("B", family)
    protocol = ["--tcp"] if tcp else []
    server = t.start("B", "sockperf", "server", *protocol, "-i", address, "-p", str(PORT), stack=stack,
                     name="sockperf-server", cpu=0)
    t.await_port("B", PORT, "tcp" if tcp else "udp")
    client = t.start("A", "sockperf", "ping-pong", *protocol, "-i", address, "-p", str(PORT), "-m", "14", "-t", "1",
                     "--full-rtt", stack=stack, name="sockperf-client", cpu=1)
    client.wait(30)
    t.stop(server)
    text = client.stdout + client.stderr
    lost = re.search(r"dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)", text)
    t.expect(lost is not None, f"sockperf printed no loss count\n{client.tail()}")
    t.expect(lost.groups() == ("0", "0", "0"), f"dropped, duplicated, out of order: {lost.groups()}")
    received = re.search(r"\[Valid Duration\].*ReceivedMessages=(\d+)", text)
    t.expect(received is not None and int(received[1]) > 100, f"too few messages\n{client.tail()}")
    if stack is None:
        median = re.search(r"percentile 50\.000 =\s+([0-9.]+)", text)
        t.note(f"{received[1]} messages, median {median[1] if median else '?'} us")
    return text


@pairing("sockperf TCP ping-pong")
def _(t: Test, family: int) -> None:
    with t.proof("tcp", least=100):
        text = sockperf(t, family, True, None)
    same_form(t, ("sockperf", "tcp", family), lambda stack: text if stack is None else sockperf(t, family, True, stack))


@pairing("sockperf UDP ping-pong")
def _(t: Test, family: int) -> None:
    with t.proof("udp", least=100):
        text = sockperf(t, family, False, None)
    same_form(t, ("sockperf", "udp", family), lambda stack: text if stack is None else sockperf(t, family, False, stack))


# ---- iperf3 ----------------------------------------------------------------------------------------------------

def iperf3(t: Test, family: int, *options: str) -> dict:
    address = t.lab.address("B", family)
    server = t.start("B", "iperf3", "-s", "-1", "-B", address, "-p", str(PORT), name="iperf3-server")
    t.await_port("B", PORT)
    client = t.start("A", "iperf3", "-c", address, "-p", str(PORT), "-t", "2", "-J", *options, name="iperf3-client")
    client.wait(40, status=None)
    try:
        report = json.loads(client.stdout)
    except ValueError:
        raise Failed(f"iperf3 printed no report\n{client.tail()}") from None
    t.expect("error" not in report, f"iperf3: {report.get('error')}")
    t.expect(client.status == 0, f"iperf3 client: status {client.status}")
    server.wait(15)
    return report["end"]


def iperf3_tcp(t: Test, family: int, *options: str) -> None:
    # iperf3 ends in mid-stream: what a peer still had in flight, up to a window of each stream, may find the process gone.
    with t.proof("tcp", least=100, allow=4096):
        end = iperf3(t, family, *options)
    sent, received = end["sum_sent"]["bytes"], end["sum_received"]["bytes"]
    t.note(f"{end['sum_received']['bits_per_second'] / 1e9:.2f} Gbit/s")
    t.expect(received > 1_000_000, f"only {received} bytes arrived")
    # What is in flight when the time is over is not counted by the receiver: a few windows.
    t.expect(sent - received < 64 << 20 and received <= sent, f"sent {sent}, received {received}")


@pairing("iperf3 TCP")
def _(t: Test, family: int) -> None:
    iperf3_tcp(t, family)


@pairing("iperf3 TCP reverse")
def _(t: Test, family: int) -> None:
    iperf3_tcp(t, family, "-R")


@pairing("iperf3 TCP four streams both ways")
def _(t: Test, family: int) -> None:
    iperf3_tcp(t, family, "-P", "4", "--bidir")


def iperf3_udp(t: Test, family: int, *options: str) -> None:
    with t.proof("both", least=8):  # the datagrams go one way, the control connection both
        end = iperf3(t, family, "-u", "-b", "40M", "-l", "1200", *options)
    total = end["sum"]
    t.note(f"lost {total['lost_packets']} of {total['packets']}")
    t.expect(total["packets"] > 1000, f"only {total['packets']} datagrams")
    t.expect(total["lost_percent"] < 1, f"lost {total['lost_percent']:.2f} % at 40 Mbit/s")


@pairing("iperf3 UDP")
def _(t: Test, family: int) -> None:
    iperf3_udp(t, family)


@pairing("iperf3 UDP reverse")
def _(t: Test, family: int) -> None:
    iperf3_udp(t, family, "-R")


# ---- netcat ----------------------------------------------------------------------------------------------------

def random_file(path: Path, size: int) -> str:
    data = os.urandom(size)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def netcat(t: Test, family: int, up: int, down: int) -> None:
    """`up` bytes from client to server and `down` bytes back, at once, on one connection."""
    address = t.lab.address("B", family)
    upward, downward = t.logs / "up", t.logs / "down"
    up_digest, down_digest = random_file(upward, up), random_file(downward, down)
    with t.proof("tcp", least=4):
        server = t.start("B", "nc", "-N", "-l", address, str(PORT), stdin=downward, name="nc-server")
        t.await_port("B", PORT)
        # Without anything to send: -d, for this netcat ends at the peer's half close even if it has more to send.
        client = t.start("A", "nc", "-N" if up else "-d", address, str(PORT), stdin=upward, name="nc-client")
        client.wait(40)
        server.wait(20)
    for what, process, wanted, size in (("up", server, up_digest, up), ("down", client, down_digest, down)):
        got = process.out_file.stat().st_size
        t.expect(digest(process.out_file) == wanted, f"file {what}: {got} bytes of {size}, or other bytes")
        t.expect(process.stderr == "", f"nc said: {process.stderr!r}")
    for path in (upward, downward, server.out_file, client.out_file):
        path.unlink()


@pairing("netcat file to server")
def _(t: Test, family: int) -> None:
    netcat(t, family, 8 << 20, 0)


@pairing("netcat file to client")
def _(t: Test, family: int) -> None:
    netcat(t, family, 0, 8 << 20)


@pairing("netcat files both ways")
def _(t: Test, family: int) -> None:
    netcat(t, family, (8 << 20) + 1, (1 << 20) + 3)


@pairing("netcat UDP datagrams")
def _(t: Test, family: int) -> None:
    address = t.lab.address("B", family)
    (t.logs / "line").write_text("one datagram\n")
    with t.proof("udp", least=0):
        server = t.start("B", "nc", "-u", "-l", address, str(PORT), name="nc-server")
        t.await_port("B", PORT, "udp")
        client = t.start("A", "nc", "-u", "-w", "1", address, str(PORT), stdin=t.logs / "line", name="nc-client")
        server.await_output("one datagram", 10)
        client.wait(10)
        t.stop(server)
    t.expect(server.stdout == "one datagram\n", f"server got {server.stdout!r}")


@pairing("netcat to a closed port is refused")
def _(t: Test, family: int) -> None:
    with t.proof("tcp", hosts="A"):  # nothing runs on B: its kernel refuses
        client = t.start("A", "nc", "-v", "-w", "5", t.lab.address("B", family), str(PORT), name="nc-client")
        client.wait(10, status=1)
    t.expect("Connection refused" in client.stderr, f"nc said {client.stderr!r}")


if __name__ == "__main__":
    suite.main()
