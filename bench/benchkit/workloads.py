"""Message sizes of five workloads, W1 to W5, as cumulative distributions.

They are those by which B. Montazeri, Y. Li, M. Alizadeh and J. Ousterhout evaluate Homa ("Homa: A Receiver-Driven
Low-Latency Transport Protocol Using Network Priorities", SIGCOMM 2018, figure 1): W1 a memcached service at Facebook,
W2 a search application at Google, W3 all applications of a Google datacenter, W4 Hadoop at Facebook, W5 web search (the
DCTCP paper). Here are quantiles of the distributions published with its simulator, to three digits, straight between
them. Messages above 1 MB count as 1 MB, as in the evaluation of Homa's Linux module (J. Ousterhout, USENIX ATC 2021).
"""
from __future__ import annotations

LARGEST = 1_000_000
SHARES = (0, .01, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .97, .98, .99, .995, .998, .999, .9995, .9999, 1)
SIZES = {
    "W1": (1, 1, 1, 1, 2, 4, 10, 27, 77, 149, 263, 499, 800, 1070, 1330, 1850, 2520, 3700, 4870, 6370, 11600, 100000),
    "W2": (2, 2, 2, 2, 33, 53, 169, 267, 302, 348, 411, 501, 876, 1380, 1970, 2990, 4010, 7220, 20600, 76600, 152000, 3530000),
    "W3": (3, 3, 3, 32, 72, 102, 154, 257, 312, 395, 566, 1720, 5510, 9520, 13300, 30600, 84600, 195000, 355000, 526000,
           2310000, 15200000),
    "W4": (50, 124, 295, 314, 374, 500, 561, 655, 956, 6260, 49300, 119000, 269000, 819000, 1610000, 3090000, 5560000,
           7930000, 8910000, 9450000, 9890000, 10000000),
    "W5": (1460, 1460, 2920, 5840, 19000, 27700, 48200, 70600, 194000, 974000, 1950000, 4870000, 19500000, 23400000,
           25300000, 27300000, 28200000, 28800000, 29000000, 29100000, 29200000, 29200000),
}
TITLES = {"W1": "memcached at Facebook", "W2": "search at Google", "W3": "a Google datacenter", "W4": "Hadoop at Facebook",
          "W5": "web search"}


def points(workload: str) -> list[tuple[int, float]]:
    """(bytes, share of messages that are not longer)."""
    return [(min(size, LARGEST), share) for size, share in zip(SIZES[workload], SHARES)]


def mean(distribution: list[tuple[int, float]]) -> float:
    return sum((p1 - p0) * (x0 + x1) / 2 for (x0, p0), (x1, p1) in zip(distribution, distribution[1:]))


def every_size() -> list[tuple[int, float]]:
    """As many messages in each class of size, from 16 bytes to 1 MB: for the unloaded baseline."""
    edges = [16 << i for i in range(16)] + [LARGEST]
    return [(edge, i / (len(edges) - 1)) for i, edge in enumerate(edges)]


def text(distribution: list[tuple[int, float]]) -> str:
    """The file that bench/plain reads."""
    return "".join(f"{size} {share}\n" for size, share in distribution)
