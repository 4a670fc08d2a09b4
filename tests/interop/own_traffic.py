#!/usr/bin/python3
"""A carried socket takes what Linux would give it, and nothing else: not what the host forwards, not what comes from nowhere, by
another VLAN or another device, not a connection that the kernel has. Each case runs on the kernel, too."""
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.lab import DEVICE  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5008
suite = Suite("own_traffic")

# Serves every address of both families, TCP and UDP, and says who it is. Prints each datagram's source and text.
SERVER = """
import selectors, signal, socket, sys
name, port, device = sys.argv[1].encode(), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
s = selectors.DefaultSelector()
def opened(kind):
    l = socket.socket(socket.AF_INET6, kind)
    l.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(kind == socket.SOCK_STREAM))
    if device: l.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    l.bind(("::", port))
    return l
tcp, udp = opened(socket.SOCK_STREAM), opened(socket.SOCK_DGRAM)
tcp.listen(16)
s.register(tcp, 1); s.register(udp, 1)
def stop(*_):  # its connections stay, as in a server that is started anew
    for l in (tcp, udp): s.unregister(l); l.close()
    print("stopped", flush=True)
signal.signal(signal.SIGUSR1, stop)
print("ready", flush=True)
while True:
    for key, _ in s.select():
        f = key.fileobj
        if f.fileno() < 0: continue
        if f is tcp: s.register(f.accept()[0], 1)
        elif f is udp:
            try: text, who = f.recvfrom(1000)
            except OSError as e: print("error", e.errno, flush=True); continue
            print("datagram", who[0].replace("::ffff:", ""), text.decode(), flush=True)
            if text.startswith(b"ask"): f.sendto(name, who)
        else:
            try: data = f.recv(1000)
            except OSError: data = b""
            if data: f.send(name + b" " + data)
            else: s.unregister(f); f.close()
"""

# Asks TCP and UDP at each address, TCP alone at "address!"; prints what each said.
CLIENT = """
import socket, sys
port = int(sys.argv[1])
def ask(host, kind):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind) as c:
        c.settimeout(5)
        try:
            c.connect((host, port))
            c.send(b"ask"); return c.recv(100).decode().split()[0]
        except OSError as e: return type(e).__name__
for host in sys.argv[2:]:
    print(ask(host.rstrip("!"), socket.SOCK_STREAM))
    if not host.endswith("!"): print(ask(host, socket.SOCK_DGRAM))
"""


def ip(t: Test, host: str, *words: str) -> None:
    subprocess.run(["ip", "-n", t.lab.netns(host), *words], check=True, capture_output=True)


def sysctl(t: Test, host: str, *pairs: str) -> None:
    t.lab.run(host, "sysctl", "-qw", *pairs, check=True)


def serve(t: Test, name: str = "B", device: str = "", **kwargs):
    server = t.start("B", PYTHON, "-u", "-c", SERVER, name, str(PORT), *([device] if device else []), name=f"server-{name}", **kwargs)
    wait_for(t, server, "ready")
    return server


def wait_for(t: Test, process, text: str, seconds: float = 15) -> None:
    until = time.monotonic() + seconds
    while text not in process.stdout:
        t.expect(process.running and time.monotonic() < until, f"no {text!r} from {process.shown}: {process.stdout}{process.stderr}")
        time.sleep(0.02)


def asked(t: Test, *hosts: str) -> list[str]:
    client = t.start("A", PYTHON, "-c", CLIENT, str(PORT), *hosts, name="client")
    client.wait(40)
    return client.stdout.split()


def frames(t: Test, server) -> int:
    """That Vireo's engine of the server has taken, up to now."""
    return counters.engine_packets(counters.live(server.pid))[0]


def is_on_vireo(t: Test) -> bool:
    return t.stack_of("B") == "vireo" and not t.options.dry


def both_stacks(name: str, **kwargs):
    def register(function):
        for stack in ("kernel", "vireo"):
            suite.case(f"{name}, on {stack}", ("kernel", stack), **kwargs)(function)
        return function
    return register


# ---- what the host forwards

