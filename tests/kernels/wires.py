#!/usr/bin/python3
"""TCP and UDP over IPv4 and IPv6 in every pairing, over whatever joins the hosts (--nics, --upper, --vlan): the least
that an interface is good for. Small, for machines on which it takes long to start a program."""
import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import build_dir  # noqa: E402
from labkit.lab import DEVICE  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

TALK = str(Path(__file__).with_name("talk.py"))
TURNS, PORT = 30, 5010  # talk.py's
FLOWS = [f"{protocol} IPv{family}" for family in (4, 6) for protocol in ("TCP", "UDP")]
HOLDS = "import socket, sys, time\nc = socket.create_connection((sys.argv[1], int(sys.argv[2])))\nc.sendall(b'hello'); print(c.recv(5)); time.sleep(60)"
suite = Suite("wires")


def talk(t: Test, **env: str):
    """All four flows, and their server and client. Both have ended."""
    addresses = [t.lab.address("B", family) for family in (4, 6)]
    server = t.start("B", PYTHON, TALK, "server", *addresses, name="server", env=env)
    server.await_output("ready", 60)
    client = t.start("A", PYTHON, TALK, "client", *addresses, name="client", env=env)
    client.wait(90)
    t.stop(server)
    t.expect(json.loads(client.stdout) == dict.fromkeys(FLOWS, TURNS), f"the client said {client.stdout!r}")
    return server, client


for ends in (("vireo", "vireo"), ("vireo", "kernel"), ("kernel", "vireo")):
    @suite.case(f"TCP and UDP, IPv4 and IPv6, {ends[0]} to {ends[1]}", ends, seconds=180)
    def _(t: Test) -> None:
        with t.proof("both", least=2 * TURNS * len(FLOWS) // 2):
            processes = talk(t)
        for host, process in zip("BA", processes):
            if t.stack_of(host) != "vireo" or t.options.dry:
                continue
            found = counters.final(process.stats_file)
            t.expect(len(found) == 1, f"{process.shown}: {len(found)} processes in its counters")
            t.expect(found[0]["decisions"]["refused"] == {}, f"{process.shown}: {found[0]['decisions']}")
            t.expect(process.stderr == "", process.stderr)
            t.note(f"{host} by {', '.join(p['mode'] for p in found[0]['ports'])}")


@suite.case("vireo-doctor opens the interface, and vireo-stat shows what it carries", ("vireo", "kernel"), seconds=120)
def _(t: Test) -> None:
    named = ["env", f"VIREO_INTERFACES={DEVICE}"] if t.lab.needs_naming else []

    def doctor(*options: str) -> tuple[int, dict]:
        done = t.lab.run("A", *named, str(build_dir() / "vireo-doctor"), *options)
        return done.returncode, next(i for i in json.loads(done.stdout)["interfaces"] if i["name"] == DEVICE)

    status, line = doctor("--try", "--json")
    t.expect(status == 0 and line["carried"] and line["tried"], str(line))
    t.note(f"{line['driver'] or line['kind']}, {line['mode']}, {line['queues']} queues")
    # A tag that a NIC takes off is hidden from XDP. virtio_net has nothing to turn on.
    for setting in ("on", "off") if line["driver"] == "e1000e" else ():
        t.lab.run("A", "ethtool", "-K", DEVICE, "rxvlan", setting, check=True)
        notes = doctor("--json")[1]["notes"]
        t.expect(any("VLAN tags hidden" in n for n in notes) == (setting == "on"), f"rxvlan {setting}: {notes}")

    server = t.start("B", PYTHON, TALK, "server", t.lab.address("B"), name="server")
    server.await_output("ready", 60)
    client = t.start("A", PYTHON, "-u", "-c", HOLDS, t.lab.address("B"), str(PORT), name="client")
    client.await_output("b'hello'", 60)
    found = counters.live(client.pid)
    t.expect(len(found) == 1, f"vireo-stat lists the program {len(found)} times")
    t.expect([p["mode"] for p in found[0]["ports"]] == [line["mode"]], str(found[0]["ports"]))
    remote = f"{t.lab.address('B')}:{PORT}"
    row = next((s for s in found[0]["sockets"] if s["remote"] == remote), {})
    t.expect(row.get("carried") and (row["state"], row["rx_bytes"], row["tx_bytes"]) == ("established", 5, 5), f"{found[0]['sockets']}")
    table = t.lab.run("A", str(build_dir() / "vireo-stat"), "--pid", str(client.pid))
    t.expect(table.returncode == 0 and remote in table.stdout, table.stdout + table.stderr)
    client.kill()
    t.stop(server)


@suite.case("what lies upon others is the kernel's if it is not named, and the reason is there", ("vireo", "kernel"), seconds=180)
def _(t: Test) -> None:
    t.expect(t.lab.needs_naming, "it is carried without being named")
    _, client = talk(t, VIREO_INTERFACES="")
    found = counters.final(client.stats_file)
    t.expect(counters.engine_packets(found) == (0, 0), "it was carried")
    t.expect(found[0]["decisions"]["refused"] == {"interface": len(FLOWS)}, str(found[0]["decisions"]))


if __name__ == "__main__":
    suite.main()
