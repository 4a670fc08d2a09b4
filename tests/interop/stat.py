#!/usr/bin/python3
"""vireo-stat and vireo-doctor on living programs: what is carried shows moving counters, what is not shows why."""
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import build_dir  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5006
suite = Suite("stat")

LOOPBACK = """
import socket, sys, time
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
c = socket.create_connection(s.getsockname())
a, _ = s.accept()
c.sendall(b"x" * 100)
a.recv(100)
print("ready", flush=True)
time.sleep(30)
"""


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(build_dir() / name), *arguments], capture_output=True, text=True, timeout=20)


def only(t: Test, pid: int) -> dict:
    found = counters.live(pid)
    t.expect(len(found) == 1, f"vireo-stat lists pid {pid} {len(found)} times")
    return found[0]


@suite.case("sockperf over TCP is carried, its counters move", ("vireo", "vireo"))
def _(t: Test) -> None:
    if t.options.dry:
        return
    address = t.lab.address("B")
    server = t.start("B", "sockperf", "server", "--tcp", "-i", address, "-p", str(PORT), name="server")
    t.await_port("B", PORT)
    client = t.start("A", "sockperf", "ping-pong", "--tcp", "-i", address, "-p", str(PORT), "-t", "10", "-m", "14", name="client")

    def connection(process, key: str) -> dict | None:
        rows = [s for p in counters.live(process.pid) for s in p["sockets"]
                if s["carried"] and not s["closed"] and s[key].endswith(f":{PORT}") and s["remote"] and s["rx_packets"]]
        return rows[0] if rows else None

    t.expect(wait_until(lambda: connection(client, "remote"), 10, 0.1), f"no carried connection: {counters.live()}")
    first = connection(client, "remote")
    t.expect(first["proto"] == "tcp" and first["state"] == "established" and first["reason"] == "", str(first))
    t.expect(first["remote"] == f"{address}:{PORT}" and first["local"].startswith(t.lab.address("A") + ":"), str(first))
    t.expect(wait_until(lambda: connection(server, "local"), 10, 0.1), f"nothing accepted: {counters.live(server.pid)}")
    accepted = connection(server, "local")
    t.expect(accepted["state"] == "established", str(accepted))
    t.expect(accepted["remote"] == first["local"], f"{accepted['remote']} is not {first['local']}")
    wait_until(lambda: connection(client, "remote")["rx_bytes"] > first["rx_bytes"], 5, 0.1)
    second = connection(client, "remote")
    for name in ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes"):
        t.expect(second[name] > first[name], f"{name} stood at {first[name]}")
    t.expect(second["os_rx_packets"] == second["os_tx_packets"] == 0, str(second))
    port = only(t, client.pid)["ports"]
    t.expect([p["name"] for p in port] == [t.lab.device] and port[0]["mode"], str(port))
    listeners = [s for s in only(t, server.pid)["sockets"] if s["state"] == "listen"]
    t.expect(len(listeners) == 1 and listeners[0]["local"] == f"{address}:{PORT}", str(listeners))
    table = tool("vireo-stat", "--pid", str(client.pid))
    t.expect(table.returncode == 0 and first["local"] in table.stdout, table.stdout + table.stderr)
    # The interface is in use now; vireo-doctor knows by whom, and that a further process shares it.
    doctor = t.lab.run("A", str(build_dir() / "vireo-doctor"), "--json")
    line = [i for i in json.loads(doctor.stdout)["interfaces"] if i["name"] == t.lab.device][0]
    if tuple(int(n) for n in platform.release().split(".")[:2]) >= (6, 4):
        t.expect(doctor.returncode == 0 and line["carried"], str(line))
        t.expect(any(f"shared with sockperf (pid {client.pid})" in n for n in line["notes"]), str(line))
    else:
        t.expect(doctor.returncode == 1 and line["reason"] == "device-busy" and f"pid {client.pid})" in line["detail"], str(line))

    client.wait(20)
    t.stop(server)
    ended = counters.final(client.stats_file)
    t.expect(len(ended) == 1 and ended[0]["pid"] == client.pid, f"{client.stats_file}: {ended}")
    closed = ended[0]["closed"]["carried"]
    t.expect(closed["sockets"] == 1 and closed["rx_packets"] >= second["rx_packets"], str(closed))
    t.expect(ended[0]["engine"]["tx_packets"] >= closed["tx_packets"] > 0, str(ended))
    t.expect(only_reason(ended[0]) == {}, str(ended[0]["decisions"]))
    t.expect(tool("vireo-stat", "--pid", str(client.pid)).returncode == 1, "an ended process is listed")


def only_reason(process: dict) -> dict:
    return process["decisions"]["refused"]


@suite.case("a loopback connection shows its reason", ("vireo", "kernel"))
def _(t: Test) -> None:
    if t.options.dry:
        return
    program = t.start("A", PYTHON, "-c", LOOPBACK, name="loopback")
    program.await_output("ready")
    process = only(t, program.pid)
    rows = [s for s in process["sockets"] if not s["closed"]]
    t.expect(len(rows) == 3, f"three sockets were made: {rows}")
    for s in rows:
        t.expect(not s["carried"] and s["reason"] == "loopback" and "loopback" in s["text"], str(s))
        t.expect(s["local"].startswith("127.0.0.1:"), str(s))
    t.expect(sum(s["os_tx_bytes"] for s in rows) == sum(s["os_rx_bytes"] for s in rows) == 100, str(rows))
    t.expect(only_reason(process) == {"loopback": 3}, str(process["decisions"]))
    t.expect(process["engine"]["rx_packets"] == 0 and process["ports"] == [], str(process))
    reasons = tool("vireo-stat", "--reasons", "--pid", str(program.pid))
    t.expect("3  loopback" in reasons.stdout, reasons.stdout)
    program.kill()


@suite.case("vireo-doctor foretells what happens", ("vireo", "kernel"))
def _(t: Test) -> None:
    if t.options.dry:
        return
    doctor = str(build_dir() / "vireo-doctor")

    def ask(*arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, dict]:
        done = t.lab.run("A", *prefix, doctor, "--json", *arguments)
        return done.returncode, json.loads(done.stdout)

    guessed, tried = ask(), ask("--try")
    lines = [next(i for i in report["interfaces"] if i["name"] == t.lab.device) for _, report in (guessed, tried)]
    t.expect(guessed[0] == tried[0] == 0 and lines[0]["carried"] and lines[1]["carried"], str(lines))
    t.expect(lines[1]["tried"] and lines[1]["mode"] == "native copy", str(lines))
    # Kernels before 6.3 do not tell what XDP a driver has.
    tells = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 3)
    t.expect(lines[0]["mode"] == ("native copy" if tells else "native or generic"), str(lines[0]))
    for destination, status, reason in ((t.lab.address("B"), 0, ""), (t.lab.address("A"), 1, "loopback"),
                                        ("203.0.113.1", 1, "no-route"), ("127.0.0.1", 1, "loopback")):
        code, report = ask("--route", destination)
        t.expect((code, report["route"]["reason"]) == (status, reason), f"{destination}: {report['route']}")
    code, report = ask(prefix=("setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"))
    t.expect(code == 1 and any(c["name"] == "rights" and c["level"] == "fail" for c in report["checks"]), str(report))
    t.expect("xdp" not in t.lab.run("A", "ip", "-d", "link", "show", t.lab.device).stdout, "--try left its program behind")


if __name__ == "__main__":
    suite.main()
