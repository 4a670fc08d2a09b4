"""Command lines of the bare device: bench/pingpong_device."""
from __future__ import annotations

import json
from pathlib import Path

from labkit.build import build_dir
from labkit.lab import Lab

FRAMES = {"tcp": 14 + 20 + 32, "udp": 14 + 20 + 8}  # Ethernet, IPv4, TCP with time stamps or UDP: add the message
SMALLEST = 47  # that the program can send


def program() -> Path:
    return build_dir() / "bench" / "pingpong_device"


def command(lab: Lab, host: str, role: str, *words: str, shm: str = "") -> list[str]:
    """For one host of a lab, as run inside its namespace."""
    if shm:
        return [str(program()), role, "--shm", shm, *words]
    peer = "B" if host == "A" else "A"
    mac = json.loads(lab.run(peer, "ip", "-j", "link", "show", lab.device).stdout)[0]["address"]
    return [str(program()), role, "--if", lab.device, "--local", lab.address(host), "--remote", lab.address(peer), "--peer-mac", mac, *words]
