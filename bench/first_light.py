#!/usr/bin/python3
"""sockperf between two hosts, the kernel beside Vireo: latency of 14-byte messages and throughput, TCP and UDP.

Runs alternate (kernel, Vireo, kernel, ...) so that a drifting machine drifts for both; one end is pinned to each core.
Vireo's runs differ by VMA_SPEC=latency LD_PRELOAD=libvireo.so alone. The bare AF_XDP ping-pong of equal frames on the
same pair is the floor. `tools/demo` builds all and calls this.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from benchkit import device, sockperf  # noqa: E402
from labkit import counters  # noqa: E402
from labkit.build import build_dir  # noqa: E402
from labkit.lab import Lab, LabError, raise_exit  # noqa: E402
from labkit.process import Failed  # noqa: E402
from labkit.runner import Case, Test  # noqa: E402

PORT = 5001
STACKS = ("kernel", "vireo")
FRAMES = {protocol: head + 14 for protocol, head in device.FRAMES.items()}


class Session:
    """All runs of one demonstration, and who carried them."""

    def __init__(self, test: Test, seconds: float):
        self.test, self.seconds = test, seconds
        self.kernel_moved = {s: {h: dict.fromkeys(("tcp_in", "tcp_out", "udp_in", "udp_out"), 0) for h in "AB"} for s in STACKS}
        self.engine = {h: [0, 0] for h in "AB"}
        self.refused: set[str] = set()

    def _exchange(self, stack: str, protocol: str, mode: str, *options: str) -> tuple[str, str]:
        """One client against a fresh server. @return what client and server printed."""
        t, address = self.test, self.test.lab.address("B")
        common = sockperf.common(protocol, address, PORT)
        before = {h: counters.kernel_counters(t.lab, h) for h in "AB"}
        server = t.start("B", "sockperf", "server", *common, stack=stack, cpu=0, name=f"{stack}-{protocol}-server")
        t.await_port("B", PORT, protocol)
        client = t.start("A", "sockperf", mode, *common, "-t", str(self.seconds), *options, stack=stack, cpu=1,
                         name=f"{stack}-{protocol}-{mode}")
        client.wait(self.seconds + 30)
        t.snapshot()
        t.stop(server)
        for host, process in (("A", client), ("B", server)):
            moved = counters.delta(before[host], counters.kernel_counters(t.lab, host))
            for name in self.kernel_moved[stack][host]:
                self.kernel_moved[stack][host][name] += moved[name]
            if stack == "vireo":
                seen = counters.final(process.stats_file) or process.live_stats
                rx, tx = counters.engine_packets(seen)
                self.engine[host][0] += rx
                self.engine[host][1] += tx
                self.refused.update(counters.not_carried(seen))
        return sockperf.plain(client.stdout + client.stderr), sockperf.plain(server.stdout + server.stderr)

    def latency(self, stack: str, protocol: str) -> dict[str, float]:
        """Round trip in microseconds."""
        text, _ = self._exchange(stack, protocol, "ping-pong", "-m", "14", "--full-rtt")
        return sockperf.latency(text)

    def throughput(self, stack: str, protocol: str, size: int) -> dict[str, float]:
        """What arrived, in Mbit/s of payload: the server's count, for a datagram sent is not yet one received."""
        text, server = self._exchange(stack, protocol, "throughput", "-m", str(size), "--mps=max")
        return sockperf.throughput(text, server, size)


