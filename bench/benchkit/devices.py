"""Instructions of one host's device by back end: counted as benchkit.budget counts paths, kept in bench/DEVICES.md."""
from __future__ import annotations

import re

from benchkit.budget import MEMCPY, TOLERANCE, Counts

AT_MOST = 0.60  # of dev/verbs, by dev/mlx5
_BACK_ENDS = ("verbs", "mlx5")


def by_path(counts: Counts) -> dict[str, dict[str, tuple[int, int]]]:
    """Path -> back end -> instructions of the device's files, and of memcpy for them; per round."""
    out: dict[str, dict[str, tuple[int, int]]] = {}
    for name, p in counts.paths.items():
        back_end, path = name.split(": ", 1)
        out.setdefault(path, {})[back_end] = (round(p.layers["dev"]), round(p.layers[MEMCPY]))
    return out


def write(counts: Counts) -> str:
    lines = ["# Instructions of the device, `dev/verbs` beside `dev/mlx5`", "",
             "User instructions of one host per round in the files of the back end: from the engine's call to the doorbell, and from",
             "the completion to the engine, refill and reaping included. Both run on `dev/softnic` in lock-step (`tests/budget`), whose",
             "own work is not counted: for verbs that leaves out what a provider's library does in ibv_post_send(), ibv_post_recv() and",
             "ibv_poll_cq(), which mlx5 does itself and is counted with. memcpy is beside it. Made and compared by `bench/budget`:",
             f"a count that rises by more than {TOLERANCE:.0%}, or an mlx5 above {AT_MOST:.0%} of verbs, fails.", "",
             f"Made by: {counts.made_by}", "",
             "| path | verbs | mlx5 | mlx5 of verbs | memcpy, verbs | memcpy, mlx5 |", "|---|---:|---:|---:|---:|---:|"]
    for path, n in by_path(counts).items():
        (v, vc), (m, mc) = (n[b] for b in _BACK_ENDS)
        lines.append(f"| {path} | {v} | {m} | {m / v:.0%} | {vc} | {mc} |")
    return "\n".join(lines) + "\n"


def read(text: str) -> tuple[str, dict[str, dict[str, tuple[int, int]]]]:
    """Made by what, and as by_path()."""
    kept = {}
    for line in text.splitlines():
        cells = [c.strip() for c in line.split("|")[1:-1]]
        if len(cells) == 6 and cells[1].isdigit():
            v, m, vc, mc = (int(cells[i]) for i in (1, 2, 4, 5))
            kept[cells[0]] = {"verbs": (v, vc), "mlx5": (m, mc)}
    return re.search(r"^Made by: (.*)$", text, re.M)[1], kept


def rises(path: str, now: dict[str, tuple[int, int]], kept: dict[str, tuple[int, int]] | None) -> list[str]:
    """What is wrong with a path; empty: nothing."""
    if kept is None:
        return ["is not in bench/DEVICES.md"]
    wrong = []
    for back_end in _BACK_ENDS:
        for what, is_, was in zip(("device", MEMCPY), now[back_end], kept[back_end]):
            if is_ > was * (1 + TOLERANCE):
                wrong.append(f"{back_end}, {what}: {is_} instructions, {was} before")
    if now["mlx5"][0] > AT_MOST * now["verbs"][0]:
        wrong.append(f"mlx5: {now['mlx5'][0]} instructions, more than {AT_MOST:.0%} of verbs' {now['verbs'][0]}")
    return wrong
