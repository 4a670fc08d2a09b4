#!/usr/bin/python3
"""Preloading is free for everyone else: same output and status, a handful of calls, no device, no thread, no stray symbol."""
import fnmatch
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.build import ROOT, program  # noqa: E402
from labkit.process import Failed  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

HERE = Path(__file__).resolve().parent
# What loading costs each program that is executed, counted: a busy machine takes longer, and does no more.
MOST_CALLS = 20
MOST_FAULTS = 60  # of pages
MOST_INSTRUCTIONS = 300_000  # relocation, for the most part
suite = Suite("abi")
ENDS = ("vireo", "kernel")

# What a program without sockets has no reason to do, in strace's words: devices, sockets of any kind, BPF, threads.
STRANGE = re.compile(r'AF_XDP|AF_NETLINK|AF_PACKET|\bbpf\(|\bsocket\(|CLONE_THREAD|"/dev/(infiniband|hugepages)|MAP_HUGETLB|'
                     r'memfd_create\(|userfaultfd\(|timerfd_create\(|epoll_create|eventfd')


def programs() -> dict[str, list[str]]:
    return {
        "ls": ["ls", "-la", "/usr/share"],
        "bash -c": ["bash", "-c", "x=$(echo hello | tr a-z A-Z); echo $x; exit 7"],
        "git status": ["git", "-C", str(ROOT), "-c", "core.fsmonitor=false", "status", "--short", "tools/setup"],
        "python3 -c pass": [PYTHON, "-c", "pass"],
        "a C++ program with its own fmt": [str(program("tests/abi/own_fmt.cpp", "-rdynamic"))],
        "system and popen": [PYTHON, "-c", "import os; os.system('echo one'); print(os.popen('echo two').read(), end='')"],
        "threads": [PYTHON, "-c", "import threading as t; x=[t.Thread(target=print, args=(1,)) for _ in range(9)];"
                                  "[(y.start(), y.join()) for y in x]"],
    }


def run_once(command: list[str], env: dict[str, str]) -> tuple[tuple, int]:
    """@return what is compared (status, stdout, stderr), and page faults, children included."""
    read_out, out = os.pipe()
    child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)
    os.close(out)
    with os.fdopen(read_out, "rb") as stream:
        stdout = stream.read()
    stderr = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.stderr.close()
    child.returncode = os.waitstatus_to_exitcode(status)
    return (child.returncode, stdout, stderr), usage.ru_minflt + usage.ru_majflt


def environments(t: Test) -> tuple[dict[str, str], dict[str, str]]:
    return t.environment("kernel", t.logs / "s"), t.environment("vireo", t.logs / "s")


def same(plain: tuple, preloaded: tuple) -> None:
    for what, a, b in zip(("status", "stdout", "stderr"), plain, preloaded):
        if a != b:
            raise Failed(f"{what} differs\n  plain:     {a!r}\n  preloaded: {b!r}")


for title, command in programs().items():
    @suite.case(f"{title}: same output", ENDS, lab=None, seconds=60)
    def _(t: Test, command=command) -> None:
        plain_env, env = environments(t)
        same(run_once(command, plain_env)[0], run_once(command, env)[0])

    @suite.case(f"{title}: no device, no socket, no thread, few calls more", ENDS, seconds=60)
    def _(t: Test, command=command) -> None:
        traces, counts = [], []
        for name, env in zip(("plain", "preloaded"), environments(t)):
            trace = t.logs / f"{name}.strace"
            # strace itself runs plain; -E hands the library to the program.
            extra = [x for k, v in env.items() if k.startswith(("LD_", "VMA_")) for x in ("-E", f"{k}={v}")]
            base = {k: v for k, v in env.items() if not k.startswith(("LD_", "VMA_"))}
            done = t.lab.run("A", "strace", "-f", "-o", str(trace), *extra, *command, env=base, timeout=50)
            t.expect("strace:" not in done.stderr, done.stderr[:500])
            lines = [re.sub(r"^\d+ +", "", line) for line in trace.read_text(errors="replace").splitlines()]
            traces.append([line for line in lines if STRANGE.search(line)])
            count = Counter(found[1] for line in lines if (found := re.match(r"(?:<\.\.\. )?(\w+)(?:\(| resumed)", line)) and "<unfinished" not in line)
            del count["futex"]  # who waits for whom is another thing in each run
            executed = sum("execve" in line and line.endswith(" = 0") for line in lines)
            counts.append((sum(count.values()), count["rt_sigaction"], executed))
        (plain, _, executed), (preloaded, actions, executed_too) = counts
        t.note(f"{plain} calls, {preloaded - plain} more; {executed} executed, {actions} times sigaction")
        t.expect(executed == executed_too, f"executed {executed} programs, preloaded {executed_too}")
        # No handler runs while one is set: its signals wait, which is two calls.
        most = MOST_CALLS * executed + 2 * actions
        t.expect(preloaded - plain <= most, f"{plain} calls, preloaded {preloaded}, at most {most} more")
        # A program may do some of it itself (git, python's threads): as often as without the library.
        added = len(traces[1]) - len(traces[0])
        t.expect(added <= 0, f"{added} calls more than without the library:\n" + "\n".join(traces[1][:20]))
        t.expect("xdp" not in t.lab.run("A", "ip", "-d", "link", "show").stdout, "an XDP program is attached")


