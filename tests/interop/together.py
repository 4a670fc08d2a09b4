#!/usr/bin/python3
"""Many processes on one NIC: all are carried, whoever they are and however they end, and the last one leaves nothing."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from together_pairs import CALM, MIB, Observer, expect_carried, expect_joins, expect_nothing_left, finish, size, transfer  # noqa: E402
from labkit import counters  # noqa: E402
from labkit.build import program  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

BOTH = ("vireo", "vireo")
POLLING = 300.0  # ms: where eight processes poll on two processors, they wait for each other
suite = Suite("together")


@suite.case("four servers and four clients, TCP and UDP, messages and transfers", BOTH, seconds=400)
def _(t: Test) -> None:
    length = size(t, 4, 64, 512) * MIB
    with t.proof("both", least=100, allow=2):
        observers = [Observer(t, 5101, "tcp"), Observer(t, 5102, "udp", 1200)]
        bulk = [transfer(t, 5103, length), transfer(t, 5104, length // 4, 4, "poll")]
        for pair, connections in zip(bulk, (1, 4)):
            finish(t, pair, length // connections, 180, connections)
        for observer in observers:
            seen = observer.window()
            t.note(f"port {observer.port}: {seen['rounds']} rounds, longest {seen['longest']} ms")
            observer.expect_calm(seen, "beside transfers", POLLING)
        t.snapshot()
        for observer in observers:
            observer.end()
        for pair in (*observers, *bulk):
            expect_carried(t, *pair.both)
    expect_nothing_left(t)


# ---- more of them than the packet memory has room for at first ----------------------------------------------------
# Processes of their own each, a listener each. Prints their numbers, and answers what comes.
MANY = """
import os, socket, sys
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
pids = []
for n in range(count):
    pid = os.fork()
    if pid == 0:
        l = socket.create_server((address, port + n))
        os.write(1, b"%d\\n" % os.getpid())  # in one piece: others write, too
        while True:
            c = l.accept()[0]
            while data := c.recv(65536): c.sendall(data)
            c.close()
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
"""
TO_ALL = """
import os, socket, sys
address, port, count, rounds = sys.argv[1], *map(int, sys.argv[2:])
all = [socket.create_connection((address, port + n), timeout=10) for n in range(count)]
for r in range(rounds):
    for s in all:
        data = os.urandom((1, 1400, 30000)[r % 3])
        s.sendall(data)
        got = b""
        while len(got) < len(data): got += s.recv(65536) or sys.exit("end of stream")
        assert got == data
