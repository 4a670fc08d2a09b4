#!/usr/bin/python3
"""Unmodified programs that speak to groups: sockperf, iperf, PTP (linuxptp), mDNS (avahi, zeroconf) and media streams (multicat).

What they measure, find and transfer is compared with what was sent, or with the kernel; Vireo's counters show what it carried.
"""
import hashlib
import os
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.lab import DEVICE, HOSTS  # noqa: E402
from labkit.process import Process, wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5001
GROUP = {4: "239.77.3.1", 6: "ff15::77:3:1"}
MDNS_PORT = 5353
HERE = Path(__file__).resolve().parent
PAIRS = [(a, b) for a in ("vireo", "kernel") for b in ("vireo", "kernel")]
IS_QUICK = "--quick" in sys.argv[1:]
suite = Suite("multicast")


def pairing(title: str, families=(4,), pairs=PAIRS, seconds: float = 30, in_quick: bool = True):
    """Registers the case for each pairing and family; A sends and B is a member. The kernel at both ends, where its figures are to be
    compared, is there for the first family. Under --quick IPv4 alone, to a member under Vireo."""
    def register(function):
        for family, ends in ((family, ends) for family in families for ends in pairs):
            first = family == families[0]
            if (in_quick and first and ends[1] == "vireo") if IS_QUICK else (first or "vireo" in ends):
                suite.case(f"{title}, IPv{family}, {ends[0]} to {ends[1]}", ends, seconds=seconds)(
                    lambda t, family=family: routed(t, function, family))
        return function
    return register


def routed(t: Test, function, family: int) -> None:
    """Programs that name no interface send by the route of groups."""
    for host in HOSTS:
        for line in (f"route add 224.0.0.0/4 dev {DEVICE}", f"route add multicast ff00::/8 dev {DEVICE} table local metric 1"):
            subprocess.run(["ip", "-n", t.lab.netns(host), *line.split()], check=True)
    function(t, family)


def sockets(t: Test, *processes: Process) -> list[dict]:
    """As vireo-stat shows them, of processes that live or have ended."""
    rows = [p for process in processes for p in counters.final(process.stats_file) or counters.live(process.pid) or process.live_stats]
    t.expect(t.options.dry or bool(rows), "no counters of Vireo")
    return [s for p in rows for s in p["sockets"] if s["proto"] == "udp"]


def await_member(t: Test, host: str, family: int = 4, group: str = "") -> None:
    """Until the group is joined, and the interface is open to the process: what comes before that is the kernel's."""
    group = group or GROUP[family]
    t.expect(wait_until(lambda: f" {group} " in f"{t.lab.run(host, 'ip', 'maddr', 'show', 'dev', DEVICE).stdout} ".replace("\n", " "), 10),
             f"{host} has not joined {group}")
    time.sleep(0.3)


def on_vireo(t: Test, host: str) -> bool:
    return t.stack_of(host) == "vireo" and not t.options.dry


# ---- sockperf: both ends are members, and the server answers to the group ------------------------------------------

def sockperf(t: Test, mode: str, *options: str, feed: Path | None = None) -> str:
    """@return what the client printed"""
    where = ["-f", str(feed), "-F", "epoll"] if feed else ["-i", GROUP[4], "-p", str(PORT)]
    ends = {h: [*where, "--mc-rx-if", t.lab.address(h), "--mc-tx-if", t.lab.address(h)] for h in HOSTS}
    server = t.start("B", "sockperf", "server", *ends["B"], name="sockperf-server", cpu=0)
    t.await_port("B", PORT, "udp")
    client = t.start("A", "sockperf", mode, *ends["A"], *options, "-t", "1", name="sockperf-client", cpu=1)
    client.wait(20)
    t.stop(server)
    t.expect(server.status == 0, f"sockperf server: status {server.status}\n{server.tail()}")
    return re.sub(r"\x1b\[[0-9;]*m", "", client.stdout + client.stderr)


def expect_none_lost(t: Test, text: str, least: int) -> None:
    lost = re.search(r"dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)", text)
    received = re.search(r"\[Valid Duration\].*ReceivedMessages=(\d+)", text)
    t.expect(lost is not None and received is not None, f"sockperf printed no counts\n{text}")
    t.expect(lost.groups() == ("0", "0", "0"), f"dropped, duplicated, out of order: {lost.groups()}")
    t.expect(int(received[1]) >= least, f"{received[1]} answers, expected {least}")
    median = re.search(r"percentile 50\.000 =\s+([0-9.]+)", text)
    t.note(f"{received[1]} answers, median {median[1] if median else '?'} us one way")


