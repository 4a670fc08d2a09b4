#!/usr/bin/python3
"""The pure parts of bench/run: statistics, the rule of discarded rounds, parsing, axes, and the report of made-up rounds;
each case of bench/plain once over loopback, and the cases on an RDMA device once in brief, so that a broken one is found
before half an hour is spent."""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]
from benchkit import cases, device, page, shows, slowdown, sockperf, stats, svg, table, workloads  # noqa: E402
from benchkit.case import Round, selected  # noqa: E402
from benchkit.contestants import CONTESTANTS, preloaded  # noqa: E402
from benchkit.exchange import Hosts, plain_program  # noqa: E402
from benchkit.histogram import Histogram, value_of  # noqa: E402
from benchkit.results import Results  # noqa: E402
from labkit.process import Failed, wait_until  # noqa: E402
from labkit.runner import Suite  # noqa: E402

suite = Suite("bench")


def pure(name: str):
    return suite.case(name, lab=None, seconds=60)


def equal(seen, wanted, what: str = "") -> None:
    if seen != wanted:
        raise Failed(f"{what}: {seen!r}, not {wanted!r}")


def near(seen: float, wanted: float, part: float = 1e-9, what: str = "") -> None:
    if abs(seen - wanted) > part * max(1e-12, abs(wanted)):
        raise Failed(f"{what}: {seen!r}, not {wanted!r} within {part}")


@pure("percentiles are the smallest value that enough do not exceed")
def _(_t):
    values = [float(v) for v in range(1, 101)]
    equal([stats.percentile(values, p) for p in (0, 0.01, 0.5, 0.99, 0.999, 1)], [1, 1, 50, 99, 100, 100])
    equal(stats.percentile([7.0], 0.5), 7.0)


@pure("ratios are of one round each, and a disturbed round takes its partner along")
def _(_t):
    above = [{"f": 2.0}, {"f": 90.0, "discarded": True}, {"f": 9.0}]
    below = [{"f": 1.0}, {"f": 1.0}, {"f": 3.0}]
    got = stats.ratio(above, below, "f")
    equal((got.median, got.least, got.most, got.rounds), (2.5, 2.0, 3.0, 2))
    equal(str(got), "2.50 (2.00..3.00)")
    equal(stats.ratio(above, [{"g": 1.0}] * 3, "f"), None)
    equal(stats.ratio([{"f": 1.0}], [{"f": 0.0}], "f"), None, "a quotient by zero")
    doubtful = [{"f": 4.0, "discarded": True}]
    equal(stats.ratio(doubtful, [{"f": 2.0}], "f").median, 2.0, "all rounds discarded")


@pure("contestants of one case have colours of their own, in every plot the same")
def _(_t):
    tint = page.colours(Results(cases.all_cases(), dict(CONTESTANTS)))
    for case in cases.all_cases():
        own = [tint[name] for name in case.contestants]
        equal(len(set(own)), len(own), case.name)


@pure("a side that waited for its core more than a tenth of what it wanted is discarded")
def _(_t):
    def share(**times):
        return stats.CoreTime(**{"wall": 1.0, "run": 1.0, "waited": 0.0, **times}).share

    near(share(run=0.9, waited=0.1), 0.9)
    near(share(run=0.01, waited=0.0), 1.0, what="one that sleeps")
    near(share(run=0.5, waited=0.5, own_waits=0.5), 1.0, what="its own network thread")
    near(share(run=1.0, stolen=0.2), 0.8, what="stolen by the hypervisor")
    near(share(run=0.0), 1.0, what="one that never ran, nor wanted to")
    equal(stats.counts([0.9, 0.95]), True)
    equal(stats.counts([0.95, 0.899]), False)
    rounds = [{"f": 1.0}, {"f": 100.0, "discarded": True}, {"f": 3.0}]
    equal(stats.middle(rounds, "f"), 2.0)
    equal(stats.middle([{"f": 5.0, "discarded": True}], "f"), 5.0)
    equal((stats.is_doubtful(rounds), stats.is_doubtful(rounds[1:2])), (False, True))


def bucket(value: int) -> int:
    """As Histogram::bucket of bench/plain/histogram.h has it."""
    if value < 128:
        return value
    shift = value.bit_length() - 8
    return (shift << 7) + (value >> shift)


