#!/usr/bin/python3
"""One connection over a link with rate, queue, delay and loss: Vireo to Vireo beside kernel to kernel (CUBIC both).

The link is the lab's relay; runs alternate (kernel, Vireo, kernel, ...), both of a round losing the same frames, medians
count, and the bounds are on the ratio: the machine has to carry the rate for the kernel first, and `--rate` lowers it where it cannot.

  link       the relay is the link it should be, by a kernel's connection: its rate, and waits within its queue
  goodput    loss x round trip, what arrives in the run's time
  reorder    1 % of the frames are overtaken by 1 to 8 others, or each way varies by 10 %: the rate beside that without
  recovery   how much longer a burst takes that loses its last segment, one in its middle and its retransmission, ...
  fairness   two connections of each stack in one bottleneck with a queue of one bandwidth-delay product
"""
import argparse
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import ROOT, build_dir, program  # noqa: E402
from labkit.lab import Lab, LabError, raise_exit  # noqa: E402
from labkit.process import Failed  # noqa: E402
from labkit.runner import Case, Test  # noqa: E402

PORT = 5003
STACKS = ("kernel", "vireo")
LOSSES = (0.0, 0.01, 0.1, 1.0, 3.0)  # percent
ROUND_TRIPS = (0.1, 10.0, 50.0)  # ms
LEAST_RATIO = 0.95
PAYLOAD_SHARE = 1448 / 1538  # of the wire: time stamps, TCP, IPv4, Ethernet, gap
LEAST_QUEUE_MS = 1.0  # of the link's rate: a burst of a kernel's sender fits
RECOVERY = {"middle": "one in the middle", "again": "that and its retransmission", "tail": "the last of ten",
            "odd": "the last of eleven", "probe": "the last and its probe"}
WAKE_MS = 1.0  # what two hosts and a relay on the same cores add at times
SHARE = (0.15, 0.35)  # of the link, for each of four


@dataclasses.dataclass
class Link:
    """What is between the hosts. Delay is in each direction half the round trip; the queue is one bandwidth-delay product."""

    mbit: float
    round_trip_ms: float
    loss: float = 0.0  # percent, of data and acknowledgments
    reorder: float = 0.0
    jitter: float = 0.0  # percent of the delay, order kept
    seed: int = 3

    @property
    def queue_bytes(self) -> int:
        return int(self.mbit * 125 * max(self.round_trip_ms, LEAST_QUEUE_MS))

    @property
    def spec(self) -> str:
        parts = [f"rate={self.mbit:g}mbit", f"queue={self.queue_bytes}b", "limit=1000000", f"delay={self.round_trip_ms * 500:g}us"]
        parts += [f"seed={self.seed}"]
        parts += [f"loss={self.loss:g}%"] if self.loss else []
        parts += [f"reorder={self.reorder:g}%"] if self.reorder else []
        parts += [f"jitter={self.round_trip_ms * 5 * self.jitter:g}us"] if self.jitter else []
        return ",".join(parts)


