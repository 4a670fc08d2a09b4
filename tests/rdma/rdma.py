#!/usr/bin/python3
"""Programs of rdma-core's users, as their package or the manual pages have them, on the RDMA device in software."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.build import build_dir  # noqa: E402
from labkit.process import Process, wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

suite = Suite("rdma")
SOFTNIC = build_dir() / "softnic"
RAW_PACKET = build_dir() / "tests" / "rdma" / "raw_packet"
INLINE = 4 / 9  # of raw_packet's frames are short enough
KERNEL = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    data, peer = s.recvfrom(2048)
    s.sendto(b"kernel " + data if len(sys.argv) > 2 else data, peer)
"""
ASK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
s.bind(("0.0.0.0", int(sys.argv[1])))
s.sendto(b"hello", (sys.argv[2], int(sys.argv[3])))
print(s.recv(2048).decode())
"""


def start(t: Test, host: str, wire: str, *command: str, name: str) -> Process:
    """A program linked with libibverbs; which library that is, is the environment's choice."""
    return t.start(host, "env", f"LD_LIBRARY_PATH={SOFTNIC}", f"SOFTNIC_WIRE={wire}", *command, name=name)


def await_ready(t: Test, process: Process) -> None:
    t.expect(wait_until(lambda: "ready" in process.stdout or not process.running, 10, 0.02) and process.running,
             f"not ready: {process.tail()}")


def counts(process: Process) -> dict:
    return json.loads(process.stdout.splitlines()[-1])


def expect_whole(t: Test, process: Process, frames: int) -> dict:
    """Every frame came, some inline and some gathered, all with checksums verified, and the 64 receives came back."""
    process.wait(40)
    c = counts(process)
    t.expect(c["frames"] == frames and c["good_sums"] == frames and c["flushed"] == 64, str(c))
    t.expect(abs(c["inlined"] - INLINE * frames) < 9 and c["inlined"] + c["gathered"] == frames, str(c))
    t.note(json.dumps(c))
    return c


@suite.case("the example is linked with libibverbs, and with nothing of ours", lab=None)
def _(t: Test) -> None:
    t.expect(RAW_PACKET.exists(), f"{RAW_PACKET} is missing: build it first")
    done = t.start("", "readelf", "-d", str(RAW_PACKET), name="readelf")
    done.wait(10)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout))
    t.expect("libibverbs.so.1" in needed, str(needed))
    t.expect(not [n for n in needed if not re.match(r"lib(ibverbs|c|asan|tsan|ubsan|gcc_s|m|stdc\+\+)\.", n)], str(needed))
    source = (Path(__file__).parent / "raw_packet.c").read_text()
    t.expect(not re.search(r'#include "', source), "a header of the project")


@suite.case("frames there and back between two processes on a wire in shared memory", lab=None)
def _(t: Test) -> None:
    wire = f"raw{os.getpid()}"
    a, b = ("02:00:00:00:00:0a", "10.9.0.1", "7001"), ("02:00:00:00:00:0b", "10.9.0.2", "7002")
    frames = 2000 if t.options.quick else 20000
    answering = start(t, "", wire, str(RAW_PACKET), "echo", *b, *a, str(frames), name="echo")
    await_ready(t, answering)
    asking = start(t, "", wire, str(RAW_PACKET), "ping", *a, *b, str(frames), name="ping")
    expect_whole(t, asking, frames)
    expect_whole(t, answering, frames)


def mac(t: Test, host: str) -> str:
    return t.lab.run(host, "cat", f"/sys/class/net/{t.lab.device}/address").stdout.strip()


def place(t: Test, host: str, port: int) -> tuple[str, str, str]:
    return mac(t, host), t.lab.address(host), str(port)


@suite.case("the same between two hosts, whose interfaces are the ports")
def _(t: Test) -> None:
    a, b, frames = place(t, "A", 7001), place(t, "B", 7002), 2000
    answering = start(t, "B", "xdp@vr0", str(RAW_PACKET), "echo", *b, *a, str(frames), name="echo")
    await_ready(t, answering)
    asking = start(t, "A", "xdp@vr0", str(RAW_PACKET), "ping", *a, *b, str(frames), name="ping")
    expect_whole(t, asking, frames)
    expect_whole(t, answering, frames)


@suite.case("a host on the kernel answers, its checksums and ours agree")
def _(t: Test) -> None:
    a, b, frames = place(t, "A", 7001), place(t, "B", 7002), 2000
    answering = t.start("B", PYTHON, "-c", KERNEL, "7002", name="kernel")
    await_ready(t, answering)
    asking = start(t, "A", "xdp@vr0", str(RAW_PACKET), "ping", *a, *b, str(frames), name="ping")
    expect_whole(t, asking, frames)


