#!/usr/bin/python3
"""vireo-doctor on hosts with RDMA devices and without: the device in software, missing rights, a missing library."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.build import build_dir  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

suite = Suite("doctor")
DOCTOR = build_dir() / "vireo-doctor"
WIRE = f"doctor{os.getpid()}@vr0"  # in shared memory, beside those of other runs


def examine(t: Test, device: str, *prefix: str, wire: str = WIRE, lacks: str = "", options: tuple[str, ...] = ()) -> tuple[int, dict]:
    """The doctor's report on host A; behind `wire`, if there is one, lies an RDMA device in software."""
    env = ["env", f"VIREO_DEVICE={device}"]
    if wire:
        env += [f"SOFTNIC_WIRE={wire}", f"SOFTNIC_LACKS={lacks}", f"LD_LIBRARY_PATH={build_dir() / 'softnic'}"]
    done = t.lab.run("A", *prefix, *env, str(DOCTOR), "--json", *options)
    t.expect(done.returncode in (0, 1), f"status {done.returncode}: {done.stderr}")
    return done.returncode, json.loads(done.stdout)


def named(rows: list[dict], name: str) -> dict:
    found = [r for r in rows if r["name"] == name]
    return found[0] if found else {}


def without(*capabilities: str) -> tuple[str, ...]:
    dropped = ",".join(f"-{c}" for c in capabilities)
    return "setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"


def carried_by(device: str, place: str, wire: str) -> None:
    @suite.case(f"VIREO_DEVICE={device} on a wire {place}")
    def _(t: Test) -> None:
        status, report = examine(t, device, wire=wire)
        line = named(report["interfaces"], "vr0")
        t.expect(status == 0 and line["carried"] and line["mode"] == device and line["tried"], str(line))
        library = named(report["checks"], "libibverbs")
        t.expect(library["level"] == "ok" and library["text"] == str(build_dir() / "softnic" / "libibverbs.so.1"), str(library))
        t.expect([d["name"] for d in report["rdma"]] == ["softnic0"], str(report["rdma"]))
        found = report["rdma"][0]
        t.expect(found["ports"] == ["port 1: Ethernet, active, 100 Gbit/s; vr0 (by GID)"], str(found["ports"]))
        for name, text in (("queue pair", "vr0: raw packets"), ("flow rules", "vr0: 5-tuple, 3-tuple, port"),
                           ("inline data", "vr0: 204 bytes"), ("checksums", "made and verified"), ("segmentation", "TSO up to")):
            check = named(found["checks"], name)
            t.expect(check.get("level") == "ok" and check["text"].startswith(text), f"{name}: {check}")


for which in ("verbs", "mlx5"):
    carried_by(which, "in shared memory", WIRE)
    carried_by(which, "of the interface itself", "xdp@vr0")


@suite.case("what becomes of rings and of sockets that are passed on")
def _(t: Test) -> None:
    for prefix, ring, level in ((("env",), "has its sockets on the kernel", "ok"), (("env", "VIREO_IO_URING=0"), "carried all the same", "ok"),
                                (without("net_admin"), "", "note")):
        _, report = examine(t, "auto", *prefix, wire="")
        line = named(report["checks"], "io_uring")
        t.expect(ring in line["text"], str(line))
        line = named(report["checks"], "passed sockets")
        t.expect(line["level"] == level, str(line))


