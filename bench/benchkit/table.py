"""The report as text: a block for each case, a line for each figure of a point, a column for each contestant."""
from __future__ import annotations

from . import slowdown, stats, workloads
from .case import Case, Figure, Point
from .results import Results
from .shows import shows


def cell(rounds: list[dict], figure: Figure) -> str:
    """A median; in parentheses where no round had its cores; a dash where there is none."""
    middle = stats.middle(rounds, figure.key)
    if middle is None:
        return "-"
    text = f"{middle:.{figure.digits}f}"
    return f"({text})" if stats.is_doubtful(rounds) else text


def ratio_cell(results: Results, case: Case, point: Point, contestant: str) -> str:
    """A contestant's first figure by its rival's, round by round."""
    rival = results.contestants[contestant].rival
    if contestant == rival or contestant.startswith("vireo"):
        return ""
    got = results.ratio(case.name, point.name, contestant, rival, case.figures[0].key)
    if not got:
        return ""
    doubtful = any(stats.is_doubtful(results.of(case.name, point.name, c)) for c in (contestant, rival))
    return f"({got.median:.2f})" if doubtful else f"{got.median:.2f}"


def rows(results: Results, case: Case) -> list[tuple[str, list[str]]]:
    """(label, a cell for each contestant that is present)"""
    names = results.present(case)
    table = []
    for point in case.points:
        measured = [results.of(case.name, point.name, c) for c in names]
        if not any(measured):
            continue
        for figure in case.figures:
            cells = [cell(r, figure) for r in measured]
            if any(c != "-" for c in cells):
                unit = f", {figure.unit}" if figure.unit else ""
                table.append((f"{point.name}  {figure.label}{unit}", cells))
        ratios = [ratio_cell(results, case, point, c) for c in names]
        if any(ratios):
            table.append((f"{point.name}  {case.figures[0].label}, by Vireo's", ratios))
    return table


def text(results: Results) -> str:
    lines = []
    for case in results.cases:
        body = rows(results, case)
        if not body:
            continue
        labels = [results.contestants[c].label for c in results.present(case)]
        widths = [max(12, len(label) + 2) for label in labels]
        lines += ["", f"{case.title} ({case.name}; {'less' if case.less_is_better else 'more'} is better)",
                  " " * 44 + "".join(label.rjust(w) for label, w in zip(labels, widths))]
        lines += [f"  {label[:42]:42}" + "".join(c.rjust(w) for c, w in zip(cells, widths)) for label, cells in body]
        if case.name == slowdown.CASE:
            lines += slowdown_text(results)
    shown = shows(results)
    if shown:
        lines += ["", "What it shows (ratios of medians, round by round: median (least..most); in brackets where no round counts)"]
        for row in shown:
            verdict = "" if row.holds is None else "  holds" if row.holds else "  FALLS SHORT"
            lines.append(f"  {row.what:76}{row.value:>34}   {row.bound}{verdict}")
    gone, all_rounds = results.discarded()
    lines += ["", f"{all_rounds} rounds, {gone} discarded because a side got less than {stats.LEAST_SHARE:.0%} of its core"
              + ("; figures in parentheses have no other" if gone else "")]
    lines += [f"not measured: {what}: {why}" for what, why in results.skipped.items()]
    lines += [f"FAILED {failure}" for failure in results.failures]
    return "\n".join(lines)


def slowdown_text(results: Results) -> list[str]:
    lines = []
    for wire in ("veth", "shm"):
        if least := slowdown.baseline(results, wire):
            lines.append(f"  baseline on {wire}, us by class of size from: " + "  ".join(f"{size}: {value:.1f}" for size, value in least.items()))
    for workload in workloads.SIZES:
        for name, contestant in results.contestants.items():
            for figure, label in (("median_us", "median"), ("p99_us", "p99")):
                if found := slowdown.slowdowns(results, workload, name, figure):
                    lines.append(f"  {workload} {contestant.label}, {label} slowdown: " + "  ".join(f"{s}: {v:.1f}" for s, v in found.items()))
    return lines