@suite.case("a rule by 5-tuple takes its flow alone: the port's other peers stay with the kernel")
def _(t: Test) -> None:
    a, b = place(t, "A", 7001), place(t, "B", 7002)
    # Both would answer at port 7001 of A: the kernel's program says that it does.
    kernel = t.start("A", PYTHON, "-c", KERNEL, "7001", "named", name="kernel")
    await_ready(t, kernel)
    ours = start(t, "A", "xdp@vr0", str(RAW_PACKET), "echo", *a, *b, "1", name="echo")
    await_ready(t, ours)

    def answer(port: int) -> str:
        asking = t.start("B", PYTHON, "-c", ASK, str(port), a[1], a[2], name=f"ask-{port}")
        asking.wait(10)
        return asking.stdout.strip()

    t.expect(answer(7003) == "kernel hello", "another peer's datagram did not reach the kernel")
    t.expect(ours.running, "it took a frame of another flow")
    t.expect(answer(7002) == "hello", "the flow of the rule did not come to its queue pair")
    ours.wait(10)
    t.expect(counts(ours)["frames"] == 1, ours.stdout)
    t.expect(answer(7002) == "kernel hello", "after the rule has ended, the flow is the kernel's")


@suite.case("ibv_devices and ibv_devinfo of ibverbs-utils")
def _(t: Test) -> None:
    listed = start(t, "A", "xdp@vr0,devinfo@lo", "ibv_devices", name="devices")
    listed.wait(10)
    rows = re.findall(r"^\s+(\S+)\s+([0-9a-f]{16})$", listed.stdout, re.M)
    t.expect([r[0] for r in rows] == ["softnic0", "softnic1"], listed.stdout)
    eui = mac(t, "A").split(":")  # RFC 4291 appendix A
    eui = f"{int(eui[0], 16) ^ 2:02x}{eui[1]}{eui[2]}fffe{eui[3]}{eui[4]}{eui[5]}"
    t.expect(rows[0][1] == eui, f"{rows[0][1]} is not {eui}")

    info = start(t, "A", "xdp@vr0", "ibv_devinfo", "-v", name="devinfo")
    info.wait(10)
    t.expect(info.stderr == "", info.stderr)
    facts = dict(re.findall(r"^\s+(\w+):\s+(\S.*?)\s*$", info.stdout, re.M))
    wanted = {"transport": "InfiniBand (0)", "fw_ver": "1.0.0", "phys_port_cnt": "1", "link_layer": "Ethernet",
              "state": "PORT_ACTIVE (4)", "max_qp_wr": "32768", "port": "1", "max_mtu": "4096 (5)"}
    t.expect(wanted.items() <= facts.items(), f"{wanted} is not within {facts}")
    for word in ("RAW_IP_CSUM", "MANAGED_FLOW_STEERING", "max_tso", "supported_qp", "RAW_PACKET", "GID[  0]"):
        t.expect(word in info.stdout, f"no {word} in\n{info.stdout}")


# What libvma links with (nm -u of its objects), by library.
LINKED = {
    "libibverbs.so.1": ("ibv_", """ack_async_event ack_cq_events alloc_pd close_device create_ah create_comp_channel create_cq create_qp
        dealloc_pd dereg_mr destroy_ah destroy_comp_channel destroy_cq destroy_qp fork_init free_device_list get_async_event get_cq_event
        get_device_list modify_qp open_device query_device query_pkey query_port query_qp reg_mr reg_mr_iova2"""),
    "libmlx5.so.1": ("mlx5dv_", """devx_alloc_uar devx_free_uar get_clock_info init_obj modify_qp_lag_port open_device query_device
        query_qp_lag_port"""),
    "librdmacm.so.1": ("rdma_", """ack_cm_event bind_addr create_event_channel create_id destroy_event_channel destroy_id event_str
        get_cm_event resolve_addr"""),
}
# Of the installed library, but not of softnic: for rdma-core's own providers and managers.
PRIVATE = re.compile(r"ibv_copy_|ibv_register_driver|verbs_|ibv_cmd_|_verbs_|execute_|ib_|ibv_query_gid_type|__ioctl|"
                     r"_ibv_|setenv$|.*_PRIVATE_")


def exported(library: str) -> set[str]:
    """name@@VERSION, the versions that a program linked today asks for."""
    listed = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], capture_output=True, text=True, check=True)
    return {w for line in listed.stdout.splitlines() if "@@" in (w := line.split()[-1])}


def installed(name: str) -> str:
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return next(line.split()[-1] for line in listed.splitlines() if line.split()[:1] == [name])


@suite.case("softnic exports what libvma links with, and every public call of the installed libraries", lab=None)
def _(t: Test) -> None:
    for library, (prefix, words) in LINKED.items():
        theirs, ours = exported(installed(library)), exported(str(SOFTNIC / library))
        wanted = {s for s in theirs if s.split("@@")[0] in {prefix + w for w in words.split()}}
        t.expect(len(wanted) == len(words.split()), f"{library}: the installed one lacks some: {sorted(wanted)}")
        t.expect(wanted <= ours, f"{library}: missing {sorted(wanted - ours)}")
        if library == "librdmacm.so.1":  # connections are not there
            continue
        public = {s for s in theirs if not PRIVATE.match(s)}
        t.expect(public <= ours, f"{library}: missing {sorted(public - ours)}")
        t.note(f"{library}: {len(public)} public calls; left out {sorted(s for s in theirs - ours)[:8]}")


if __name__ == "__main__":
    suite.main()
