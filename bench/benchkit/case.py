"""What a case is: a measurement at one or more points, by some contestants, and how the report shows it."""
from __future__ import annotations

import dataclasses
import re
from typing import Callable

from .histogram import Histogram


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure of a round: how it is called, its unit, and how many digits a person wants."""

    key: str
    label: str
    unit: str
    digits: int = 2


@dataclasses.dataclass(frozen=True)
class Point:
    """One line of a case."""

    name: str
    x: float = 0.0  # where a plot puts it
    values: tuple[tuple[str, object], ...] = ()  # what the case's function wants to know
    only: tuple[str, ...] = ()  # contestants that it is for; empty: all of the case
    quick: bool = True  # also in --quick
    most_rounds: int = 0  # fewer than the other points; 0: as many

    def __getitem__(self, name: str):
        return dict(self.values)[name]


@dataclasses.dataclass
class Round:
    """What one run gave."""

    figures: dict
    distributions: dict[str, Histogram] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Case:
    name: str
    title: str
    text: str  # for the report: what is measured
    figures: tuple[Figure, ...]  # the first is the one that ratios and plots are of
    less_is_better: bool
    contestants: tuple[str, ...]
    points: tuple[Point, ...]
    run: Callable  # (hosts, contestant, point, seconds) -> Round
    plot: str = "bars"  # "bars", "lines" over x, "distribution", "slowdown"
    x_title: str = ""
    y_scale: str = "log"
    seconds: float = 1.0  # of measuring in each run, of a whole run of the suite
    takes: float = 0.6  # more seconds that a run takes
    preload: bool = True  # other libraries can take part

    def contestants_of(self, point: Point, others: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the case, and the other libraries beside Vireo."""
        names = self.contestants + (others if self.preload and "vireo" in self.contestants else ())
        return tuple(n for n in names if not point.only or n in point.only or (n in others and "vireo" in point.only))


def selected(cases: list[Case], pattern: str) -> list[Case]:
    """Cases whose name, or some of whose points as `CASE/POINT`, match; with those points alone."""
    if not pattern:
        return cases
    found = []
    for case in cases:
        points = case.points if re.search(pattern, case.name) else tuple(
            p for p in case.points if re.search(pattern, f"{case.name}/{p.name}"))
        if points:
            found.append(dataclasses.replace(case, points=points))
    return found
