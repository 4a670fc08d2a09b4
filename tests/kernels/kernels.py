#!/usr/bin/python3
"""The kernels and drivers that users have: boots a packaged kernel in an emulator and tests what is built there.

  tests/kernels/kernels.py                     all machines, two beside each other
  tests/kernels/kernels.py --only 'virtio'     the steps whose title or script matches, and the machines that have them
  tests/kernels/kernels.py --list              machines and steps

Needs tools/setup --kernels, and a build in build/release. Output: build/check/kernels/MACHINE/.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tools")]
import machine  # noqa: E402
from labkit.build import ROOT, build_dir  # noqa: E402
from labkit.build import program as built  # noqa: E402

PROGRAMS = ("tests/integrity/transfer.cpp", "tests/integrity/pingpong.cpp")  # of the suites
OLDEST = "6.1"  # that docs/BEHAVIOUR.md claims: Debian 12's


@dataclasses.dataclass
class Machine:
    name: str
    steps: list[dict]
    modules: tuple[str, ...] = ()
    hubs: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # device of QEMU: names of its NICs, on one wire
    taps: list[str] = dataclasses.field(default_factory=list)  # virtio NICs of two queues, on a bridge of this machine


def suite(title: str, script: str, only: str = "", *options: str) -> dict:
    return {"title": title, "suite": f"tests/{script}", "options": [*(("--only", only) if only else ()), *options]}


def program(title: str, path: str, only: str = "*") -> dict:
    """A program of GoogleTest's, of the build."""
    return {"title": title, "program": f"tests/{path}", "options": [f"--gtest_filter={only}"]}


def script(step: dict) -> str:
    return step.get("suite") or step["program"]


def wires(title: str, *options: str, only: str = "to vireo|to kernel|doctor") -> dict:
    return suite(title, "kernels/wires.py", only, "--keep-lab", *options)


# The longest first: two run at a time.
MACHINES = [
    Machine("device", modules=("veth",), steps=[
        program("AF_XDP", "device/xdp/xdp_steering", "Native/*"),
        program("AF_XDP", "device/xdp/xdp_fragments", "Native/*"),
        program("AF_XDP", "device/xdp/xdp_steering_group", "SteeringGroup.*:SteeringShared.*:SteeringDeaths.*:Ends/Copies.*"),
        program("AF_XDP", "device/xdp/xdp_sharing"),
        # Packets of several frames are Linux 6.6's, UDP_SEGMENT by a packet socket 6.2's.
        program("AF_XDP", "device/xdp/xdp_traffic", "-*PacketsOfSeveralFrames*:*ChainedFrames*"),
        program("AF_XDP", "device/xdp/xdp_unfinished", "-*JoinedDatagrams*"),
        program("AF_XDP", "device/contract_xdp", "*/auto_mode"),
    ]),
    Machine("veth", modules=("veth", "8021q", "tls"), steps=[
        wires("veth"),
        # This machine's own kernel may have no VLANs.
        suite("veth", "interop/own_traffic.py", "VLAN"),
        suite("veth", "interop/fragments.py", "in order.*on vireo"),
        suite("veth", "interop/hand_over.py",
              "passed to another process, IPv4|forks for each connection, IPv6|small the buffers, IPv4|without the right"),
        suite("veth", "interop/rights.py", "without CAP|an ordinary user|all rights"),
        suite("veth", "interop/kill.py", "client again and again, vireo to vireo|waiting server, kernel to vireo"),
        suite("veth", "interop/stat.py"),
        # This machine's own kernel may have no TLS.
        suite("veth", "interop/batch.py", "TLS|UDP_SEGMENT: (three|one)|UDP_GRO: equal|recvmmsg: (waits|an error)|sendmmsg: an"),
    ]),
    Machine("nics", modules=("virtio_net", "e1000e", "8021q"), hubs={"virtio-net-pci": ["va", "vb"], "e1000e": ["ea", "eb"]},
            taps=["qa", "qb"], steps=[
        wires("virtio_net", "--nics", "va,vb"),
        wires("virtio_net, two queues", "--nics", "qa,qb"),
        wires("e1000e", "--nics", "ea,eb"),
        wires("VLAN on virtio_net", "--nics", "va,vb", "--vlan", "7"),
        wires("VLAN on e1000e", "--nics", "ea,eb", "--vlan", "7"),
        suite("e1000e", "interop/own_traffic.py", "VLAN.*on vireo", "--nics", "ea,eb"),
    ]),
    Machine("uppers", modules=("virtio_net", "bonding", "macvlan", "ipvlan"), hubs={"virtio-net-pci": ["va", "vb", "va2", "vb2"]}, steps=[
        wires("bond of virtio_net", "--nics", "va+va2,vb+vb2", only=""),
        wires("macvlan on virtio_net", "--nics", "va,vb", "--upper", "macvlan", only=""),
        wires("ipvlan on virtio_net", "--nics", "va,vb", "--upper", "ipvlan", only=""),
    ]),
]