@pure("a histogram's values are right within one part in 128")
def _(_t):
    for value in [0, 1, 127, 128, 255, 256, 257, 511, 512, 1000, 12345, 10**6, 10**9, 2**40 + 12345]:
        near(value_of(bucket(value)), value, 1 / 128, f"value {value}")
    indexes = [bucket(v) for v in range(5000)]
    equal(indexes, sorted(indexes), "buckets ascend")
    h = Histogram.read({"unit_ns": 1000, "buckets": [[bucket(v), 1] for v in range(1, 101)]})
    equal([h.at(p) for p in (0.5, 0.99, 1)], [50, 99, 100])
    equal((h + h).total, 200)
    equal(max(p for p, _ in h.curve()), 0.99, "no percentile that 100 values do not bear")
    try:
        Histogram().at(0.5)
        raise Failed("an empty histogram has a median")
    except ValueError:
        pass


SOCKPERF_CLIENT = """
sockperf: \x1b[2;35m[Valid Duration] RunTime=2.450 sec; SentMessages=412345; ReceivedMessages=412345\x1b[0m
sockperf: # dropped messages = 0; # duplicated messages = 1; # out-of-order messages = 2
sockperf: ---> percentile 99.900 =   12.345
sockperf: ---> percentile 99.000 =    8.010
sockperf: ---> percentile 50.000 =    5.900
"""


@pure("what sockperf prints is read, and its colours are not")
def _(_t):
    row = sockperf.latency(sockperf.plain(SOCKPERF_CLIENT))
    equal((row["median"], row["p99"], row["p99.9"], row["messages"]), (5.9, 8.01, 12.345, 412345))
    equal([row[f] for f in sockperf.FAULTS], [0, 1, 2])
    rate = sockperf.throughput("Total of 1000 messages sent in 2.0 sec", "Total 900 messages received and handled", 125)
    equal((rate["Mbit/s"], rate["messages/s"], rate["arrived %"]), (0.45, 450, 90))
    try:
        sockperf.latency("sockperf: No messages were received from the server.")
        raise Failed("silence was read as a latency")
    except Failed as error:
        if "percentile 50.000" not in str(error):
            raise


@pure("axes hold their values and have few, round ticks")
def _(_t):
    for values in ([3.0], [0.07, 12.0], [1.0, 1e6], [5.0, 5.0], [2.44, 2.6]):
        for axis in (svg.log_axis(values, "t"), svg.linear_axis(values, "t"), svg.size_axis(values, "t")):
            places = [axis.place(v) for v in values]
            if not all(-1e-9 <= p <= 1 + 1e-9 for p in places):
                raise Failed(f"{axis.kind} axis {axis.least}..{axis.most} does not hold {values}")
            if not 2 <= len(axis.ticks) <= 11 and axis.ticks != [(values[0], svg.short(values[0]))]:
                raise Failed(f"{axis.kind} axis of {values} has the ticks {axis.ticks}")
            if len({label for _, label in axis.ticks}) != len(axis.ticks):
                raise Failed(f"{axis.kind} axis of {values}: labels that say the same: {axis.ticks}")
    equal([label for _, label in svg.size_axis([64, 1024, 1048576], "t").ticks], ["64", "1 Ki", "1 Mi"])
    equal([label for _, label in svg.linear_axis([0.0, 0.93], "t").ticks], ["0", "0.2", "0.4", "0.6", "0.8", "1"])
    nines = svg.nines_axis("t", 0.9999)
    near(nines.place(0.99) - nines.place(0.9), nines.place(0.999) - nines.place(0.99), 1e-6, "nines are equally wide")
    equal([svg.short(v) for v in (0, 0.05, 64, 1500, 2.5e6, 1e9)], ["0", "0.05", "64", "1.5 k", "2.5 M", "1 G"])


def inside(plot: str) -> None:
    """Well-formed, and no mark or text outside the picture."""
    root = ET.fromstring(plot)
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter():
        for name, most in (("x", width), ("cx", width), ("x1", width), ("y", height), ("cy", height), ("y1", height)):
            place = element.get(name)
            if place is not None and not -0.5 <= float(place) <= most + 0.5:
                raise Failed(f"{element.tag} at {name}={place} is outside {width} x {height}")
    # The legend's text ends within the picture: 7 units a letter at most.
    for text in root.iter("text"):
        if text.get("text-anchor") == "start" and float(text.get("x")) + 6.6 * len(text.text) > width:
            raise Failed(f"the legend {text.text!r} is cut off")