# The server greets itself at its start by two datagrams of 64 KiB for each group; longer than the MTU, they go by the kernel.
GREETING = 2


@pairing("sockperf ping-pong")
def _(t: Test, _family: int) -> None:
    with t.proof("udp", least=100, allow=GREETING):
        text = sockperf(t, "ping-pong")
    expect_none_lost(t, text, 100)


@pairing("sockperf ping-pong in three groups of a feed file", pairs=PAIRS[:3], in_quick=False)
def _(t: Test, _family: int) -> None:
    feed = t.logs / "feed"
    feed.write_text("".join(f"U:239.77.3.{n}:{PORT + n}\n" for n in range(3)))
    with t.proof("udp", least=100, allow=3 * GREETING):
        text = sockperf(t, "ping-pong", feed=feed)
    expect_none_lost(t, text, 100)


@pairing("sockperf under-load")
def _(t: Test, _family: int) -> None:
    with t.proof("udp", least=2000, least_back=200, allow=GREETING):
        text = sockperf(t, "under-load", "--mps=5000", "--reply-every=10", "-m", "200")
    expect_none_lost(t, text, 100)


@pairing("sockperf throughput", pairs=PAIRS[:3], in_quick=False)
def _(t: Test, _family: int) -> None:
    with t.proof("udp", least=10000, least_back=0, allow=GREETING):
        text = sockperf(t, "throughput", "--mps=20000", "-m", "200")
    rate = re.search(r"Message Rate is (\d+)", text)
    t.expect(rate is not None and int(rate[1]) > 15000, f"no rate, or less than 20000 a second\n{text}")
    t.note(f"{rate[1]} messages a second")


# ---- iperf: the server counts the losses ---------------------------------------------------------------------------

# At this rate, and that of the stream below, the default receive buffer lasts while a processor is away for some 0.1 s.

@pairing("iperf", (4, 6))
def _(t: Test, family: int) -> None:
    v6 = ["-V"] if family == 6 else []
    with t.proof("udp", least=800, least_back=0):
        server = t.start("B", "iperf", "-s", "-u", *v6, "-B", f"{GROUP[family]}%{DEVICE}", "-p", str(PORT), "-f", "m", name="iperf-server")
        await_member(t, "B", family)
        client = t.start("A", "iperf", "-c", GROUP[family], "-u", *v6, "-T", "4", "-b", "8m", "-l", "1200", "-t", "1", "-p", str(PORT),
                         name="iperf-client")
        client.wait(15)
        report = r"ms +(\d+)/ *(\d+) \("
        wait_until(lambda: re.search(report, server.stdout) is not None, 5)
        t.stop(server)
    counts = [tuple(map(int, m.groups())) for m in re.finditer(report, server.stdout)]
    t.expect(len(counts) == 1, f"not one report of the server\n{server.tail()}")
    lost, total = counts[0]
    t.expect(lost == 0, f"lost {lost} of {total} at 8 Mbit/s")
    t.expect("out-of-order" not in server.stdout, f"out of order\n{server.tail()}")
    t.expect(total > 800, f"only {total} datagrams")
    t.note(f"lost {lost} of {total}")


# ---- PTP by software's time stamps ---------------------------------------------------------------------------------

# Both ends have the same clock. Nothing may set it: the master and the slave run free, and have no right to it.
PTP = """[global]
free_running 1
time_stamping software
logAnnounceInterval -3
logSyncInterval -4
logMinDelayReqInterval -4
announceReceiptTimeout 4
freq_est_interval 0
summary_interval -4
uds_address {folder}/{host}
"""
NO_CLOCK = ("setpriv", "--bounding-set=-sys_time", "--inh-caps=-sys_time")
OFFSET = re.compile(r"master offset +(-?\d+) s\d freq +\S+ path delay +(-?\d+)")
COMPLAINTS = re.compile(r"timed out|FAULTY|without timestamp|missing timestamp|bad message|failed to|clockcheck", re.I)
PLAUSIBLE = 1_000_000  # ns: on processors that others have, too


def ptp4l(t: Test, host: str, family: int, folder: str, *options: str) -> Process:
    config = t.logs / f"ptp4l-{host}"
    config.write_text(PTP.format(folder=folder, host=host))
    return t.start(host, "ptp4l", "-f", str(config), "-S", f"-{family}", "-i", DEVICE, "-m", "-q", "--free_running", "1", *options,
                   name=f"ptp4l-{host}", prefix=NO_CLOCK)


