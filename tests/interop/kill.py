#!/usr/bin/python3
"""kill -9 of either side in mid-transfer, ten times: nothing remains, the survivor learns it, the next run starts."""
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.build import program  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import Suite, Test  # noqa: E402

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
        @suite.case(f"kill -9 of the {role} ten times, {ends[0]} to {ends[1]}", ends, seconds=400)
        def _(t: Test, host=host) -> None:
            for number in range(1, TIMES + 1):
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


if __name__ == "__main__":
    suite.main()
