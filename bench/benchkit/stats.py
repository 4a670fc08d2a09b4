"""Figures of rounds: medians, ratios round by round, and which rounds do not count. Pure functions."""
from __future__ import annotations

import dataclasses
import statistics

LEAST_SHARE = 0.9  # of its core that a side must have got


def percentile(values: list[float], part: float) -> float:
    """The smallest value that at least `part` (0 to 1) of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]


@dataclasses.dataclass
class CoreTime:
    """How one side's core was used during a run, in seconds."""

    wall: float
    run: float  # the side's main thread ran
    waited: float  # it could have run, and something else did
    own_waits: float = 0.0  # of that: its own other threads, and the kernel's network thread of the core
    stolen: float = 0.0  # the hypervisor took the core

    @property
    def share(self) -> float:
        """What it got of what it asked for, 0 to 1. One that sleeps asks for nothing meanwhile."""
        waited = max(0.0, self.waited - self.own_waits)
        wanted = self.run + waited
        got = self.run / wanted if wanted > 0 else 1.0
        return got * max(0.0, 1.0 - self.stolen / self.wall if self.wall > 0 else 1.0)


def counts(shares: list[float]) -> bool:
    """Whether a run of sides with these shares of their cores is a measurement."""
    return all(share >= LEAST_SHARE for share in shares)


def valid(rounds: list[dict]) -> list[dict]:
    """The rounds that count. Where none does, all of them: is_doubtful() says so beside every figure."""
    kept = [r for r in rounds if not r.get("discarded")]
    return kept or [r for r in rounds if not r.get("failed")]


def is_doubtful(rounds: list[dict]) -> bool:
    return bool(rounds) and all(r.get("discarded") for r in rounds)


def middle(rounds: list[dict], figure: str) -> float | None:
    """Median over the rounds that count; None where no round has the figure."""
    values = [r[figure] for r in valid(rounds) if r.get(figure) is not None]
    return statistics.median(values) if values else None


def spread(rounds: list[dict], figure: str) -> tuple[float, float] | None:
    values = [r[figure] for r in valid(rounds) if r.get(figure) is not None]
    return (min(values), max(values)) if values else None


@dataclasses.dataclass
class Ratio:
    """Quotients of one round each, so that what disturbed a round disturbed both."""

    median: float
    least: float
    most: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}..{self.most:.2f})"


def ratio(above: list[dict], below: list[dict], figure: str, figure_below: str | None = None) -> Ratio | None:
    """Round k of one by round k of the other, over the rounds that count for both (all, if none does)."""
    pairs = [(a, b) for a, b in zip(above, below) if not (a.get("discarded") or b.get("discarded"))] or list(zip(above, below))
    quotients = [a[figure] / b[figure_below or figure] for a, b in pairs
                 if a.get(figure) is not None and b.get(figure_below or figure)]
    if not quotients:
        return None
    return Ratio(statistics.median(quotients), min(quotients), max(quotients), len(quotients))