@pairing("ptp4l", (4, 6))
def _(t: Test, family: int) -> None:
    """A is the slave."""
    lines = 3
    with tempfile.TemporaryDirectory(prefix="vireo-ptp-") as folder, t.proof("udp", least=10, least_back=40):
        master = ptp4l(t, "B", family, folder, "--masterOnly", "1")
        slave = ptp4l(t, "A", family, folder, "-s")
        wait_until(lambda: len(OFFSET.findall(slave.stdout)) >= lines or not (slave.running and master.running), 15)
        t.stop(slave, master)
        found = [(int(offset), int(delay)) for offset, delay in OFFSET.findall(slave.stdout)]
        t.expect(len(found) >= lines, f"{len(found)} offsets\n{slave.tail()}\n{master.tail()}")
    complaints = COMPLAINTS.search(slave.stdout + slave.stderr + master.stdout + master.stderr)
    t.expect(complaints is None, f"ptp4l complains: {complaints and complaints[0]}\n{slave.tail()}\n{master.tail()}")
    t.expect("assuming the grand master role" in master.stdout, f"no master\n{master.tail()}")
    offset, delay = (statistics.median(column) for column in zip(*found))
    t.note(f"{len(found)} offsets, median {offset / 1000:.1f} us, path delay {delay / 1000:.1f} us")
    t.expect(max(abs(offset), abs(delay)) < PLAUSIBLE, f"offset {offset} ns, delay {delay} ns: {found}")


# ---- mDNS ----------------------------------------------------------------------------------------------------------

AVAHI = """[server]
host-name={name}
use-ipv4=yes
use-ipv6=no
allow-interfaces={device}
enable-dbus=no
[publish]
publish-hinfo=no
publish-workstation=no
"""
SERVICE = """<?xml version="1.0"?><!DOCTYPE service-group SYSTEM "avahi-service.dtd">
<service-group><name>{name}</name><service><type>_vireo._udp</type><port>{port}</port><txt-record>by={name}</txt-record></service></service-group>
"""
# Its folders are in a mount namespace of its own, so that a daemon of the machine's and its files are left alone.
APART = ("unshare", "-m", "sh", "-ec", 'mount -t tmpfs none /run; mount --bind "$0" /etc/avahi/services; exec "$@"')


def avahi(t: Test, host: str, name: str, port: int, stack: str | None = None) -> Process:
    folder = t.logs / f"services-{name}"
    folder.mkdir()
    (folder / "a.service").write_text(SERVICE.format(name=name, port=port))
    config = t.logs / f"avahi-{name}"
    config.write_text(AVAHI.format(name=name, device=DEVICE))
    daemon = t.start(host, "avahi-daemon", "-f", str(config), "--no-drop-root", "--no-chroot", "--no-rlimits", "--no-proc-title", name=f"avahi-{name}",
                     stack=stack, prefix=(*APART, str(folder)))
    daemon.await_output("successfully established", 15)
    return daemon


def publisher(t: Test, host: str, name: str, port: int, stack: str | None = None) -> Process:
    p = t.start(host, PYTHON, str(HERE / "mdns.py"), "publish", t.lab.address(host), name, str(port), name=f"zeroconf-{name}", stack=stack)
    p.await_output("ready", 15)
    return p


def find(t: Test, host: str, ports: dict[str, int], by: str) -> Process:
    """`by`: the host of the services."""
    browser = t.start(host, PYTHON, str(HERE / "mdns.py"), "find", t.lab.address(host), *ports, name="browser")
    browser.wait(20)
    wanted = [f"{name}: {name}.local. ['{t.lab.address(by)}'] {port} {({b'by': name.encode()})}" for name, port in sorted(ports.items())]
    t.expect(browser.stdout.splitlines() == wanted, f"found\n{browser.tail()}\nexpected\n" + "\n".join(wanted))
    return browser


class Heard:
    """Around the traffic: what A has said to the group came to Vireo's processes on B by the device, each datagram to each, and what B
    has answered to A. What they say themselves goes by the kernel: members on their own host hear it, too."""

    def __init__(self, t: Test):
        self._test = t
        self.listening: list[tuple[str, Process]] = []  # on B, with the stack of each
        self.browser: Process | None = None

    def __enter__(self) -> "Heard":
        self._before = counters.kernel_counters(self._test.lab, "A")["udp_out"]
        return self

    def __exit__(self, kind, *_rest) -> None:
        if kind is not None or self._test.options.dry:
            return
        t = self._test
        t.stop(*(p for _, p in self.listening), number=signal.SIGTERM)
        said = counters.kernel_counters(t.lab, "A")["udp_out"] - self._before
        if on_vireo(t, "A"):
            by_device, sent, _ = self._count(self.browser)
            t.expect(by_device > 0, f"nothing came to {self.browser.shown} by the device")
            t.note(f"A heard {by_device} by the device")
            said += sent
        for stack, p in self.listening:
            if stack == "vireo":
                by_device, _, by_kernel = self._count(p)
                t.expect(by_device == said > 0, f"{p.shown}: {by_device} by the device, of {said} that A said; {by_kernel} by the kernel")
                t.note(f"{Path(p.shown.split()[0]).name} heard {by_device} by the device, {by_kernel} of its own host by the kernel")

    def _count(self, p: Process) -> tuple[int, int, int]:
        """Received and sent by the device, received by the kernel."""
        rows = [s for s in sockets(self._test, p) if s["local"].endswith(f":{MDNS_PORT}")]
        strays = [s for s in rows if not s["carried"]]
        self._test.expect(not strays, f"{p.shown}: not carried: {strays}")
        return tuple(sum(s[name] for s in rows) for name in ("rx_packets", "tx_packets", "os_rx_packets"))


