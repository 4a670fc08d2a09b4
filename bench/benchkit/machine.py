"""What a report says of the machine it was made on."""
from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path

from labkit.build import ROOT


def _first(pattern: str, path: str) -> str:
    found = re.search(pattern, Path(path).read_text())
    return found[1].strip() if found else "unknown"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    except FileNotFoundError:
        return "unknown"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if done.returncode == 0 and lines else "unknown"


def facts() -> dict[str, str]:
    model, kib = _first(r"model name\s*: (.*)", "/proc/cpuinfo"), _first(r"MemTotal:\s+(\d+)", "/proc/meminfo")
    return {"Date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "Processor": f"{model}, {os.cpu_count()} cores",
            "Memory": f"{int(kib) / (1 << 20):.0f} GiB",
            "Kernel": platform.release(),
            "Wires": "veth between two network namespaces (AF_XDP for Vireo and the bare device); shm: a ring in shared memory",
            "Vireo": _output("git", "describe", "--always", "--dirty"),
            "sockperf": _output("sockperf", "--version")}