class Third:
    """A host C behind B: 10.78.0.3, fd78::3. A reaches it through B."""

    def __init__(self, t: Test):
        self.t, self.netns = t, t.lab.netns("B") + "-c"

    def __enter__(self):
        t, ns = self.t, self.netns
        def run(*words): subprocess.run(words, check=True, capture_output=True)
        run("ip", "netns", "add", ns)
        run("ip", "link", "add", "vrc", "netns", t.lab.netns("B"), "type", "veth", "peer", "name", DEVICE, "netns", ns)
        for who, device, n in ((t.lab.netns("B"), "vrc", 2), (ns, DEVICE, 3)):
            run("ip", "netns", "exec", who, "sysctl", "-qw", f"net.ipv6.conf.{device}.accept_dad=0")
            run("ip", "-n", who, "addr", "add", f"10.78.0.{n}/24", "dev", device)
            run("ip", "-n", who, "addr", "add", f"fd78::{n}/64", "dev", device, "nodad")
            run("ip", "-n", who, "link", "set", device, "up")
        run("ip", "-n", ns, "link", "set", "lo", "up")
        run("ip", "-n", ns, "route", "add", "default", "via", "10.78.0.2")
        run("ip", "-n", ns, "-6", "route", "add", "default", "via", "fd78::2")
        ip(t, "A", "route", "add", "10.78.0.0/24", "via", t.lab.address("B"))
        ip(t, "A", "-6", "route", "add", "fd78::/64", "via", t.lab.address("B", 6))
        sysctl(t, "B", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        self.server = subprocess.Popen(["ip", "netns", "exec", ns, PYTHON, "-u", "-c", SERVER, "C", str(PORT)], text=True,
                                       stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        t.expect(self.server.stdout.readline() == "ready\n", "the third host's server")
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.server.wait()
        subprocess.run(["ip", "netns", "del", self.netns], capture_output=True)


@both_stacks("what the host forwards passes by its listeners")
def _(t: Test) -> None:
    own = [t.lab.address("B"), t.lab.address("B", 6)]
    server = serve(t)
    with Third(t):
        t.expect(asked(t, *own) == ["B"] * 4, "the router's own servers")
        time.sleep(1.5)
        before = frames(t, server)
        t.expect(is_on_vireo(t) == (before > 0), f"Vireo has taken {before} frames")
        said = asked(t, *["10.78.0.3", "fd78::3"] * 5)
        t.expect(said == ["C"] * 20, f"through the router: {said}")
        taken = frames(t, server) - before
        t.expect(taken == 0, f"the router's Vireo took {taken} frames that were not its own")
        # Its other address, by the same wire, is its own (a host has all its addresses on each of its interfaces).
        said = asked(t, "10.78.0.2!", "fd78::2!", *own)
        t.expect(said == ["B"] * 6, f"the router's own, afterwards: {said}")
        t.expect(not is_on_vireo(t) or frames(t, server) - before >= 20, "and they are carried")
        ip(t, "B", "addr", "add", "10.79.0.9/32", "dev", DEVICE)
        ip(t, "A", "route", "add", "10.79.0.9/32", "via", t.lab.address("B"))
        time.sleep(0.3)
        before = frames(t, server)
        t.expect(asked(t, "10.79.0.9!") == ["B"], "an address that the host has since")
        t.expect(not is_on_vireo(t) or frames(t, server) - before >= 4, "and is carried at")
    t.note(f"{taken} frames of others")


# ---- connections that the kernel has

HOLDER = """
import socket, sys, time
host, port = sys.argv[1], int(sys.argv[2])
s = [socket.create_connection((h, port)) for h in sys.argv[1:2] + sys.argv[3:]]
print("open", flush=True)
for line in sys.stdin:
    for c in s:
        c.settimeout(5)
        try:
            c.send(line.strip().encode()); print(c.recv(100).decode(), flush=True)
        except OSError as e: print(type(e).__name__, flush=True)
"""


@both_stacks("a connection that the kernel has goes on beside a listener", seconds=90)
def _(t: Test) -> None:
    own = [t.lab.address("B"), t.lab.address("B", 6)]
    old = serve(t, "old", stack="kernel")
    holder = subprocess.Popen([*t.lab.wrap("A", [PYTHON, "-u", "-c", HOLDER, own[0], str(PORT), own[1]])], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        t.expect(holder.stdout.readline() == "open\n", "no connection")
        def talk(text: str) -> list[str]:
            holder.stdin.write(text + "\n")
            holder.stdin.flush()
            return [holder.stdout.readline().strip() for _ in own]
        t.expect(talk("one") == ["old one"] * 2, "before")
        os.kill(old.pid, signal.SIGUSR1)
        wait_for(t, old, "stopped")
        server = serve(t, "new")
        for text in ("two", "three", "four", "five"):
            said = talk(text)
            t.expect(said == [f"old {text}"] * 2, f"the kernel's connections: {said}")
            said = asked(t, *own)
            t.expect(said == ["new"] * 4, f"new ones: {said}")
            time.sleep(0.7)
        t.expect(not is_on_vireo(t) or frames(t, server) >= 40, "new ones are carried")
    finally:
        holder.kill()
        holder.wait()


# ---- what comes from nowhere

def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data)) if len(data) % 2 == 0 else checksum_odd(data)
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def checksum_odd(data: bytes) -> int:
    return sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0"))


def datagram(source: str, to: str, text: bytes, port: int = PORT) -> bytes:
    """An IP packet with a UDP datagram."""
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    a, b = socket.inet_pton(family, source), socket.inet_pton(family, to)
    length = 8 + len(text)
    head = struct.pack("!HHHH", 999, port, length, 0)
    pseudo = a + b + (struct.pack("!II", length, 17) if family == socket.AF_INET6 else struct.pack("!HH", 17, length))
    head = head[:6] + struct.pack("!H", checksum(pseudo + head + text) or 0xffff)
    if family == socket.AF_INET6:
        return struct.pack("!IHBB", 6 << 28, length, 17, 64) + a + b + head + text
    ip_head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 7, 0, 64, 17, 0) + a + b
    return ip_head[:10] + struct.pack("!H", checksum(ip_head)) + ip_head[12:] + head + text


