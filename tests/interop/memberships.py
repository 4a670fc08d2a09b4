#!/usr/bin/python3
"""Multicast memberships: each row of memberships_table.py, with the receiver on the kernel and under Vireo. Both runs are held against
the expectations that are written there. The processes (member.py) stay from case to case and are told what to do."""
import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from agent import Agent  # noqa: E402
from labkit import counters  # noqa: E402
from labkit.lab import DEVICE, Lab  # noqa: E402
from labkit.process import Failed  # noqa: E402
from labkit.runner import Suite, Test  # noqa: E402
from memberships_table import BOTH, BY_ADDRESS, CARRIED, QUICK, RFC6, ROWS, SOURCES, Row  # noqa: E402

SECOND = "vr1"
WIRES = {"A": {DEVICE: "10.77.0.1", SECOND: "10.78.0.1"}, "B": {DEVICE: "10.77.0.2", SECOND: "10.78.0.2"}}
ADDRESSES = {4: {"A": "10.77.0.1", "A2": "10.77.0.11", "A3": "10.77.0.12", "W": "10.78.0.1", "own": "10.77.0.2",
                 "G": "239.77.0.1", "H": "239.77.0.2", "L": "224.0.0.77", "ALL": "224.0.0.1"},
             6: {"A": "fd77::1", "A2": "fd77::11", "A3": "fd77::12", "W": "fd78::1", "own": "fd77::2",
                 "G": "ff15::77:1", "H": "ff15::77:2", "L": "ff02::77:7", "ALL": "ff02::1"}}
SENDERS = {"A": DEVICE, "A2": DEVICE, "A3": DEVICE, "W": SECOND}
PATIENCE = 2.0  # s: for datagrams that must come
LOOK = 0.15     # s: the library looks each 20 ms who else has its ports; more, as the machine is busy
GRACE = 0.01    # s: for those that must not, once what was sent before has arrived
suite = Suite("memberships", keep_lab=True)
ports = itertools.count(20000, 2)  # what is late reaches no later case


class Agents:
    """The processes of a stack, each started when it is first used: a on the sender's host; r and v on the receiver's, on the stack;
    k there on the kernel."""

    def __init__(self) -> None:
        self._running: dict[str, Agent] = {}
        self._lab, self._stack = None, ""

    def use(self, t: Test, begin: dict) -> None:
        """For a case."""
        stack = t.stack_of("B")
        if self._lab is not t.lab:
            self.end()
            second_wire(t.lab)
        if self._stack != stack:
            self.end()
        self._test, self._begin, self._lab, self._stack = t, begin, t.lab, stack
        for name, agent in self._running.items():
            agent.ask(begin=self._begun(name))

    def _begun(self, name: str) -> dict:
        return self._begin | {"wires": WIRES["A" if name == "a" else "B"]}

    def __getitem__(self, name: str) -> Agent:
        if name not in self._running:
            agent = Agent(self._test, "A" if name == "a" else "B", "kernel" if name in "ak" else self._stack, name, "member.py")
            self._running[name] = agent
            agent.ask(begin=self._begun(name))
        return self._running[name]

    def of_socket(self, name: str) -> Agent:
        return self["a" if name in SENDERS else name[0]]

    def are_several(self) -> bool:
        """On the receiver's host, and one of them is not on the kernel."""
        return self._stack == "vireo" and len(self._running.keys() - {"a"}) > 1

    def running(self) -> dict[str, Agent]:
        return self._running

    def end(self, *names: str, number: int = signal.SIGKILL) -> None:
        for name in names or list(self._running):
            if name in self._running:
                self._running.pop(name).end(number)


agents = Agents()


