#!/usr/bin/python3
"""kill -9 of either side, in mid-transfer or at rest: nothing remains, the survivor learns it, the next run starts."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.build import program  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5003
TIMES = 10
HUGE = str(1 << 40)  # bytes that no run finishes
# What a program sees when the peer's TCP is gone: a reset (on read or write), or the stream's end before its time,
# for the kernel closes a killed process's connection with FIN where nothing was unread.
BROKEN = ("Connection reset by peer", "Broken pipe", "Connection timed out", "the stream ended")
suite = Suite("kill")


def xdp_objects(t: Test, host: str) -> tuple[set[int], set[int]]:
    """Ids of the XDP programs on the host's device, and of their maps."""
    links = json.loads(t.lab.run(host, "ip", "-j", "-d", "link", "show", t.lab.device).stdout or "[]")
    programs = {p["id"] for link in links for p in [link.get("xdp", {}).get("prog") or {}] if "id" in p}
    programs |= {a["prog"]["id"] for link in links for a in link.get("xdp", {}).get("attached", []) if "prog" in a}
    maps: set[int] = set()
    for number in programs:
        shown = subprocess.run(["bpftool", "-j", "prog", "show", "id", str(number)], capture_output=True, text=True)
        maps |= set(json.loads(shown.stdout or "{}").get("map_ids", []))
    return programs, maps


def exists(kind: str, number: int) -> bool:
    return subprocess.run(["bpftool", kind, "show", "id", str(number)], capture_output=True).returncode == 0


def sockets(t: Test, host: str) -> str:
    """TCP sockets of the port that hold a connection, and AF_XDP sockets."""
    tcp = t.lab.run(host, "ss", "-Htan", f"( sport = :{PORT} or dport = :{PORT} )").stdout
    rows = [row for row in tcp.splitlines() if not re.match(r"TIME-WAIT|FIN-WAIT|LAST-ACK|CLOSING", row)]
    return "\n".join(rows + t.lab.run(host, "ss", "-Hn", "--xdp").stdout.splitlines())


def start_pair(t: Test, length: str, name: str):
    tool, address = str(program("tests/integrity/transfer.cpp")), t.lab.address("B")
    common = (address, str(PORT), "1", length, "threads")
    server = t.start("B", tool, "server", *common, name=f"{name}-server")
    t.await_port("B", PORT)
    return server, t.start("A", tool, "client", *common, name=f"{name}-client")


def moved(t: Test) -> int:
    """Bytes that the device of host A has sent, whoever carried them. XDP traffic counts there as well."""
    shown = json.loads(t.lab.run("A", "ip", "-j", "-s", "link", "show", "vr0").stdout)
    return shown[0]["stats64"]["tx"]["bytes"] + shown[0]["stats64"]["rx"]["bytes"]


def kill_one(t: Test, victim_host: str, number: int) -> None:
    before = moved(t)
    server, client = start_pair(t, HUGE, f"{number}")
    t.expect(wait_until(lambda: moved(t) > before + (1 << 20), 15), f"run {number}: no traffic\n{client.tail()}\n{server.tail()}")
    time.sleep(0.02 * number)  # not always at the same point
    victim, survivor = (client, server) if victim_host == "A" else (server, client)
    objects = {h: xdp_objects(t, h) for h in "AB"}
    for host in "AB":
        if t.stack_of(host) == "vireo" and not t.options.dry:
            t.expect(bool(objects[host][0]), f"run {number}: no XDP program on {host} in mid-transfer: not carried, so no test")
    victim.kill()
    survivor.wait(30, status=1)
    said = survivor.stderr.splitlines()  # each of its two threads may meet the end
    t.expect(bool(said) and all(any(text in line for text in BROKEN) for line in said),
             f"run {number}: the survivor said {survivor.stderr!r}")
    for host, (programs, maps) in objects.items():
        for kind, ids in (("prog", programs), ("map", maps)):
            for object_id in ids:
                t.expect(wait_until(lambda: not exists(kind, object_id), 5), f"run {number}: BPF {kind} {object_id} of {host} remains")
        t.expect(wait_until(lambda: not sockets(t, host), 5), f"run {number}: sockets remain on {host}:\n{sockets(t, host)}")


