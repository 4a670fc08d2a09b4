"""What a run shows: each bound the project sets itself, beside the figure, from rounds that ran interleaved."""
from __future__ import annotations

import dataclasses
import statistics
from typing import Callable

from . import stats
from .cases import LINES, SEGMENT
from .results import Results


@dataclasses.dataclass
class Shown:
    what: str
    value: str  # as a person reads it
    bound: str
    holds: bool | None  # None: there is no bound, or it was not measured


def _at_most(limit: float) -> Callable[[float], bool]:
    return lambda value: value <= limit


def _at_least(limit: float) -> Callable[[float], bool]:
    return lambda value: value >= limit


class _List:
    def __init__(self, results: Results):
        self.results, self.rows = results, []

    def ratio(self, what: str, case: str, point: str, above: str, below: str, figure: str, bound: str = "", holds=None) -> None:
        got = self.results.ratio(case, point, above, below, figure)
        if got:
            self.add(what, str(got), got.median, bound, holds, self.is_doubtful((case, point, above), (case, point, below)))

    def figure(self, what: str, case: str, point: str, contestant: str, figure: str, unit: str, bound: str = "", holds=None) -> None:
        rounds = self.results.of(case, point, contestant)
        middle = stats.middle(rounds, figure)
        if middle is not None:
            least, most = stats.spread(rounds, figure)
            self.add(what, f"{middle:.4g} {unit} ({least:.4g}..{most:.4g})", middle, bound, holds, self.is_doubtful((case, point, contestant)))

    def computed(self, what: str, values: list[float], unit: str, of: tuple[tuple[str, str, str], ...], bound: str = "", holds=None) -> None:
        """`of`: the (case, point, contestant)s that the values were computed from."""
        if values:
            middle = statistics.median(values)
            self.add(what, f"{middle:.4g} {unit} ({min(values):.4g}..{max(values):.4g})", middle, bound, holds, self.is_doubtful(*of))

    def is_doubtful(self, *of: tuple[str, str, str]) -> bool:
        return any(stats.is_doubtful(self.results.of(*key)) for key in of)

    def add(self, what: str, value: str, middle: float, bound: str, holds, doubtful: bool) -> None:
        """A figure of which no round counts is shown in brackets, and judged by nobody."""
        self.rows.append(Shown(what, f"[{value}]" if doubtful else value, bound, holds(middle) if holds and not doubtful else None))

    def pairs(self, case_a: str, point_a: str, a: str, case_b: str, point_b: str, b: str) -> list[tuple[dict, dict]]:
        rows = list(zip(self.results.of(case_a, point_a, a), self.results.of(case_b, point_b, b)))
        rows = [p for p in rows if not (p[0].get("failed") or p[1].get("failed"))]
        return [p for p in rows if not (p[0].get("discarded") or p[1].get("discarded"))] or rows


