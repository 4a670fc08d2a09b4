#!/usr/bin/python3
"""A UDP port that several processes of the host have: what Linux would give to each of them, each gets, whether Vireo carries it or
the kernel. Others come and go under a feed of numbered datagrams. Of a group each carried process gets copies by its device; what is
for one of them alone the kernel delivers."""
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import program  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5051
GROUP = {4: "239.77.1.1", 6: "ff15::77:1:1"}
SETTLED = 0.3  # s: by then everybody knows of everybody; a look each 20 ms, on a busy machine
suite = Suite("udp_sharers")

# Joins the group, or is bound to the address given; prints the numbers that it has got when it is told to end. "answer": returns
# each to its sender. It waits as `how` says.
RECEIVER = """
import os, select, signal, socket, struct, sys
how, bound, port, group, device, option = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5], sys.argv[6]
v6 = ":" in bound
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
s.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
s.bind((bound, port))
index = socket.if_nametoindex(device)
if group and v6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, group) + struct.pack("i", index))
elif group: s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + bytes(4) + struct.pack("i", index))
print("ready", flush=True)
got = []
def end(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("got", *got, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
p, e = select.poll(), select.epoll()
if how == "poll": p.register(s, select.POLLIN)
if how == "epoll": e.register(s, select.EPOLLIN)
if how == "edge": e.register(s, select.EPOLLIN | select.EPOLLET)
while True:
    if how == "poll": p.poll()
    if how in ("epoll", "edge"): e.poll()
    if how == "select": select.select([s], [], [])
    while True:
        try: data, who = s.recvfrom(100, 0 if how == "recv" else socket.MSG_DONTWAIT)
        except BlockingIOError: break
        got.append(int(data))
        if who[1] == port + 1: s.sendto(data, who)
        if how != "edge": break
"""

# Two members of a group on one port, of which the second takes an option on SIGUSR1 that only the kernel has.
TWO = """
import os, select, signal, socket, struct, sys
port, group, device = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def member():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    s.bind(("", port))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + bytes(4) + struct.pack("i", socket.if_nametoindex(device)))
    return s
import ctypes
take_all = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xffffffff), 8)
ACCEPT = ctypes.addressof(take_all)
both = {s.fileno(): (s, []) for s in (member(), member())}
last = list(both.values())[1][0]
leaves = ends = False
def leave(*_):
    global leaves
    leaves = True
def end(*_):
    global ends
    ends = True
signal.signal(signal.SIGUSR1, leave)
signal.signal(signal.SIGTERM, end)
p = select.poll()
for fd in both: p.register(fd, select.POLLIN)
print("ready", flush=True)
while not ends:
    for fd, _ in p.poll(100): both[fd][1].append(int(both[fd][0].recv(100)))
    if leaves:
        leaves = False
        last.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxP", 1, ACCEPT))  # SO_ATTACH_FILTER: it takes all
        print("left", flush=True)
for _, got in both.values(): print("got", *got, flush=True)
os._exit(0)
"""

# Sends numbers to the group, so many a second, until it is told to end; then says how many.
FEED = """
import os, signal, socket, struct, sys, time
to, port, device, rate = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
v6 = ":" in to
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
index = socket.if_nametoindex(device)
if v6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
else: s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, bytes(8) + struct.pack("i", index))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # else the frames pass several queues, and not in order
ends = False
def end(*_):
    global ends
    ends = True
signal.signal(signal.SIGTERM, end)
n, begun = 0, time.monotonic()
while not ends and n < 200000:
    while n < (time.monotonic() - begun) * rate:
        s.sendto(b"%d" % n, (to, port))
        n += 1
    time.sleep(0.001)
print("sent", n, flush=True)
"""

# Asks by the group, from port + 1, and waits for the answers of so many; again and again. Prints the slowest round, ms.
ASKER = """
import socket, struct, sys, time
to, port, device, rounds, answers = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, bytes(8) + struct.pack("i", socket.if_nametoindex(device)))
s.bind(("", port + 1))
s.settimeout(5)
slowest = 0
for n in range(rounds):
    begun = time.monotonic()
    s.sendto(b"%d" % n, (to, port))
    for _ in range(answers): assert int(s.recv(100)) == n
    slowest = max(slowest, time.monotonic() - begun)
    time.sleep(0.02)
print("slowest", round(slowest * 1000, 2), flush=True)
"""


