"""Slowdown by size of message: how much longer messages took under load than the least that their size needs unloaded."""
from __future__ import annotations

import statistics

from . import stats
from .results import Results

CASE, UNLOADED = "messages", "unloaded"


def _by_class(results: Results, point: str, contestant: str, figure: str) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for row in stats.valid(results.of(CASE, point, contestant)):
        for size, summary in row.get("classes", {}).items():
            found.setdefault(int(size), []).append(summary[figure])
    return {size: statistics.median(values) for size, values in sorted(found.items())}


def baseline(results: Results, wire: str) -> dict[int, float]:
    """By class of size: the least of the contestants' unloaded medians on that wire, in microseconds."""
    least: dict[int, float] = {}
    for name, contestant in results.contestants.items():
        if contestant.wire == wire:
            for size, value in _by_class(results, UNLOADED, name, "median_us").items():
                least[size] = min(value, least.get(size, value))
    return least


def slowdowns(results: Results, workload: str, contestant: str, figure: str) -> dict[int, float]:
    """By class of size, for classes that were measured unloaded too."""
    least = baseline(results, results.contestants[contestant].wire)
    return {size: value / least[size] for size, value in _by_class(results, workload, contestant, figure).items() if size in least}