class Session:
    """One link with two hosts on it, and runs over it."""

    def __init__(self, options: argparse.Namespace, logs: Path, link: Link, spec: str = ""):
        self.options, self.link, self.round = options, link, 0
        logs.mkdir(parents=True, exist_ok=True)
        self.test = Test(Case("wan", print, STACKS, {}, 0, False), options, logs)
        self.lab = Lab(name=f"wan{os.getpid()}", relay=spec or link.spec, ipv6="off")
        self.flow = str(program("bench/flow.cpp", f"-I{ROOT}"))

    def __enter__(self) -> "Session":
        self.test.lab = self.lab.__enter__()
        self.hasten_relay()
        for host in "AB":
            # A connection must not begin with what the last one learned of the path.
            words = ["net.ipv4.tcp_no_metrics_save=1"]
            if self.options.wmem:
                words.append(f"net.ipv4.tcp_wmem=4096 16384 {self.options.wmem}")
            self.lab.run(host, "sysctl", "-qw", *words, check=True)
        return self

    def __exit__(self, *exc) -> None:
        self.test.close()
        self.lab.__exit__(*exc)

    def hasten_relay(self) -> None:
        """A link does not wait until one of its ends has used up its turn of a core, which takes up to 4 ms."""
        subprocess.run(["chrt", "-f", "-p", str(self.options.realtime or 1), str(self.lab.relay_pid)], check=True)

    def begin_round(self, number: int) -> None:
        """What befalls frame n of a direction is the seed's: both stacks of a round lose the same ones."""
        self.round = number
        if self.link.loss or self.link.reorder:
            self.lab.restart_relay(dataclasses.replace(self.link, seed=self.link.seed + number).spec)
            self.hasten_relay()

    def prefix(self) -> tuple[str, ...]:
        return ("chrt", "-f", str(self.options.realtime - 1)) if self.options.realtime else ()

    def start(self, host: str, stack: str, *words: str):
        return self.test.start(host, self.flow, words[0], self.lab.address("B"), *words[1:], stack=stack, name=f"{stack}-{words[0]}",
                               prefix=self.prefix(), env=dict(self.options.env))

    def pair(self, stack: str, port: int, server: tuple[str, ...], client: tuple[str, ...]):
        """@return the two processes, the client just started."""
        before = self.start("B", stack, server[0], str(port), *server[1:])
        self.test.await_port("B", port)
        return before, self.start("A", stack, client[0], str(port), *client[1:])

    def exchange(self, stack: str, server: tuple[str, ...], client: tuple[str, ...], seconds: float) -> tuple[dict, dict]:
        """One pair of programs from start to end, and proof of who carried it. @return what server and client printed."""
        moved = {h: counters.kernel_counters(self.lab, h) for h in "AB"}
        first, second = self.pair(stack, PORT, server, client)
        second.wait(seconds)
        first.wait(seconds)
        for host, process in (("A", second), ("B", first)):
            now = counters.delta(moved[host], counters.kernel_counters(self.lab, host))
            opened = now["tcp_active_opens"] + now["tcp_passive_opens"]  # segments alone may be stray: of a process that ended
            rx, _ = counters.engine_packets(counters.final(process.stats_file))
            if not self.options.dry and ((opened == 0) != (stack == "vireo") or (rx > 0) != (stack == "vireo")):
                raise Failed(f"{stack} on host {host}: the kernel opened {opened} connections, Vireo took {rx} packets")
        return json.loads(first.stdout), json.loads(second.stdout)

    def goodput(self, stack: str, seconds: float) -> float:
        """One connection, in Mbit/s of payload."""
        arrived, _ = self.exchange(stack, ("sink", "1"), ("source", "1", str(seconds), *self.trace(stack)), seconds + 30)
        return rate_of(arrived, 0, seconds)

    def trace(self, stack: str) -> list[str]:
        return [str(self.options.trace / f"{stack}-{self.link.loss:g}-{self.link.round_trip_ms:g}-{self.round}.csv")] if self.options.trace else []

    def burst(self, stack: str, case: str, connections: int) -> dict[str, list[float]]:
        """How long bursts took that lost nothing, and those that did, in microseconds."""
        return self.exchange(stack, ("answer", str(connections)), ("burst", str(connections), case), 3 + 2 * connections)[1]


def rate_of(arrived: dict, connection: int, seconds: float) -> float:
    """Mbit/s over the first `seconds`."""
    slots = arrived["connections"][connection][:round(seconds / arrived["slot_s"])]
    return sum(slots) * 8e-6 / seconds


def percentile(values: list[float], part: float) -> float:
    """The smallest value that at least `part` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alternate(session: Session, rounds: int, run) -> dict[str, list]:
    """`run(stack)` for each stack in turn; in a round both meet the same losses."""
    rows: dict[str, list] = {s: [] for s in STACKS}
    for number in range(rounds):
        for stack in STACKS:
            session.begin_round(number)
            rows[stack].append(run(stack))
    return rows


def ratio_of_rounds(rows: dict[str, list]) -> float:
    """Vireo's in the kernel's: the median of the rounds' own, for some seeds lose early in slow start and others late."""
    return statistics.median(v / k for v, k in zip(rows["vireo"], rows["kernel"]))


