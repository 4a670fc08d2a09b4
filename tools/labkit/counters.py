"""Who carried the traffic: the kernel's protocol counters of a namespace, and Vireo's own.

Proof of carriage needs both: what Vireo says it carried, and that the kernel's TCP and UDP counters stood still.
"""
from __future__ import annotations

import json
import subprocess
from pathlib import Path

from .build import build_dir
from .lab import Lab

_KERNEL = {"tcp_in": "Tcp.InSegs", "tcp_out": "Tcp.OutSegs", "udp_in": "Udp.InDatagrams",
           "udp_out": "Udp.OutDatagrams", "udp6_in": "Udp6InDatagrams", "udp6_out": "Udp6OutDatagrams",
           "tcp_rst_out": "Tcp.OutRsts", "tcp_retrans": "Tcp.RetransSegs",
           "tcp_timeouts": "TcpExt.TCPTimeouts", "tcp_timeouts_undone": "TcpExt.TCPLossUndo",
           "tcp_retrans_surplus": "TcpExt.TCPDSACKRecvSegs", "udp_no_port": "Udp.NoPorts",
           "tcp_csum_errors": "Tcp.InCsumErrors", "tcp_active_opens": "Tcp.ActiveOpens",
           "tcp_passive_opens": "Tcp.PassiveOpens", "tcp_data_out": "TcpExt.TCPOrigDataSent",
           "fast_active": "TcpExt.TCPFastOpenActive", "fast_opens": "TcpExt.TCPFastOpenPassive",
           "fast_opens_old_key": "TcpExt.TCPFastOpenPassiveAltKey",
           "fast_opens_refused": "TcpExt.TCPFastOpenPassiveFail"}


def kernel_counters(lab: Lab, host: str) -> dict[str, int]:
    """The host's counters, by the short names above. TCP's count both families, as the kernel keeps them."""
    text = lab.run(host, "cat", "/proc/net/snmp", "/proc/net/netstat", "/proc/net/snmp6", check=True).stdout
    values: dict[str, int] = {}
    heads: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = line.split()
        if words[0].endswith(":"):
            group = words[0][:-1]
            if group not in heads:
                heads[group] = words[1:]
            else:
                values.update({f"{group}.{k}": int(v) for k, v in zip(heads[group], words[1:])})
        else:
            values[words[0]] = int(words[1])
    return {short: values.get(name, 0) for short, name in _KERNEL.items()}


def delta(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in before}


def parse_processes(text: str) -> list[dict]:
    """The processes in vireo-stat's JSON, or in a file of such lines (several processes may share one)."""
    try:
        return json.loads(text).get("processes", [])
    except ValueError:
        pass
    found: dict[int, dict] = {}
    for line in text.splitlines():
        try:
            for process in json.loads(line).get("processes", []):
                found[process["pid"]] = process  # the last line of a process is its final one
        except (ValueError, KeyError, AttributeError):
            continue
    return list(found.values())


def live(pid: int | None = None) -> list[dict]:
    """What vireo-stat sees now, of one process or of all; empty without the tool."""
    tool = build_dir() / "vireo-stat"
    if not tool.exists():
        return []
    done = subprocess.run([str(tool), "--json"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    return [p for p in parse_processes(done.stdout) if pid in (None, p.get("pid"))] if done.returncode == 0 else []


def final(path: Path) -> list[dict]:
    """What the library wrote into VMA_STATS_FILE when the process ended."""
    return parse_processes(path.read_text(errors="replace")) if path.exists() else []


def engine_packets(processes: list[dict]) -> tuple[int, int]:
    """Received and sent by Vireo's engines, all processes together."""
    engines = [p.get("engine") or {} for p in processes]
    return sum(e.get("rx_packets", 0) for e in engines), sum(e.get("tx_packets", 0) for e in engines)


def retransmits(processes: list[dict]) -> int:
    """Segments that Vireo's engines sent again, all processes together."""
    return sum((p.get("engine") or {}).get("retransmits", 0) for p in processes)


def not_carried(processes: list[dict]) -> list[str]:
    """Sockets with a peer that the kernel carries, and why; loopback is the kernel's by right."""
    rows = []
    for process in processes:
        for s in process.get("sockets", []):
            remote = s.get("remote") or ""
            loopback = remote.startswith(("127.", "[::1]", "::1"))
            if not s.get("carried") and remote and not loopback and not remote.startswith(("0.0.0.0", "[::]:", ":::")):
                rows.append(f"{process.get('name')} fd {s.get('fd')} {s.get('proto')} to {remote}: {s.get('reason')}")
    return rows
