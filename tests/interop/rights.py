#!/usr/bin/python3
"""A right or a resource is missing: the program runs on the kernel, and one line on stderr says why."""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import program  # noqa: E402
from labkit.runner import Suite, Test  # noqa: E402

PORT = 5004
BYTES = 4 << 20
suite = Suite("rights")


def without(*capabilities: str) -> tuple[str, ...]:
    """Runs as root without some capabilities: an exec by root would else bring back what the bounding set allows."""
    dropped = ",".join(f"-{c}" for c in capabilities)
    return ("setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}")


def run_client(t: Test, *prefix: str, tool: str = "", env: dict[str, str] | None = None) -> None:
    """A transfer with the client under Vireo behind `prefix`, and the kernel at the other end."""
    tool, address = tool or str(program("tests/integrity/transfer.cpp")), t.lab.address("B")
    common = (address, str(PORT), "2", str(BYTES), "poll")
    server = t.start("B", tool, "server", *common, name="server")
    t.await_port("B", PORT)
    client = t.start("A", tool, "client", *common, name="client", prefix=prefix, env=env)
    client.wait(40)
    server.wait(20)
    t.expect(json.loads(client.stdout)["received"] == 2 * BYTES, f"client printed {client.stdout!r}")
    t.client = client


def expect_kernel(t: Test, *why: str) -> None:
    """The kernel carried it, and stderr is one line that bears one of the words."""
    if t.options.dry:
        return
    own = [p for p in t.vireo_processes("A") if p.get("pid") == t.client.pid]
    rx, tx = counters.engine_packets(own)
    t.expect((rx, tx) == (0, 0), f"Vireo carried rx {rx} tx {tx} packets; the kernel should have")
    lines = t.client.stderr.splitlines()
    t.expect(len(lines) == 1, f"one line on stderr was due, there are {len(lines)}:\n" + "\n".join(lines[:10]))
    t.note(lines[0])
    t.expect("vireo" in lines[0].lower(), f"the line does not say who speaks: {lines[0]}")
    t.expect(any(re.search(word, lines[0], re.I) for word in why), f"the line does not say why ({' or '.join(why)}): {lines[0]}")


