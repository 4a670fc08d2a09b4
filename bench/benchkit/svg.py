"""Plots as inline SVG: axes (linear, logarithmic, by nines of a percentile), lines with whiskers, grouped bars.

A plot is a string with no reference to anything outside; text is in the page's font. Pure functions.
"""
from __future__ import annotations

import dataclasses
import math
from html import escape

WIDTH, HEIGHT = 860, 380
LEFT, RIGHT, TOP, BOTTOM = 84, 230, 20, 58
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b", "#4b0082", "#222222", "#999933", "#882255", "#a0e060", "#f0e442", "#ff9da7", "#5f9e9f")


@dataclasses.dataclass
class Series:
    label: str
    points: list[tuple[float, float]]
    colour: str
    whiskers: list[tuple[float, float]] | None = None  # (least, most) of each point
    dashed: bool = False
    marks: bool = True


@dataclasses.dataclass
class Axis:
    """From data to a place between 0 and 1."""

    title: str
    kind: str  # "linear", "log", "nines"
    least: float
    most: float
    ticks: list[tuple[float, str]]

    def place(self, value: float) -> float:
        span = self._scaled(self.most) - self._scaled(self.least)
        return (self._scaled(value) - self._scaled(self.least)) / span if span else 0.5

    def _scaled(self, value: float) -> float:
        if self.kind == "log":
            return math.log10(value)
        return -math.log10(max(1e-12, 1 - value)) if self.kind == "nines" else value


def short(value: float) -> str:
    """As a person writes it: 64, 1.5 k, 12 M, 0.05."""
    if value == 0:
        return "0"
    for limit, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def size(value: float) -> str:
    """A number of bytes: 64, 4 Ki, 1 Mi; what is no power of two as any other number."""
    if value >= 1024 and value == int(value) and int(value) & (int(value) - 1) == 0:
        return f"{int(value) >> 10} Ki" if value < 1 << 20 else f"{int(value) >> 20} Mi"
    return short(value)


def linear_axis(values: list[float], title: str) -> Axis:
    """From 0, at most seven round steps."""
    most = max([*values, 0]) or 1.0
    raw = most / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    count = math.ceil(most / step - 1e-9)
    return Axis(title, "linear", 0.0, count * step, [(i * step, short(i * step)) for i in range(count + 1)])


def log_axis(values: list[float], title: str) -> Axis:
    """Whole steps of 1, 2, 5 around the values; labels at all of them over few decades, at powers of ten over many."""
    positive = [v for v in values if v > 0] or [1.0]
    steps = [m * 10.0 ** e for e in range(math.floor(math.log10(min(positive))) - 1, math.ceil(math.log10(max(positive))) + 2) for m in (1, 2, 5)]
    least = max(s for s in steps if s <= min(positive) * 1.0001)
    most = min(s for s in steps if s >= max(positive) * 0.9999)
    if least == most:
        most = min(s for s in steps if s > least)
    inside = [s for s in steps if least <= s <= most * 1.0001]
    if len(inside) > 10:
        inside = [s for s in inside if math.isclose(math.log10(s), round(math.log10(s)), abs_tol=1e-9)]
    return Axis(title, "log", least, most, [(s, short(s)) for s in inside])


def size_axis(values: list[float], title: str) -> Axis:
    """Logarithmic, with the measured values themselves as ticks (sizes in binary steps, counts)."""
    shown = sorted(set(values))
    low, high = shown[0], shown[-1]
    if low == high:
        low, high = low / 2, high * 2
    return Axis(title, "log", low / 1.15, high * 1.15, [(v, size(v)) for v in shown])