def syn(source: str, to: str) -> bytes:
    a, b = socket.inet_aton(source), socket.inet_aton(to)
    head = struct.pack("!HHIIBBHHH", 999, PORT, 1000, 0, 5 << 4, 2, 1000, 0, 0)
    head = head[:16] + struct.pack("!H", checksum(a + b + struct.pack("!HH", 6, 20) + head)) + head[18:]
    ip_head = struct.pack("!BBHHHBBH", 0x45, 0, 40, 7, 0, 64, 6, 0) + a + b
    return ip_head[:10] + struct.pack("!H", checksum(ip_head)) + ip_head[12:] + head


def mac(t: Test, host: str, device: str = DEVICE) -> bytes:
    text = t.lab.run(host, "cat", f"/sys/class/net/{device}/address").stdout.strip()
    return bytes.fromhex(text.replace(":", ""))


def send(t: Test, *packets: bytes, vlan: int = 0, to: bytes | None = None, by: str = DEVICE) -> None:
    """From A's interface, as they are."""
    code = "import socket, sys\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ns.bind((sys.argv[1], 0))\n" \
           "for f in sys.argv[2:]: s.send(bytes.fromhex(f))"
    tag = struct.pack("!HH", 0x8100, vlan) if vlan else b""
    made = []
    for p in packets:
        kind = 0x86dd if p[0] >> 4 == 6 else 0x800
        made.append(((to or mac(t, "B")) + mac(t, "A") + tag + struct.pack("!H", kind) + p).hex())
    t.lab.run("A", PYTHON, "-c", code, by, *made, check=True)


def heard(server) -> list[str]:
    return [line.split()[2] for line in server.stdout.splitlines() if line.startswith("datagram")]


@both_stacks("what has a source that may not be is nobody's")
def _(t: Test) -> None:
    own, own6 = t.lab.address("B"), t.lab.address("B", 6)
    server = serve(t)
    t.expect(asked(t, own, own6) == ["B"] * 4, "it serves")
    base = len(heard(server))
    sources = ("127.0.0.1", own, "224.0.0.5", "255.255.255.255")
    # The kernel takes an IPv4 address in IPv6's form of a datagram; Vireo, to which it would be the IPv4 address, does not.
    sources6 = ("::1", "ff02::9") + (("::ffff:10.77.0.1",) if is_on_vireo(t) else ())
    send(t, *[datagram(s, own, f"bad-{s}".encode()) for s in sources],
         *[datagram(s, own6, f"bad-{s}".encode()) for s in sources6],
         *[syn(s, own) for s in sources],
         datagram(t.lab.address("A"), own, b"good"), datagram(t.lab.address("A", 6), own6, b"good6"))
    wait_for(t, server, "good6")
    t.expect(heard(server)[base:] == ["good", "good6"], f"heard {heard(server)[base:]}")
    half_open = t.lab.run("B", "ss", "-Hnt", "state", "syn-recv").stdout
    t.expect(half_open == "", f"half open: {half_open}")
    t.expect(asked(t, own, own6) == ["B"] * 4, "it serves, afterwards")