@suite.case("a process that does nothing has one thread and no descriptor more", ENDS)
def _(t: Test) -> None:
    code = ("import os; print(len(os.listdir('/proc/self/task')), "
            "sorted(os.readlink(f'/proc/self/fd/{f}').split(':')[0] for f in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{f}')))")
    got = []
    for stack in ("kernel", "vireo"):
        process = t.start("A", PYTHON, "-c", code, stack=stack).wait(10)
        got.append(re.sub(r"'[^']*\d\d-python3\.(out|err)'", "'log'", process.stdout))
    t.expect(got[0] == got[1], f"plain {got[0]!r}, preloaded {got[1]!r}")


@suite.case("what loading costs: instructions and page faults", ENDS, lab=None, seconds=60)
def _(t: Test) -> None:
    instructions, faults = [], []
    for env in environments(t):
        (_, _, said), _ = run_once(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "/bin/true"], env)
        instructions.append(int(re.search(rb"Collected : (\d+)", said)[1]))
        faults.append(min(run_once(["/bin/true"], env)[1] for _ in range(5)))
    added, faulted = instructions[1] - instructions[0], faults[1] - faults[0]
    t.note(f"{added} instructions, {faulted} page faults more")
    t.expect(added <= MOST_INSTRUCTIONS, f"{added} instructions more than {instructions[0]}")
    t.expect(faulted <= MOST_FAULTS, f"{faulted} page faults more than {faults[0]}")


@suite.case("valgrind true", ENDS, lab=None, seconds=60)
def _(t: Test) -> None:
    plain_env, env = environments(t)
    command = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "/bin/true"]
    same(run_once(command, plain_env)[0], run_once(command, env)[0])


@suite.case("valgrind of a program with sockets on loopback", ENDS, lab=None, seconds=120)
def _(t: Test) -> None:
    plain_env, env = environments(t)
    tool = str(program("tests/integrity/transfer.cpp"))
    seen = []
    for environment in (plain_env, env):
        server = subprocess.Popen([tool, "server", "127.0.0.1", "5999", "1", "100000", "poll"], stdout=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            got = run_once(["valgrind", "-q", "--error-exitcode=99", tool, "client", "127.0.0.1", "5999", "1", "100000", "poll"],
                           environment)[0]
            server.wait(30)
        finally:
            server.kill()
        seen.append((got[0], re.sub(rb'"seconds":[\d.]+', b"", got[1]), got[2]))
    same(*seen)


@suite.case("gdb attaches and detaches, the program goes on", ENDS, lab=None, seconds=90)
def _(t: Test) -> None:
    said = []
    for name, env in zip(("plain", "preloaded"), environments(t)):
        out = t.logs / f"{name}.out"
        code = "import time\nfor i in range(100):\n time.sleep(.1); print(i, flush=True)"
        with open(out, "wb") as stream:
            process = subprocess.Popen([PYTHON, "-c", code], env=env, stdout=stream, stderr=subprocess.STDOUT)
        try:
            time.sleep(0.6)
            done = subprocess.run(["gdb", "-p", str(process.pid), "-batch", "-nx", "-ex", "info threads", "-ex", "detach"],
                                  capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            before = out.read_text().count("\n")
            time.sleep(0.6)
            after = out.read_text().count("\n")
            t.expect(after > before, f"{name}: the program stands still after gdb's detach")
            process.send_signal(signal.SIGTERM)
            status = process.wait(10)
        finally:
            process.kill()
        said.append((done.returncode, "detached" in done.stdout, len(re.findall(r"(?m)^[* ] +\d+ +", done.stdout)), status))
    t.expect(said[0] == said[1], f"status, detached, threads, end: plain {said[0]}, preloaded {said[1]}")
    t.expect(said[0][:2] == (0, True), f"gdb itself fails here: {said[0]}")


@suite.case("only interposed names and the API are exported", ENDS, lab=None, needs_library=True)
def _(t: Test) -> None:
    if t.options.dry:
        return
    done = subprocess.run(["nm", "-D", "--defined-only", str(t.options.library)], capture_output=True, text=True, check=True)
    exported = {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}
    rules = [line.strip() for line in (HERE / "exports.allow").read_text().splitlines() if line.strip() and line[0] != "#"]
    allowed = [rule.lstrip("!") for rule in rules]
    stray = sorted(n for n in exported if not any(fnmatch.fnmatchcase(n, a) for a in allowed))
    missing = sorted(r[1:] for r in rules if r[0] == "!" and r[1:] not in exported)
    t.expect(not stray, f"{len(stray)} exported names are not in exports.allow: {' '.join(stray[:30])}")
    t.expect(not missing, f"not interposed: {' '.join(missing)}")


@suite.case("needs no RDMA and no fmt library", ENDS, lab=None, needs_library=True)
def _(t: Test) -> None:
    if t.options.dry:
        return
    done = subprocess.run(["readelf", "-d", str(t.options.library)], capture_output=True, text=True, check=True)
    needed = re.findall(r"NEEDED.*\[(.+)\]", done.stdout)
    bad = [n for n in needed if re.search(r"ibverbs|mlx|rdma|fmt|boost|asan|tsan|ubsan", n)]
    t.note(" ".join(needed))
    t.expect(not bad, f"needs {' '.join(bad)}")


if __name__ == "__main__":
    suite.main()
