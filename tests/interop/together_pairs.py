"""What the suites of many processes on one NIC share: pairs of programs, who carried them, and what is left at the end."""
import json
import os
import re
import signal
import struct
import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import program  # noqa: E402
from labkit.process import Process, wait_until  # noqa: E402
from labkit.runner import Test  # noqa: E402

HUGE = 1 << 40  # bytes that no run finishes
STALL = 100.0  # ms that nobody may wait because of another process
MIB = 1 << 20
# Sleeps where there is nothing to do: on a machine with fewer processors than processes, those that poll wait for each other.
CALM = {"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"}
# The kernel's connections. Segments for one whose owner was killed reach the kernel, too, which resets; these are none.
KERNELS = ("tcp_active_opens", "tcp_passive_opens", "tcp_data_out", "udp_out", "udp6_out")


def size(t: Test, quick: int, usual: int, full: int) -> int:
    return quick if t.options.quick else full if t.options.full else usual


class Witness(threading.Thread):
    """Sleeps again and again, and knows when it was woken late: what the machine itself held up is nobody's stall."""

    STEP = 0.002

    def __init__(self):
        super().__init__(daemon=True)
        self.late: list[tuple[float, float]] = []  # when, ms
        self.start()

    def run(self) -> None:
        while True:
            then = time.monotonic()
            time.sleep(self.STEP)
            now = time.monotonic()
            if now - then > self.STEP + 0.005:
                self.late.append((now, (now - then) * 1000))

    def worst(self, seconds: float) -> float:
        since = time.monotonic() - seconds
        return max((ms for when, ms in self.late if when > since), default=0.0)


WITNESS = Witness()


class Pair:
    """A server on B and a client on A."""

    def __init__(self, server: Process, client: Process, port: int):
        self.server, self.client, self.port = server, client, port

    @property
    def both(self) -> tuple[Process, Process]:
        return self.server, self.client


class Observer(Pair):
    """Messages to and fro (rounds.cpp); tells the longest round trip."""

    def __init__(self, t: Test, port: int, protocol: str = "tcp", length: int = 64, pause_us: int = 500,
                 env: dict[str, str] | None = None, address: str = ""):
        tool, address = str(program("tests/interop/rounds.cpp")), address or t.lab.address("B")
        server = t.start("B", tool, "server", address, str(port), name=f"{port}-echo", env=env)
        t.await_port("B", port)
        client = t.start("A", tool, "client", protocol, address, str(port), str(length), str(pause_us),
                         name=f"{port}-rounds-{protocol}", env=env)
        super().__init__(server, client, port)
        self.test, self.lines = t, 1
        t.expect(wait_until(lambda: "up" in client.stdout or not client.running, 20) and client.running,
                 f"port {port}: no reply\n{client.tail()}\n{server.tail()}")

    def window(self) -> dict:
        """Since the last call."""
        return self._after(signal.SIGUSR1)

    def end(self) -> dict:
        seen = self._after(signal.SIGTERM)
        self.client.wait(10)
        self.server.stop(signal.SIGTERM)
        return seen

    def _after(self, number: int) -> dict:
        self.client.signal(number)
        self.test.expect(wait_until(lambda: len(self.client.stdout.splitlines()) > self.lines, 15, 0.005),
                         f"port {self.port}: the client does not go on\n{self.client.tail()}")
        seen = json.loads(self.client.stdout.splitlines()[self.lines])
        self.lines += 1
        return seen

    def expect_calm(self, seen: dict, when: str, most: float = STALL) -> None:
        machine = WITNESS.worst(seen["ms"] / 1000 + 0.5)
        # A message passes several processes: each may have to wait for a processor.
        self.test.expect(seen["end"] in ("goes on", "stopped") and not seen["lost"] and not seen["wrong"]
                         and seen["longest"] <= most + 6 * machine, f"{when}: port {self.port} saw {seen}, the machine {machine:.0f} ms")


def transfer(t: Test, port: int, length: int, connections: int = 1, mode: str = "threads", env: dict[str, str] | None = None,
             address: str = "") -> Pair:
    tool, address = str(program("tests/integrity/transfer.cpp")), address or t.lab.address("B")
    common = (address, str(port), str(connections), str(length), mode)
    server = t.start("B", tool, "server", *common, name=f"{port}-server", env=env)
    t.await_port("B", port)
    return Pair(server, t.start("A", tool, "client", *common, name=f"{port}-client", env=env), port)