def shows(results: Results) -> list[Shown]:
    """Ratios are of medians, round by round: median (least..most); in brackets where no round counts."""
    s = _List(results)
    for protocol, bare, above_ns in (("tcp", 1.15, 85), ("udp", 1.08, 55)):
        case, name = f"round-trip-{protocol}", protocol.upper()
        s.ratio(f"{name} round trip on AF_XDP: Vireo by the bare device", case, "1 B", "vireo", "device", "median_us",
                f"at most {bare}", _at_most(bare))
        s.ratio(f"{name} round trip: kernel with both sides spinning by Vireo", case, "1 B", "kernel-spin", "vireo", "median_us",
                "at least 2" if protocol == "tcp" else "", _at_least(2) if protocol == "tcp" else None)
        s.ratio(f"{name} round trip: kernel with blocking reads by Vireo", case, "1 B", "kernel", "vireo", "median_us",
                "at least 10" if protocol == "tcp" else "", _at_least(10) if protocol == "tcp" else None)
        s.computed(f"{name} on shm: above the bare wire, for each side and direction",
                   [(v["median_us"] - d["median_us"]) * 1000 / 4 for v, d in s.pairs(case, "1 B", "vireo-shm", case, "1 B", "device-shm")],
                   "ns", ((case, "1 B", "vireo-shm"), (case, "1 B", "device-shm")), f"at most {above_ns} ns", _at_most(above_ns))
        s.computed(f"{name} on shm: p99.9 by the median", [r["p999_us"] / r["median_us"] for r in stats.valid(results.of(case, "1 B", "vireo-shm"))],
                   "", ((case, "1 B", "vireo-shm"),), "at most 3" if protocol == "tcp" else "", _at_most(3) if protocol == "tcp" else None)
    for wire, contestant in (("AF_XDP", "vireo"), ("shm", "vireo-shm")):
        s.computed(f"epoll_wait + recv + send by recv + send on {wire}: more for each side",
                   [(e["median_us"] - r["median_us"]) * 1000 / 2 for e, r in
                    s.pairs("round-trip-ways", "TCP epoll", contestant, "round-trip-tcp", "1 B", contestant)],
                   "ns", (("round-trip-ways", "TCP epoll", contestant), ("round-trip-tcp", "1 B", contestant)), "at most 60 ns", _at_most(60))
    for point in ("4 KiB", "64 KiB", "1 MiB"):
        s.ratio(f"Stream of {point} on AF_XDP: Vireo by the bare device's bytes", "stream", point, "vireo", "device", "gbit", "at least 0.85", _at_least(0.85))
        for wire, suffix in (("AF_XDP", ""), ("shm", "-shm")):
            s.ratio(f"Stream of {point} on {wire}: Vireo by the bare device's bytes, copied", "stream", point, f"vireo{suffix}", f"device-copy{suffix}", "gbit")
    s.ratio("Stream of 64 KiB, MTU 9000: Vireo by the bare device's bytes", "stream-jumbo", "64 KiB", "vireo-jumbo", "device-jumbo", "gbit",
            "at least 0.85", _at_least(0.85))
    _stream_of_1_kib(s)
    s.figure("Stream of 64 B on AF_XDP", "stream", "64 B", "vireo", "million", "M/s", "at least 13 M/s", _at_least(13))
    s.figure("Stream of 64 B with TCP_NODELAY on AF_XDP", "stream-nodelay", "64 B", "vireo", "million", "M/s", "at least 1.4 M/s", _at_least(1.4))
    for point in ("4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB"):
        s.figure(f"Stream of {point} on shm", "stream", point, "vireo-shm", "gbit", "Gbit/s", "at least 70 Gbit/s", _at_least(70))
    _monotone_on_shm(s)
    s.figure("Stream of 64 B on shm", "stream", "64 B", "vireo-shm", "million", "M/s", "at least 34 M/s", _at_least(34))
    for point in ("4 KiB", "64 KiB", "1 MiB"):
        s.ratio(f"Stream of {point}: kernel with segmentation offload by Vireo on AF_XDP", "stream", point, "kernel-offload", "vireo", "gbit")
    for point in ("send", "sendmmsg"):
        s.ratio(f"Datagrams of 64 B by {point} on AF_XDP: Vireo by the bare device's frames", "datagrams", point, "vireo", "device", "million",
                "at least 0.85", _at_least(0.85))
        s.figure(f"Datagrams of 64 B by {point} on AF_XDP: lost and not counted", "datagrams", point, "vireo", "uncounted", "", "0",
                 lambda value: value == 0)
    for point in ("1 at a time", "64 at a time"):
        s.figure(f"Connect, exchange, close, {point}, on AF_XDP", "connects", point, "vireo", "thousand", "k/s", "at least 136 k/s, or the next",
                 _at_least(136))
        s.ratio(f"Connect, exchange, close, {point}: Vireo by the kernel spinning", "connects", point, "vireo", "kernel-spin", "thousand",
                "at least 3.1", _at_least(3.1))
        s.ratio(f"Connect, exchange, close, {point}: Vireo by the bare device's seven frames", "connects", point, "vireo", "device", "thousand")
        s.figure(f"Connect, exchange, close, {point}, on shm", "connects", point, "vireo-shm", "thousand", "k/s", "at least 400 k/s", _at_least(400))
    for wire, contestant, bare in (("AF_XDP", "vireo", "device"), ("shm", "vireo-shm", "device-shm")):
        s.computed(f"Frames of 10 000 connections by those of one, {LINES} lines of each, bare {wire}",
                   [many["median_us"] / one["median_us"] for many, one in s.pairs("echo", "10 000 open", bare, "echo", "1 open", bare)],
                   "", (("echo", "10 000 open", bare), ("echo", "1 open", bare)))
        s.computed(f"Echo with 10 000 connections by that with one, {wire}",
                   [many["median_us"] / one["median_us"] for many, one in s.pairs("echo", "10 000 open", contestant, "echo", "1 open", contestant)],
                   "", (("echo", "10 000 open", contestant), ("echo", "1 open", contestant)), "at most 1.1", _at_most(1.1))
    s.figure("First byte after exec, AF_XDP", "start", "10 connections", "vireo", "first_byte_ms", "ms", "at most 30 ms", _at_most(30))
    s.computed("Memory of a process with ten connections, huge pages included",
               [r["resident_mib"] + r["huge_mib"] for r in stats.valid(results.of("start", "10 connections", "vireo"))], "MiB",
               (("start", "10 connections", "vireo"),), "under 64 MiB",
               lambda value: value < 64)
    s.figure("Processor time of an idle server without a profile", "processor", "idle", "vireo-adaptive", "server_percent", "%", "at most 5 %", _at_most(5))
    s.ratio("Round trip after sleeping: Vireo without a profile by the kernel", "processor", "100 a second", "vireo-adaptive", "kernel", "median_us",
            "at most 1.1", _at_most(1.1))
    _on_rdma(s)
    s.ratio("sockperf TCP ping-pong: kernel by Vireo", "sockperf-latency", "TCP", "kernel", "vireo", "median_us")
    s.ratio("sockperf UDP ping-pong: kernel by Vireo", "sockperf-latency", "UDP", "kernel", "vireo", "median_us")
    return s.rows