def receiver(t: Test, stack: str, name: str, how: str = "recv", family: int = 4, group: bool = True, bound: str = "", option: str = "SO_REUSEADDR",
             env: dict | None = None):
    bound = bound or ("::" if family == 6 else "0.0.0.0")
    p = t.start("B", PYTHON, "-u", "-c", RECEIVER, how, bound, str(PORT), GROUP[family] if group else "", t.lab.device, option, stack=stack,
                name=name, env=env)
    p.await_output("ready", 20)
    return p


def feed(t: Test, to: str, rate: int = 1000):
    return t.start("A", PYTHON, "-c", FEED, to, str(PORT), t.lab.device, str(rate), name="feed")


def end_feed(t: Test, p) -> int:
    p.stop(signal.SIGTERM)
    t.expect(p.stdout.startswith("sent "), f"the feed: {p.tail()}")
    time.sleep(SETTLED)  # what is on its way arrives
    return int(p.stdout.split()[1])


def numbers(t: Test, p) -> list[int]:
    p.stop(signal.SIGTERM)
    words = p.stdout.split()
    t.expect(words[:2] == ["ready", "got"], f"{p.shown}: {p.tail()}")
    return [int(w) for w in words[2:]]


def socket_of(t: Test, p) -> dict:
    """The receiver's, as vireo-stat shows it."""
    rows = [s for process in counters.live(p.pid) for s in process["sockets"] if not s["closed"]]
    t.expect(len(rows) == 1 and rows[0]["carried"], f"{p.shown}: {rows}")
    return rows[0]


COPIES, KERNEL = "shared-port:copies,kernel", "shared-port:kernel"  # a wildcard hears more than the group


def await_state(t: Test, p, state: str) -> None:
    t.expect(wait_until(lambda: socket_of(t, p)["state"] == state, 5), f"not {state or 'alone'} after 5 s: {socket_of(t, p)['state']}")


def expect_move(t: Test, p, counter: str) -> None:
    before = socket_of(t, p)[counter]
    t.expect(wait_until(lambda: socket_of(t, p)[counter] > before, 5), f"{p.shown}: {counter} stands still")


def expect_by_device(t: Test, row: dict, sent: int) -> None:
    """The kernel brings what comes while its share begins or ends."""
    brought = row["rx_packets"] + row["os_rx_packets"]
    t.expect(brought == sent, f"device {row['rx_packets']}, kernel {row['os_rx_packets']}, of {sent}")
    t.expect(row["os_rx_packets"] < sent / 10, f"the kernel brought {row['os_rx_packets']} of {sent}")
    t.note(f"{sent} sent, {row['rx_packets']} by the device, {row['os_rx_packets']} by the kernel")


def expect_all(t: Test, who: str, got: list[int], wanted: range) -> None:
    missing = sorted(set(wanted) - set(got))
    doubled = len(got) - len(set(got))
    t.expect(not missing and not doubled and set(got) <= set(wanted),
             f"{who} got {len(got)} of {len(wanted)}: {len(missing)} lost ({missing[:5]} ...), {doubled} doubled, "
             f"{len(set(got) - set(wanted))} others")


def expect_run(t: Test, who: str, got: list[int], least: int) -> None:
    """It misses nothing between the first and the last."""
    t.expect(len(got) >= least, f"{who} got {len(got)}, expected {least}")
    expect_all(t, who, got, range(min(got), max(got) + 1))


@suite.case("a kernel's subscriber comes, goes and comes again", ("kernel", "vireo"))
@suite.case("a kernel's subscriber comes, goes and comes again, IPv6", ("kernel", "vireo"))
def _(t):
    family = 6 if "IPv6" in t.case.name else 4
    ours = receiver(t, "vireo", "ours", family=family)
    sender = feed(t, GROUP[family])
    for turn in range(2 if t.options.quick else 4):
        await_state(t, ours, "")
        expect_move(t, ours, "rx_packets")
        other = receiver(t, "kernel", f"kernel{turn}", family=family)
        await_state(t, ours, COPIES)
        expect_move(t, ours, "rx_packets")
        time.sleep(SETTLED)
        expect_run(t, f"the kernel's, turn {turn}", numbers(t, other), 100)
    await_state(t, ours, "")
    sent = end_feed(t, sender)
    row = socket_of(t, ours)
    expect_all(t, "the carried one", numbers(t, ours), range(sent))
    expect_by_device(t, row, sent)


