"""All that was measured: rounds by case, point and contestant, in the order they were run."""
from __future__ import annotations

import dataclasses

from . import stats
from .case import Case, Point, Round
from .contestants import Contestant
from .histogram import Histogram


@dataclasses.dataclass
class Results:
    cases: list[Case]
    contestants: dict[str, Contestant]
    others: tuple[str, ...] = ()  # names of --preload
    about: dict = dataclasses.field(default_factory=dict)  # machine and options
    rounds: dict[tuple[str, str, str], list[dict]] = dataclasses.field(default_factory=dict)
    distributions: dict[tuple[str, str, str], dict[str, Histogram]] = dataclasses.field(default_factory=dict)
    _doubtful: dict[tuple[str, str, str], dict[str, Histogram]] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)  # case and point: why

    def add(self, case: Case, point: Point, contestant: str, row: Round) -> None:
        key = (case.name, point.name, contestant)
        self.rounds.setdefault(key, []).append(row.figures)
        kept = (self._doubtful if row.figures.get("discarded") else self.distributions).setdefault(key, {})
        for name, histogram in row.distributions.items():
            kept[name] = kept.get(name, Histogram()) + histogram

    def distribution(self, case: str, point: str, contestant: str) -> dict[str, Histogram]:
        """Of the rounds that count; of all, where none does."""
        key = (case, point, contestant)
        return self.distributions.get(key) or self._doubtful.get(key, {})

    def of(self, case: str, point: str, contestant: str) -> list[dict]:
        return self.rounds.get((case, point, contestant), [])

    def present(self, case: Case) -> list[str]:
        """Contestants of the case that have a round, in the case's order."""
        return [c for c in case.contestants_of(Point(""), self.others)
                if any(self.of(case.name, p.name, c) for p in case.points)]

    def ratio(self, case: str, point: str, above: str, below: str, figure: str) -> stats.Ratio | None:
        return stats.ratio(self.of(case, point, above), self.of(case, point, below), figure)

    def discarded(self) -> tuple[int, int]:
        """(rounds that do not count, all)"""
        every = [r for rows in self.rounds.values() for r in rows]
        return sum(bool(r.get("discarded")) for r in every), len(every)

    def json(self) -> dict:
        """Figures of every round, and each distribution as [share not above, us]."""
        cases = {}
        for case in self.cases:
            points = {}
            for point in case.points:
                points[point.name] = {c: {"rounds": self.of(case.name, point.name, c),
                                          "distribution": {name or "all": h.curve() for name, h in
                                                           self.distribution(case.name, point.name, c).items()}}
                                      for c in self.present(case) if self.of(case.name, point.name, c)}
            cases[case.name] = {"title": case.title, "text": case.text, "figures": {f.key: [f.label, f.unit] for f in case.figures}, "points": points}
        return {**self.about, "discarded": self.discarded()[0], "failures": self.failures, "skipped": self.skipped, "cases": cases}
