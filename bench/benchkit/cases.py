"""The cases of the suite. Both sides of each are bench/plain, the bare device's program, or sockperf."""
from __future__ import annotations

import dataclasses
from pathlib import Path

from labkit.process import Failed

from . import device, sockperf, workloads
from .case import Case, Figure, Point, Round
from .contestants import Contestant
from .exchange import PORT, Hosts, extra_program, plain_program
from .histogram import Histogram

LATENCY = (Figure("median_us", "median", "us"), Figure("p99_us", "p99", "us"), Figure("p999_us", "p99.9", "us"))
SEGMENT, FRAME = 1448, 1514  # MTU 1500: payload of a TCP segment with time stamps, and its frame
JUMBO_SEGMENT, JUMBO_FRAME = 8948, 9014
SHORT_FRAME = 68  # of a connection that carries a byte each way, on average
ACK_EVERY = 8  # frames, of a bare device that acknowledges
LINES = 16  # of the cache, that each side has of a connection (cachegrind; Vireo's echo: 16 to 18)


def _side(hosts: Hosts, contestant: Contestant, program: Path, case: str, role: str, words: list[object], seconds: float) -> list[str]:
    address = hosts.lab(contestant).address("B")
    return [str(w) for w in (program, case, role, address, PORT, *words, "--seconds", seconds)]


def _plain(hosts: Hosts, contestant: Contestant, case: str, words: list[object], seconds: float, **kwargs):
    """bench/plain on both sides, with the same words; the receivers are bench/extra_api if the contestant has its API."""
    receiver, how = (extra_program(), [contestant.api]) if contestant.api else (plain_program(), words)
    asker, ask = (plain_program(), words) if case == "datagrams" else (receiver, how)
    return hosts.exchange(contestant, _side(hosts, contestant, receiver, case, "server", how, seconds),
                          _side(hosts, contestant, asker, case, "client", ask, seconds), seconds=seconds + 20, **kwargs)


def _way(contestant: Contestant, way: str = "block") -> list[object]:
    return ["--way", "spin" if contestant.spins and way in ("block", "epoll") else way]


def _device(hosts: Hosts, contestant: Contestant, roles: tuple[str, str], words: list[object], seconds: float):
    lab, shm = hosts.lab(contestant), hosts.shm_name() if contestant.wire == "shm" else ""
    more = [str(w) for w in (*words, "--seconds", seconds, "--json")]
    return hosts.exchange(contestant, device.command(lab, "B", roles[0], *more, shm=shm), device.command(lab, "A", roles[1], *more, shm=shm),
                          seconds=seconds + 20)


def _lwip(hosts: Hosts, contestant: Contestant, roles: tuple[str, str], words: list[object], seconds: float):
    """Names of roles begin with the protocol."""
    lab, shm, run = hosts.lab(contestant), hosts.shm_name() if contestant.wire == "shm" else "", device.lwip_program()
    more = [str(w) for w in (*words, "--seconds", seconds)]
    return hosts.exchange(contestant, device.command(lab, "B", roles[0], *more, shm=shm, run=run),
                          device.command(lab, "A", roles[1], *more, shm=shm, run=run), seconds=seconds + 20)


def _bare_verbs(hosts: Hosts, contestant: Contestant, roles: tuple[str, str], words: list[object], seconds: float):
    lab, wire, more = hosts.lab(contestant), hosts.shm_name(), [str(w) for w in (*words, "--seconds", seconds)]
    return hosts.exchange(contestant, device.verbs_command(lab, "B", roles[0], wire, *more),
                          device.verbs_command(lab, "A", roles[1], wire, *more), seconds=seconds + 20)


def _latency(outcome, printed: dict, name: str = "round_trip") -> Round:
    histogram = Histogram.read(printed[name])
    return Round({**outcome.figures, **histogram.summary()}, {"": histogram})