def made_up() -> Results:
    """Rounds of every case by every contestant, with a discarded and a failed one."""
    results = Results(cases.all_cases(), dict(CONTESTANTS), about={"machine": {"Kernel": "6.<x>"}, "summary": "2 rounds."})
    histogram = Histogram({float(v): 1000 // v for v in range(3, 200)})
    for number, case in enumerate(results.cases):
        for point in case.points:
            for who, name in enumerate(case.contestants_of(point, ())):
                for turn in range(3):
                    value = (1 + who) * (1 + number) * (1 + 0.1 * turn)
                    figures = {f.key: value for f in case.figures} | {"discarded": turn == 1}
                    if case.name == slowdown.CASE:
                        figures["classes"] = {"64": {"median_us": value, "p99_us": 3 * value}, "1024": {"median_us": 2 * value, "p99_us": 9 * value}}
                    results.add(case, point, name, Round(figures, {"": histogram}))
    results.rounds["round-trip-tcp", "1 B", "kernel"][0] = {"discarded": True, "failed": True}
    for contestant in ("vireo", "kernel"):  # all rounds failed
        results.rounds["echo", "10 000 open", contestant] = [{"discarded": True, "failed": True}] * 3
    results.failures.append("round-trip-tcp 1 B: kernel, round 1: <no answer>")
    return results


@pure("the report of every case is whole: plots within their pictures, nothing from elsewhere")
def _(t):
    results = made_up()
    drawn = 0
    for case in results.cases:
        for _, plot in page.plots(results, case):
            inside(plot)
            drawn += 1
        if case.name != "start" and not page.plots(results, case):
            raise Failed(f"no plot of {case.name}")
    html = page.page(results)
    if re.search(r'(?:src|href)="(?!#)|url\(|@import|<script', html):
        raise Failed("the page refers to something outside")
    if "6.<x>" in html or "<no answer>" in html:
        raise Failed("text is not escaped")
    for case in results.cases:
        if f'id="{case.name}"' not in html:
            raise Failed(f"{case.name} is not on the page")
    json.dumps(results.json(), allow_nan=False)
    text = table.text(results)
    if "FAILED round-trip-tcp" not in text or "1 B  median, us" not in text:
        raise Failed("the table does not say what failed, or what was measured")
    t.note(f"{drawn} plots, {len(html)} bytes")


@pure("slowdown is by the least unloaded median on the same wire")
def _(_t):
    results = made_up()
    least = slowdown.baseline(results, "veth")
    vireo = results.of("messages", "unloaded", "vireo")[0]["classes"]["64"]["median_us"]
    near(least[64], vireo * 1.1, 0.02, "baseline")  # rounds 1 and 3 of three count
    got = slowdown.slowdowns(results, "W1", "kernel", "median_us")
    near(got[64], 2.0, 0.01, "the kernel's")
    near(slowdown.slowdowns(results, "W1", "kernel", "p99_us")[1024], 9.0, 0.01, "p99 of the larger class")


@pure("bounds are told from what falls short, and what was not measured is not shown")
def _(_t):
    results = Results(cases.all_cases(), dict(CONTESTANTS))
    equal(shows.shows(results), [], "nothing was measured")
    results.rounds["round-trip-tcp", "1 B", "vireo"] = [{"median_us": 3.0}]
    results.rounds["round-trip-tcp", "1 B", "device"] = [{"median_us": 2.5}]
    results.rounds["round-trip-tcp", "1 B", "kernel-spin"] = [{"median_us": 7.0}]
    equal([(s.value, s.holds) for s in shows.shows(results)], [("1.20 (1.20..1.20)", False), ("2.33 (2.33..2.33)", True)])


@pure("what Vireo adds to bare verbs is half of the difference, round by round")
def _(_t):
    results = Results(cases.all_cases(), dict(CONTESTANTS))
    key = ("rdma-latency", "TCP 14 B")
    results.rounds[*key, "vireo-verbs"] = [{"median_us": 1.5}, {"median_us": 9.0, "discarded": True}, {"median_us": 1.7}]
    results.rounds[*key, "bare-verbs"] = [{"median_us": 0.5}, {"median_us": 0.5}, {"median_us": 0.9}]
    equal([s.value for s in shows.shows(results)], ["450 ns (400..500)"])
    equal(CONTESTANTS["bare-verbs"].rival, "vireo-verbs")


@pure("cases are chosen by name, and points by CASE/POINT")
def _(_t):
    every = cases.all_cases()
    equal([c.name for c in selected(every, "^stream$")], ["stream"])
    equal([[p.name for p in c.points] for c in selected(every, "^stream/64 B$")], [["64 B"]])
    equal(selected(every, "no such case"), [])
    names = [c.name for c in every]
    equal(len(set(names)), len(names), "names of cases")
    for case in every:
        for name in case.contestants + tuple(n for p in case.points for n in p.only):
            if name not in CONTESTANTS:
                raise Failed(f"{case.name}: no contestant {name}")
    other = preloaded([f"other={sys.executable}"])
    equal(other["other"].rival, "vireo")
    echo = next(c for c in every if c.name == "echo")
    if "other" not in echo.contestants_of(echo.points[0], ("other",)):
        raise Failed("a preloaded library takes no part")
    for wrong in ("other", "other=/no/such/file", f"vireo={sys.executable}"):
        try:
            preloaded([wrong])
            raise Failed(f"--preload {wrong} is taken")
        except ValueError:
            pass


@pure("the workloads are distributions with the published means")
def _(_t):
    for name, sizes in workloads.SIZES.items():
        equal(len(sizes), len(workloads.SHARES), name)
        equal(list(sizes), sorted(sizes), f"{name} ascends")
    # Of the whole distributions, in bytes; the table's few points and the cut at 1 MB leave this much.
    near(workloads.mean(workloads.points("W1")), 188, 0.05)
    near(workloads.mean(workloads.points("W2")), 441, 0.05)
    near(workloads.mean(list(zip(workloads.SIZES["W4"], workloads.SHARES))), 127_797, 0.05)
    near(workloads.mean(list(zip(workloads.SIZES["W5"], workloads.SHARES))), 2_547_262, 0.07)
    every = workloads.every_size()
    equal((every[0], every[-1]), ((16, 0.0), (workloads.LARGEST, 1.0)))
    equal(len(workloads.text(every).splitlines()), len(every))


@pure("losses that Vireo counted are counted once")
def _(_t):
    process = {"engine": {"rx_lost_ring_full": 5, "rx_lost_no_frame": 2, "rx_packets": 99},
               "sockets": [{"closed": True, "rx_drops": 7}, {"closed": False, "rx_drops": 3}], "closed": {"carried": {"sockets": 1, "rx_drops": 7}}}
    equal(cases.counted_losses([process]), 5 + 2 + 3 + 7)


def loopback(name: str, *words: str, protocol: str = "tcp"):
    """Both sides of a case of bench/plain for a tenth of a second. @return what both printed."""
    def run(t):
        more = ["--proto", protocol, "--seconds", "0.1", *words]
        server = t.start("", str(plain_program()), name, "server", "127.0.0.1", "7431", *more)
        flag = "-lnt" if protocol == "tcp" else "-lnu"
        if not wait_until(lambda: ":7431" in subprocess.run(["ss", "-H", flag], capture_output=True, text=True).stdout, 10):
            raise Failed(f"no server\n{server.tail()}")
        client = t.start("", str(plain_program()), name, "client", "127.0.0.1", "7431", *more).wait(20)
        if server.running:
            server.stop(signal.SIGTERM)
        equal(server.status, 0, f"server's status\n{server.tail()}")
        return json.loads(client.stdout), json.loads(server.stdout)
    return run


@suite.case("plain: round trips in every way of waiting", lab=None, seconds=60)
def _(t):
    for protocol in ("tcp", "udp"):
        for way in ("block", "spin", "poll", "select", "epoll"):
            client, server = loopback("round_trip", "--way", way, protocol=protocol)(t)
            if not 0 < client["messages"] <= server["answered"]:
                raise Failed(f"{protocol} {way}: {client['messages']} of {server['answered']} answered")
            equal(sum(n for _, n in client["round_trip"]["buckets"]), client["messages"], "the histogram's count")
            took = Histogram.read(client["round_trip"])
            row = took.summary()  # one after the other, for a tenth of a second and the last to its end
            if not 1 < row["least_us"] or not row["mean_us"] * row["messages"] <= 1.02 * (100_000 + row["most_us"]):
                raise Failed(f"{protocol} {way}: {row}")


@suite.case("plain: streams, datagrams, connects, echo, messages, a fixed rate, the first byte", lab=None, seconds=60)
def _(t):
    client, server = loopback("stream", "--size", "1000")(t)
    equal(client["bytes"], server["all_bytes"], "bytes of the stream")
    for batch in ("1", "32"):
        client, server = loopback("datagrams", "--size", "64", "--batch", batch, protocol="udp")(t)
        if not 0 < server["received"] <= client["sent"]:
            raise Failed(f"{server['received']} datagrams of {client['sent']}")
    for count, way in (("1", "block"), ("16", "epoll"), ("16", "spin")):
        client, server = loopback("connects", "--count", count, "--ports", "2", "--way", way, "--seconds", "0.5")(t)
        if not 0 < client["connections"] <= server["accepted"]:
            raise Failed(f"{client['connections']} connections of {server['accepted']}")
    client, server = loopback("echo", "--count", "50", "--ports", "2", "--way", "epoll")(t)
    equal((client["connections"], server["accepted"]), (50, 50))
    sizes = t.logs / "sizes"
    sizes.write_text(workloads.text(workloads.points("W2")))
    for rate in ("0", "3000"):
        client, server = loopback("messages", "--count", "4", "--rate", rate, "--sizes", str(sizes))(t)
        if client["unanswered"] or not client["begun"] or not client["classes"]:
            raise Failed(f"messages at {rate}: {client}")
    client, server = loopback("paced", "--rate", "500")(t)
    near(client["messages"], 49, 0.1, "messages at a rate of 500 in 0.1 s")
    if not 0 <= server["cpu"] < 1:
        raise Failed(f"a server that sleeps used {server['cpu']} of a core")
    client, server = loopback("first", "--count", "3")(t)
    equal((client["connections"], server["accepted"]), (3, 3))


@suite.case("lwip: round trips, a stream and datagrams over a wire in shared memory", lab=None, seconds=60)
def _(t):
    for protocol in ("tcp", "udp"):
        client, _ = lwip(t, protocol, "server", "client", "--size", "100")
        equal(sum(n for _, n in client["round_trip"]["buckets"]), client["messages"], "the histogram's count")
        if client["messages"] < 10 or client["lost"]:
            raise Failed(f"{protocol}: {client['messages']} round trips, {client['lost']} lost")
    client, server = lwip(t, "tcp", "sink", "source", "--size", "10000")
    if not 0 < server["bytes"] < server["received"] == 10000 * client["messages"]:
        raise Failed(f"{client} at the source, {server} at the sink")
    client, server = lwip(t, "udp", "sink", "source", "--size", "64", "--batch", "32")
    if not 0 < server["datagrams"] < server["received"] <= client["sent"]:
        raise Failed(f"{client} at the source, {server} at the sink")


def lwip(t, protocol: str, first: str, second: str, *words: str) -> tuple[dict, dict]:
    """What the second and the first of two roles print."""
    common = ["--shm", f"lwip{os.getpid()}-{protocol}-{first}", "--peer-mac", "02:00:00:00:00:02", "--seconds", "0.3", *words]
    server = t.start("", str(device.lwip_program()), f"{protocol}-{first}", *common, name=f"{protocol}-{first}")
    server.await_output("ready")
    client = t.start("", str(device.lwip_program()), f"{protocol}-{second}", *common, name=f"{protocol}-{second}")
    client.wait(20)
    if protocol == "udp":
        server.stop(signal.SIGTERM)
    server.wait(10)
    return tuple(json.loads(end.stdout.splitlines()[-1]) for end in (client, server))


@suite.case("rdma: bare verbs, Vireo by verbs and by mlx5, on the device in software", lab=None, seconds=100, needs_library=True)
def _(t):
    every = {c.name: c for c in cases.all_cases()}
    with Hosts(argparse.Namespace(library=t.options.library, nice=0), t.logs) as hosts:
        for name, at in (("rdma-latency", "UDP 14 B"), ("rdma-stream", "TCP 64 KiB")):
            case = every[name]
            point = next(p for p in case.points if p.name == at)
            seen = {}
            for contestant in ("bare-verbs", "vireo-verbs", "vireo-mlx5"):
                row = case.run(hosts, CONTESTANTS[contestant], point, 0.2)
                seen[contestant] = row.figures[case.figures[0].key]
                if row.figures.get("faults"):
                    raise Failed(f"{at}: {contestant}: {row.figures['faults']} messages lost")
            t.note(f"{at}: " + ", ".join(f"{c} {v:.3g} {case.figures[0].unit}" for c, v in seen.items()))
            if not all(0.05 < v < 1e6 for v in seen.values()):
                raise Failed(f"{at}: {seen}")


suite.main()