def finish(t: Test, pair: Pair, length: int, seconds: float, connections: int = 1) -> None:
    """Every byte was compared; this compares the sums."""
    for process in (pair.client, pair.server):
        process.wait(seconds)
        sums = json.loads(process.stdout)
        t.expect((sums["sent"], sums["received"]) == (length * connections,) * 2, f"sums are {sums}, due {length * connections}")


def packets(process: Process) -> tuple[int, int]:
    return counters.engine_packets(counters.final(process.stats_file) or counters.live(process.pid))


def expect_carried(t: Test, *processes: Process, least: int = 5) -> None:
    if t.options.dry:
        return
    for process in processes:
        own = counters.final(process.stats_file) or counters.live(process.pid)
        seen = counters.engine_packets(own)
        t.expect(min(seen) >= least, f"{process.shown}: carried {seen}, not {least}; {counters.not_carried(own)}\n{process.tail()}")


def frames(process: Process) -> Counter:
    """Frames of the packet memory by who has them: "free", "gone", "queue", or a member's slot. As in
    dev/xdp/group/shared_memory.h: a byte for each frame at the end of the memory of the process's group."""
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            is_it = os.readlink(link).startswith("/memfd:vireo-group") and link.stat().st_size > 4096
        except OSError:
            continue
        if is_it:
            memory = link.read_bytes()
            _, _, count = struct.unpack_from("=QII", memory)
            names = {0: "free", 127: "gone"}
            return Counter(names.get(owner, "queue" if owner > 127 else owner - 1) for owner in memory[-count:])
    return Counter()


def expect_joins(t: Test, port: int, length: int = MIB, connections: int = 1) -> Pair:
    """One more process on each host is carried; and again, if the machine kept the others from answering in time."""
    for _ in range(3):
        pair = transfer(t, port, length, connections, env=CALM)
        finish(t, pair, length, 60, connections)
        if t.options.dry or all(min(packets(process)) > 4 for process in pair.both) or WITNESS.worst(10) < 100:
            break
    expect_carried(t, *pair.both)
    return pair


class KernelStill:
    """Around traffic in which processes are killed: on both hosts the kernel opens no connection and sends no data."""

    def __init__(self, t: Test, *, sent: int = 0):
        self.test, self.sent = t, sent

    def __enter__(self) -> "KernelStill":
        self.before = {h: counters.kernel_counters(self.test.lab, h) for h in "AB"}
        return self

    def __exit__(self, kind, *_rest) -> None:
        if kind is not None or self.test.options.dry:
            return
        for host in "AB":
            moved = counters.delta(self.before[host], counters.kernel_counters(self.test.lab, host))
            seen = {n: moved[n] for n in KERNELS if moved[n] > self.sent}
            self.test.expect(not seen, f"host {host}: the kernel's counters moved: {seen}")


def pids(t: Test, host: str) -> dict[int, str]:
    names = {}
    for pid in t.lab.run(host, "ip", "netns", "pids", t.lab.netns(host)).stdout.split():
        try:
            names[int(pid)] = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            pass
    return names


def left_on(t: Test, host: str) -> str:
    """XDP programs on the host's interfaces, AF_XDP sockets, the group's name, processes."""
    links = json.loads(t.lab.run(host, "ip", "-j", "-d", "link", "show").stdout or "[]")
    rows = [f"XDP on {link['ifname']}" for link in links if link.get("xdp", {}).get("prog") or link.get("xdp", {}).get("attached")]
    rows += t.lab.run(host, "ss", "-Hn", "--xdp").stdout.splitlines()
    rows += [row for row in t.lab.run(host, "ss", "-Hxa").stdout.splitlines() if re.search(r"@vireo-", row)]
    rows += [f"process {pid} {name}" for pid, name in pids(t, host).items()]
    return "\n".join(rows)


def expect_nothing_left(t: Test) -> None:
    """After the last process has ended; mourners live a moment longer."""
    for host in "AB":
        t.expect(wait_until(lambda: not left_on(t, host), 4), f"host {host}: there remains\n{left_on(t, host)}")


def bytes_moved(t: Test) -> int:
    """Bytes that the device of host A has sent and received, whoever carried them."""
    shown = json.loads(t.lab.run("A", "ip", "-j", "-s", "link", "show", "vr0").stdout)[0]["stats64"]
    return shown["tx"]["bytes"] + shown["rx"]["bytes"]


def await_traffic(t: Test, least: int = MIB, seconds: float = 15) -> None:
    before = bytes_moved(t)
    t.expect(wait_until(lambda: bytes_moved(t) > before + least, seconds), "no traffic")