def _on_rdma(s: _List) -> None:
    """What Vireo and sockperf put on top of the same device, frame by frame."""
    for point in ("TCP 14 B", f"TCP {SEGMENT} B", "UDP 14 B", "UDP 1472 B"):
        for device in ("verbs", "mlx5"):
            of = (("rdma-latency", point, f"vireo-{device}"), ("rdma-latency", point, "bare-verbs"))
            s.computed(f"sockperf {point} by {device} on softnic: above bare verbs, for each side",
                       [(v["median_us"] - b["median_us"]) * 1000 / 2 for v, b in s.pairs(*of[0], *of[1])], "ns", of)
    for point in ("TCP 64 KiB", "TCP 1 MiB", "UDP 64 B", "UDP 1472 B"):
        for device in ("verbs", "mlx5"):
            s.ratio(f"{point} one way by {device} on softnic: by bare verbs", "rdma-stream", point, f"vireo-{device}", "bare-verbs", "mbit")


def _stream_of_1_kib(s: _List) -> None:
    """Either bound will do."""
    rate = stats.middle(s.results.of("stream", "1 KiB", "vireo"), "gbit")
    by_kernel = s.results.ratio("stream", "1 KiB", "vireo", "kernel", "gbit")
    if rate is not None and by_kernel:
        s.add("Stream of 1 KiB on AF_XDP, and by the kernel's", f"{rate:.3g} Gbit/s, {by_kernel} times", rate, "at least 9 Gbit/s or 2 times",
               lambda value: value >= 9 or by_kernel.median >= 2, s.is_doubtful(("stream", "1 KiB", "vireo"), ("stream", "1 KiB", "kernel")))


def _monotone_on_shm(s: _List) -> None:
    of = [("stream", point, "vireo-shm") for point in ("4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB")]
    known = [rate for rate in (stats.middle(s.results.of(*key), "gbit") for key in of) if rate is not None]
    if len(known) > 1:
        worst = min(b / max(known[:i + 1]) for i, b in enumerate(known[1:]))
        s.add("Stream on shm from 4 KiB up: least by the best before it", f"{worst:.2f}", worst, "at least 0.95", _at_least(0.95), s.is_doubtful(*of))