print("good", flush=True)
"""


@suite.case("two dozen processes, one after the other", ("kernel", "vireo"), seconds=120)
def _(t: Test) -> None:
    count = size(t, 20, 24, 24)
    server = t.start("B", PYTHON, "-c", MANY, t.lab.address("B"), "5200", str(count), name="many", env=CALM)
    t.expect(wait_until(lambda: len(server.stdout.split()) == count, 60), f"{len(server.stdout.split())} of {count} serve\n{server.tail()}")
    pids = [int(pid) for pid in server.stdout.split()]
    before = counters.kernel_counters(t.lab, "B")
    client = t.start("A", PYTHON, "-c", TO_ALL, t.lab.address("B"), "5200", str(count), str(size(t, 6, 12, 60)), name="to-all")
    client.wait(60)
    t.expect(client.stdout.strip() == "good", client.tail())
    if not t.options.dry:
        after = counters.kernel_counters(t.lab, "B")
        moved = {name: after[name] - before[name] for name in ("tcp_in", "tcp_out")}
        t.expect(not any(moved.values()), f"kernel of B: {moved}")
        carried = [min(counters.engine_packets(counters.live(pid))) for pid in pids]
        t.expect(min(carried) >= 10, f"carried by process: {carried}")
        own = sorted(e["group"]["own"] for pid in pids for e in counters.live(pid) if "group" in e)
        t.note(f"frames of each: {own}")
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    server.wait(20, status=None)
    expect_nothing_left(t)


# ---- how processes end -------------------------------------------------------------------------------------------
WAITER = str(Path(__file__).resolve().parent / "waiter.py")
# What the client does, what its peer hears, whether the client's process is one that lives on.
WAYS = (("exit", ("eof",)), ("exec", ("eof",)), ("fork", ("reset",)), ("daemon", ("reset",)), ("child", ("reset",)))


def end_by(t: Test, how: str, hears: tuple[str, ...], port: int) -> None:
    """Ends by itself, or by a kill when it waits: the parent alone where a child lives on."""
    common = (t.lab.address("B"), str(port), "1")
    server = t.start("B", PYTHON, WAITER, "server", *common, "recv", name=f"{how}-server", env=CALM)
    t.await_port("B", port)
    client = t.start("A", PYTHON, WAITER, "client", *common, how, name=f"{how}-client", env=CALM)
    t.expect(wait_until(lambda: "up" in client.stdout and "up" in server.stdout, 20), f"{how}: not connected\n{client.tail()}\n{server.tail()}")
    if how in ("fork", "child", "daemon"):
        os.kill(int(client.stdout.split()[0]) if how == "daemon" else client.pid, signal.SIGKILL)
    server.wait(4)
    heard = json.loads(server.stdout.splitlines()[-1])
    t.expect(t.options.dry or sum(heard.get(e, 0) for e in hears) == 1, f"{how}: the server heard {heard}")
    if not t.options.dry:
        expect_carried(t, server, least=2)
    client.kill()


@suite.case("processes end in every way beside others", BOTH, seconds=120)
def _(t: Test) -> None:
    observers = [Observer(t, 5101, "tcp", env=CALM), Observer(t, 5102, "udp", 1200, env=CALM)]
    for _ in range(size(t, 1, 2, 20)):
        for at, (how, hears) in enumerate(WAYS):
            if t.options.dry and how in ("fork", "child"):
                continue  # on the kernel the child has the connection, too
            end_by(t, how, hears, 5110 + at)
            for observer in observers:
                observer.expect_calm(observer.window(), f"beside the end by {how}")
    expect_joins(t, 5103)
    for observer in observers:
        observer.end()
    expect_nothing_left(t)


@suite.case("the founder becomes a daemon, and executes another program", BOTH, seconds=60)
def _(t: Test) -> None:
    for how in ("daemon", "exec"):
        server = t.start("B", PYTHON, WAITER, "server", t.lab.address("B"), "5110", "1", "recv", name=f"{how}-server", env=CALM)
        t.await_port("B", 5110)
        founder = t.start("A", PYTHON, WAITER, "client", t.lab.address("B"), "5110", "1", how, name=how, env=CALM)
        t.expect(wait_until(lambda: "up" in founder.stdout, 20), f"not connected\n{founder.tail()}")
        beside = Observer(t, 5101, "tcp", env=CALM)
        time.sleep(1)
        expect_joins(t, 5103)
        beside.expect_calm(beside.window(), f"beside the founder's {how}")
        beside.end()
        if how == "daemon":
            os.kill(int(founder.stdout.split()[0]), signal.SIGKILL)
        founder.kill()
        server.wait(4, status=None)
        expect_nothing_left(t)


# ---- users -------------------------------------------------------------------------------------------------------
CAPABILITIES = "-all,+net_raw,+net_admin,+bpf,+ipc_lock"


@suite.case("another user's process is the kernel's, and says why", BOTH, seconds=60)
def _(t: Test) -> None:
    if t.options.dry:
        return
    ours = Observer(t, 5101, "tcp", env=CALM)
    with tempfile.TemporaryDirectory() as name:  # the tree may lie where only root comes
        folder = Path(name)
        folder.chmod(0o777)
        for file in (t.options.library, t.options.library.with_name("vireo-mourner"), program("tests/integrity/transfer.cpp")):
            shutil.copy(file, folder)
        common = (t.lab.address("B"), "5103", "1", str(MIB), "threads")
        server = t.start("B", str(program("tests/integrity/transfer.cpp")), "server", *common, name="server", env=CALM)
        t.await_port("B", 5103)
        stats = folder / "client.stats"
        theirs = t.start("A", str(folder / "transfer"), "client", *common, name="client",
                         prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--inh-caps={CAPABILITIES}",
                                 f"--ambient-caps={CAPABILITIES}"),
                         env=CALM | {"LD_PRELOAD": str(folder / t.options.library.name), "VMA_STATS_FILE": str(stats)})
        theirs.wait(20)
        server.wait(20)
        seen = counters.engine_packets(counters.final(stats))
    t.expect(seen == (0, 0), f"carried: {seen}")
    t.expect("interface has an XDP program already" in theirs.stderr, f"said {theirs.stderr!r}")
    ours.expect_calm(ours.window(), "beside another user's process")
    ours.end()
    expect_nothing_left(t)


# ---- two interfaces ----------------------------------------------------------------------------------------------
def second_wire(t: Test) -> None:
    """vr1, 10.78.0.1 and .2."""
    subprocess.run(["ip", "link", "add", "vr1", "netns", t.lab.netns("A"), "type", "veth", "peer", "name", "vr1", "netns",
                    t.lab.netns("B")], check=True)
    for number, host in enumerate("AB", 1):
        for words in (("link", "set", "vr1", "up"), ("addr", "add", f"10.78.0.{number}/24", "dev", "vr1")):
            subprocess.run(["ip", "-n", t.lab.netns(host), *words], check=True)
    for number, (host, other) in enumerate(("BA", "AB"), 1):
        mac = t.lab.run(other, "cat", "/sys/class/net/vr1/address").stdout.strip()
        subprocess.run(["ip", "-n", t.lab.netns(host), "neigh", "replace", f"10.78.0.{number}", "lladdr", mac, "dev", "vr1",
                        "nud", "reachable"], check=True)


@suite.case("two interfaces: some on one, some on the other, some on both", BOTH, seconds=200)
def _(t: Test) -> None:
    second_wire(t)
    first, second = t.lab.address("B"), "10.78.0.2"
    length = size(t, 4, 32, 256) * MIB
    with t.proof("both", least=100, allow=2):
        # Whoever is first: on one, on the other, and a server of any address, which takes clients of both.
        observers = [Observer(t, 5101, "tcp", env=CALM, address=first), Observer(t, 5102, "tcp", env=CALM, address=second),
                     Observer(t, 5103, "udp", 1200, env=CALM, address=second)]
        tool = str(program("tests/interop/rounds.cpp"))
        any_server = t.start("B", tool, "server", "0.0.0.0", "5104", name="any", env=CALM)
        t.await_port("B", 5104)
        clients = [t.start("A", tool, "client", "tcp", address, "5104", "2000", "100", "2000", name=f"to-{address}", env=CALM)
                   for address in (first, second)]
        bulk = [transfer(t, 5105, length, env=CALM, address=first), transfer(t, 5106, length, env=CALM, address=second)]
        for pair in bulk:
            finish(t, pair, length, 100)
        for client in clients:
            client.wait(60)
            seen = json.loads(client.stdout.splitlines()[-1])
            t.expect(seen["rounds"] == 2000 and not seen["wrong"], f"{client.shown}: {seen}")
        for observer in observers:
            seen = observer.window()
            t.note(f"port {observer.port}: longest {seen['longest']} ms")
            observer.expect_calm(seen, "on two interfaces")
        t.snapshot()
        expect_carried(t, any_server, *clients, *(p for pair in (*observers, *bulk) for p in pair.both))
        ports = {port["name"] for p in counters.live(any_server.pid) for port in p.get("ports", [])}
        t.expect(t.options.dry or ports == {"vr0", "vr1"}, f"the server of any address has {ports}")
        # One that has both goes; those on either stay.
        any_server.kill()
        for observer in observers:
            observer.expect_calm(observer.window(), "when one on both was killed")
            observer.end()
    expect_nothing_left(t)


if __name__ == "__main__":
    suite.main()