@both_stacks("the way back is looked at where the operator wants it")
def _(t: Test) -> None:
    own = t.lab.address("B")
    server = serve(t)
    base = 0
    for setting, passes in (("1", ["good"]), ("2", ["good"]), ("0", ["stranger", "good"])):
        sysctl(t, "B", "net.ipv4.conf.all.rp_filter=0", f"net.ipv4.conf.{DEVICE}.rp_filter={setting}")
        time.sleep(0.3)
        send(t, datagram("10.99.0.1", own, b"stranger"), datagram(t.lab.address("A"), own, b"good"))
        wait = time.monotonic() + 5
        while len(heard(server)) < base + len(passes) and time.monotonic() < wait:
            time.sleep(0.02)
        got = heard(server)[base:]
        t.expect(got == passes, f"rp_filter {setting}: heard {got}")
        base += len(got)
    t.expect(not is_on_vireo(t) or frames(t, server) >= 6, "carried")


# ---- which VLAN, which station

def has_vlans() -> bool:
    """Of the machine's kernel."""
    name = f"vr{os.getpid()}"
    done = [subprocess.run(["ip", "link", "add", name, "type", "dummy"], capture_output=True),
            subprocess.run(["ip", "link", "add", "link", name, "name", f"{name}.5", "type", "vlan", "id", "5"], capture_output=True)]
    subprocess.run(["ip", "link", "del", name], capture_output=True)
    return all(d.returncode == 0 for d in done)


def with_vlans(name: str):
    if os.geteuid() == 0 and has_vlans():
        return both_stacks(name)
    print(f"own_traffic: left out, for this kernel has no VLANs: {name}", flush=True)
    return lambda function: function


def hide_tags(t: Test, hidden: bool) -> None:
    """A tag that lies beside the frame, where drivers put it to save the kernel work, is none for an XDP program."""
    setting = "on" if hidden else "off"
    for host in "AB":
        t.lab.run(host, "ethtool", "-K", DEVICE, "rxvlan", setting, "txvlan", setting, check=True)


@with_vlans("a VLAN that is not here, and another station, are left alone")
def _(t: Test) -> None:
    own, peer = t.lab.address("B"), t.lab.address("A")
    hide_tags(t, False)
    ip(t, "B", "link", "add", "link", DEVICE, "name", f"{DEVICE}.5", "type", "vlan", "id", "5")
    ip(t, "B", "link", "set", f"{DEVICE}.5", "up")
    server = serve(t)
    t.expect(asked(t, own) == ["B"] * 2, "it serves")
    base = len(heard(server))
    send(t, datagram(peer, own, b"vlan6"), vlan=6)
    send(t, datagram(peer, own, b"station"), to=bytes.fromhex("020000000099"))
    send(t, datagram(peer, own, b"vlan5"), vlan=5)
    send(t, datagram(peer, own, b"priority"), vlan=0x6000)
    send(t, datagram(peer, own, b"good"))
    wait_for(t, server, "good")
    t.expect(heard(server)[base:] == ["vlan5", "priority", "good"], f"heard {heard(server)[base:]}")


def second_device(t: Test, kind: str, hidden: bool = True) -> str:
    """Another interface of A and B: on the same wire, or with one of its own. B has 10.78.0.2 there."""
    name = f"{DEVICE}.5" if kind == "VLAN" else "vr1"
    if kind != "VLAN":
        subprocess.run(["ip", "link", "add", name, "netns", t.lab.netns("A"), "type", "veth", "peer", "name", name, "netns",
                        t.lab.netns("B")], check=True)
    else:
        hide_tags(t, hidden)
    for host in "AB":
        if kind == "VLAN":
            ip(t, host, "link", "add", "link", DEVICE, "name", name, "type", "vlan", "id", "5")
        ip(t, host, "addr", "add", f"10.78.0.{1 + (host == 'B')}/24", "dev", name)
        ip(t, host, "link", "set", name, "up")
    return name


def on_two_devices(name: str):
    """The case is told whether sockets that name one of them may be carried, if Vireo is there."""
    def register(function):
        both_stacks(f"{name}: two wires")(lambda t: function(t, second_device(t, "wire"), is_on_vireo(t)))
        with_vlans(f"{name}: a wire and a VLAN on it")(lambda t: function(t, second_device(t, "VLAN", False), is_on_vireo(t)))
        with_vlans(f"{name}: a wire and a VLAN on it, its tags hidden")(lambda t: function(t, second_device(t, "VLAN"), False))
        return function
    return register


def expect_hidden(t: Test, process, sockets: int) -> None:
    """So many sockets are the kernel's, and vireo-stat says why."""
    if not is_on_vireo(t):
        return
    shown = [s for p in counters.live(process.pid) for s in p["sockets"]]
    why = [s for s in shown if s["reason"] == "interface" and s["detail"].startswith("VLAN tags hidden: ")]
    t.expect(len(why) == sockets and not any(s["carried"] for s in shown), f"{shown}")


