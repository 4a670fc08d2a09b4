"""The report as one HTML page that needs nothing else: plots inline, tables, the machine, what it shows."""
from __future__ import annotations

from html import escape

from . import slowdown, stats, svg, table, workloads
from .case import Case
from .cases import load
from .results import Results
from .shows import shows

STYLE = """
body{font:15px/1.45 system-ui,"DejaVu Sans",sans-serif;color:#1b1b1b;background:#fff;max-width:1080px;margin:0 auto;padding:24px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:20px;margin:42px 0 4px}h3{font-size:16px;margin:22px 0 0}
p{margin:6px 0;max-width:860px}.small{color:#555;font-size:13px}
table{border-collapse:collapse;font-size:13px;margin:10px 0}td,th{padding:3px 9px;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}th{font-weight:600;vertical-align:bottom}.scroll{overflow-x:auto}
.holds{color:#006d4a}.short{white-space:nowrap;color:#b00020;font-weight:600}
svg{max-width:100%;height:auto;display:block;margin:8px 0;font:12px system-ui,"DejaVu Sans",sans-serif}
svg .grid{stroke:#e4e4e4}svg .axis{fill:none;stroke:#333}svg .tick{stroke:#333}svg .title{font-size:13px}
svg .whisker{fill:none;stroke:#333;stroke-width:1}
nav{font-size:13px;margin:10px 0}nav a{margin-right:12px;white-space:nowrap}
"""


# The first get the first colours; other libraries the rest.
_ORDER = ("vireo", "kernel", "device", "vireo-shm", "kernel-spin", "device-shm", "kernel-offload", "vireo-adaptive", "vireo-interrupt")
_KIN = {"device-jumbo": "device", "vireo-jumbo": "vireo", "kernel-jumbo": "kernel",  # they never meet
        "bare-verbs": "device", "vireo-verbs": "vireo", "vireo-mlx5": "vireo-shm"}


def colours(results: Results) -> dict[str, str]:
    """A contestant has the same colour in every plot."""
    heads = [name for name in _ORDER if name in results.contestants]
    heads += [name for name in results.contestants if name not in _ORDER and name not in _KIN]
    found = {name: svg.COLOURS[i % len(svg.COLOURS)] for i, name in enumerate(heads)}
    return found | {name: found[head] for name, head in _KIN.items() if head in found}


def _series(results: Results, case: Case, place) -> list[svg.Series]:
    """The first figure of each contestant at each point, with the spread of the rounds."""
    key, tint, found = case.figures[0].key, colours(results), []
    for name in results.present(case):
        points, whiskers = [], []
        for i, point in enumerate(case.points):
            rounds = results.of(case.name, point.name, name)
            middle = stats.middle(rounds, key)
            if middle is not None:
                points.append((place(i, point), middle))
                whiskers.append(stats.spread(rounds, key))
        if points:
            found.append(svg.Series(results.contestants[name].label, points, tint[name], whiskers))
    return found


def _values(series: list[svg.Series]) -> list[float]:
    return [y for s in series for _, y in s.points] + [v for s in series for w in s.whiskers or () for v in w]


def _y_axis(case: Case, values: list[float]) -> svg.Axis:
    figure = case.figures[0]
    title = f"{figure.label}, {figure.unit}"
    if case.plot != "bars":
        return svg.log_axis(values, title)
    # A bar is read by its length, so it begins at 0 unless small ones would vanish beside the largest.
    positive = [v for v in values if v > 0] or [1.0]
    if case.y_scale == "linear" or max(positive) < 30 * min(positive):
        return svg.linear_axis(values, title)
    return svg.log_axis([*values, min(positive) / 2], title)


def plots(results: Results, case: Case) -> list[tuple[str, str]]:
    """(heading, SVG)"""
    if case.plot == "distribution":
        return _distributions(results, case)
    if case.plot == "slowdown":
        return _slowdowns(results)
    measured = [p for p in case.points if any(results.of(case.name, p.name, c) for c in results.present(case))]
    if case.plot == "lines" and len(measured) > 1:
        series = _series(results, case, lambda _, point: point.x)
        x_axis = svg.size_axis([p.x for p in measured], case.x_title)
        return [("", svg.lines(series, x_axis, _y_axis(case, _values(series)), case.title))] if series else []
    index = {p.name: i for i, p in enumerate(measured)}
    series = _series(results, case, lambda _, point: index.get(point.name, 0))
    return [("", svg.bars([p.name for p in measured], series, _y_axis(case, _values(series)), case.x_title, case.title))] if series else []


def _distributions(results: Results, case: Case) -> list[tuple[str, str]]:
    tint, found = colours(results), []
    for point in case.points:
        series = []
        for name in results.present(case):
            histogram = results.distribution(case.name, point.name, name).get("")
            if histogram and histogram.total:
                series.append(svg.Series(results.contestants[name].label, histogram.curve(), tint[name], marks=False))
        series = [s for s in series if s.points]
        if series:
            x_axis = svg.nines_axis("percentile of the round trips (all rounds that count)", max(s.points[-1][0] for s in series))
            found.append(("", svg.lines(series, x_axis, svg.log_axis(_values(series), "round trip, us"), case.title)))
    return found


