#!/usr/bin/python3
"""Unmodified programs of every day over Vireo: a web server with curl, and asyncio with 500 connections.

What they print and transfer is compared with a run of the kernel on both ends.
"""
import hashlib
import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.process import Failed  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 8000
HERE = Path(__file__).resolve().parent
PAIRS = [(client, server) for client in ("vireo", "kernel") for server in ("vireo", "kernel")]
suite = Suite("apps")


def pairing(title: str, seconds: float = 60):
    def register(function):
        for family in (4, 6):
            for ends in PAIRS:
                suite.case(f"{title}, IPv{family}, {ends[0]} to {ends[1]}", ends, seconds=seconds)(
                    lambda t, family=family: function(t, family))
        return function
    return register


def web(t: Test, family: int, files: dict[str, int], parallel: bool = False, stack: str | None = None) -> dict[str, str]:
    """Serves random files and fetches them all. @return the texts to compare: headers, curl's words, the server's log."""
    root = t.logs / f"root-{stack or 'tested'}"
    root.mkdir()
    digests = {}
    for name, size in files.items():
        data = os.urandom(size)
        (root / name).write_bytes(data)
        os.utime(root / name, (1_700_000_000, 1_700_000_000))
        digests[name] = hashlib.sha256(data).hexdigest()
    address = t.lab.address("B", family)
    host = f"[{address}]" if family == 6 else address
    server = t.start("B", PYTHON, "-u", "-m", "http.server", str(PORT), "--bind", address, "--directory", str(root),
                     name="http-server", stack=stack)
    t.await_port("B", PORT)
    got = t.logs / f"got-{stack or 'tested'}"
    got.mkdir()
    words = []
    for name in files:
        words += ["-o", str(got / name), f"http://{host}:{PORT}/{name}"]
    client = t.start("A", "curl", "-sS", "--no-progress-meter", "--fail", "-D", str(got / "headers"), *(["-Z", "--parallel-max", "20"] if parallel else []),
                     "-w", "%{http_code} %{size_download} %{num_connects}\\n", *words, name="curl", stack=stack)
    client.wait(50)
    t.stop(server)
    for name, wanted in digests.items():
        data = (got / name).read_bytes()
        t.expect(hashlib.sha256(data).hexdigest() == wanted, f"{name}: {len(data)} bytes of {files[name]}, or other bytes")
        (got / name).unlink()
        (root / name).unlink()
    headers = re.sub(r"(?m)^Date: .*$", "Date: -", (got / "headers").read_text())
    log = re.sub(r"\[[^\]]*\d{4} [\d:]+\]", "[-]", server.stderr)
    return {"headers": "\n".join(sorted(headers.splitlines())), "curl": "\n".join(sorted(client.stdout.splitlines())),
            "curl's errors": client.stderr, "server log": "\n".join(sorted(log.splitlines()))}


def compare(t: Test, run) -> None:
    """The run's texts against those of the kernel on both ends."""
    # At least SYN, request, FIN and SYN-ACK, answer, FIN: how many ACKs ride, and what body and FIN share, is a matter of time.
    with t.proof("tcp", least=3):
        got = run(None)
    if t.case.ends == ("kernel", "kernel"):
        return
    wanted = run("kernel")
    for what in wanted:
        if got[what] != wanted[what]:
            raise Failed(f"{what} differ from the kernel's:\n--- here\n{got[what]}\n--- kernel\n{wanted[what]}")


@pairing("http.server and curl, small file")
def _(t: Test, family: int) -> None:
    compare(t, lambda stack: web(t, family, {"small": 100}, stack=stack))


@pairing("http.server and curl, large file")
def _(t: Test, family: int) -> None:
    compare(t, lambda stack: web(t, family, {"large": (8 if t.options.quick else 64) << 20}, stack=stack))


@pairing("http.server and curl, 40 files at once")
def _(t: Test, family: int) -> None:
    compare(t, lambda stack: web(t, family, {f"file{n}": n * 1001 for n in range(40)}, True, stack))


@pairing("curl to a missing file")
def _(t: Test, family: int) -> None:
    address = t.lab.address("B", family)
    host = f"[{address}]" if family == 6 else address
    with t.proof("tcp", least=3):
        server = t.start("B", PYTHON, "-u", "-m", "http.server", str(PORT), "--bind", address, "--directory", str(HERE),
                         name="http-server")
        t.await_port("B", PORT)
        client = t.start("A", "curl", "-sS", "--fail", f"http://{host}:{PORT}/nothing", name="curl")
        client.wait(20, status=22)
        t.stop(server)
    t.expect("404" in client.stderr, f"curl said {client.stderr!r}")


@pairing("asyncio echo, 500 clients", seconds=120)
def _(t: Test, family: int) -> None:
    address, rounds = t.lab.address("B", family), "2" if t.options.quick else "10"
    with t.proof("tcp", least=1000):
        server = t.start("B", PYTHON, str(HERE / "echo_server.py"), address, str(PORT), name="echo-server")
        t.await_port("B", PORT)
        client = t.start("A", PYTHON, str(HERE / "echo_client.py"), address, str(PORT), "500", rounds, name="echo-client")
        client.wait(100)
        t.stop(server)
    t.expect(client.stdout.startswith("500 connections,"), f"client printed {client.stdout!r}")
    t.expect(server.stdout == client.stdout, f"client printed {client.stdout!r}, server {server.stdout!r}")
    t.expect(client.stderr == server.stderr == "", f"on stderr: {client.stderr}{server.stderr}")


if __name__ == "__main__":
    suite.main()
