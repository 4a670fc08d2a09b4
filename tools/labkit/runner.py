"""A small runner for black-box tests: named cases, each in a lab of its own, with a time limit and a log folder.

  suite = Suite("interop")
  @suite.case("netcat: kernel to vireo", ends=("kernel", "vireo"))
  def _(t): ...
  suite.main()

Options of every suite program: --list, --only REGEX, --results FILE (one JSON line a case), --logs DIR, --library PATH,
--spec PROFILE, --device xdp|verbs|mlx5|mlx5-striding|mlx5-lro, --dry (every Vireo end runs on the kernel instead: it proves the harness, not the library), and for
other interfaces than a veth pair --nics, --upper, --vlan.
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import itertools
import json
import os
import re
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Callable

from . import counters, device
from .build import ROOT, build_dir
from .lab import DEVICE, Lab, LabError, raise_exit
from .process import Failed, Process, wait_until

OURS = ("LD_", "VMA_", "VIREO_", "SOFTNIC_")  # settings: for the program under Vireo alone
PYTHON = "/usr/bin/python3"  # not a shim of some version manager: what is preloaded should be the program


class TimeUp(BaseException):
    """The case's time limit; not an Exception, so that no case swallows it."""


@dataclasses.dataclass
class Case:
    name: str
    function: Callable
    ends: tuple[str, str]  # stack of A (client) and B (server)
    lab: dict | None  # arguments of Lab; None: no lab needed
    seconds: float
    needs_library: bool


