"""One measured run: a server on host B and core 0, clients on host A and core 1, how much of their cores they got, and
proof of who carried the traffic."""
from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

from labkit import counters
from labkit.build import build_dir
from labkit.lab import Lab
from labkit.process import Failed, Process
from labkit.runner import Case, Test

from . import device, stats
from .contestants import LABS, Contestant

PORT = 5001
CORES = {"A": 1, "B": 0}
TICKS = os.sysconf("SC_CLK_TCK")
SYSCTLS = ("net.ipv4.ip_local_port_range=10000 65535", "net.ipv4.tcp_max_tw_buckets=100000", "net.ipv4.tcp_no_metrics_save=1")


class _TimeOver(Exception):
    pass


class Skipped(Exception):
    """The machine does not allow the run; the text says what is missing."""


def _may_open(descriptors: int) -> bool:
    """Whether a child may have so many; raises this process's own hard limit where that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard >= descriptors:
        return True
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, descriptors))
        return True
    except (ValueError, PermissionError):
        return False


def _time_over(_number, _frame):
    raise _TimeOver


def _await_end(process: Process, seconds: float) -> None:
    """Sleeps until it has ended, and leaves it unreaped, so that its times can be read. Looking now and then would take
    time from the core that is being measured."""
    signal.signal(signal.SIGALRM, _time_over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except _TimeOver:
        raise Failed(f"{process.shown}: still running after {seconds:g} s\n{process.tail()}") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _schedstat(path: Path) -> tuple[float, float]:
    """Seconds that a thread ran, and that it waited for its core while it could have run."""
    try:
        run, waited, _ = path.read_text().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(run) / 1e9, int(waited) / 1e9


def _network_thread(cpu: int) -> Path:
    found = subprocess.run(["pgrep", "-x", f"ksoftirqd/{cpu}"], capture_output=True, text=True).stdout.split()
    return Path("/proc", found[0] if found else "none", "schedstat")


def _stolen(cpu: int) -> float:
    for line in Path("/proc/stat").read_text().splitlines():
        words = line.split()
        if words[0] == f"cpu{cpu}":
            return int(words[8]) / TICKS
    return 0.0


class Watch:
    """What becomes of one side's core, from now until core_time()."""

    def __init__(self, cpu: int):
        self._cpu, self._thread = cpu, _network_thread(cpu)
        self._begun, self._stolen, self._network = time.monotonic(), _stolen(cpu), _schedstat(self._thread)[0]

    def core_time(self, pid: int) -> stats.CoreTime:
        run, waited = _schedstat(Path(f"/proc/{pid}/schedstat"))
        others = sum(_schedstat(task / "schedstat")[0] for task in Path(f"/proc/{pid}/task").glob("*") if task.name != str(pid))
        network = _schedstat(self._thread)[0] - self._network
        return stats.CoreTime(time.monotonic() - self._begun, run, waited, others + network, _stolen(self._cpu) - self._stolen)


@dataclasses.dataclass
class Outcome:
    """What the programs printed, and whether it counts."""

    clients: list[str]
    server: str
    errors: list[str]  # what each said on standard error
    shares: list[float]
    kernel: dict[str, dict[str, int]]  # by host: how the kernel's counters moved
    engine: dict[str, list[dict]]  # by host: Vireo's processes at their end

    @property
    def figures(self) -> dict:
        return {"shares": [round(s, 3) for s in self.shares], "discarded": not stats.counts(self.shares)}

    def client_json(self, index: int = 0) -> dict:
        return json.loads(self.clients[index].strip().splitlines()[-1])

    def server_json(self) -> dict:
        return json.loads(self.server.strip().splitlines()[-1])