def refused(title: str, prefix: tuple[str, ...], *why: str) -> None:
    @suite.case(title, ("vireo", "kernel"))
    def _(t: Test) -> None:
        before = kernel_segments(t)
        run_client(t, *prefix)
        t.expect(kernel_segments(t) - before > BYTES // 65536, "the kernel's counters did not move")
        expect_kernel(t, *why)


def kernel_segments(t: Test) -> int:
    return counters.kernel_counters(t.lab, "A")["tcp_out"]


refused("without CAP_NET_RAW", without("net_raw"), "CAP_NET_RAW", "net_raw")
refused("without CAP_BPF", without("bpf", "sys_admin", "perfmon"), "CAP_BPF", "CAP_SYS_ADMIN")
refused("without CAP_NET_ADMIN", without("net_admin", "sys_admin"), "CAP_NET_ADMIN", "CAP_SYS_ADMIN")
# CAP_IPC_LOCK exempts from the limit, CAP_SYS_RESOURCE may lift it: without both it is the limit of an ordinary user.
refused("memlock of 64 KiB", ("prlimit", "--memlock=65536:65536", *without("ipc_lock", "sys_resource")), "memlock", "locked memory")


def as_nobody(t: Test, *capabilities: str, **settings: str) -> int:
    """run_client() as an ordinary user. @return segments that the kernel sent meanwhile."""
    with tempfile.TemporaryDirectory() as name:  # the clone may lie where only root comes, in /root say
        folder = Path(name)
        folder.chmod(0o777)
        stats = folder / "client.stats"
        tool = shutil.copy(program("tests/integrity/transfer.cpp"), folder)
        library = folder / t.options.library.name
        if not t.options.dry:
            for file in (t.options.library, t.options.library.with_name("vireo-mourner")):
                shutil.copy(file, folder)
        before = kernel_segments(t)
        run_client(t, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *capabilities, tool=tool,
                   env={"LD_PRELOAD": str(library), "VMA_STATS_FILE": str(stats), **settings})
        t.client.stats_file = stats
        if not t.options.dry:
            t.client.counted = counters.engine_packets(counters.final(stats))
        return kernel_segments(t) - before


@suite.case("an ordinary user", ("vireo", "kernel"))
def _(t: Test) -> None:
    sent = as_nobody(t, "--inh-caps=-all")
    t.expect(sent > BYTES // 65536, "the kernel's counters did not move")
    expect_kernel(t, "CAP_")


@suite.case("an ordinary user with the capabilities that are documented, and no other", ("vireo", "kernel"))
def _(t: Test) -> None:
    capabilities = "-all,+net_raw,+net_admin,+bpf"
    # Within the usual limit of locked memory, 8 MiB.
    sent = as_nobody(t, f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", VIREO_ARENA_BYTES="6M")
    if t.options.dry:
        return
    t.expect(min(t.client.counted) > BYTES // 65536, f"Vireo carried {t.client.counted} packets; stderr: {t.client.stderr}")
    t.expect(sent < 10, f"the kernel sent {sent} segments")


# An empty file in its place, in a mount namespace of the client's own.
HIDE = 'for f in $(ldconfig -p | sed -n "s/.*libbpf.so.1 .*=> //p"); do mount --bind /dev/null "$f"; done; exec "$@"'
refused("without libbpf", ("unshare", "--mount", "sh", "-c", HIDE, "sh"), "libbpf.so.1")


@suite.case("XDP of the interface is taken", ("vireo", "kernel"))
def _(t: Test) -> None:
    source, compiled = t.logs / "pass.c", t.logs / "pass.o"
    source.write_text('__attribute__((section("xdp"), used)) int pass(void *ctx) { return 2; }\n'
                      'char _license[] __attribute__((section("license"), used)) = "GPL";\n')
    subprocess.run(["clang-19", "-O2", "-g", "-target", "bpf", "-c", str(source), "-o", str(compiled)], check=True)
    done = t.lab.run("A", "ip", "link", "set", "dev", "vr0", "xdpdrv", "obj", str(compiled), "sec", "xdp")
    t.expect(done.returncode == 0, f"cannot attach a program of our own: {done.stderr}")
    run_client(t)
    expect_kernel(t, "busy", "taken", "XDP", "in use")
    shown = t.lab.run("A", "ip", "-d", "link", "show", "vr0").stdout
    t.expect("xdp" in shown, "the other program was detached")


@suite.case("a process that shares with nobody has the interface", ("vireo", "kernel"))
def _(t: Test) -> None:
    tool, address = str(program("tests/integrity/pingpong.cpp")), t.lab.address("B")
    server = t.start("B", tool, "server", "tcp", address, "5005", name="holder-server")
    t.await_port("B", 5005)
    holder = t.start("A", tool, "client", "tcp", address, "5005", "6", name="holder", env={"VIREO_GROUP_BYTES": "0"})
    subprocess.run(["sleep", "1"], check=True)
    run_client(t)
    expect_kernel(t, "busy", "taken", "in use", "another process")
    holder.wait(20)
    t.stop(server)


@suite.case("no huge pages", ("vireo", "kernel"))
def _(t: Test) -> None:
    """Huge pages are a help and no condition: with none the program runs, carried, and says no more than one line."""
    pools = list(Path("/sys/kernel/mm/hugepages").glob("hugepages-*/nr_hugepages"))
    kept = {pool: pool.read_text() for pool in pools}
    try:
        for pool in pools:
            pool.write_text("0")
        run_client(t)
    finally:
        for pool, value in kept.items():
            pool.write_text(value)
    lines = t.client.stderr.splitlines()
    t.expect(len(lines) <= 1, "more than one line:\n" + "\n".join(lines[:10]))


@suite.case("all rights, the counter-test: carried without a word", ("vireo", "kernel"))
def _(t: Test) -> None:
    with t.proof("tcp", least=50):
        run_client(t)
    t.expect(t.client.stderr == "", f"on stderr: {t.client.stderr}")


if __name__ == "__main__":
    suite.main()