def second_wire(lab: Lab) -> None:
    """And more addresses of A; groups are routed to the first wire."""
    subprocess.run(["ip", "link", "add", SECOND, "netns", lab.netns("A"), "type", "veth", "peer", "name", SECOND, "netns", lab.netns("B")],
                   check=True)
    for host, number in (("A", 1), ("B", 2)):
        lines = [f"addr add 10.78.0.{number}/24 dev {SECOND}", f"addr add fd78::{number}/64 dev {SECOND} nodad", f"link set {SECOND} up",
                 f"route add 224.0.0.0/4 dev {DEVICE}", f"route add multicast ff00::/8 dev {DEVICE} table local metric 1"]
        if host == "A":
            lines += [f"addr add {ADDRESSES[4][name]}/24 dev {DEVICE}" for name in ("A2", "A3")]
            lines += [f"addr add {ADDRESSES[6][name]}/64 dev {DEVICE} nodad" for name in ("A2", "A3")]
        subprocess.run(["ip", "-n", lab.netns(host), "-batch", "-"], input="\n".join(lines), text=True, check=True)


# ---- the steps of a row

def do(calls: str) -> None:
    for call in filter(None, (c.strip() for c in calls.split(";"))):
        words, _, wanted = call.partition(" -> ")
        name, *verb = words.split()
        if verb == ["ends"]:
            agents.end(name)
            time.sleep(LOOK)
            continue
        got = agents.of_socket(name).ask(do=[name, *verb])
        if got != (wanted or "ok"):
            raise Failed(f"{words}: {got}, expected {wanted or 'ok'}")
    if calls and agents.are_several():
        time.sleep(LOOK)


def senders_of(traffic: str) -> dict[str, list]:
    """Sender -> address and distance to the port."""
    return {name: [to.partition(":")[0], int(to.partition(":")[2] or 0)] for name, to in (word.split(">") for word in traffic.split())}


def send(traffic: str, mark: str, numbers: range) -> None:
    """And waits until the datagrams have arrived: those of the own host do so at once."""
    by_agent: dict[str, list] = {}
    for name, (address, plus) in senders_of(traffic).items():
        by_agent.setdefault("a" if name in SENDERS else name[0], []).append([name, address, plus])
    known = agents["a"].ask(numbers=True)
    for name in SENDERS.keys() & senders_of(traffic).keys() - known.keys():
        agents["a"].ask(do=[name, "source", SENDERS[name]])
    for agent, listed in by_agent.items():
        agents[agent].ask(burst={"senders": listed, "mark": mark, "first": numbers.start, "last": numbers.stop})
    for wire in {SENDERS[name] for name in senders_of(traffic) if name in SENDERS}:
        if not agents["a"].ask(fence=WIRES["B"][wire]):
            raise Failed(f"the receiver's host does not answer on {wire}")