def verdict(good: bool) -> str:
    return "" if good else "  BELOW"


# ---- parts
def link(options: argparse.Namespace, logs: Path) -> tuple[dict, bool]:
    """The relay itself, kernel to kernel: CUBIC fills the wire, and what waits is within the queue."""
    print(f"The link of {options.rate:g} Mbit/s by a kernel's connection: half of its time, without slow start")
    print(f"{'round trip':>12}{'queue':>10}{'payload, Mbit/s':>17}{'of the wire':>13}{'RTT least':>11}{'median':>9}{'p99':>9}{'relay':>8}{'late':>11}")
    results, good = {}, True
    for round_trip in options.round_trips:
        wire = Link(options.rate, round_trip)
        seconds = options.seconds * (1 if round_trip < 20 else 2)
        with Session(options, logs / f"link-{round_trip:g}", wire) as session:
            path = session.test.logs / "trace.csv"
            used = cpu_seconds(session.lab.relay_pid)
            arrived, _ = session.exchange("kernel", ("sink", "1"), ("source", "1", str(seconds), str(path)), seconds + 30)
            used = (cpu_seconds(session.lab.relay_pid) - used) / seconds
            relay = session.lab.relay_stats()["a_to_b"]
        rates = arrived["connections"][0]
        half = rates[len(rates) // 2:round(seconds / arrived["slot_s"])]
        rate = sum(half) * 8e-6 / (len(half) * arrived["slot_s"])
        rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
        waits = [int(row[4]) / 1000 for row in rows if float(row[0]) >= seconds / 2]
        least = min(int(row[5]) for row in rows) / 1000
        most = round_trip + wire.queue_bytes / wire.mbit / 125
        wmem = options.wmem or int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
        is_filled = rate >= 0.93 * PAYLOAD_SHARE * wire.mbit or wmem < 3 * wire.mbit * 125 * round_trip  # its window is too small
        holds = is_filled and least >= round_trip and percentile(waits, 0.99) <= most * 1.05 + WAKE_MS
        good &= holds
        print(f"{round_trip:>9g} ms{wire.queue_bytes / 1000:>7.0f} kB{rate:>17.1f}{100 * rate / PAYLOAD_SHARE / wire.mbit:>11.1f} %{least:>8.2f} ms"
              f"{statistics.median(waits):>6.2f} ms{percentile(waits, 0.99):>6.2f} ms{100 * used:>6.0f} %{relay['late_us_most']:>8} us"
              + ("" if holds else "  NOT SO"), flush=True)
        results[f"{round_trip:g}ms"] = {"Mbit/s": rate, "rtt_ms": [least, statistics.median(waits), percentile(waits, 0.99)], "relay": relay}
    return results, good


def goodput(options: argparse.Namespace, logs: Path) -> tuple[dict, bool]:
    print(f"\nGoodput of one connection, link of {options.rate:g} Mbit/s, {options.rounds} rounds, medians in Mbit/s (least and most)")
    print(f"{'loss':>8}{'round trip':>12}{'kernel':>26}{'Vireo':>26}{'ratio':>8}")
    results, good = {}, True
    for round_trip in options.round_trips:
        for loss in options.losses:
            # Where retransmissions are lost at random, a few timeouts make the figure: more of them.
            seconds = options.seconds * (1 if round_trip < 1 else 2 if round_trip < 20 else 3) * (3 if loss >= 1 else 1)
            with Session(options, logs / f"goodput-{loss:g}-{round_trip:g}", Link(options.rate, round_trip, loss)) as session:
                # A run with a handful of losses is made by when the first comes: more of those too.
                rounds = options.rounds * (4 if 0 < loss < 1 and round_trip >= 10 else 1)
                rows = alternate(session, rounds, lambda stack: session.goodput(stack, seconds))
                relay = session.lab.relay_stats()
            middle = {s: statistics.median(rows[s]) for s in STACKS}
            ratio = ratio_of_rounds(rows)
            good &= ratio >= LEAST_RATIO
            cells = "".join(f"{middle[s]:>10.1f} ({min(rows[s]):.1f} - {max(rows[s]):.1f})".rjust(26) for s in STACKS)
            print(f"{loss:>6g} %{round_trip:>9g} ms{cells}{ratio:>8.2f}{verdict(ratio >= LEAST_RATIO)}", flush=True)
            results[f"{loss:g}% {round_trip:g}ms"] = {**rows, "ratio": ratio, "relay": relay}
    return results, good


def reorder(options: argparse.Namespace, logs: Path) -> tuple[dict, bool]:
    print("\nOne connection without loss on a restless link, medians in Mbit/s, beside a quiet one")
    print(f"{'round trip':>12}{'stack':>10}{'quiet':>10}{'1 % reordered':>16}{'ratio':>8}{'10 % jitter':>14}{'ratio':>8}")
    kinds = {"quiet": {}, "reordered": {"reorder": 1.0}, "jittery": {"jitter": 10.0}}
    results, good = {}, True
    for round_trip in options.round_trips:
        rows = {}
        seconds = options.seconds * (1 if round_trip < 1 else 2)
        for kind, harm in kinds.items():
            with Session(options, logs / f"{kind}-{round_trip:g}", Link(options.rate, round_trip, **harm)) as session:
                rows[kind] = alternate(session, options.rounds, lambda stack: session.goodput(stack, seconds))
        middle = {s: {kind: statistics.median(rows[kind][s]) for kind in kinds} for s in STACKS}
        for stack, row in middle.items():
            ratios = [row[kind] / row["quiet"] for kind in ("reordered", "jittery")]
            holds = stack == "kernel" or (ratios[0] >= LEAST_RATIO and row["jittery"] >= LEAST_RATIO * min(row["quiet"], middle["kernel"]["jittery"]))
            good &= holds
            print(f"{round_trip:>9g} ms{stack:>10}{row['quiet']:>10.1f}{row['reordered']:>16.1f}{ratios[0]:>8.2f}{row['jittery']:>14.1f}"
                  f"{ratios[1]:>8.2f}{verdict(holds)}", flush=True)
        results[f"{round_trip:g}ms"] = rows
    return results, good


def recovery(options: argparse.Namespace, logs: Path) -> tuple[dict, bool]:
    print(f"\nRecovery within a burst of ten segments, {options.bursts} bursts: how long it took, less the round trip of a whole one, ms")
    print(f"{'round trip':>12}  {'lost':30}{'kernel median':>15}{'p99':>9}{'Vireo median':>15}{'p99':>9}")
    results, good = {}, True
    for round_trip in options.round_trips:
        link = Link(options.rate, round_trip)
        with Session(options, logs / f"recovery-{round_trip:g}", link, link.spec + ",marked=1") as session:
            for case, text in RECOVERY.items():
                most = 5
                share = -(-options.bursts // most)
                rows = alternate(session, most, lambda stack: session.burst(stack, case, share))
                took = {}
                for stack in STACKS:
                    whole = statistics.median(v for row in rows[stack] for v in row["unharmed_us"])
                    took[stack] = [(v - whole) / 1000 for row in rows[stack] for v in row["harmed_us"]]
                figures = {s: (statistics.median(took[s]), percentile(took[s], 0.99)) for s in STACKS}
                holds = all(ours <= theirs * 1.1 + WAKE_MS for ours, theirs in zip(figures["vireo"], figures["kernel"]))
                good &= holds
                print(f"{round_trip:>9g} ms  {text:30}" + "".join(f"{figures[s][0]:>15.2f}{figures[s][1]:>9.2f}" for s in STACKS)
                      + ("" if holds else "  ABOVE"), flush=True)
                results[f"{case} {round_trip:g}ms"] = took
    return results, good


def fairness(options: argparse.Namespace, logs: Path) -> tuple[dict, bool]:
    link = Link(options.fair_rate, options.fair_round_trip)
    seconds = options.fair_seconds
    print(f"\nTwo connections of each stack, {link.mbit:g} Mbit/s, {link.round_trip_ms:g} ms, queue {link.queue_bytes} bytes, {seconds:g} s")
    with Session(options, logs / "fairness", link) as session:
        pairs = [session.pair(stack, PORT + i, ("sink", "2"), ("source", "2", str(seconds))) for i, stack in enumerate(STACKS)]
        for server, client in pairs:
            client.wait(seconds + 30)
            server.wait(30)
        relay = session.lab.relay_stats()
    rates = {f"{stack} {i + 1}": rate_of(json.loads(pair[0].stdout), i, seconds) for stack, pair in zip(STACKS, pairs) for i in range(2)}
    total = sum(rates.values())
    jain = total ** 2 / (len(rates) * sum(r * r for r in rates.values()))
    good = all(SHARE[0] <= r / link.mbit <= SHARE[1] for r in rates.values())
    for name, r in rates.items():
        print(f"  {name:10}{r:>8.1f} Mbit/s  {100 * r / link.mbit:5.1f} % of the link{verdict(SHARE[0] <= r / link.mbit <= SHARE[1])}")
    print(f"  together {total:.1f} Mbit/s, Jain's index {jain:.3f}; the queue dropped {relay['a_to_b']['queue_full']} frames", flush=True)
    return {"Mbit/s": rates, "jain": jain, "relay": relay}, good


PARTS = {"link": link, "goodput": goodput, "reorder": reorder, "recovery": recovery, "fairness": fairness}


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(","))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rate", type=float, default=1000, metavar="MBIT", help="of the link (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=3, metavar="S", help="of a run at the shortest round trip (default 3)")
    parser.add_argument("--losses", type=numbers, default=LOSSES, metavar="P,...", help="percent")
    parser.add_argument("--round-trips", type=numbers, default=ROUND_TRIPS, metavar="MS,...")
    parser.add_argument("--bursts", type=int, default=100, metavar="N", help="of each kind of recovery (default 100)")
    parser.add_argument("--fair-rate", type=float, default=100, metavar="MBIT")
    parser.add_argument("--fair-round-trip", type=float, default=20, metavar="MS")
    parser.add_argument("--fair-seconds", type=float, default=60, metavar="S")
    parser.add_argument("--wmem", type=int, default=0, metavar="BYTES", help="tcp_wmem's limit on both hosts (default: the machine's)")
    parser.add_argument("--realtime", type=int, default=0, metavar="N", help="SCHED_FIFO priority of relay and ends, on a busy machine")
    parser.add_argument("--env", action="append", default=[], type=lambda word: word.split("=", 1), metavar="NAME=VALUE", help="for Vireo's ends")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="TCP_INFO of each goodput run, every 10 ms: STACK-LOSS-ROUND_TRIP-ROUND.csv")
    parser.add_argument("--library", type=Path, default=build_dir() / "libvireo.so", metavar="PATH")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures of all rounds")
    parser.add_argument("--dry", action="store_true", help="the kernel in Vireo's place: what the ratios are worth on this machine")
    options = parser.parse_args()
    options.spec, options.device = None, "xdp"
    if unknown := [p for p in options.parts if p not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are: {' '.join(PARTS)}")
    if options.rounds < 1 or options.seconds < 1:
        parser.error("at least one round of one second")
    if not options.dry and not options.library.exists():
        sys.exit(f"wan: {options.library} is missing: tools/demo builds it")
    if os.geteuid() != 0:
        sys.exit("wan: needs root (namespaces, AF_XDP)")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, raise_exit)
    options.library = options.library.resolve()
    if options.trace:
        options.trace = options.trace.resolve()
        options.trace.mkdir(parents=True, exist_ok=True)

    results, good = {}, True
    with tempfile.TemporaryDirectory(prefix="vireo-wan-") as logs:
        for name in options.parts or PARTS:
            results[name], holds = PARTS[name](options, Path(logs) / name)
            good &= holds
            if options.json:
                options.json.write_text(json.dumps({"rate": options.rate, "holds": good, **results}, indent=1))
    print("\nevery bound holds" if good else "\nnot every bound holds")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, LabError) as error:
        sys.exit(f"wan: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
