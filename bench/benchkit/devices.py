"""Instructions of one host's device by back end: counted as benchkit.budget counts paths, kept in bench/DEVICES.md."""
from __future__ import annotations

import re
from pathlib import Path

from benchkit.budget import MEMCPY, TOLERANCE, Counts

AT_MOST = 0.60  # of dev/verbs and its provider, by dev/mlx5
_BACK_ENDS = ("verbs", "mlx5")
# What is done to the rings themselves, and to the device's registers: a provider's library has it to do for dev/verbs.
_RINGS = (*(f"dev/mlx5/{name}.h" for name in ("sq", "rq", "cq", "doorbell", "barrier")), "mlx5dv.h", "byteswap.h")


def by_path(counts: Counts) -> dict[str, dict[str, tuple[int, int]]]:
    """Path -> back end -> instructions of the device's files, and of memcpy for them; per round. "provider": of dev/mlx5's
    those that any driver of such rings has."""
    out: dict[str, dict[str, tuple[int, int]]] = {}
    for name, p in counts.paths.items():
        back_end, path = name.split(": ", 1)
        n = out.setdefault(path, {})
        n[back_end] = (round(p.layers["dev"]), round(p.layers[MEMCPY]))
        if back_end == "mlx5":
            n["provider"] = (round(sum(p.files.get(f, 0) for f in _RINGS)), 0)
    return out


def share(n: dict[str, tuple[int, int]]) -> float:
    """Of what dev/verbs and its provider take, dev/mlx5's."""
    return n["mlx5"][0] / (n["verbs"][0] + n["provider"][0])


def write(counts: Counts) -> str:
    lines = ["# Instructions of the device, `dev/verbs` beside `dev/mlx5`", "",
             "User instructions of one host per round in the files of the back end: from the engine's call to the doorbell, and from",
             "the completion to the engine, refill and reaping included. Both run on `tests/apparatus/softnic` in lock-step (`tests/budget`), whose",
             "own work is not counted. memcpy is beside it. Made and compared by `bench/budget`:",
             f"a count that rises by more than {TOLERANCE:.0%}, or an mlx5 above {AT_MOST:.0%} of verbs and its provider, fails.", "",
             "`verbs` is our part alone. Behind ibv_post_send(), ibv_post_recv() and the calls that poll, the library of a device's",
             "provider writes elements, rings doorbells and reads completions, as `dev/mlx5` does itself; softnic's moves frames besides,",
             "and its count would say nothing. `provider` is therefore what `dev/mlx5` takes for the same frames in the files that do just",
             "that (" + ", ".join(f"`{Path(f).name}`" for f in _RINGS) + "): the least that any driver of those rings has to do. A real one also",
             "checks opcodes, walks lists and knows more kinds of completions.", "",
             f"Made by: {counts.made_by}", "",
             "| path | verbs | provider | mlx5 | mlx5 of both | memcpy, verbs | memcpy, mlx5 |", "|---|---:|---:|---:|---:|---:|---:|"]
    for path, n in by_path(counts).items():
        (v, vc), (m, mc) = (n[b] for b in _BACK_ENDS)
        lines.append(f"| {path} | {v} | {n['provider'][0]} | {m} | {share(n):.0%} | {vc} | {mc} |")
    return "\n".join(lines) + "\n"


def read(text: str) -> tuple[str, dict[str, dict[str, tuple[int, int]]]]:
    """Made by what, and as by_path()."""
    kept = {}
    for line in text.splitlines():
        cells = [c.strip() for c in line.split("|")[1:-1]]
        if len(cells) == 7 and cells[1].isdigit():
            v, p, m, vc, mc = (int(cells[i]) for i in (1, 2, 3, 5, 6))
            kept[cells[0]] = {"verbs": (v, vc), "provider": (p, 0), "mlx5": (m, mc)}
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
    if share(now) > AT_MOST:
        wrong.append(f"mlx5: {now['mlx5'][0]} instructions, more than {AT_MOST:.0%} of verbs' {now['verbs'][0]} and its provider's "
                     f"{now['provider'][0]}")
    return wrong