@suite.case("two carried subscribers", ("kernel", "vireo"))
def _(t):
    first = receiver(t, "vireo", "first")
    sender = feed(t, GROUP[4])
    time.sleep(SETTLED)
    for turn in range(2):
        second = receiver(t, "vireo", f"second{turn}", how="epoll")
        await_state(t, first, COPIES)
        await_state(t, second, COPIES)
        expect_move(t, first, "rx_packets")
        expect_move(t, second, "rx_packets")
        time.sleep(SETTLED)
        if turn == 0:
            second_got = numbers(t, second)
        else:
            second.kill()
        await_state(t, first, "")
    expect_move(t, first, "rx_packets")
    sent = end_feed(t, sender)
    row = socket_of(t, first)
    expect_run(t, "the second", second_got, 100)
    expect_all(t, "the first", numbers(t, first), range(sent))
    expect_by_device(t, row, sent)


@suite.case("who is killed leaves the feed to the others", ("kernel", "vireo"))
def _(t):
    """The one that has founded the group of processes, and whose rule was the first."""
    first, second, third = (receiver(t, "vireo", name) for name in ("first", "second", "third"))
    other = receiver(t, "kernel", "other")
    await_state(t, second, COPIES)
    await_state(t, third, COPIES)
    sender = feed(t, GROUP[4])
    time.sleep(SETTLED)
    first.kill()
    time.sleep(2 * SETTLED)
    sent = end_feed(t, sender)
    for who, p in (("the second", second), ("the third", third), ("the kernel's", other)):
        expect_all(t, who, numbers(t, p), range(sent))


@suite.case("a socket that becomes the kernel's hears all, and one beside it too", ("kernel", "vireo"))
def _(t):
    """Both of one process, which gets copies: what is the kernel's must not be kept from it."""
    two = t.start("B", PYTHON, "-u", "-c", TWO, str(PORT), GROUP[4], t.lab.device, name="two")
    two.await_output("ready", 20)
    other = receiver(t, "kernel", "other")
    sender = feed(t, GROUP[4])
    time.sleep(2 * SETTLED)
    two.signal(signal.SIGUSR1)
    two.await_output("left", 5)
    time.sleep(2 * SETTLED)
    sent = end_feed(t, sender)
    two.stop(signal.SIGTERM)
    kept, left = (list(map(int, line.split()[1:])) for line in two.stdout.splitlines() if line.startswith("got"))
    expect_all(t, "the carried one", kept, range(sent))
    # What it has not read when it leaves is lost to it: a datagram or two, as it reads at once.
    missing = sorted(set(range(sent)) - set(left))
    t.expect(len(left) == len(set(left)) and len(missing) <= 10, f"the one that left: {len(left)} of {sent}, {len(missing)} lost ({missing[:5]} ...)")
    expect_all(t, "the kernel's", numbers(t, other), range(sent))


def subscribers(t: Test, carried: str) -> None:
    """Two in a process, one in another, both on the stack `carried`, one on the kernel. The receivers have a processor, the sender the
    other, and with it what the kernel does for the wire."""
    rate, seconds = (20000, 1) if t.options.quick else (200000, 5) if t.options.full else (50000, 2)
    tool = str(program("tests/interop/feed.cpp"))
    where = [GROUP[4], str(PORT), t.lab.device]
    all = []
    for stack, name, sockets in ((carried, "two", 2), (carried, "one", 1), ("kernel", "kernel", 1)):
        all.append(t.start("B", tool, "receive", *where, str(sockets), stack=stack, name=name, cpu=0))
        all[-1].await_output("ready", 20)
    ours = all[:2] if carried == "vireo" else []
    for p in ours:
        rows = lambda: [s["state"] for process in counters.live(p.pid) for s in process["sockets"]]  # noqa: B023, E731
        t.expect(wait_until(lambda: set(rows()) == {"shared-port:copies"}, 5), f"not by copies: {rows()}")
    sender = t.start("A", tool, "send", *where, str(rate), str(seconds), "200", name="feed", cpu=1)
    sender.wait(seconds + 20)
    _, sent, took = sender.stdout.split()
    for p in all:
        t.expect(wait_until(lambda: "got" in p.stdout, 10), f"{p.shown} has not heard the end: {p.tail()}")  # noqa: B023
    results = [(p.shown, line) for p in all for line in p.stdout.splitlines() if line.startswith("got")]
    for p in ours:
        rows = [s for process in counters.live(p.pid) for s in process["sockets"]]
        t.expect(all_by_device(rows, int(sent)), f"{p.shown}: by the device {[r['rx_packets'] for r in rows]}, by the kernel {[r['os_rx_packets'] for r in rows]}")
    bad = [f"{who}: {line}" for who, line in results if line != f"got {sent} lost 0 doubled 0 disordered 0"]
    t.expect(len(results) == 4 and not bad, f"{sent} sent; " + "; ".join(bad))
    t.note(f"{sent} datagrams in {took} s: {int(sent) / float(took):.0f} a second, to four subscribers")