@suite.case("the kernel's verifier refuses the steering program")
def _(t: Test) -> None:
    shim = str(t.logs / "refused_load.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", shim, str(Path(__file__).with_name("refused_load.c"))], check=True)
    status, report = examine(t, "xdp", "env", f"LD_PRELOAD={shim}", wire="")
    line, vr0 = named(report["checks"], "steering"), named(report["interfaces"], "vr0")
    t.expect(line["level"] == "fail" and "invalid bpf_context access" in line["text"] and os.uname().release in line["text"], str(line))
    t.expect(status == 1 and not vr0["carried"] and vr0["reason"] == "device", str(vr0))
    _, report = examine(t, "xdp", wire="")
    t.expect(named(report["checks"], "steering")["level"] == "ok", "the counter-test: it does not load without the shim")
    # And the library: one line by default, the verifier's last ones where they are asked for.
    for level, most in (("warn", 1), ("info", 30)):
        env = t.environment("vireo", t.logs / "stats", {"VMA_TRACELEVEL": level})
        env["LD_PRELOAD"] = f"{shim} {env['LD_PRELOAD']}"
        code = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('{t.lab.address('B')}', 9))"
        done = t.lab.run("A", "env", *(f"{k}={v}" for k, v in env.items()), PYTHON, "-c", code)
        lines = [row for row in done.stderr.splitlines() if row.startswith("Vireo")]
        t.expect(0 < len(lines) <= most and any("verifier refuses" in row for row in lines), done.stderr)
        t.expect(("invalid bpf_context access" in done.stderr) == (level == "info"), done.stderr)


SHOWN = ("unshare", "-m", "sh", "-c", "mount -t tmpfs none /sys/class/net && mkdir -p /sys/class/net/vr0/device/infiniband && "
         'exec "$@"', "sh")  # sysfs shows an RDMA device beneath vr0


@suite.case("auto takes the RDMA device that sysfs shows beneath an interface")
def _(t: Test) -> None:
    status, report = examine(t, "auto", *SHOWN, options=("--try",))
    line = named(report["interfaces"], "vr0")
    t.expect(status == 0 and line["carried"] and line["mode"] == "mlx5", str(line))
    status, report = examine(t, "auto")
    line = named(report["interfaces"], "vr0")
    t.expect(status == 0 and line["mode"].startswith("native"), f"no sysfs, so it is AF_XDP's: {line}")
    t.expect([d["name"] for d in report["rdma"]] == ["softnic0"] and not named(report["rdma"][0]["checks"], "queue pair"),
             f"listed, but not tried: {report['rdma']}")


@suite.case("auto with the RDMA device alone allowed: AF_XDP's rights are not needed")
def _(t: Test) -> None:
    shown = (*without("bpf", "perfmon"), "unshare", "-m", "sh", "-c", "mount -t tmpfs none /sys/class/net && "
             'mkdir -p /sys/class/net/vr0/device/infiniband && exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$@"', "sh")
    status, report = examine(t, "auto", *shown)
    t.expect(named(report["checks"], "rights")["level"] == "fail", str(report["checks"]))
    line = named(report["interfaces"], "vr0")
    t.expect(status == 0 and line["carried"] and line["mode"] == "mlx5", str(line))


@suite.case("several rings are asked for: a note where there can be one only")
def _(t: Test) -> None:
    def told(device: str, logic: str) -> bool:
        _, report = examine(t, device, "env", f"VMA_RING_ALLOCATION_LOGIC_RX={logic}")
        return any("only verbs and mlx5 have several rings" in n for n in named(report["interfaces"], "vr0")["notes"])
    t.expect(told("xdp", "thread"), "AF_XDP, a ring for each thread: no note")
    t.expect(not told("xdp", "interface"), "AF_XDP, nothing asked for: a note")
    t.expect(not told("verbs", "thread"), "verbs, a ring for each thread: a note")


def refused(what: str, check: str, said: str, remedy: str, reason: str) -> None:
    """A device that lacks something needed: cause and remedy by verbs, AF_XDP and a note by auto."""
    @suite.case(f"a device without {what}")
    def _(t: Test) -> None:
        for device in ("verbs", "mlx5"):
            status, report = examine(t, device, lacks=what)
            found = named(report["rdma"][0]["checks"], check)
            t.expect(found["level"] == "fail" and said in found["text"] and remedy in found["remedy"], str(found))
            line = named(report["interfaces"], "vr0")
            t.expect(status == 1 and line["reason"] == reason and remedy in line["remedy"], str(line))
        status, report = examine(t, "auto", *SHOWN, lacks=what, options=("--try",))
        found = named(report["rdma"][0]["checks"], check)
        t.expect(found["level"] == "note" and remedy in found["remedy"], str(found))
        line = named(report["interfaces"], "vr0")
        t.expect(status == 0 and line["tried"] and line["mode"].startswith("native"), f"AF_XDP takes its place: {line}")
        t.expect([n for n in line["notes"] if n.startswith("not by its RDMA device")], str(line["notes"]))


