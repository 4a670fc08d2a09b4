"""sockperf's command lines and what it prints."""
from __future__ import annotations

import re

from labkit.process import Failed

PERCENTILES = {"median": "50.000", "p99": "99.000", "p99.9": "99.900"}
FAULTS = ("dropped", "duplicated", "out-of-order")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def number(pattern: str, text: str, what: str) -> float:
    found = re.search(pattern, text)
    if not found:
        raise Failed(f"sockperf printed no {what}:\n{text[-1500:]}")
    return float(found[1])


def common(protocol: str, address: str, port: int) -> list[str]:
    return [*(["--tcp"] if protocol == "tcp" else []), "-i", address, "-p", str(port)]


def latency(client: str) -> dict[str, float]:
    """Round trips of a ping-pong in microseconds, and what went wrong."""
    row = {name: number(rf"percentile {re.escape(p)} =\s+([\d.]+)", client, f"percentile {p}") for name, p in PERCENTILES.items()}
    row["messages"] = number(r"\[Valid Duration\].*ReceivedMessages=(\d+)", client, "message count")
    for what in FAULTS:
        row[what] = number(rf"# {what} messages = (\d+)", client, f"count of {what} messages")
    return row


def throughput(client: str, server: str, size: int) -> dict[str, float]:
    """What arrived, in Mbit/s of payload: the server's count, for a datagram sent is not yet one received."""
    sent = number(r"Total of (\d+) messages sent", client, "count of sent messages")
    took = number(r"messages sent in ([\d.]+) sec", client, "duration")
    arrived = number(r"Total (\d+) messages received", server, "count of received messages")
    return {"Mbit/s": min(arrived, sent) * size * 8 / took / 1e6, "messages/s": min(arrived, sent) / took,
            "arrived %": min(100.0, 100 * arrived / sent)}