@contextlib.contextmanager
def bridge(taps: list[str]):
    """A network namespace in which the taps are ports of one bridge. @return what to start QEMU behind."""
    if not taps:
        yield ()
        return
    ns = f"vr-kernels-{os.getpid()}"
    ip = lambda *words: subprocess.run(["ip", "-n", ns, *words], check=True)  # noqa: E731
    subprocess.run(["ip", "netns", "add", ns], check=True)
    try:
        ip("link", "add", "br0", "type", "bridge")
        for tap in taps:
            ip("tuntap", "add", tap, "mode", "tap", "multi_queue", "vnet_hdr")
            ip("link", "set", tap, "master", "br0", "up")
        ip("link", "set", "br0", "up")
        yield ("ip", "netns", "exec", ns)
    finally:
        subprocess.run(["ip", "netns", "del", ns])


def devices(m: Machine) -> tuple[list[str], dict[str, str]]:
    """Options of QEMU, and the NICs by their addresses."""
    options, nics = ["-nic", "none"], {}

    def add(name: str, device: str, netdev: str) -> None:
        mac = f"52:54:00:00:00:{len(nics) + 1:02x}"
        nics[mac] = name
        options.extend(("-netdev", f"{netdev},id={name}", "-device", f"{device},netdev={name},mac={mac},romfile="))

    for number, (model, names) in enumerate(m.hubs.items()):
        for name in names:
            add(name, model, f"hubport,hubid={number}")
    for name in m.taps:
        add(name, "virtio-net-pci,mq=on,vectors=6", f"tap,ifname={name},queues=2,script=no,downscript=no,vhost=off")
    return options, nics


def boot(m: Machine, kernel: str, logs: Path, seconds: float) -> list[dict]:
    """@return its cases, and one more if it did not run to its end."""
    said = logs / m.name
    shutil.rmtree(said, ignore_errors=True)
    said.mkdir(parents=True)
    options, nics = devices(m)
    (said / "plan.json").write_text(json.dumps({"tree": str(ROOT), "build": str(build_dir()), "modules": m.modules, "nics": nics, "steps": m.steps}))
    started = time.monotonic()
    try:
        with bridge(m.taps) as prefix:
            status = machine.run(kernel, ["/usr/bin/python3", str(HERE / "guest.py")], said, seconds, options, prefix)
        error = "" if status == 0 else f"status {status} after {time.monotonic() - started:.0f} s\n"
    except (OSError, subprocess.CalledProcessError) as failure:
        error = f"{failure}\n"
    console = (said / "console").read_text(errors="replace") if (said / "console").exists() else ""
    results = said / "cases.jsonl"
    cases = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    return cases + [{"case": f"the machine `{m.name}` runs to its end", "passed": not error, "error": error + console[-3000:] if error else "",
                     "notes": [f"{time.monotonic() - started:.0f} s"]}]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="machines and steps")
    parser.add_argument("--only", default="", metavar="REGEX", help="steps that match")
    parser.add_argument("--kernel", default=OLDEST, metavar="VERSION", help=f"of those that are installed (default {OLDEST})")
    parser.add_argument("--results", type=Path, metavar="FILE", help="append one JSON line a case")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "check" / "kernels", metavar="DIR")
    parser.add_argument("--seconds", type=float, default=1200, help="for each machine")
    options = parser.parse_args()
    machines = []
    for m in MACHINES:
        steps = [s for s in m.steps if re.search(options.only, f"{m.name}: {s['title']}: {script(s)}")]
        if steps:
            machines.append(dataclasses.replace(m, steps=steps))
    if options.list:
        print("\n".join(f"{m.name}: {s['title']}: {script(s)}" for m in machines for s in m.steps))
        return 0
    kernel = machine.packaged_kernel(options.kernel)
    for source in PROGRAMS:
        built(source)  # in the emulator a compiler takes minutes
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for done in concurrent.futures.as_completed([pool.submit(boot, m, kernel, options.logs.resolve(), options.seconds) for m in machines]):
            for row in done.result():
                failed += not row["passed"]
                print(f"{'ok  ' if row['passed'] else 'FAIL'} {options.kernel}: {row['case']}" + (f"  [{'; '.join(row['notes'])}]" if row["notes"] else ""), flush=True)
                if not row["passed"]:
                    print("    " + row["error"].strip().replace("\n", "\n    "), flush=True)
                if options.results:
                    with open(options.results, "a") as out:
                        out.write(json.dumps({"suite": f"kernels {options.kernel}", **row}) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except machine.NoMachine as missing:
        sys.exit(f"kernels: {missing}")