refused("pairs", "queue pair", "Operation not supported", "VIREO_DEVICE=xdp", "device")
refused("rules", "flow rules", "5-tuple refused", "flow steering", "device")
refused("rights", "queue pair", "Operation not permitted", "CAP_NET_RAW", "rights")
refused("memory", "queue pair", "Cannot allocate memory", "ulimit -l", "memory")


@suite.case("what a device is done without: checksums, TSO, inline data, rules of IPv6")
def _(t: Test) -> None:
    for device in ("verbs", "mlx5"):
        status, report = examine(t, device, lacks="checksums,tso,inline,ipv6" if device == "verbs" else "checksums,tso,ipv6")
        t.expect(status == 0 and named(report["interfaces"], "vr0")["mode"] == device, str(report["interfaces"]))
        notes = {c["name"]: c["text"] for c in report["rdma"][0]["checks"] if c["level"] == "note"}
        wanted = {"checksums", "segmentation", "flow rules"} | ({"inline data"} if device == "verbs" else set())
        t.expect(set(notes) == wanted, str(notes))
        t.expect("IPv6" in notes["flow rules"] and "51 bytes" in notes.get("inline data", "51 bytes"), str(notes))


@suite.case("no device belongs to the interface")
def _(t: Test) -> None:
    status, report = examine(t, "verbs", wire=WIRE.replace("vr0", "lo"))
    line = named(report["interfaces"], "vr0")
    t.expect(status == 1 and line["reason"] == "device" and line["detail"] == "no RDMA device belongs to it" and line["remedy"], str(line))


@suite.case("without CAP_NET_RAW")
def _(t: Test) -> None:
    status, report = examine(t, "verbs", *without("net_raw"))
    check = named(report["checks"], "rights")
    t.expect(status == 1 and check["level"] == "fail" and check["text"] == "CAP_NET_RAW missing" and check["remedy"], str(check))
    t.expect(named(report["interfaces"], "vr0")["reason"] == "rights", str(report["interfaces"]))
    status, report = examine(t, "verbs", *without("bpf", "sys_admin", "perfmon", "net_admin"))
    t.expect(status == 0, f"an RDMA device asks for no other right: {report['checks']}")


@suite.case("locked memory of 64 KiB")
def _(t: Test) -> None:
    limit = ("prlimit", "--memlock=65536:65536", *without("ipc_lock", "sys_resource"))
    status, report = examine(t, "verbs", *limit)
    check = named(report["checks"], "locked memory")
    t.expect(status == 1 and check["level"] == "fail" and "limit 64 KiB" in check["text"] and "ulimit" in check["remedy"], str(check))


@suite.case("a host without libibverbs")
def _(t: Test) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        listed = subprocess.run(["ldd", str(DOCTOR)], capture_output=True, text=True, check=True).stdout
        for path in {DOCTOR, Path("/usr/bin/env"), *(Path(w) for w in listed.split() if w.startswith("/"))}:
            target = root / str(path).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        t.expect(not list(root.rglob("libibverbs*")), "the tool itself is linked with libibverbs")
        status, report = examine(t, "verbs", "chroot", str(root), wire="")
        check = named(report["checks"], "libibverbs")
        t.expect(status == 1 and check["level"] == "fail", str(check))
        t.expect("libibverbs.so.1: cannot open shared object file" in check["text"], str(check))
        t.expect("apt-get install" in check["remedy"], str(check))
        t.expect(report["rdma"] == [] and named(report["interfaces"], "vr0")["reason"] == "device", str(report))
        status, report = examine(t, "auto", "chroot", str(root), wire="")
        check = named(report["checks"], "libibverbs")
        t.expect(check["level"] == "ok" and check["text"] == "not needed: there is no RDMA device", str(check))
        t.expect(status == 0 and named(report["interfaces"], "vr0")["carried"], str(report["interfaces"]))


if __name__ == "__main__":
    suite.main()