def nines_axis(title: str, most: float) -> Axis:
    """Percentiles, each further nine as wide as the one before."""
    marks = [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99"), (0.99999, "99.999")]
    most = max(0.99, most)
    return Axis(title, "nines", 0.0, most, [m for m in marks if m[0] <= most + 1e-9])


def _text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


class _Canvas:
    """The frame: grid, axes, titles, legend."""

    def __init__(self, y_axis: Axis, legend: list[tuple[str, str, bool]], x_title: str, height: int = HEIGHT):
        self.height = max(height, TOP + BOTTOM + 18 * len(legend))
        self.width, self.y_axis = WIDTH, y_axis
        self.parts: list[str] = []
        for value, label in y_axis.ticks:
            y = self.y(value)
            self.parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self.parts.append(_text(LEFT - 7, y + 4, label, "end"))
        middle = TOP + (self.height - TOP - BOTTOM) / 2
        self.parts.append(_text(18, middle, y_axis.title, "middle", f' transform="rotate(-90 18 {middle:.1f})" class="title"'))
        self.parts.append(_text(LEFT + (WIDTH - LEFT - RIGHT) / 2, self.height - 10, x_title, more=' class="title"'))
        for i, (label, colour, dashed) in enumerate(legend):
            y = TOP + 10 + i * 18
            dash = ' stroke-dasharray="5 3"' if dashed else ""
            self.parts.append(f'<line x1="{WIDTH - RIGHT + 14}" x2="{WIDTH - RIGHT + 38}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"{dash}/>')
            self.parts.append(_text(WIDTH - RIGHT + 44, y + 4, label, "start"))

    def y(self, value: float) -> float:
        return self.height - BOTTOM - self.y_axis.place(value) * (self.height - TOP - BOTTOM)

    def x(self, part: float) -> float:
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def x_ticks(self, ticks: list[tuple[float, str]]) -> None:
        """Labels that would run into one another stand slanted."""
        slanted = sum(len(label) * 7 + 12 for _, label in ticks) > WIDTH - LEFT - RIGHT
        for part, label in ticks:
            x, y = self.x(part), self.height - BOTTOM
            self.parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 5}"/>')
            turn = f' transform="rotate(-25 {x:.1f} {y + 18})"' if slanted else ""
            self.parts.append(_text(x, y + 18, label, "end" if slanted else "middle", turn))

    def whisker(self, x: float, least: float, most: float) -> None:
        if least == most:  # one round
            return
        top, bottom = self.y(most), self.y(least)
        self.parts.append(f'<path class="whisker" d="M{x - 3:.1f} {top:.1f}h6M{x:.1f} {top:.1f}V{bottom:.1f}M{x - 3:.1f} {bottom:.1f}h6"/>')

    def close(self, name: str) -> str:
        frame = (f'<path class="axis" d="M{LEFT} {TOP}V{self.height - BOTTOM}H{WIDTH - RIGHT}"/>')
        return (f'<svg viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" role="img" '
                f'aria-label="{escape(name, quote=True)}">{"".join(self.parts)}{frame}</svg>')


def lines(series: list[Series], x_axis: Axis, y_axis: Axis, name: str) -> str:
    canvas = _Canvas(y_axis, [(s.label, s.colour, s.dashed) for s in series], x_axis.title)
    canvas.x_ticks([(x_axis.place(v), label) for v, label in x_axis.ticks])
    for s in series:
        kept = [(x, y) for x, y in s.points if y_axis.kind != "log" or y > 0]
        places = [(canvas.x(x_axis.place(x)), canvas.y(y)) for x, y in kept]
        if not places:
            continue
        for (x, _), (least, most) in zip(places, s.whiskers or ()):
            if y_axis.kind != "log" or least > 0:
                canvas.whisker(x, least, most)
        dash = ' stroke-dasharray="5 3"' if s.dashed else ""
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        canvas.parts.append(f'<path d="{path}" fill="none" stroke="{s.colour}" stroke-width="2"{dash}/>')
        if s.marks:
            canvas.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{s.colour}"/>' for x, y in places]
    return canvas.close(name)


def bars(groups: list[str], series: list[Series], y_axis: Axis, x_title: str, name: str) -> str:
    """`series[i].points`: (number of the group, value)."""
    canvas = _Canvas(y_axis, [(s.label, s.colour, False) for s in series], x_title)
    width = 1 / max(1, len(groups))
    canvas.x_ticks([((i + 0.5) * width, group) for i, group in enumerate(groups)])
    each = width * 0.8 / max(1, len(series))
    for k, s in enumerate(series):
        for n, (group, value) in enumerate(s.points):
            if y_axis.kind == "log" and value <= 0:
                continue
            left = canvas.x(group * width + width * 0.1 + k * each)
            top, bottom = canvas.y(value), canvas.height - BOTTOM
            wide = each * (WIDTH - LEFT - RIGHT) * 0.92
            canvas.parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{max(0.5, bottom - top):.1f}" fill="{s.colour}">'
                                f"<title>{escape(s.label)}: {short(value)}</title></rect>")
            if s.whiskers and (y_axis.kind != "log" or s.whiskers[n][0] > 0):
                canvas.whisker(left + wide / 2, *s.whiskers[n])
    return canvas.close(name)