class Hosts:
    """The labs of one run of the suite, made when first asked for. As a context manager it takes them down."""

    def __init__(self, options: argparse.Namespace, logs: Path):
        self.options, self.logs = options, logs
        self._labs: dict[str, Lab] = {}
        self._count = 0

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, *exc) -> None:
        for lab in reversed(self._labs.values()):
            lab.__exit__(*exc)

    def lab(self, contestant: Contestant) -> Lab:
        name = contestant.lab
        if name not in self._labs:
            lab = Lab(name=f"bench{os.getpid()}-{name}", ipv6="off", **LABS[name])
            lab.__enter__()
            self._labs[name] = lab
            for host in "AB":
                lab.run(host, "sysctl", "-qw", *SYSCTLS, check=True)
            # Neighbours are known before the first run, as between hosts that have spoken before.
            for host, peer in ("AB", "BA"):
                lab.run(host, "bash", "-c", f"echo > /dev/udp/{lab.address(peer)}/9", check=True)
        return self._labs[name]

    def _test(self, contestant: Contestant, logs: Path) -> Test:
        library = contestant.library or self.options.library
        options = argparse.Namespace(library=library, dry=False, spec=contestant.spec, device=contestant.device)
        test = Test(Case("bench", print, ("kernel", "kernel"), {}, 0, False), options, logs)
        test.lab = self.lab(contestant)
        return test

    def shm_name(self) -> str:
        return f"bench{os.getpid()}-{self._count}"

    def exchange(self, contestant: Contestant, server: list[str], *clients: list[str], protocol: str = "tcp", seconds: float = 30,
                 descriptors: int = 0, exec_with: str = "") -> Outcome:
        """Starts the server, runs the clients one after the other, ends the server. `seconds`: most that a client may take.
        `exec_with`: a program that takes settings and a command as env(1) does and notes the time (`plain exec`).
        `descriptors`: that each side must be able to open, 0: the usual number.
        Errors: Failed, with what the programs said; Skipped."""
        if descriptors and not _may_open(descriptors):
            raise Skipped(f"needs {descriptors} descriptors, and RLIMIT_NOFILE cannot be raised to that")
        self._count += 1
        logs = self.logs / f"{self._count:05d}-{contestant.name}"
        logs.mkdir(parents=True)
        test = self._test(contestant, logs)
        kernel = {h: counters.kernel_counters(test.lab, h) for h in "AB"}
        watches = {h: Watch(cpu) for h, cpu in CORES.items()}
        try:
            process = self._start(test, contestant, "B", server, descriptors, "")
            if contestant.stack in ("device", "lwip"):
                process.await_output("ready")
            else:
                test.await_port("B", PORT, protocol)
            printed, errors, shares = [], [], []
            for command in clients:
                client = self._start(test, contestant, "A", command, descriptors, exec_with)
                _await_end(client, seconds)
                shares.append(watches["A"].core_time(client.pid).share)
                watches["A"] = Watch(CORES["A"])
                client.wait(10)
                printed.append(client.stdout)
                errors.append(client.stderr)
            shares.append(watches["B"].core_time(process.pid).share)
            if process.running:
                process.stop(signal.SIGINT if server[0] == "sockperf" else signal.SIGTERM)
            if process.status != 0:
                raise Failed(f"{process.shown}: status {process.status}\n{process.tail()}")
        finally:
            test.close()
        moved = {h: counters.delta(kernel[h], counters.kernel_counters(test.lab, h)) for h in "AB"}
        engine = {h: test.vireo_processes(h) for h in "AB"} if contestant.stack == "vireo" else {}
        outcome = Outcome(printed, process.stdout, [*errors, process.stderr], shares, moved, engine)
        self._prove(contestant, outcome)
        return outcome

    def _start(self, test: Test, contestant: Contestant, host: str, command: list[str], descriptors: int, exec_with: str) -> Process:
        prefix: tuple[str, ...] = ()
        if self.options.nice:
            prefix += ("nice", "-n", str(self.options.nice))
        if descriptors:
            prefix += ("prlimit", f"--nofile={descriptors}:{descriptors}")
        env = dict(contestant.env)
        if contestant.wire == "shm":
            env["VIREO_SHM_WIRE"] = self.shm_name()
        if contestant.wire == "softnic":
            env["SOFTNIC_WIRE"] = device.softnic_wire(self.shm_name())
        stack = "vireo" if contestant.stack in ("vireo", "preload") else "kernel"
        if exec_with:
            settings = test.environment(stack, test.logs / "first.stats", env)
            words = [f"{k}={v}" for k, v in settings.items() if k.startswith(("LD_", "VMA_", "VIREO_"))]
            process = test.start(host, exec_with, "exec", *words, "--", *command, stack="kernel", cpu=CORES[host], prefix=prefix)
            process.stats_file = test.logs / "first.stats"
            test._processes[-1] = (host, stack, process)
            return process
        return test.start(host, *command, stack=stack, cpu=CORES[host], env=env, prefix=prefix)

    @staticmethod
    def _prove(contestant: Contestant, outcome: Outcome) -> None:
        """On the kernel its counters move. On Vireo its own move, and the kernel opens no connection, sends no data and
        sees no datagram; segments that reach it when their process has ended are none of its own."""
        for host, role in (("A", "client"), ("B", "server")):
            moved = outcome.kernel[host]
            if contestant.stack == "kernel" and not any(moved[n] for n in ("tcp_in", "tcp_out", "udp_in", "udp_out")):
                raise Failed(f"not proven: {role} is on the kernel, whose counters stood still")
            if contestant.stack != "vireo":
                continue
            own = {n: moved[n] for n in ("tcp_active_opens", "tcp_passive_opens", "tcp_data_out", "udp_in", "udp_out") if moved[n]}
            modes = {port["mode"] for process in outcome.engine[host] for port in process.get("ports", [])}
            if contestant.wire == "softnic" and modes != {contestant.device}:
                raise Failed(f"not proven: {role}: carried by {', '.join(sorted(modes)) or 'no device'}, not by {contestant.device}")
            rx, tx = counters.engine_packets(outcome.engine[host])
            if own or not rx + tx:  # datagrams go one way
                refused = counters.not_carried(outcome.engine[host])
                raise Failed(f"not proven: {role}: the kernel's own {own}, Vireo took {rx} packets and sent {tx}"
                             + ("; not carried: " + "; ".join(refused[:3]) if refused else ""))


def missing_programs() -> list[str]:
    """Ninja targets that have to be built first."""
    return ["libvireo.so", "vireo-stat", "bench/pingpong_device", "bench/lwip/lwip_end", "bench/plain/plain", "bench/extra_api", "bench/bare_verbs", "softnic/libibverbs.so.1",
            "softnic/libmlx5.so.1"]


def plain_program() -> Path:
    return build_dir() / "bench" / "plain" / "plain"


def extra_program() -> Path:
    return build_dir() / "bench" / "extra_api"