def bare_pingpong(lab: Lab, frame_bytes: int) -> float | None:
    """Median round trip of the device alone on the same pair, in microseconds; None if the program was not built."""
    if not device.program().exists():
        return None

    def command(host: str, role: str, cpu: int) -> list[str]:
        return lab.wrap(host, device.command(lab, host, role, "--size", str(frame_bytes), "--cpu", str(cpu), "--json"))

    server = subprocess.Popen(command("B", "server", 0), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(0.5)  # it says nothing when it is ready
        client = subprocess.run(command("A", "client", 1 % (os.cpu_count() or 1)), capture_output=True, text=True, timeout=60,
                                stdin=subprocess.DEVNULL)
        return json.loads(client.stdout.strip().splitlines()[-1])["median_ns"] / 1000
    except (ValueError, KeyError, IndexError, subprocess.TimeoutExpired) as error:
        server.kill()
        raise Failed(f"pingpong_device: {error!r}\n{server.communicate()[1][-500:]}") from None
    finally:
        server.kill()
        server.wait()


def middle(rows: list[dict[str, float]], name: str) -> float:
    return statistics.median(r[name] for r in rows)


def print_table(results: dict, bare: dict[str, list[float]], stacks: tuple[str, ...], rounds: int, seconds: float) -> None:
    print(f"\nsockperf between two network namespaces over veth (the kernel with TSO); {rounds} rounds of {seconds:g} s each, runs alternating, "
          "medians of the rounds\n")
    print(f"{'':32}{'kernel':>12}{'Vireo':>12}{'ratio':>10}")
    for protocol in ("tcp", "udp"):
        rows = {s: results["latency", protocol, s] for s in stacks}
        print(f"{protocol.upper()} ping-pong, 14 bytes, round trip")
        for name in sockperf.PERCENTILES:
            print_row(f"  {name}, us", [middle(rows[s], name) for s in stacks], lower_is_better=True)
        faults = {s: int(sum(r["dropped"] + r["duplicated"] + r["out-of-order"] for r in rows[s])) for s in stacks}
        print_row("  lost, doubled, out of order", [faults[s] for s in stacks], digits=0, ratio=False)
    for protocol in ("tcp", "udp"):
        for size in sorted({k[3] for k in results if k[0] == "throughput"}):
            rows = {s: results["throughput", protocol, s, size] for s in stacks}
            print_row(f"{protocol.upper()} throughput, {size} B, Mbit/s", [middle(rows[s], "Mbit/s") for s in stacks], digits=0)
    for protocol, rows in bare.items():
        label = f"bare AF_XDP, {FRAMES[protocol]} B frames, us"
        if not rows:
            print(f"{label:32}   not built")
            continue
        floor = statistics.median(rows)
        print_row(label, [None, floor], ratio=False)
        if "vireo" in stacks:
            ours = middle(results["latency", protocol, "vireo"], "median")
            print(f"  {protocol.upper()} median over Vireo: {ours / floor:.2f} times that")


def print_row(label: str, values: list, lower_is_better: bool = False, digits: int = 2, ratio: bool = True) -> None:
    cells = "".join(f"{'-' if v is None else format(v, f'.{digits}f'):>12}" for v in values)
    quotient = ""
    if ratio and len(values) == 2 and min(values) > 0:
        quotient = f"{values[0] / values[1] if lower_is_better else values[1] / values[0]:>9.2f}x"
    print(f"{label:32}{cells}{quotient}")


def print_proof(session: Session, stacks: tuple[str, ...]) -> bool:
    """@return whether the counters agree with the claim."""
    print("\nProof of carriage (kernel: /proc/net/snmp of each namespace, segments and datagrams in+out)")
    proven = True
    for stack in stacks:
        for host, role in (("A", "client"), ("B", "server")):
            moved = session.kernel_moved[stack][host]
            kernel = sum(moved.values())
            line = f"  {stack:6} runs, {role}: kernel TCP {moved['tcp_in'] + moved['tcp_out']}, UDP {moved['udp_in'] + moved['udp_out']}"
            if stack == "vireo":
                rx, tx = session.engine[host]
                line += f"; Vireo rx {rx} tx {tx}"
                proven &= rx > 0 and tx > 0 and kernel == 0
            else:
                proven &= kernel > 0
            print(line)
    for refused in sorted(session.refused):
        print(f"  not carried: {refused}")
    if not proven:
        print("  NOT PROVEN: a Vireo run must leave the kernel's counters still and move Vireo's")
    return proven


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=3, metavar="S", help="of each run (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures of all rounds")
    parser.add_argument("--kernel-only", action="store_true", help="without Vireo: a look at the machine and this program")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds < 1:
        parser.error("at least one round of one second")
    options.library, options.device, options.dry, options.spec = build_dir() / "libvireo.so", "xdp", False, "latency"
    stacks = STACKS[:1] if options.kernel_only else STACKS
    if "vireo" in stacks and not options.library.exists():
        sys.exit(f"demo: {options.library} is missing: tools/demo builds it")
    if os.geteuid() != 0:
        sys.exit("demo: needs root (namespaces, AF_XDP)")
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, raise_exit)

    results: dict = {}
    bare: dict[str, list[float]] = {"tcp": [], "udp": []}
    with tempfile.TemporaryDirectory(prefix="vireo-demo-") as logs:
        test = Test(Case("demo", print, STACKS, {}, 0, False), options, Path(logs))
        with Lab(name=f"demo{os.getpid()}") as lab:
            test.lab = lab
            session = Session(test, options.seconds)
            try:
                for round_number in range(1, options.rounds + 1):
                    print(f"round {round_number} of {options.rounds}", end="", flush=True)
                    for protocol in ("tcp", "udp"):
                        for stack in stacks:
                            results.setdefault(("latency", protocol, stack), []).append(session.latency(stack, protocol))
                            print(".", end="", flush=True)
                    for protocol in ("tcp", "udp"):
                        for size in (64, 1400):
                            for stack in stacks:
                                results.setdefault(("throughput", protocol, stack, size), []).append(
                                    session.throughput(stack, protocol, size))
                                print(".", end="", flush=True)
                    for protocol, frame_bytes in FRAMES.items():
                        floor = bare_pingpong(lab, frame_bytes)
                        if floor is not None:
                            bare[protocol].append(floor)
                    print(flush=True)
            finally:
                test.close()
    print_table(results, bare, stacks, options.rounds, options.seconds)
    proven = print_proof(session, stacks)
    if options.json:
        figures = {" ".join(map(str, key)): rows for key, rows in results.items()}
        options.json.write_text(json.dumps({"results": figures, "bare_us": bare, "proven": proven}, indent=1))
    return 0 if proven else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, LabError) as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
