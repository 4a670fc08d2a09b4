#!/usr/bin/python3
"""A UDP port that several processes of the host have: what Linux would give to each of them, each gets, whether Vireo carries it or
the kernel. Others come and go under a feed of numbered datagrams."""
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
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


def is_shared(t: Test, p) -> bool:
    return socket_of(t, p)["state"] == "shared-port:kernel"


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
    time.sleep(SETTLED)
    for turn in range(2 if t.options.quick else 4):
        t.expect(not is_shared(t, ours), "no other has the port")
        by_device = socket_of(t, ours)["rx_packets"]
        t.expect(wait_until(lambda: socket_of(t, ours)["rx_packets"] > by_device, 5), "it is alone, and the device brings nothing")
        other = receiver(t, "kernel", f"kernel{turn}", family=family)
        t.expect(wait_until(lambda: is_shared(t, ours), 5), "the other was not noticed")
        by_kernel = socket_of(t, ours)["os_rx_packets"]
        t.expect(wait_until(lambda: socket_of(t, ours)["os_rx_packets"] > by_kernel, 5), "the kernel brings nothing")
        time.sleep(SETTLED)
        expect_run(t, f"the kernel's, turn {turn}", numbers(t, other), 100)
        t.expect(wait_until(lambda: not is_shared(t, ours), 5), "the other's end was not noticed")
    sent = end_feed(t, sender)
    row = socket_of(t, ours)
    got = numbers(t, ours)
    expect_all(t, "the carried one", got, range(sent))
    t.expect(row["rx_packets"] > 0 < row["os_rx_packets"] and row["rx_packets"] + row["os_rx_packets"] == sent,
             f"device {row['rx_packets']}, kernel {row['os_rx_packets']}, of {sent}")
    t.note(f"{sent} sent, {row['rx_packets']} by the device, {row['os_rx_packets']} by the kernel")


@suite.case("two carried subscribers", ("kernel", "vireo"))
def _(t):
    first = receiver(t, "vireo", "first")
    sender = feed(t, GROUP[4])
    time.sleep(SETTLED)
    for turn in range(2):
        second = receiver(t, "vireo", f"second{turn}", how="epoll")
        t.expect(wait_until(lambda: is_shared(t, first) and is_shared(t, second), 5), "they do not know of each other")
        time.sleep(SETTLED)
        if turn == 0:
            second_got = numbers(t, second)
        else:
            second.kill()
        t.expect(wait_until(lambda: not is_shared(t, first), 5), "the other's end was not noticed")
    by_device = socket_of(t, first)["rx_packets"]
    t.expect(wait_until(lambda: socket_of(t, first)["rx_packets"] > by_device, 5), "it is alone again, and the device brings nothing")
    sent = end_feed(t, sender)
    expect_run(t, "the second", second_got, 100)
    expect_all(t, "the first", numbers(t, first), range(sent))


@suite.case("a member's port on which another process has joined nothing", ("kernel", "vireo"))
def _(t):
    ours = receiver(t, "vireo", "ours")
    other = receiver(t, "kernel", "guest", group=False)
    t.expect(wait_until(lambda: is_shared(t, ours), 5), "the other was not noticed")
    sender = feed(t, GROUP[4])
    time.sleep(SETTLED)
    sent = end_feed(t, sender)
    expect_all(t, "the guest", numbers(t, other), range(sent))
    expect_all(t, "the member", numbers(t, ours), range(sent))


@suite.case("SO_REUSEPORT of two processes, unicast", ("kernel", "vireo"))
def _(t):
    ours = receiver(t, "vireo", "ours", group=False, option="SO_REUSEPORT")
    other = receiver(t, "kernel", "other", group=False, option="SO_REUSEPORT")
    t.expect(wait_until(lambda: is_shared(t, ours), 5), "the other was not noticed")
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
    t.expect(wait_until(lambda: is_shared(t, ours), 5), "the other was not noticed")
    sender = feed(t, t.lab.address("B"))
    time.sleep(SETTLED)
    sent = end_feed(t, sender)
    expect_all(t, "who is bound to the address", numbers(t, other), range(sent))
    sender = feed(t, t.lab.address("B"))
    t.expect(wait_until(lambda: not is_shared(t, ours), 5), "the other's end was not noticed")
    by_device = socket_of(t, ours)["rx_packets"]
    t.expect(wait_until(lambda: socket_of(t, ours)["rx_packets"] > by_device, 5), "it is alone, and the device brings nothing")
    end_feed(t, sender)
    t.expect(len(numbers(t, ours)) > 0, "who is left gets nothing")


def wake_up(how: str, spec: str) -> None:
    @suite.case(f"woken by what the kernel delivers: {how}, {spec or 'no profile'}", ("kernel", "vireo"))
    def _(t):
        ours = receiver(t, "vireo", "ours", how=how, env={"VMA_SPEC": spec} if spec else None)
        other = receiver(t, "kernel", "other")
        t.expect(wait_until(lambda: is_shared(t, ours), 5), "the other was not noticed")
        before = socket_of(t, ours)["os_rx_packets"]
        rounds = 10 if t.options.quick else 50
        asker = t.start("A", PYTHON, "-c", ASKER, GROUP[4], str(PORT), t.lab.device, str(rounds), "2", name="asker")
        asker.wait(40)
        t.expect(asker.stdout.startswith("slowest"), f"asker: {asker.tail()}")
        brought = socket_of(t, ours)["os_rx_packets"] - before
        t.expect(brought == rounds, f"the kernel brought {brought} of {rounds}")
        t.note(asker.stdout.strip() + " ms")
        numbers(t, other)
        numbers(t, ours)


for _how in ("recv", "poll", "select", "epoll", "edge"):
    for _spec in ("", "latency", "ultra-latency"):
        wake_up(_how, _spec)

if __name__ == "__main__":
    suite.main()