def all_by_device(rows: list[dict], sent: int) -> bool:
    return all(r["rx_packets"] >= sent and r["os_rx_packets"] == 0 for r in rows)


@suite.case("one feed, two subscribers in a process, one in another, one on the kernel", ("kernel", "vireo"))
def _(t):
    subscribers(t, "vireo")


@suite.case("one feed, all four subscribers on the kernel", ("kernel", "kernel"))
def _(t):
    subscribers(t, "kernel")


@suite.case("a member's port on which another process has joined nothing", ("kernel", "vireo"))
def _(t):
    ours = receiver(t, "vireo", "ours")
    other = receiver(t, "kernel", "guest", group=False)
    await_state(t, ours, COPIES)
    sender = feed(t, GROUP[4])
    time.sleep(SETTLED)
    sent = end_feed(t, sender)
    expect_all(t, "the guest", numbers(t, other), range(sent))
    expect_all(t, "the member", numbers(t, ours), range(sent))


@suite.case("SO_REUSEPORT of two processes, unicast", ("kernel", "vireo"))
def _(t):
    ours = receiver(t, "vireo", "ours", group=False, option="SO_REUSEPORT")
    other = receiver(t, "kernel", "other", group=False, option="SO_REUSEPORT")
    await_state(t, ours, KERNEL)
    feeds = [feed(t, t.lab.address("B"), 100) for _ in range(12)]  # each from a port of its own
    time.sleep(SETTLED)
    sent = [end_feed(t, f) for f in feeds]
    mine, its = numbers(t, ours), numbers(t, other)
    wanted = sorted(n for count in sent for n in range(count))
    t.expect(sorted(mine + its) == wanted, f"{len(mine)} and {len(its)} of {len(wanted)}")
    t.expect(len(mine) > 0 < len(its), f"one has all: {len(mine)} and {len(its)}")


@suite.case("the other's address beside the wildcard, unicast", ("kernel", "vireo"))
def _(t):
    ours = receiver(t, "vireo", "ours", group=False)
    other = receiver(t, "kernel", "other", group=False, bound=t.lab.address("B"))
    await_state(t, ours, KERNEL)
    sender = feed(t, t.lab.address("B"))
    time.sleep(SETTLED)
    sent = end_feed(t, sender)
    expect_all(t, "who is bound to the address", numbers(t, other), range(sent))
    sender = feed(t, t.lab.address("B"))
    await_state(t, ours, "")
    expect_move(t, ours, "rx_packets")
    end_feed(t, sender)
    t.expect(len(numbers(t, ours)) > 0, "who is left gets nothing")


def wake_up(how: str, spec: str, by: str) -> None:
    @suite.case(f"woken by {by}: {how}, {spec or 'no profile'}", ("kernel", "vireo"))
    def _(t):
        copies = by == "copies"
        other = receiver(t, "kernel", "other", group=copies)
        # The last one to be bound gets what is not for a group.
        ours = receiver(t, "vireo", "ours", how=how, group=copies, env={"VMA_SPEC": spec} if spec else None)
        await_state(t, ours, COPIES if copies else KERNEL)
        counter = "rx_packets" if copies else "os_rx_packets"
        before = socket_of(t, ours)[counter]
        rounds = 10 if t.options.quick else 50
        to, answers = (GROUP[4], 2) if copies else (t.lab.address("B"), 1)
        asker = t.start("A", PYTHON, "-c", ASKER, to, str(PORT), t.lab.device, str(rounds), str(answers), name="asker")
        asker.wait(40)
        t.expect(asker.stdout.startswith("slowest"), f"asker: {asker.tail()}")
        brought = socket_of(t, ours)[counter] - before
        t.expect(brought == rounds, f"{brought} of {rounds} were brought")
        t.note(asker.stdout.strip() + " ms")
        numbers(t, other)
        numbers(t, ours)


for _how in ("recv", "poll", "select", "epoll", "edge"):
    for _spec in ("", "latency", "ultra-latency"):
        for _by in ("copies", "the kernel"):
            wake_up(_how, _spec, _by)

if __name__ == "__main__":
    suite.main()