@pairing("mDNS, zeroconf asks avahi")
def _(t: Test, _family: int) -> None:
    with Heard(t) as heard:
        heard.listening = [(t.stack_of("B"), avahi(t, "B", "avahi", 4001))]
        heard.browser = find(t, "A", {"avahi": 4001}, "B")


def two_responders(stacks: tuple[str, str]) -> None:
    @pairing(f"mDNS, avahi on {stacks[0]} beside zeroconf on {stacks[1]}", pairs=[("kernel", "vireo")] if IS_QUICK else [("vireo", "vireo"), ("kernel", "vireo")])
    def _(t: Test, _family: int) -> None:
        with Heard(t) as heard:
            heard.listening = list(zip(stacks, (avahi(t, "B", "avahi", 4001, stacks[0]), publisher(t, "B", "zeroconf", 4002, stacks[1]))))
            heard.browser = find(t, "A", {"avahi": 4001, "zeroconf": 4002}, "B")


for _stacks in (("vireo", "vireo"), ("vireo", "kernel"), ("kernel", "vireo")):
    two_responders(_stacks)


# ---- a media stream ------------------------------------------------------------------------------------------------

CHUNK = 1316    # seven packets of a transport stream
RATE = 1000     # chunks a second: 10 Mbit/s
TICKS = 27_000_000


@pairing("multicat", (4, 6), pairs=PAIRS[:3])
def _(t: Test, family: int) -> None:
    """Two receivers on B, one of which is the kernel's."""
    chunks = RATE if IS_QUICK else 2 * RATE
    data, source = os.urandom(CHUNK * chunks), t.logs / "stream.ts"
    source.write_bytes(data)
    source.with_suffix(".aux").write_bytes(b"".join(struct.pack(">Q", n * TICKS // RATE) for n in range(chunks)))
    group = f"{GROUP[family]}:{PORT}" if family == 4 else f"[{GROUP[family]}]:{PORT}"
    where = {h: f"/ifaddr={t.lab.address(h)}" if family == 4 else f"/ifindex={t.lab.run(h, 'cat', f'/sys/class/net/{DEVICE}/ifindex').stdout.strip()}"
             for h in HOSTS}
    receivers = [t.start("B", "multicat", f"@{group}{where['B']}", str(t.logs / f"got-{n}.ts"), stack=stack, name=f"receiver-{n}")
                 for n, stack in enumerate((t.stack_of("B"), "kernel"))]
    t.await_port("B", PORT, "udp")
    await_member(t, "B", family)
    sender = t.start("A", "multicat", "-t", "4", str(source), f"{group}{where['A']}", name="sender")
    sender.wait(20)
    sizes = [t.logs / f"got-{n}.ts" for n in range(2)]
    wait_until(lambda: all(f.exists() and f.stat().st_size >= len(data) for f in sizes), 5)
    t.stop(*receivers, number=signal.SIGTERM)
    for name, f in zip((t.stack_of("B"), "the kernel beside"), sizes):
        got = f.read_bytes()
        t.expect(hashlib.sha256(got).digest() == hashlib.sha256(data).digest(), f"{name}: {len(got)} bytes of {len(data)}, or others")
    for host, process, by_device, by_kernel in (("A", sender, "tx_packets", "os_tx_packets"), ("B", receivers[0], "rx_packets", "os_rx_packets")):
        if on_vireo(t, host):
            rows = [s for s in sockets(t, process) if s[by_device] or s[by_kernel]]
            t.expect(len(rows) == 1 and rows[0][by_device] == chunks and rows[0][by_kernel] == 0, f"host {host}: not {chunks} by the device: {rows}")
    t.note(f"{chunks} packets of {CHUNK} bytes")


if __name__ == "__main__":
    suite.main()