# ---- round trips
def round_trip(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    protocol = point["protocol"]
    if contestant.stack == "device":
        size = max(device.SMALLEST, device.FRAMES[protocol] + 1)
        outcome = _device(hosts, contestant, ("server", "client"), ["--size", size], seconds)
        return _latency(outcome, outcome.client_json())
    if contestant.stack == "lwip":
        outcome = _lwip(hosts, contestant, (f"{protocol}-server", f"{protocol}-client"), ["--size", 1], seconds)
    else:
        words = ["--proto", protocol, *_way(contestant, point["way"])]
        outcome = _plain(hosts, contestant, "round_trip", words, seconds, protocol=protocol)
    printed = outcome.client_json()
    row = _latency(outcome, printed)
    row.figures["lost"] = printed["lost"]
    return row


# ---- streams and datagrams
def _rate(counted: float, seen: dict) -> float:
    """A second, of what a receiver saw."""
    if seen["seconds"] <= 0 or counted <= 0:
        raise Failed(f"the receiver counted nothing: {seen}")
    return counted / seen["seconds"]


def stream(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    size = point["size"]
    if contestant.stack == "device":
        frame, segment = (JUMBO_FRAME, JUMBO_SEGMENT) if contestant.lab == "jumbo" else (FRAME, SEGMENT)
        program = ["--copy", size, "--ack", ACK_EVERY] if contestant.copies else []
        outcome = _device(hosts, contestant, ("sink", "source"), ["--size", frame, "--batch", 32, *program], seconds)
        seen = outcome.server_json()
        rate = _rate(seen["frames"] * segment, seen)
    elif contestant.stack == "lwip":
        outcome = _lwip(hosts, contestant, ("tcp-sink", "tcp-source"), ["--size", size], seconds)
        seen = outcome.server_json()
        rate = _rate(seen["bytes"], seen)
    else:
        no_delay = int(point["no_delay"])
        # The latency profile has TCP_NODELAY for whatever socket; here it is the program's to ask for.
        contestant = dataclasses.replace(contestant, env=(*contestant.env, ("VMA_TCP_NODELAY", str(no_delay))))
        outcome = _plain(hosts, contestant, "stream", ["--size", size, "--no-delay", no_delay, *_way(contestant)], seconds)
        seen = outcome.server_json()
        rate = _rate(seen["bytes"], seen)
    return Round({**outcome.figures, "gbit": rate * 8e-9, "million": rate / size / 1e6})


def datagrams(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    batch = point["batch"]
    if contestant.stack == "device":
        outcome = _device(hosts, contestant, ("sink", "source"), ["--size", device.FRAMES["udp"] + 64, "--batch", batch], seconds)
        seen, sent = outcome.server_json(), outcome.client_json()["sent"]
        return Round({**outcome.figures, "million": _rate(seen["frames"], seen) / 1e6, "sent": sent, "received": seen["received"],
                      "arrived_percent": 100 * seen["received"] / max(1, sent)})
    if contestant.stack == "lwip":
        outcome = _lwip(hosts, contestant, ("udp-sink", "udp-source"), ["--size", 64, "--batch", batch], seconds)
    else:
        outcome = _plain(hosts, contestant, "datagrams", ["--proto", "udp", "--size", 64, "--batch", batch, *_way(contestant)], seconds,
                         protocol="udp")
    seen, sent = outcome.server_json(), outcome.client_json()["sent"]
    row = {**outcome.figures, "million": _rate(seen["datagrams"], seen) / 1e6, "sent": sent, "received": seen["received"],
           "arrived_percent": 100 * seen["received"] / max(1, sent)}
    if contestant.stack == "vireo":
        row["uncounted"] = sent - seen["received"] - counted_losses(outcome.engine["B"]) - counted_losses(outcome.engine["A"])
    return Round(row)


def counted_losses(processes: list[dict]) -> int:
    """Datagrams that Vireo says were lost: in the rings, for want of packets, and before a full socket."""
    lost = 0
    for process in processes:
        engine = process.get("engine") or {}
        lost += sum(engine.get(name, 0) for name in ("rx_lost_ring_full", "rx_lost_no_frame", "rx_refused", "tx_refused"))
        # Closed sockets are listed too, and summed up in "closed" besides.
        counted = [s for s in process.get("sockets", []) if not s.get("closed")] + list((process.get("closed") or {}).values())
        lost += sum(s.get("rx_drops", 0) for s in counted)
    return lost


# ---- connections
def connects(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    if contestant.stack == "device":
        outcome = _device(hosts, contestant, ("connect-server", "connect-client"), ["--size", SHORT_FRAME, "--batch", point["count"]], seconds)
    elif contestant.stack == "lwip":
        outcome = _lwip(hosts, contestant, ("connect-server", "connect-client"), ["--batch", point["count"]], seconds)
    else:
        outcome = _plain(hosts, contestant, "connects", ["--count", point["count"], "--ports", 8, *_way(contestant)], seconds)
    printed = outcome.client_json()
    row = _latency(outcome, printed, "connection")
    slots, each = printed["slots"], printed["slot_s"]
    quarter = len(slots) // 4
    early, late = sum(slots[:quarter]), sum(slots[-quarter:])
    row.figures |= {"thousand": sum(slots) / (each * len(slots)) / 1e3, "closed": printed["connections"],
                    "late_percent": 100 * late / early if early else 0.0}
    return row


def echo(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    if contestant.stack == "device":
        outcome = _device(hosts, contestant, ("server", "client"),
                          ["--size", device.FRAMES["tcp"] + 1, "--open", point["count"], "--lines", LINES], seconds)
        return _latency(outcome, outcome.client_json())
    outcome = _plain(hosts, contestant, "echo", ["--count", point["count"], "--ports", 8, *_way(contestant, "epoll")],
                     seconds, descriptors=point["count"] + 4000)
    row = _latency(outcome, outcome.client_json())
    row.figures["open_thousand"] = point["count"] / outcome.client_json()["open_seconds"] / 1e3
    return row


# ---- open-loop load
CONNECTIONS = 8


def load(workload: str) -> tuple[float, float]:
    """(messages a second, mean bytes): 1 Gbit/s of payload, or 20 000 messages a second where they are small."""
    mean = max(16.0, workloads.mean(workloads.points(workload)))
    return min(20_000.0, 1e9 / 8 / mean), mean


def messages(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    workload = point["workload"]
    path = hosts.logs / f"sizes-{workload or 'unloaded'}"
    path.write_text(workloads.text(workloads.points(workload) if workload else workloads.every_size()))
    rate, count = (load(workload)[0], CONNECTIONS) if workload else (0, 1)
    outcome = _plain(hosts, contestant, "messages", ["--count", count, "--rate", rate, "--sizes", path, "--way", "epoll"], seconds)
    printed = outcome.client_json()
    classes = {int(size): Histogram.read(h) for size, h in printed["classes"].items()}
    together = sum(classes.values(), Histogram())
    return Round({**outcome.figures, **together.summary(), "unanswered": printed["unanswered"], "most_pending": printed["most_pending"],
                  "classes": {str(size): h.summary() for size, h in classes.items()}},
                 {"": together, **{str(size): h for size, h in classes.items()}})


# ---- processor time, start-up
def paced(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    outcome = _plain(hosts, contestant, "paced", ["--rate", point["rate"]], seconds)
    printed = outcome.client_json()
    row = _latency(outcome, printed)
    row.figures |= {"server_percent": 100 * outcome.server_json()["cpu"], "client_percent": 100 * printed["cpu"]}
    # Who sleeps by design is not to be thrown out for what others did meanwhile: its time is counted, not its share.
    row.figures["discarded"] = False
    return row


def first(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    outcome = _plain(hosts, contestant, "first", ["--count", 10], seconds, exec_with=str(plain_program()))
    printed = outcome.client_json()
    return Round({**outcome.figures, "first_byte_ms": printed["first_byte_ms"], "main_ms": printed["main_ms"],
                  "resident_mib": printed["resident_KiB"] / 1024, "huge_mib": printed["huge_KiB"] / 1024})


# ---- sockperf
def sockperf_latency(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    common = sockperf.common(point["protocol"], hosts.lab(contestant).address("B"), PORT)
    # 3.7 asks no faster than 600 000 times a second unless told how often; 2 000 000 is its most.
    outcome = hosts.exchange(contestant, ["sockperf", "server", *common],
                             ["sockperf", "ping-pong", *common, "-t", f"{max(1, seconds):.0f}", "-m", str(point["size"]), "--mps=2000000", "--full-rtt"],
                             protocol=point["protocol"], seconds=seconds + 20)
    row = sockperf.latency(sockperf.plain(outcome.clients[0] + outcome.errors[0]))
    return Round({**outcome.figures, "median_us": row["median"], "p99_us": row["p99"], "p999_us": row["p99.9"], "messages": row["messages"],
                  "faults": sum(row[what] for what in sockperf.FAULTS)})


def sockperf_throughput(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    common = sockperf.common(point["protocol"], hosts.lab(contestant).address("B"), PORT)
    outcome = hosts.exchange(contestant, ["sockperf", "server", *common],
                             ["sockperf", "throughput", *common, "-t", f"{max(1, seconds):.0f}", "-m", str(point["size"]), "--mps=max"],
                             protocol=point["protocol"], seconds=seconds + 20)
    row = sockperf.throughput(sockperf.plain(outcome.clients[0] + outcome.errors[0]), sockperf.plain(outcome.server + outcome.errors[-1]), point["size"])
    return Round({**outcome.figures, "mbit": row["Mbit/s"], "million": row["messages/s"] / 1e6, "arrived_percent": row["arrived %"]})


# ---- on an RDMA device
def rdma_latency(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    if contestant.stack != "device":
        return sockperf_latency(hosts, contestant, point, seconds)
    outcome = _bare_verbs(hosts, contestant, ("server", "client"), ["--size", device.FRAMES[point["protocol"]] + point["size"]], seconds)
    printed = outcome.client_json()
    row = _latency(outcome, printed)
    row.figures["faults"] = printed["lost"]
    return row


def rdma_stream(hosts: Hosts, contestant: Contestant, point: Point, seconds: float) -> Round:
    """TCP: a stream of messages, of the bare device full frames by 32. UDP: datagrams, a call for each."""
    protocol, size = point["protocol"], point["size"]
    if contestant.stack == "device":
        payload, batch = (SEGMENT, 32) if protocol == "tcp" else (size, 1)
        outcome = _bare_verbs(hosts, contestant, ("sink", "source"), ["--size", device.FRAMES[protocol] + payload, "--batch", batch], seconds)
        seen = outcome.server_json()
        rate = _rate(seen["frames"] * payload, seen)
    elif protocol == "tcp":
        contestant = dataclasses.replace(contestant, env=(*contestant.env, ("VMA_TCP_NODELAY", "0")))
        outcome = _plain(hosts, contestant, "stream", ["--size", size, "--no-delay", 0, *_way(contestant)], seconds)
        seen = outcome.server_json()
        rate = _rate(seen["bytes"], seen)
    else:
        outcome = _plain(hosts, contestant, "datagrams", ["--proto", "udp", "--size", size, "--batch", 1, *_way(contestant)], seconds, protocol="udp")
        seen = outcome.server_json()
        rate = _rate(seen["datagrams"] * size, seen)
    return Round({**outcome.figures, "mbit": rate * 8e-6, "million": rate / size / 1e6})


# ---- the list
def _sized(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


def _streams(sizes: tuple[int, ...], no_delay: bool, devices_at: tuple[int, ...], devices: tuple[str, ...],
             others: tuple[str, ...], quick: tuple[int, ...]) -> tuple[Point, ...]:
    return tuple(Point(_sized(s), s, (("size", s), ("no_delay", no_delay)), others + (devices if s in devices_at else ()), quick=s in quick)
                 for s in sizes)


SIZES = (64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
LARGE = (4096, 65536, 1048576)
STREAM = (Figure("gbit", "payload", "Gbit/s"), Figure("million", "messages", "M/s", 3))


def all_cases() -> list[Case]:
    both = ("vireo", "kernel", "vireo-shm")
    extra = ("vireo", "vireo-callback", "vireo-zcopy", "vireo-xtreme")
    rdma = ("bare-verbs", "vireo-verbs", "vireo-mlx5", "kernel")
    yardsticks = ("device", "vireo", "lwip", "kernel", "kernel-spin", "device-shm", "vireo-shm", "lwip-shm")
    ways = tuple(Point(f"{protocol.upper()} {way}", 0, (("protocol", protocol), ("way", way)), quick=way == "epoll")
                 for protocol in ("tcp", "udp") for way in ("spin", "poll", "select", "epoll"))
    return [
        Case("round-trip-tcp", "TCP round trip of 1 byte", "One byte there and one back by blocking send and recv, one at a time. The bare device "
             "sends frames of the same length.", LATENCY, True, yardsticks, (Point("1 B", 1, (("protocol", "tcp"), ("way", "block"))),),
             round_trip, "distribution"),
        Case("round-trip-udp", "UDP round trip of 1 byte", f"The same with datagrams; the bare device's frames have {device.SMALLEST} bytes, its least.",
             LATENCY, True, yardsticks, (Point("1 B", 1, (("protocol", "udp"), ("way", "block"))),), round_trip, "distribution"),
        Case("round-trip-ways", "Round trips by the way of waiting", "The same byte where both sides ask without blocking (spin), or wait by "
             "poll, select or epoll_wait before they receive.", LATENCY, True, both, ways, round_trip, "bars", seconds=0.5),
        Case("stream", "One-way TCP stream", "One connection, messages of one size as fast as send takes them; what arrives at the receiver counts, "
             "after the first tenth of the time. The bare device sends full frames in batches of 32 and is shown by the TCP payload they "
             "could carry; copied: filled from a program's buffer, emptied into one, each eighth acknowledged. "
             "TSO: segmentation offload on the veth pair, where segments of 64 KiB cross unsegmented; no wire does that.",
             STREAM, False, ("device", "device-copy", "vireo", "lwip", "kernel", "kernel-offload", "device-shm", "device-copy-shm",
                             "vireo-shm", "lwip-shm"),
             _streams(SIZES, False, LARGE, ("device", "device-copy", "device-shm", "device-copy-shm"),
                      ("vireo", "lwip", "kernel", "kernel-offload", "vireo-shm", "lwip-shm"), (64, 1024, *LARGE)), stream,
             "lines", "message, bytes", seconds=0.8),
        Case("stream-nodelay", "One-way TCP stream with TCP_NODELAY", "The same, where each send may become a segment of its own.", STREAM, False,
             both, _streams((64, 1024), True, (), (), both, (64,)), stream, "bars", seconds=0.8),
        Case("stream-jumbo", "One-way TCP stream, MTU 9000", "The same between hosts with an MTU of 9000; frames span several of the device's buffers.",
             STREAM, False, ("device-jumbo", "vireo-jumbo", "kernel-jumbo"),
             _streams(LARGE, False, (65536,), ("device-jumbo",), ("vireo-jumbo", "kernel-jumbo"), (65536,)), stream, "lines", "message, bytes",
             seconds=0.8, preload=False),
        Case("datagrams", "UDP datagrams of 64 bytes, one way", "As fast as they are taken, by send and recv, and by sendmmsg and recvmmsg of 32. The "
             "receiver's count is the rate.", (Figure("million", "received", "M/s", 3), Figure("arrived_percent", "arrived", "%", 1),
                                              Figure("uncounted", "lost uncounted", "", 0)), False,
             ("device", "vireo", "lwip", "kernel", "device-shm", "vireo-shm", "lwip-shm"),
             (Point("send", 0, (("batch", 1),)), Point("sendmmsg", 1, (("batch", 32),))), datagrams, "bars", seconds=0.8),
        Case("extra-round-trip", "UDP round trip of 1 byte by the extra API", "Both sides receive by a callback, which answers, while they block in "
             "recv; without a copy, blocking; or by completions of a ring that they poll.", LATENCY, True, ("device", *extra),
             (Point("1 B", 1, (("protocol", "udp"), ("way", "block"))),), round_trip, "bars"),
        Case("extra-datagrams", "UDP datagrams of 64 bytes by the extra API", "One way; the sender is that of the case above, the receiver uses the "
             "extra API.", (Figure("million", "received", "M/s", 3), Figure("arrived_percent", "arrived", "%", 1),
                            Figure("uncounted", "lost uncounted", "", 0)), False, ("device", *extra),
             (Point("send", 0, (("batch", 1),)), Point("sendmmsg", 1, (("batch", 32),))), datagrams, "bars", seconds=0.8),
        Case("connects", "Connect, exchange a byte, close", "One at a time by blocking calls, and 64 at a time by epoll; the client closes first, so "
             "its TIME_WAIT entries gather (lwIP's keeps none). The bare device sends the seven frames of a connection, and knows of none. "
             "Last quarter: connections of the run's last quarter for 100 of its first.",
             (Figure("thousand", "connections", "k/s"), Figure("late_percent", "last quarter", "%", 0), Figure("median_us", "median", "us"),
              Figure("p99_us", "p99", "us")), False, ("device", "vireo", "lwip", "kernel", "kernel-spin", "device-shm", "vireo-shm", "lwip-shm"),
             (Point("1 at a time", 1, (("count", 1),)), Point("64 at a time", 64, (("count", 64),))), connects, "bars"),
        Case("echo", "Echo over open connections", "All connections are watched by one epoll on each side; one byte goes there and back on one of "
             f"them, chosen at random. The bare device's frames are of as many; each side changes {LINES} lines of the cache of the frame's.",
             (*LATENCY, Figure("open_thousand", "opened", "k/s", 1)), True, ("device", *both, "device-shm"),
             (Point("1 open", 1, (("count", 1),)), Point("100 open", 100, (("count", 100),)), Point("10 000 open", 10_000, (("count", 10_000),)),
              Point("100 000 open", 100_000, (("count", 100_000),), quick=False, most_rounds=2)), echo, "lines", "open connections", takes=2.5),
        Case("messages", "Messages under load", "Open loop: messages arrive by a Poisson process, with the sizes of five published workloads, on "
             f"{CONNECTIONS} connections; each is answered when all of it is there. Time counts from when a message was due. Slowdown: by the "
             "least median that any contestant on the same wire needed for that class of size, one message at a time, unloaded.",
             LATENCY, True, both, (Point("unloaded", 0, (("workload", ""),)),
                                   *(Point(w, i, (("workload", w),), quick=w in ("W2", "W4")) for i, w in enumerate(workloads.SIZES, 1))),
             messages, "slowdown", "message, bytes"),
        Case("processor", "Processor time at a fixed rate", "A byte there and back by blocking calls at a fixed rate; the client sleeps until each is "
             "due. User and system time of each program, all its threads, by the clock. Idle: both wait for a byte that comes at the end.",
             (Figure("server_percent", "server", "%", 1), Figure("client_percent", "client", "%", 1), Figure("median_us", "median", "us"),
              Figure("p99_us", "p99", "us")), True, ("vireo", "vireo-adaptive", "vireo-interrupt", "kernel"),
             (Point("idle", 0, (("rate", 0),)), Point("100 a second", 100, (("rate", 100),)), Point("10 000 a second", 10_000, (("rate", 10_000),))),
             paced, "bars", y_scale="linear", preload=False),
        Case("start", "Start-up and memory", "From exec to the first byte back, and the memory of a process with ten connections.",
             (Figure("first_byte_ms", "first byte", "ms"), Figure("main_ms", "main reached", "ms"), Figure("resident_mib", "resident", "MiB", 1),
              Figure("huge_mib", "huge pages", "MiB", 0)), True, both, (Point("10 connections", 10),), first, "bars"),
        Case("sockperf-latency", "sockperf ping-pong, 14 bytes", "sockperf ping-pong --mps=2000000 --full-rtt -m 14, its own percentiles.",
             LATENCY, True, both, tuple(Point(p.upper(), 0, (("protocol", p), ("size", 14))) for p in ("tcp", "udp")), sockperf_latency, "bars", takes=1.5),
        Case("sockperf-throughput", "sockperf throughput", "sockperf throughput --mps=max, what arrived by the server's count.",
             (Figure("mbit", "payload", "Mbit/s", 0), Figure("million", "messages", "M/s", 3), Figure("arrived_percent", "arrived", "%", 1)), False,
             both, tuple(Point(f"{p.upper()} {s} B", s, (("protocol", p), ("size", s)), quick=s == 64) for p in ("tcp", "udp") for s in (64, 1400)),
             sockperf_throughput, "bars", takes=1.5),
        Case("rdma-latency", "sockperf ping-pong on an RDMA device", "On softnic, an RDMA device in software, over a wire in shared memory: sockperf by "
             "dev/verbs and by dev/mlx5, beside frames of the same length by ibv_post_send and ibv_poll_cq alone; the kernel over veth for "
             "reference. On softnic a doorbell of dev/mlx5 is a fault of memory, and what arrives is brought by a thread of the receiver on the sender's core: its "
             "figures are softnic's first, and no NIC's.",
             LATENCY, True, rdma, tuple(Point(f"{p.upper()} {s} B", s, (("protocol", p), ("size", s)), quick=s == 14)
                                        for p, s in (("tcp", 14), ("tcp", SEGMENT), ("udp", 14), ("udp", 1472))),
             rdma_latency, "bars", takes=1.5, preload=False),
        Case("rdma-stream", "One way on an RDMA device", "The same contestants: TCP streams of messages of one size, and datagrams by a send each. The "
             "bare device sends full frames by 32 beside TCP, and one frame of the datagram's length a call beside UDP.",
             (Figure("mbit", "payload", "Mbit/s", 0), Figure("million", "messages", "M/s", 3)), False, rdma,
             tuple(Point(f"{p.upper()} {'1472 B' if s == 1472 else _sized(s)}", s, (("protocol", p), ("size", s)))
                   for p, sizes in (("tcp", (64, 1472, 65536, 1048576)), ("udp", (64, 1472))) for s in sizes),
             rdma_stream, "bars", seconds=0.8, preload=False),
    ]