for ends in (("vireo", "vireo"), ("vireo", "kernel"), ("kernel", "vireo"), ("kernel", "kernel")):
    for host, role in (("A", "client"), ("B", "server")):
        @suite.case(f"kill -9 of the {role} again and again, {ends[0]} to {ends[1]}", ends, seconds=400)
        def _(t: Test, host=host) -> None:
            for number in range(1, (3 if t.options.quick else TIMES) + 1):
                kill_one(t, host, number)
            server, client = start_pair(t, str(1 << 20), "last")
            client.wait(30)
            server.wait(30)


@suite.case("SIGTERM and SIGINT in mid-transfer, vireo to vireo", ("vireo", "vireo"), seconds=120)
def _(t: Test) -> None:
    for number, signum in enumerate((signal.SIGTERM, signal.SIGINT), 1):
        server, client = start_pair(t, HUGE, f"signal-{number}")
        time.sleep(0.5)
        client.signal(signum)
        client.wait(10, status=-signum)
        server.wait(30, status=1)
        t.expect(any(text in server.stderr for text in BROKEN), f"the survivor said {server.stderr!r}")


# ---- a peer that only waits --------------------------------------------------------------------------------------
TOLD_WITHIN = 3.0  # seconds: three questions, 550 ms apart, and some patience
WAITER = str(Path(__file__).resolve().parent / "waiter.py")


def mourners(t: Test, host: str) -> list[int]:
    pids = t.lab.run(host, "ip", "netns", "pids", t.lab.netns(host)).stdout.split()
    names = {}
    for pid in pids:
        try:
            names[int(pid)] = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            pass
    return [pid for pid, name in names.items() if name == "vireo-mourner"]


def expect_no_mourner(t: Test, hosts: str = "AB") -> None:
    for host in hosts:
        t.expect(wait_until(lambda: not mourners(t, host), 2.5), f"a mourner remains on {host}")


def waiters(t: Test, how_a: str, how_b: str, *, family: int = 4, count: int = 1, env_a: dict[str, str] | None = None):
    """A client on A and a server on B, both waiting."""
    common = (t.lab.address("B", family), str(PORT), str(count))
    server = t.start("B", PYTHON, WAITER, "server", *common, how_b, name=f"server-{how_b}")
    t.await_port("B", PORT)
    client = t.start("A", PYTHON, WAITER, "client", *common, how_a, name=f"client-{how_a}", env=env_a)
    for process in (client, server):
        t.expect(wait_until(lambda: "up" in process.stdout, 20), f"not connected\n{process.tail()}")
    return client, server


def expect_told(t: Test, survivor, count: int, since: float, ends: tuple[str, ...] = ("reset", "eof")) -> dict:
    survivor.wait(max(0.1, since + TOLD_WITHIN + 0.05 * count - time.monotonic()))
    heard = json.loads(survivor.stdout.splitlines()[-1])
    t.expect(sum(heard.get(e, 0) for e in ends) == count, f"the survivor heard {heard} on {count} connections")
    return heard


def kill_a_waiter(t: Test, victim_host: str, how: str, family: int, count: int = 1) -> None:
    client, server = waiters(t, how, how, family=family, count=count)
    for host in "AB":
        if t.stack_of(host) == "vireo" and not t.options.dry:
            t.expect(len(mourners(t, host)) == 1, f"{len(mourners(t, host))} mourners on {host}, not 1")
    victim, survivor = (client, server) if victim_host == "A" else (server, client)
    since = time.monotonic()
    victim.kill()
    heard = expect_told(t, survivor, count, since)
    t.note(f"IPv{family} {how}: {heard} after {time.monotonic() - since:.2f} s")
    expect_no_mourner(t)