def expected(heard: str, senders: list[str], count: int) -> dict[str, dict[str, range]]:
    """Socket -> the numbers that it hears, by sender."""
    halves = {"-": range(count // 2), "+": range(count // 2, count)}
    found = {}
    for name, _, said in (word.partition("=") for word in heard.split()):
        found[name] = {s.rstrip("-+"): halves.get(s[-1], range(count)) for s in (said.split(",") if said else senders)}
    return found


def drain(wanted: dict[str, dict[str, range]]) -> dict[str, list[str]]:
    """Of all processes at once."""
    for agent in agents.running().values():
        own = {name: sum(map(len, numbers.values())) for name, numbers in wanted.items() if agents.of_socket(name) is agent}
        agent.tell(drain={"wanted": own, "patience": PATIENCE, "grace": GRACE})
    return {name: got for agent in list(agents.running().values()) for name, got in agent.answer().items()}


def compare(name: str, got: list[str], mark: str, wanted: dict[str, range]) -> str:
    """What is wrong with what a socket has got; order counts for each sender by itself."""
    wrong, strange = [], []
    by_sender: dict[str, list[int]] = {sender: [] for sender in wanted}
    for text in got:
        step_, sender, number = (text.split(" ") + ["", ""])[:3]
        if step_ == mark and sender in wanted and int(number) in wanted[sender]:
            by_sender[sender].append(int(number))
        else:
            strange.append(text)
    for sender, numbers in by_sender.items():
        missing, doubled = set(wanted[sender]) - set(numbers), len(numbers) - len(set(numbers))
        if missing or doubled:
            wrong.append(f"of {sender}'s {len(wanted[sender])}: {len(missing)} lost, {doubled} doubled")
        elif numbers != list(wanted[sender]):
            wrong.append(f"{sender}'s in the order {numbers}")
    if strange:
        others = sorted({" ".join(d.split()[:2]) for d in strange})
        wrong.append(f"{len(strange)} that are not for it (step and sender: {', '.join(others)})")
    return f"{name} heard wrongly: {'; '.join(wrong)}" if wrong else ""


# ---- who carried it

def kernel_delivered(pid: int) -> int:
    """Datagrams that the kernel has given to programs of the process's namespace."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Udp:")]
    v6 = dict(line.split() for line in Path(f"/proc/{pid}/net/snmp6").read_text().splitlines())
    return int(lines[1][lines[0].index("InDatagrams")]) + int(v6["Udp6InDatagrams"])


class Carriage:
    """Of the datagrams of a step: they come by the device, and the kernel gives none to a program."""

    def __init__(self) -> None:
        self._agent = agents["r"]
        self._kernel, self._sockets = kernel_delivered(self._agent.pid), self._seen()

    def _seen(self) -> dict[str, dict]:
        rows = {s["fd"]: s for p in counters.live(self._agent.pid) for s in p["sockets"] if not s["closed"]}
        return {name: rows.get(number, {}) for name, number in self._agent.ask(numbers=True).items()}

    def defects(self, heard: dict[str, int]) -> list[str]:
        wrong = []
        for name, row in self._seen().items():
            came = row.get("rx_packets", 0) - self._sockets.get(name, {}).get("rx_packets", 0)
            if name in heard and came != heard[name]:
                why = "" if row.get("carried") else f" (not carried: {row.get('reason')} {row.get('detail')})"
                wrong.append(f"{name} got {came} by the device, heard {heard[name]}{why}")
        kernel = kernel_delivered(self._agent.pid) - self._kernel
        if kernel:
            wrong.append(f"the kernel delivered {kernel}")
        return wrong


# ---- the cases

def run(t: Test, row: Row, interface: str) -> None:
    count = 20 if t.options.quick else 50 if t.options.full else 30
    is_carried = CARRIED in row.marks and t.stack_of("B") == "vireo" and not t.options.dry
    addresses = ADDRESSES[6 if interface.startswith("IPv6") else 4]
    passed = False
    try:
        agents.use(t, {"api": interface, "port": next(ports), "names": addresses})
        for number, (calls, traffic, heard) in enumerate(row.steps, 1):
            where = f"step {number} ({'; '.join(filter(None, (calls, traffic)))})"
            try:
                step(calls, traffic, heard, f"{number}", count, is_carried)
            except Failed as failure:
                raise Failed(f"{where}: {failure}") from None
        passed = True
    finally:
        if passed:
            agents.end("v", number=0)  # a case has the other process, or has it not
        else:
            agents.end()  # what failed must not be heard in the next case


def step(calls: str, traffic: str, heard: str, mark: str, count: int, is_carried: bool) -> None:
    do(calls)
    if not traffic:
        return
    carriage = Carriage() if is_carried else None
    traffic, _, meanwhile = traffic.rstrip("]").partition(" [")
    send(traffic, mark, range(count // 2))
    do(meanwhile)
    send(traffic, mark, range(count // 2, count))
    wanted = expected(heard, list(senders_of(traffic)), count)
    got = drain(wanted)
    wrong = [compare(name, got.get(name, []), mark, wanted.get(name, {})) for name in sorted({*got, *wanted})]
    wrong = [w for w in wrong if w]
    if not wrong and carriage:
        wrong = carriage.defects({name: sum(map(len, numbers.values())) for name, numbers in wanted.items()})
    if wrong:
        raise Failed("; ".join(wrong))


def register() -> None:
    is_quick = "--quick" in sys.argv[1:]
    for stack in ("kernel", "vireo"):
        for row in ROWS:
            interfaces = row.interfaces
            if is_quick:
                interfaces = [i for i in interfaces if QUICK in row.marks and i in (BOTH if interfaces is not SOURCES else (BY_ADDRESS, RFC6))]
            for interface in interfaces:
                suite.case(f"{row.name}; {interface}; on {stack}", ("kernel", stack), seconds=40)(
                    lambda t, row=row, interface=interface: run(t, row, interface))


register()

if __name__ == "__main__":
    try:
        suite.main()
    finally:
        agents.end()
