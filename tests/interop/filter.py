#!/usr/bin/python3
"""The host's packet filter: what it refuses stays refused under Vireo, what it lets pass is carried.

Each case runs with host B's server, or host A's client, on the kernel first: what a rule does there is what it must do here.
"""
import json
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import build_dir  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

suite = Suite("filter")
PORT = 5007
# Answers each datagram or connection with its number.
SERVER = """
import socket, sys
proto, port = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if proto == "tcp" else socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", port))
if proto == "tcp":
    s.listen()
print("ready", flush=True)
while True:
    if proto == "tcp":
        c, _ = s.accept()
        c.sendall(c.recv(100))
        c.close()
    else:
        data, peer = s.recvfrom(100)
        s.sendto(data, peer)
"""
# Asks two ports in turn by one socket that is not connected: answers of the first, refusals of the second.
SENDER = """
import socket, sys, time
address, port, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1.2)
answers = refusals = 0
for i in range(times):
    s.sendto(b"question", (address, port))
    if i == 0:
        time.sleep(0.3)  # the kernel sends to a neighbour that nobody knows yet
    answers += s.recv(100) == b"question"
    try:
        s.sendto(b"question", (address, port + 1))
    except PermissionError:
        refusals += 1
print(answers, refusals, flush=True)
"""
# Says what became of one question.
CLIENT = """
import socket, sys
proto, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if proto != "udp" else socket.SOCK_DGRAM)
s.settimeout(1.2)
try:
    s.connect((address, port))
    s.sendall(b"question")
    print("answered" if s.recv(100) == b"question" else "closed", flush=True)
except Exception as e:
    print({TimeoutError: "silent", ConnectionRefusedError: "refused", PermissionError: "forbidden"}.get(type(e), repr(e)), flush=True)
"""


def run(t: Test, host: str, *commands: str) -> None:
    for command in commands:
        done = t.lab.run(host, "sh", "-c", command)
        t.expect(done.returncode == 0, f"{command}: {done.stderr}")


def nft(rules: str) -> str:
    return f"nft -f - <<'END'\n{rules}\nEND"


def input_chain(rules: str, policy: str = "accept") -> str:
    return nft(f"table inet f {{ chain in {{ type filter hook input priority 0; policy {policy};\n{rules}\n}}\n}}")


def ask(t: Test, proto: str = "tcp", port: int = PORT, stack: str = "kernel") -> str:
    client = t.start("A", PYTHON, "-c", CLIENT, proto, t.lab.address("B"), str(port), name="client", stack=stack)
    client.wait(15)
    t.client = client
    return client.stdout.strip()


def serve(t: Test, proto: str = "tcp", port: int = PORT, env: dict[str, str] | None = None):
    server = t.start("B", PYTHON, "-c", SERVER, proto, str(port), name="server", env=env)
    server.await_output("ready")
    return server


def sockets(pid: int) -> list[dict]:
    return [s for p in counters.live(pid) for s in p["sockets"] if not s["closed"]]


def expect_row(t: Test, server, reason: str, detail: str = "") -> None:
    """`reason` "": carried, and its counters moved."""
    if t.options.dry or t.stack_of("B") != "vireo":
        return
    rows = sockets(server.pid)
    t.expect(bool(rows) and all(s["reason"] == reason for s in rows), f"reason {reason!r} was due: {rows}")
    t.expect(any(detail in s["detail"] for s in rows), f"{detail!r} was due: {rows}")
    rx, tx = counters.engine_packets(counters.live(server.pid))
    t.expect((rx > 0) == (reason == ""), f"Vireo's counters: rx {rx} tx {tx}")


def judged(title: str, commands: tuple[str, ...], said: str, reason: str, detail: str = "", proto: str = "tcp") -> None:
    """What a client gets of a server on B, where these commands were given before it began."""
    for stack in ("kernel", "vireo"):
        @suite.case(f"{title}, {stack}", ("kernel", stack))
        def _(t: Test) -> None:
            run(t, "B", *commands)
            server = serve(t, proto)
            answer = ask(t, proto)
            t.expect(answer == said, f"the client was {answer}, not {said}")
            expect_row(t, server, reason, detail)
            t.stop(server)


