"""The histograms of bench/plain/histogram.h: 128 buckets for each doubling, so values are right within 1 %."""
from __future__ import annotations

SUB_BITS = 7
SUB = 1 << SUB_BITS
# Where a distribution is drawn: shares of the values that are not above.
DRAWN = [i / 100 for i in range(1, 100)] + [0.992, 0.995, 0.997, 0.998, 0.999, 0.9992, 0.9995, 0.9998, 0.9999, 0.99995, 0.99999]


def value_of(index: int) -> float:
    """Middle of a bucket, in units of the histogram."""
    if index < 2 * SUB:
        return float(index)
    shift = (index >> SUB_BITS) - 1
    return ((index - (shift << SUB_BITS)) + 0.5) * (1 << shift)


class Histogram:
    """Values and how often each came; values ascend."""

    def __init__(self, counts: dict[float, int] | None = None):
        self.counts = dict(sorted((counts or {}).items()))
        self.total = sum(self.counts.values())

    @classmethod
    def read(cls, printed: dict, scale: float = 1e-3) -> "Histogram":
        """What a program printed; `scale` 1e-3 makes microseconds of its nanoseconds."""
        unit = printed["unit_ns"] * scale
        return cls({value_of(index) * unit: count for index, count in printed["buckets"]})

    def __add__(self, other: "Histogram") -> "Histogram":
        counts = dict(self.counts)
        for value, count in other.counts.items():
            counts[value] = counts.get(value, 0) + count
        return Histogram(counts)

    def at(self, part: float) -> float:
        """The smallest value that at least `part` of them do not exceed. ValueError if it is empty."""
        if self.total == 0:
            raise ValueError("an empty histogram has no percentiles")
        wanted, seen = part * self.total, 0
        for value, count in self.counts.items():
            seen += count
            if seen >= wanted - 1e-9:
                return value
        return value

    def summary(self) -> dict[str, float]:
        mean = sum(v * c for v, c in self.counts.items()) / self.total if self.total else 0.0
        return {"median_us": self.at(0.5), "p99_us": self.at(0.99), "p999_us": self.at(0.999), "mean_us": mean,
                "least_us": next(iter(self.counts)), "most_us": next(reversed(self.counts)), "messages": self.total}

    def curve(self) -> list[tuple[float, float]]:
        """(share not above, value), as far as the count of values bears it."""
        return [(part, self.at(part)) for part in DRAWN if self.total * (1 - part) >= 1] if self.total else []
