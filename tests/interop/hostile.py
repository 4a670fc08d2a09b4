#!/usr/bin/python3
"""What programs and operators do to a process: close every descriptor, cancel threads, clone(2) by hand, take XDP off."""
import json
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import program  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5005
ENDS = ("vireo", "kernel")
ECHO = ("import socket, threading\n"
        "def serve(c):\n"
        "    try:\n"
        "        while data := c.recv(100): c.sendall(data)\n"
        "    except OSError: pass\n"
        "    c.close()\n"
        f"s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('', {PORT})); s.listen()\n"
        "while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()\n")
suite = Suite("hostile")


def start(t: Test, what: str, env: dict[str, str] | None = None):
    t.start("B", PYTHON, "-c", ECHO, name="echo")
    t.await_port("B", PORT)
    return t.start("A", str(program("tests/interop/hostile.cpp")), t.lab.address("B"), str(PORT), what, name=what, env=env)


def expect_carried(t: Test) -> None:
    if not t.options.dry:
        rx, tx = counters.engine_packets(t.vireo_processes("A"))
        t.expect(min(rx, tx) > 0, f"nothing was carried: rx {rx} tx {tx}")


# Asleep, and never sleeping.
for spec in ("none", "latency"):
    for what, title in (("numbers", "descriptors of ours are out of the program's way"), ("ranges", "close_range's errors"),
                        ("cancel", "pthread_cancel of a waiting thread"), ("raw-child", "a child made by clone or _Fork"),
                        ("vfork-file", "a child of vfork with a file at a connection's number")):
        @suite.case(f"{title}, profile {spec}", ENDS)
        def _(t: Test, what=what, spec=spec) -> None:
            start(t, what, {"VMA_SPEC": spec}).wait(40)
            expect_carried(t)


@suite.case("XDP is taken off by force", ENDS)
def _(t: Test) -> None:
    if t.options.dry:
        return
    client = start(t, "detached", {"VMA_SPEC": "none"})
    client.await_output("ready")
    shown = json.loads(t.lab.run("A", "ip", "-j", "-d", "link", "show", "vr0").stdout)[0]
    number = shown["xdp"]["prog"]["id"]
    links = json.loads(subprocess.run(["bpftool", "-j", "link", "show"], capture_output=True, text=True, check=True).stdout)
    link = next(link["id"] for link in links if link.get("prog_id") == number)
    subprocess.run(["bpftool", "link", "detach", "id", str(link)], check=True)
    client.wait(15)
    t.expect("ok" in client.stdout, client.stdout)
    lines = client.stderr.splitlines()
    t.expect(len(lines) == 1 and "ENETDOWN" in lines[0], f"one line was due: {client.stderr!r}")
    expect_carried(t)


@suite.case("two programs that poll for ever on one processor", ("vireo", "vireo"))
def _(t: Test) -> None:
    """Each would wait for the other's whole turn, 3 or 4 ms; what sleeps is woken at once."""
    address = t.lab.address("B")
    poll = {"VMA_SPEC": "latency", "VMA_TRACELEVEL": "info"}
    with t.proof("tcp", least=1000):
        server = t.start("B", "sockperf", "server", "--tcp", "-i", address, "-p", str(PORT), name="server", cpu=0, env=poll)
        t.await_port("B", PORT)
        client = t.start("A", "sockperf", "ping-pong", "--tcp", "-i", address, "-p", str(PORT), "-m", "14", "-t", "4", name="client", cpu=0, env=poll)
        client.wait(30)
        t.stop(server)
    text = client.stdout + client.stderr
    received = re.search(r"\[Valid Duration\].*ReceivedMessages=(\d+)", text)
    t.expect(received is not None and int(received[1]) > 5000, f"turns of the scheduler lie between messages\n{client.tail()}")
    # Once the one sleeps the other may poll on.
    said = [end.stderr.count("others use the processor") for end in (server, client)]
    t.expect(t.options.dry or max(said) == 1, f"said by server and client: {said}")
    t.note(f"{received[1]} messages in 4 s")


if __name__ == "__main__":
    suite.main()