OPEN = "ct state established,related accept; ct state invalid drop; iif lo accept; "
judged("nftables, drop", (input_chain(f"tcp dport {PORT} drop"),), "silent", "filter", "inet f in, handle")
judged("nftables, reject", (input_chain(f"tcp dport {PORT} reject with tcp reset"),), "refused", "filter", "inet f in, handle")
judged("nftables, policy drop", (input_chain(OPEN, "drop"),), "silent", "filter", "inet f in, policy")
judged("nftables, policy drop, open port", (input_chain(OPEN + f"tcp dport {{ 22, {PORT} }} accept", "drop"),), "answered", "")
judged("nftables, policy drop, open port of UDP", (input_chain(OPEN + f"udp dport {PORT} accept", "drop"),), "answered", "", proto="udp")
judged("nftables, policy drop, UDP", (input_chain(OPEN + f"tcp dport {PORT} accept", "drop"),), "silent", "filter", proto="udp")
judged("nftables, another's port", (input_chain(f"tcp dport {PORT + 1} drop"),), "answered", "")
judged("nftables, by source", (input_chain(f"ip saddr 203.0.113.0/24 tcp dport {PORT} drop"),), "answered", "filter")
judged("nftables, answers dropped", (nft(f"table ip f {{ chain out {{ type filter hook output priority 0;\ntcp sport {PORT} drop\n}}\n}}"),),
       "silent", "filter", "ip f out")
judged("nftables, redirected", (nft(f"table ip n {{ chain pre {{ type nat hook prerouting priority -100;\ntcp dport {PORT} redirect to :9\n}}\n}}"),),
       "refused", "filter", "ip n pre")
judged("nftables, netdev ingress", (nft(f'table netdev n {{ chain i {{ type filter hook ingress device "vr0" priority 0;\ntcp dport {PORT} drop\n}}\n}}'),),
       "silent", "filter", "netdev n i")
judged("iptables-legacy, drop", (f"iptables-legacy -A INPUT -p tcp --dport {PORT} -j DROP",), "silent", "filter", "iptables-legacy filter INPUT, rule 1")
judged("iptables-legacy, policy drop, open port",
       (f"iptables-legacy -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT && iptables-legacy -A INPUT -p tcp -m multiport "
        f"--dports 22,{PORT} -j ACCEPT && iptables-legacy -P INPUT DROP",), "answered", "")
judged("iptables-nft, reject", (f"iptables-nft -A INPUT -p tcp --dport {PORT} -j REJECT --reject-with tcp-reset",), "refused", "filter",
       "ip filter INPUT, handle")
judged("a host of containers", (
    "iptables-nft -t nat -N DOCKER && iptables-nft -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
    "iptables-nft -t nat -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER",
    "iptables-nft -t nat -A DOCKER ! -i docker0 -p tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80",
    "iptables-nft -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
    "iptables-nft -P FORWARD DROP"), "answered", "")


def left(title: str, commands: tuple[str, ...], proto: str, said: str, reason: str) -> None:
    """What a client on A gets, where these commands were given on A."""
    for stack in ("kernel", "vireo"):
        @suite.case(f"{title}, {stack}", (stack, "kernel"))
        def _(t: Test, stack: str = stack) -> None:
            run(t, "A", *commands)
            server = serve(t, "udp" if proto == "udp" else "tcp")
            answer = ask(t, proto, stack=stack)
            t.expect(answer == said, f"the client was {answer}, not {said}")
            t.stop(server)
            if t.options.dry or stack != "vireo":
                return
            decided = counters.final(t.client.stats_file)[0]["decisions"]
            t.expect(decided["refused"] == ({reason: 1} if reason else {}), str(decided))


def output_chain(rules: str) -> str:
    return nft(f"table inet f {{ chain out {{ type filter hook output priority 0;\n{rules}\n}}\n}}")


left("a client whose SYN is rejected", (output_chain(f"tcp dport {PORT} reject with tcp reset"),), "tcp", "refused", "filter")
left("a client whose datagram is dropped", (output_chain(f"udp dport {PORT} drop"),), "udp", "forbidden", "filter")
left("a client behind policy drop", (input_chain(OPEN, "drop"),), "tcp", "answered", "")
left("a client of UDP behind policy drop", (input_chain(OPEN, "drop"),), "udp", "answered", "")