@on_two_devices("two processes, one port, two devices")
def _(t: Test, other: str, carried: bool) -> None:
    first = serve(t, "first", DEVICE)
    # The kernel's, so that what Vireo takes of it is seen.
    second = serve(t, "second", other, stack="kernel")
    time.sleep(1.5)
    before = frames(t, first)
    for _ in range(3):
        t.expect(asked(t, "10.78.0.2") == ["second"] * 2, "by the other device")
    t.expect(frames(t, first) == before, "and it was not taken by the first")
    for _ in range(3):
        t.expect(asked(t, t.lab.address("B")) == ["first"] * 2, "by the first device")
    t.expect((frames(t, first) - before >= 15) == carried, f"carried: {frames(t, first) - before} frames")
    if other != f"{DEVICE}.5":
        return
    if not carried:
        expect_hidden(t, first, 2)
    send(t, datagram(t.lab.address("A"), t.lab.address("B"), b"untagged"))
    send(t, datagram(t.lab.address("A"), t.lab.address("B"), b"tagged"), by=other)
    wait_for(t, first, "untagged")
    wait_for(t, second, " tagged")
    t.expect("untagged" in heard(first) and "tagged" not in heard(first), f"{heard(first)}")
    t.expect("tagged" in heard(second) and "untagged" not in heard(second), f"{heard(second)}")


ONE_PROCESS = """
import select, socket, sys
port, devices = int(sys.argv[1]), sys.argv[2:]
socks = []
for d in devices:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(socket.AF_INET, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, d.encode())
        s.bind(("", port))
        if kind == socket.SOCK_STREAM: s.listen(5)
        socks.append((s, kind, d.encode()))
print("ready", flush=True)
while True:
    for r in select.select([s for s, _, _ in socks], [], [])[0]:
        for s, kind, d in socks:
            if s is not r: continue
            if kind == socket.SOCK_DGRAM: text, who = s.recvfrom(100); s.sendto(d, who)
            else:
                c, _ = s.accept(); c.recv(10)
                assert c.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 20).rstrip(b"\\0") == d, "not inherited"
                c.send(d); c.close()
"""


@on_two_devices("one process, one port, two devices")
def _(t: Test, other: str, carried: bool) -> None:
    server = t.start("B", PYTHON, "-u", "-c", ONE_PROCESS, str(PORT), DEVICE, other, name="server")
    wait_for(t, server, "ready")
    for _ in range(4):
        said = asked(t, "10.78.0.2", t.lab.address("B"))
        t.expect(said == [other] * 2 + [DEVICE] * 2, f"{said}\n{server.stderr}")
    t.expect((frames(t, server) >= 40) == carried, f"carried: {frames(t, server)} frames")
    if not carried:
        expect_hidden(t, server, 4)


# A socket that names an interface asks each host; then one that names none does. Prints what each was told.
ASKS_BY = """
import socket, sys, time
port, kept = int(sys.argv[1]), []
for named in (True, False):
    for way in sys.argv[2:]:
        device, host = way.split("=")
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            c = socket.socket(socket.AF_INET, kind)
            if named: c.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            c.settimeout(5)
            c.connect((host, port)); c.send(b"ask"); print(c.recv(100).decode().split()[0], flush=True)
            kept.append(c)
time.sleep(60)
"""


@with_vlans("who asks by a VLAN or the wire beneath, its tags hidden")
def _(t: Test) -> None:
    other = second_device(t, "VLAN")
    server = t.start("A", PYTHON, "-u", "-c", SERVER, "A", str(PORT), name="server", stack="kernel")
    wait_for(t, server, "ready")
    client = t.start("B", PYTHON, "-u", "-c", ASKS_BY, str(PORT), f"{DEVICE}={t.lab.address('A')}", f"{other}=10.78.0.1", name="client")
    wait_for(t, client, "A\n" * 8, 30)
    if is_on_vireo(t):
        shown = [s for p in counters.live(client.pid) for s in p["sockets"]]
        why = [s["detail"] for s in shown if s["reason"] == "interface"]
        t.expect(len(why) == 4 and all(w.startswith("VLAN tags hidden: ") for w in why), f"{shown}")
        t.expect(sum(s["carried"] for s in shown) == 4, f"those that name none are carried, over the VLAN, too: {shown}")


if __name__ == "__main__":
    suite.main()