class Test:
    """What a case is given: its lab, its programs, and the proof of who carried the traffic."""

    def __init__(self, case: Case, options: argparse.Namespace, logs: Path):
        self.case, self.options, self.logs = case, options, logs
        self.lab: Lab | None = None
        self.notes: list[str] = []
        self._processes: list[tuple[str, str, Process]] = []  # host, stack, process
        self._number = itertools.count(1)

    # ---- programs ----------------------------------------------------------------------------------------------
    def stack_of(self, host: str) -> str:
        return self.case.ends[0 if host == "A" else 1]

    def environment(self, stack: str, stats: Path, extra: dict[str, str] | None = None) -> dict[str, str]:
        """Settings of the caller's environment must not leak into a test."""
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(OURS)}
        env["LC_ALL"] = "C"
        if stack == "vireo" and not self.options.dry:
            env |= {"LD_PRELOAD": str(self.options.library), "VMA_STATS_FILE": str(stats)}
            if self.options.spec:
                env["VMA_SPEC"] = self.options.spec
            env |= device.environment(self.options.device, self.options.library.parent, DEVICE)
            if self.lab and self.lab.needs_naming:
                env["VIREO_INTERFACES"] = DEVICE
            env |= extra or {}
        return env

    def start(self, host: str, *command: str, name: str | None = None, stack: str | None = None,
              stdin: Path | None = None, env: dict[str, str] | None = None, cpu: int | None = None,
              prefix: tuple[str, ...] = ()) -> Process:
        """Starts a program on a host ("" = outside the lab), on the stack that the case gives that host."""
        stack = stack or (self.stack_of(host) if host else "kernel")
        log = self.logs / f"{next(self._number):02d}-{name or Path(command[0]).name}"
        stats = log.with_suffix(".stats")
        environment = self.environment(stack, stats, env)
        line = [*prefix]
        if cpu is not None:
            line += ["taskset", "-c", str(cpu % (os.cpu_count() or 1))]
        # The helpers in front must not be preloaded: `env` sets the library for the program alone.
        moved = [f"{k}={environment.pop(k)}" for k in list(environment) if k.startswith(OURS)]
        line += ["env", *moved, *command] if moved else list(command)
        if host:
            line = self.lab.wrap(host, line)
        process = Process(line, log, env=environment, stdin=stdin, cwd=self.logs, shown=" ".join(command)[:200])
        process.stats_file = stats
        self._processes.append((host, stack, process))
        return process

    def await_port(self, host: str, port: int, protocol: str = "tcp", seconds: float = 15) -> None:
        """Waits for a listener (or a bound UDP port); a carried socket has its kernel socket beneath, so ss sees it."""
        flag = "-lnt" if protocol == "tcp" else "-lnu"

        def listening() -> bool:
            newest = self._processes[-1][2]
            if not newest.running:
                raise Failed(f"{newest.shown}: ended with status {newest.status}\n{newest.tail()}")
            return bool(re.search(rf":{port}\s", self.lab.run(host, "ss", "-H", flag).stdout))

        if not wait_until(listening, seconds, 0.05):
            raise Failed(f"nothing listens on {host} port {port}/{protocol} after {seconds:g} s\n" +
                         "\n".join(p.shown + "\n" + p.tail() for _, _, p in self._processes))

    def snapshot(self) -> None:
        """Reads the live counters of every process that runs under Vireo; done before stopping servers."""
        for _, stack, process in self._processes:
            if stack == "vireo" and not self.options.dry and process.running:
                process.live_stats = counters.live(process.pid) or process.live_stats

    def stop(self, *processes: Process, number: int = signal.SIGINT) -> None:
        self.snapshot()
        for process in processes:
            process.stop(number)

    # ---- verdicts ----------------------------------------------------------------------------------------------
    def expect(self, condition: bool, text: str) -> None:
        if not condition:
            raise Failed(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def proof(self, protocol: str = "tcp", least: int = 1, allow: int = 0, hosts: str = "AB", least_back: int | None = None) -> "Proof":
        return Proof(self, protocol, least, allow, hosts, least_back)

    def vireo_processes(self, host: str) -> list[dict]:
        """Counters of the host's Vireo processes: final where written, else the last seen alive."""
        rows = []
        for where, stack, process in self._processes:
            if where == host and stack == "vireo":
                rows += counters.final(process.stats_file) or process.live_stats or \
                    (counters.live(process.pid) if process.running else [])
        return rows

    def close(self) -> None:
        for _, _, process in reversed(self._processes):
            process.kill()


class Proof:
    """Around the traffic: on a Vireo host the kernel's counters stand still and Vireo's engine counts the packets; on
    a kernel host the kernel's move, which shows that the first check can fail.

    least: packets that must have passed each way. allow: segments the kernel may have seen all the same: those that
    reach the host when the process that owned the connection has ended, which the kernel drops or answers with RST.
    The answer to a needless retransmission may be one, as on the kernel: one more for each, four at most. No connection
    of the kernel's own is ever allowed. hosts: those on which a process takes part. least_back: of what B sends, where that is less.
    """

    _CARRIED_BY_KERNEL = ("tcp_active_opens", "tcp_passive_opens", "tcp_data_out")

    def __init__(self, test: Test, protocol: str, least: int, allow: int, hosts: str, least_back: int | None):
        self._test, self._least, self._allow, self._hosts = test, least, allow, hosts
        self._least_back = least if least_back is None else least_back
        self._names = {"tcp": ("tcp_in", "tcp_out"), "udp": ("udp_in", "udp_out", "udp6_in", "udp6_out"),
                       "both": ("tcp_in", "tcp_out", "udp_in", "udp_out", "udp6_in", "udp6_out")}[protocol]

    def __enter__(self) -> "Proof":
        self._before = {h: counters.kernel_counters(self._test.lab, h) for h in "AB"}
        return self

    def __exit__(self, kind, *_rest) -> None:
        if kind is not None:
            return
        test = self._test
        test.snapshot()
        for host in self._hosts:
            moved = counters.delta(self._before[host], counters.kernel_counters(test.lab, host))
            on_vireo = test.stack_of(host) == "vireo" and not test.options.dry
            seen = sum(moved[n] for n in self._names)
            if on_vireo and "tcp_out" in self._names:
                seen -= moved["tcp_rst_out"]  # it answers one that is counted
            if not on_vireo:
                test.expect(seen >= self._least, f"host {host} is on the kernel, but its counters show only {seen} packets")
                test.note(f"{host} kernel: {seen} packets")
                continue
            processes = test.vireo_processes(host)
            rx, tx = counters.engine_packets(processes)
            modes = {port["mode"] for p in processes for port in p.get("ports", [])}
            test.expect(test.options.device == "xdp" or modes == {test.options.device},
                        f"host {host}: carried by {', '.join(sorted(modes)) or 'no device'}, not by {test.options.device}")
            test.note(f"{host} vireo: rx {rx} tx {tx}, kernel moved by {seen}")
            refused = counters.not_carried(processes)
            why = ("; not carried: " + "; ".join(refused[:5])) if refused else ""
            test.expect(bool(processes), f"host {host}: no counters of Vireo (neither vireo-stat --json nor VMA_STATS_FILE)")
            sent, came = (tx, rx) if host == "A" else (rx, tx)
            test.expect(sent >= self._least and came >= self._least_back, f"host {host}: Vireo carried rx {rx} tx {tx} packets, expected "
                        f"{self._least} from A to B and {self._least_back} back{why}")
            own = {n: moved[n] for n in self._CARRIED_BY_KERNEL if moved[n]}
            test.expect(not own, f"host {host}: the kernel had TCP connections of its own: {own}{why}")
            allow = self._allow + min(counters.retransmits(processes), 4)
            test.expect(seen <= allow, f"host {host}: the kernel carried {seen} packets of Vireo's sockets "
                        f"({ {n: moved[n] for n in self._names if moved[n]} }), allowed {allow}{why}")


class Suite:
    def __init__(self, name: str, keep_lab: bool = False):
        """keep_lab: of a suite whose many small cases share a lab."""
        self.name, self.cases, self._keep_lab = name, [], keep_lab
        self._kept: tuple[dict, Lab] | None = None
        self._labs = contextlib.ExitStack()

    def case(self, name: str, ends: tuple[str, str] = ("kernel", "kernel"), lab: dict | None = {}, seconds: float = 60,
             needs_library: bool | None = None):
        def register(function: Callable) -> Callable:
            if any(c.name == name for c in self.cases):
                raise ValueError(f"two cases named {name}")
            needs = "vireo" in ends if needs_library is None else needs_library
            self.cases.append(Case(name, function, ends, lab, seconds, needs))
            return function
        return register

    def main(self) -> None:
        parser = argparse.ArgumentParser(prog=sys.argv[0])
        parser.add_argument("--list", action="store_true", help="names of the cases")
        parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches (or a * pattern)")
        parser.add_argument("--results", type=Path, metavar="FILE", help="append one JSON line a case")
        parser.add_argument("--logs", type=Path, default=ROOT / "build" / "check" / self.name, metavar="DIR")
        parser.add_argument("--library", type=Path, default=build_dir() / "libvireo.so", metavar="PATH")
        parser.add_argument("--spec", default="latency", metavar="PROFILE", help="VMA_SPEC of Vireo's ends")
        parser.add_argument("--device", choices=device.CHOICES, default="xdp", help="by which Vireo's ends carry (default xdp)")
        parser.add_argument("--nics", default="", metavar="A,B", help="interfaces that join the hosts, in place of a veth pair (labkit/lab.py)")
        parser.add_argument("--upper", default="", help="what lies on top of them (macvlan, ipvlan)")
        parser.add_argument("--vlan", type=int, default=0, metavar="ID", help="addresses on a tagged interface")
        parser.add_argument("--keep-lab", action="store_true", default=self._keep_lab, help="one lab for cases in a row that ask for the same: where to make one takes long")
        parser.add_argument("--dry", action="store_true", help="run Vireo's ends on the kernel: checks the harness")
        parser.add_argument("--quick", action="store_true", help="smaller transfers")
        parser.add_argument("--full", action="store_true", help="the sizes of a release")
        options = parser.parse_args()
        options.library = options.library.resolve()
        options.logs = options.logs.resolve()
        cases = [c for c in self.cases if not options.only or re.search(options.only, c.name)
                 or fnmatch.fnmatch(c.name, options.only)]
        if options.list:
            print("\n".join(c.name for c in cases))
            return
        if not cases:
            sys.exit(f"{self.name}: no case matches {options.only!r}")
        if os.geteuid() != 0:
            sys.exit(f"{self.name}: needs root (namespaces)")
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, raise_exit)
        shutil.rmtree(options.logs, ignore_errors=True)
        failed = 0
        with self._labs:
            for index, case in enumerate(cases, 1):
                failed += not self._run(case, index, len(cases), options)
        print(f"{self.name}: {len(cases) - failed} passed, {failed} failed", flush=True)
        sys.exit(1 if failed else 0)

    @contextlib.contextmanager
    def _lab(self, case: Case, index: int, options: argparse.Namespace):
        """The case's lab; with --keep-lab that of the case before, if it is the same."""
        wanted = {"nics": options.nics, "upper": options.upper, "vlan": options.vlan} | case.lab
        lab = Lab(name=f"t{os.getpid()}-{index}", **wanted)
        if not options.keep_lab:
            with lab:
                yield lab
            return
        if self._kept is None or self._kept[0] != wanted:
            self._labs.close()
            self._kept = None
            self._kept = (wanted, self._labs.enter_context(lab))
        yield self._kept[1]

    def _run(self, case: Case, index: int, total: int, options: argparse.Namespace) -> bool:
        slug = re.sub(r"[^A-Za-z0-9]+", "-", case.name).strip("-").lower()
        logs = options.logs / f"{index:03d}-{slug}"
        logs.mkdir(parents=True)
        logs.chmod(0o777)  # some programs run as an ordinary user
        test = Test(case, options, logs)
        started = time.monotonic()
        error = ""
        try:
            if case.needs_library and not options.dry and not options.library.exists():
                raise Failed(f"{options.library} is missing: build it first")
            signal.signal(signal.SIGALRM, _time_up)
            if case.lab is None:
                _within(case.seconds, case.function, test)
            else:
                with self._lab(case, index, options) as lab:
                    test.lab = lab
                    try:
                        _within(case.seconds, case.function, test)
                    finally:
                        if lab.relay:
                            test.note(f"relay {json.dumps(lab.relay_stats())}")
                        test.close()
        except TimeUp:
            error = f"not done after {case.seconds:g} s\n" + "\n".join(
                f"{p.shown} ({'running' if p.running else p.status})\n{p.tail()}" for _, _, p in test._processes)
        except (Failed, LabError) as failure:
            error = str(failure)
        except Exception:  # a fault of the test itself is a failure to be read, not the end of the suite
            error = traceback.format_exc()
        finally:
            test.close()
        took = time.monotonic() - started
        (logs / "verdict").write_text((error or "passed") + "\n" + "\n".join(test.notes) + "\n")
        print(f"[{index}/{total}] {'FAIL' if error else 'ok  '} {self.name}: {case.name} ({took:.1f} s)"
              + (f"  [{'; '.join(test.notes)}]" if test.notes and not error else ""), flush=True)
        if error:
            print("    " + error.rstrip().replace("\n", "\n    ") + f"\n    logs: {logs}", flush=True)
        if options.results:
            with open(options.results, "a") as out:
                out.write(json.dumps({"suite": self.name, "case": case.name, "passed": not error, "seconds": round(took, 3),
                                      "error": error, "notes": test.notes}) + "\n")
        return not error


def _time_up(_number, _frame) -> None:
    raise TimeUp


def _within(seconds: float, function: Callable, test: Test) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        function(test)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