for stack in ("kernel", "vireo"):
    @suite.case(f"a sender whose second destination is dropped, {stack}", (stack, "kernel"))
    def _(t: Test, stack: str = stack) -> None:
        run(t, "A", output_chain(f"udp dport {PORT + 1} drop"))
        server = serve(t, "udp")
        sender = t.start("A", PYTHON, "-c", SENDER, t.lab.address("B"), str(PORT), "50", name="sender", stack=stack)
        sender.wait(20)
        t.expect(sender.stdout.split() == ["50", "50"], f"answers and refusals: {sender.stdout}{sender.stderr}")
        t.stop(server)
        if t.options.dry or stack != "vireo":
            return
        rx, tx = counters.engine_packets(counters.final(sender.stats_file))
        t.expect(rx >= 50 and 49 <= tx < 60, f"Vireo's counters: rx {rx} tx {tx}")


@suite.case("VIREO_RESPECT_FILTER=0 carries whatever the rules say", ("kernel", "vireo"))
def _(t: Test) -> None:
    if t.options.dry:
        return
    run(t, "B", input_chain(f"tcp dport {PORT} drop"))
    server = serve(t, env={"VIREO_RESPECT_FILTER": "0"})
    t.expect(ask(t) == "answered", "the client had no answer")
    expect_row(t, server, "")
    t.stop(server)


for proto in ("tcp", "udp"):
    @suite.case(f"a rule that comes later: {proto}", ("kernel", "vireo"))
    def _(t: Test, proto: str = proto) -> None:
        if t.options.dry:
            return
        server = serve(t, proto)
        t.expect(ask(t, proto) == "answered", "the client had no answer")
        expect_row(t, server, "")
        run(t, "B", input_chain(f"{proto} dport {PORT} drop"))
        given = wait_until(lambda: [s["reason"] for s in sockets(server.pid)] == ["filter"], 5, 0.05)
        t.expect(given, f"still carried: {sockets(server.pid)}")
        t.expect(ask(t, proto) == "silent", "the client was answered")
        t.stop(server)
        t.expect("the packet filter has a new rule (inet f in, handle" in server.stderr, server.stderr)


@suite.case("a rule of iptables-legacy that comes later", ("kernel", "vireo"))
def _(t: Test) -> None:
    if t.options.dry:
        return
    server = serve(t)
    t.expect(ask(t) == "answered", "the client had no answer")
    run(t, "B", f"iptables-legacy -A INPUT -p tcp --dport {PORT} -j DROP")
    subprocess.run(["sleep", "1.2"], check=True)
    t.expect(ask(t) == "answered", "nobody looked, but the rule was found")
    t.stop(server)
    server = serve(t)
    expect_row(t, server, "filter", "iptables-legacy")
    t.expect(ask(t) == "silent", "the client was answered")
    t.stop(server)


@suite.case("vireo-doctor tells of the rules", ("kernel", "vireo"))
def _(t: Test) -> None:
    if t.options.dry:
        return

    def examine(*arguments: str, prefix: tuple[str, ...] = ()) -> dict:
        done = t.lab.run("B", *prefix, str(build_dir() / "vireo-doctor"), "--json", *arguments)
        return json.loads(done.stdout)

    def check(report: dict) -> dict:
        return next(c for c in report["checks"] if c["name"] == "packet filter")

    def notes(report: dict) -> str:
        return " ".join(next(i for i in report["interfaces"] if i["name"] == "vr0")["notes"])

    t.expect((check(examine())["level"], check(examine())["text"]) == ("ok", "it has no rules"), str(check(examine())))
    run(t, "B", input_chain(f"tcp dport {PORT} drop"), output_chain("tcp dport 25 reject"))
    report = examine()
    t.expect(check(report)["level"] == "note" and "2 chains" in check(report)["text"], str(check(report)))
    t.expect("inet f in, handle" in notes(report), notes(report))
    route = examine("--route", f"{t.lab.address('A')}:25")["route"]
    t.expect(route["reason"] == "filter" and "inet f out" in route["detail"], str(route))
    t.expect(examine("--route", f"{t.lab.address('A')}:26")["route"]["carried"], "port 26 is free")
    report = examine(prefix=("env", "VIREO_RESPECT_FILTER=0"))
    t.expect("VIREO_RESPECT_FILTER=0" in check(report)["text"] and "inet f in" not in notes(report), str(report))
    report = examine(prefix=("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"))
    t.expect(check(report)["level"] == "note" and "cannot be read" in check(report)["text"], str(check(report)))


if __name__ == "__main__":
    suite.main()