def _slowdowns(results: Results) -> list[tuple[str, str]]:
    tint, found = colours(results), []
    for workload in workloads.SIZES:
        series = []
        for name, contestant in results.contestants.items():
            for figure, label, dashed in (("median_us", "median", False), ("p99_us", "p99", True)):
                if points := slowdown.slowdowns(results, workload, name, figure):
                    series.append(svg.Series(f"{contestant.label}, {label}", sorted(points.items()), tint[name], dashed=dashed))
        if series:
            sizes = sorted({x for s in series for x, _ in s.points})
            rate, mean = load(workload)
            heading = f"{workload}: {workloads.TITLES[workload]}; {rate:,.0f} messages/s of {mean:,.0f} bytes on average".replace(",", " ")
            found.append((heading, svg.lines(series, svg.size_axis(sizes, "size of the message, bytes (lower end of the class)"),
                                             svg.log_axis(_values(series), "slowdown"), heading)))
    return found


def _case(results: Results, case: Case) -> str:
    body = table.rows(results, case)
    if not body:
        return ""
    names = [results.contestants[c].label for c in results.present(case)]
    parts = [f'<h2 id="{case.name}">{escape(case.title)}</h2>',
             f"<p>{escape(case.text)} {'Less' if case.less_is_better else 'More'} is better.</p>"]
    for heading, plot in plots(results, case):
        parts += [f"<h3>{escape(heading)}</h3>" if heading else "", plot]
    parts.append('<div class="scroll"><table><tr><th></th>' + "".join(f"<th>{escape(n)}</th>" for n in names) + "</tr>")
    parts += [f"<tr><td>{escape(label)}</td>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>" for label, cells in body]
    parts.append("</table></div>")
    if case.name == slowdown.CASE:
        parts.append(_baseline(results))
    return "\n".join(parts)


def _baseline(results: Results) -> str:
    parts = ["<h3>Baseline of the slowdowns</h3><p>Least median of one message at a time, unloaded, us.</p>"]
    for wire in ("veth", "shm"):
        if least := slowdown.baseline(results, wire):
            parts.append(f'<div class="scroll"><table><tr><th>{wire}: bytes from</th>' + "".join(f"<th>{svg.size(s)}</th>" for s in least)
                         + "</tr><tr><td>us</td>" + "".join(f"<td>{v:.1f}</td>" for v in least.values()) + "</tr></table></div>")
    return "".join(parts)


def _shown(results: Results) -> str:
    parts = []
    for row in shows(results):
        verdict = "" if row.holds is None else '<span class="holds">holds</span>' if row.holds else '<span class="short">falls short</span>'
        parts.append(f"<tr><td>{escape(row.what)}</td><td>{escape(row.value)}</td><td>{escape(row.bound)}</td><td>{verdict}</td></tr>")
    if not parts:
        return ""
    return ('<h2 id="shows">What it shows</h2><p>Ratios are of medians, round by round: median (least..most); in brackets where no round counts.</p><div class="scroll"><table>'
            "<tr><th></th><th>measured</th><th>bound</th><th></th></tr>" + "".join(parts) + "</table></div>")


def page(results: Results) -> str:
    about, (gone, rounds) = results.about, results.discarded()
    facts = "".join(f"<tr><td>{escape(k)}</td><td style='text-align:left'>{escape(str(v))}</td></tr>" for k, v in about.get("machine", {}).items())
    links = "\n".join(f'<a href="#{c.name}">{escape(c.title)}</a>' for c in results.cases if table.rows(results, c))
    failed = ""
    if results.failures:
        failed = (f'<details class="small"><summary class="short">{len(results.failures)} runs failed</summary>'
                  + "".join(f"<p>{escape(f)}</p>" for f in results.failures) + "</details>")
    failed += "".join(f"<p>Not measured: {escape(what)}: {escape(why)}.</p>" for what, why in results.skipped.items())
    note = (f"{about.get('summary', '')} Medians over rounds; whiskers reach from the least round to the most. {rounds} rounds were run, "
            f"{gone} do not count because a side got less than {stats.LEAST_SHARE:.0%} of its core; figures in parentheses have no other. "
            "“By Vireo's” is the contestant's first figure divided by that of Vireo on the same wire, round by round.")
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Vireo: measurements</title><style>{STYLE}</style></head><body>'
            f"<h1>Vireo: measurements</h1><p>{escape(note)}</p>{failed}<table>{facts}</table><nav><a href=\"#shows\">What it shows</a>{links}</nav>"
            f"{_shown(results)}{''.join(_case(results, c) for c in results.cases)}</body></html>\n")
