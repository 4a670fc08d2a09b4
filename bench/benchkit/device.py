"""Command lines of the bare device: bench/pingpong_device, and on an RDMA device bench/bare_verbs; of lwIP on it: bench/lwip."""
from __future__ import annotations

import json
from pathlib import Path

from labkit.build import build_dir
from labkit.lab import DEVICE, Lab

FRAMES = {"tcp": 14 + 20 + 32, "udp": 14 + 20 + 8}  # Ethernet, IPv4, TCP with time stamps or UDP: add the message
SMALLEST = 47  # that the program can send


def program() -> Path:
    return build_dir() / "bench" / "pingpong_device"


def lwip_program() -> Path:
    return build_dir() / "bench" / "lwip" / "lwip_end"


def verbs_program() -> Path:
    return build_dir() / "bench" / "bare_verbs"


def softnic_wire(name: str) -> str:
    """SOFTNIC_WIRE for a device that is one end of a wire in shared memory and belongs to the lab's interface."""
    return f"{name}@{DEVICE}"


def _mac(lab: Lab, host: str) -> str:
    return json.loads(lab.run(host, "ip", "-j", "link", "show", lab.device).stdout)[0]["address"]


def verbs_command(lab: Lab, host: str, role: str, wire: str, *words: str) -> list[str]:
    """For one host of a lab, as run inside its namespace: on softnic, by library path alone."""
    peer = "B" if host == "A" else "A"
    return ["env", f"LD_LIBRARY_PATH={build_dir() / 'softnic'}", f"SOFTNIC_WIRE={softnic_wire(wire)}", str(verbs_program()), role,
            "--local", f"{_mac(lab, host)}/{lab.address(host)}", "--remote", f"{_mac(lab, peer)}/{lab.address(peer)}", *words]


def command(lab: Lab, host: str, role: str, *words: str, shm: str = "", run: Path | None = None) -> list[str]:
    """For one host of a lab, as run inside its namespace."""
    run = run or program()
    if shm:
        return [str(run), role, "--shm", shm, *words]
    peer = "B" if host == "A" else "A"
    return [str(run), role, "--if", lab.device, "--local", lab.address(host), "--remote", lab.address(peer), "--peer-mac", _mac(lab, peer), *words]