for ends in (("vireo", "vireo"), ("vireo", "kernel"), ("kernel", "vireo"), ("kernel", "kernel")):
    for host, role in (("A", "client"), ("B", "server")):
        @suite.case(f"kill -9 of a waiting {role}, {ends[0]} to {ends[1]}", ends, seconds=90)
        def _(t: Test, host=host) -> None:
            for family in (4, 6):
                for how in ("recv", "epoll"):
                    kill_a_waiter(t, host, how, family)


for ends in (("vireo", "kernel"), ("vireo", "vireo")):
    @suite.case(f"kill -9 with 200 connections, {ends[0]} to {ends[1]}", ends, seconds=90)
    def _(t: Test) -> None:
        kill_a_waiter(t, "A", "epoll", 4, count=200)


@suite.case("an ordinary exit is a FIN and nothing after it, vireo to kernel", ("vireo", "kernel"))
def _(t: Test) -> None:
    client, server = waiters(t, "exit", "half")
    client.wait(5)
    server.wait(10)
    heard = json.loads(server.stdout.splitlines()[-1])
    t.expect(heard == {"eof": 1, "state": 8, "error": 0}, f"not in CLOSE-WAIT (8) for as long as it likes: {heard}")
    expect_no_mourner(t)


@suite.case("exec of another program is the end of the connections, vireo to kernel", ("vireo", "kernel"))
def _(t: Test) -> None:
    since = time.monotonic()
    client, server = waiters(t, "exec", "recv")
    expect_told(t, server, 1, since + 5, ("eof",))  # from the kernel, which had it at the exec
    t.expect(client.running, "the new program has ended")
    expect_no_mourner(t)


for how, what in (("fork", "a forked child"), ("child", "a child that executed another program")):
    @suite.case(f"kill -9 of the parent while {what} lives on, vireo to kernel", ("vireo", "kernel"))
    def _(t: Test, how=how) -> None:
        client, server = waiters(t, how, "recv")
        since = time.monotonic()
        os.kill(client.pid, signal.SIGKILL)  # not its session
        expect_told(t, server, 1, since, ("reset",))
        expect_no_mourner(t)


@suite.case("kill -9 of a daemon, vireo to kernel", ("vireo", "kernel"))
def _(t: Test) -> None:
    # A relative path leads nowhere from the folder that the daemon has gone to.
    relative = os.path.relpath(t.options.library.resolve(), t.logs.resolve())
    for env in (None, {"LD_PRELOAD": relative}):
        client, server = waiters(t, "daemon", "recv", env_a=env)
        client.wait(5)
        t.expect(server.running, "the connection ended with the daemon's parent")
        since = time.monotonic()
        os.kill(int(client.stdout.split()[0]), signal.SIGKILL)
        expect_told(t, server, 1, since, ("reset",))
        expect_no_mourner(t)


@suite.case("the mourner is no child of the program's, vireo to kernel", ("vireo", "kernel"))
def _(t: Test) -> None:
    client, server = waiters(t, "children", "recv")
    server.stop(signal.SIGKILL)
    client.wait(5)
    t.expect(json.loads(client.stdout.splitlines()[-1]).get("children") == "ECHILD", f"wait(2) found something: {client.stdout}")
    expect_no_mourner(t)


@suite.case("without a mourner: by setting, or because it is not installed, vireo to kernel", ("vireo", "kernel"))
def _(t: Test) -> None:
    if t.options.dry:
        return
    alone = t.logs / "alone" / "libvireo.so"
    alone.parent.mkdir()
    shutil.copy(t.options.library, alone)
    for env, lines in (({"VIREO_MOURNER": "0"}, 0), ({"LD_PRELOAD": str(alone)}, 1)):
        client, server = waiters(t, "recv", "exit", env_a=env)
        t.expect(not mourners(t, "A"), f"{env}: there is a mourner")
        client.wait(5)
        said = client.stderr.splitlines()
        t.expect(len(said) == lines and all("vireo-mourner" in line for line in said), f"{env}: {client.stderr!r}")
        server.wait(5)


if __name__ == "__main__":
    suite.main()
