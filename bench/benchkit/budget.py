"""Instructions of Vireo's paths: counted by callgrind, kept in bench/BUDGET.md, and compared with it.

An instruction belongs to the layer of the source file it was written in, so that what is inlined stays its author's; code of
the C++ library that was inlined belongs to the function it went into, and a function of it that was not, to who called it.
memcpy and its kin are a line of their own. The rest of libc, the tests' own functions, the software NIC and the system calls are
not counted.
"""
from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

LAYERS = ("dev", "wire/core", "tcp", "engine", "sock")
MEMCPY = "memcpy"
TOLERANCE = 0.02
_SOURCE = re.compile(r"(?:^|/)((?:core|config|dev/\w+|dev|stack/\w+(?:/\w+)?|tests/apparatus/mem)/\w+\.(?:h|cpp))$")
_LAYER = {"core": "wire/core", "config": "sock", "dev": "dev", "stack/wire": "wire/core", "stack/tcp": "tcp", "stack/sock": "sock", "stack/extra": "sock",
          "stack/engine": "engine", "stack/ip": "engine", "stack/net": "engine", "tests/apparatus": "dev"}
_COPIES = re.compile(r"^_*(?:mem(?:cpy|move|set|mem)|mempcpy)")


class NotComparable(Exception):
    """The text says why."""


@dataclasses.dataclass
class Path_:
    """One path, per round."""
    layers: dict[str, float] = dataclasses.field(default_factory=dict)  # LAYERS and MEMCPY
    functions: dict[str, float] = dataclasses.field(default_factory=dict)
    files: dict[str, float] = dataclasses.field(default_factory=dict)  # ours from the root, by name what is inlined of others

    @property
    def total(self) -> float:
        """Of the stack: the device is the tests' own."""
        return sum(self.layers.get(name, 0) for name in LAYERS if name != "dev")


@dataclasses.dataclass
class Counts:
    made_by: str
    paths: dict[str, Path_]
    budgets: dict[str, int] = dataclasses.field(default_factory=dict)


def file_of(file: str) -> str | None:
    """From the root, if it is one of ours that count."""
    found = _SOURCE.search(file)
    if found is None or "/tests/" in f"/{file}" and not found[1].startswith("tests/"):  # tests/apparatus/mem is the device
        return None
    return found[1]


def layer_of(file: str) -> str | None:
    ours = file_of(file)
    if ours is None:
        return None
    parts = ours.split("/")
    return _LAYER.get("/".join(parts[:2])) or _LAYER.get(parts[0])


def short(name: str) -> str:
    """vireo::tcp::input(vireo::tcp::Tcb&, ...) [clone .isra.0] -> tcp::input"""
    name = name.split(" [clone")[0].replace("(anonymous namespace)", "{}")
    depth, out = 0, []
    for at, c in enumerate(name):
        depth += (c in "(<") - (c in ")>" and name[at - 1:at] != "-")
        if c == "(" and depth == 1 and not name[:at].endswith("operator"):
            break
        out.append(c)
    text = "".join(out)
    while re.search(r"<[^<>]*>", text) and "operator<" not in text:
        text = re.sub(r"<[^<>]*>", "", text)
    return text.replace("{}::", "").replace("vireo::", "").replace("'2", "").replace("|", "\\|").split(" ")[-1]


def parse(text: str) -> tuple[str, Path_]:
    """One callgrind dump. @return what triggered it, and instructions in all. Format: the callgrind manual, "File Format"."""
    names: dict[tuple[str, str], str] = {}

    def name(kind: str, value: str) -> str:
        found = re.match(r"\((\d+)\)(?: (.*))?$", value)
        if found is None:
            return value
        if found[2] is not None:
            names[kind, found[1]] = found[2]
        return names[kind, found[1]]

    trigger, own = "", ("", "")
    at_file, callee, is_call = "", ("", ""), False
    self_cost: dict[tuple, dict[str, int]] = defaultdict(lambda: defaultdict(int))  # function -> file of the line -> instructions
    callers: dict[tuple, dict[tuple, int]] = defaultdict(lambda: defaultdict(int))
    for line in text.splitlines():
        key, sep, value = line.partition("=")
        if line.startswith("desc: Trigger: Client Request: "):
            trigger = line.removeprefix("desc: Trigger: Client Request: ").strip()
        elif sep and key in ("fl", "fi", "fe"):
            at_file = name("f", value)
            own = (at_file, own[1]) if key == "fl" else own
        elif sep and key == "fn":
            own = (at_file, name("n", value))
        elif sep and key in ("cfi", "cfl"):
            callee = (name("f", value), "")
        elif sep and key == "cfn":
            callee = (callee[0] or at_file, name("n", value))
        elif sep and key == "calls":
            is_call = True
        elif sep and key in ("ob", "cob"):
            name("o", value)
        elif re.match(r"[+\-*\d]", line):
            cost = int(line.split()[1]) if len(line.split()) > 1 else 0
            if is_call:
                callers[callee][own] += cost
                callee, is_call = ("", ""), False
            else:
                self_cost[own][at_file] += cost
    return trigger, _attribute(self_cost, callers)


def _attribute(self_cost: dict, callers: dict) -> Path_:
    path = Path_(dict.fromkeys((*LAYERS, MEMCPY), 0), defaultdict(float), defaultdict(float))

    def charge(function: tuple, cost: float, seen: frozenset) -> None:
        """To whoever of ours called it; nothing is ours where a test or libc did."""
        layer = layer_of(function[0])
        if layer is not None:
            path.layers[layer] += cost
            path.functions[short(function[1])] += cost
        elif _is_cpp_library(function):
            above = {f: n for f, n in callers[function].items() if f not in seen and n > 0}
            for caller, n in above.items():
                charge(caller, cost * n / sum(above.values()), seen | {function})

    for function, by_file in self_cost.items():
        home = layer_of(function[0])
        if home is None and _COPIES.match(function[1]):
            cost = sum(n for f, n in callers[function].items() if "tests/apparatus/softnic/" not in f[0])  # the software NIC's are its own
            path.layers[MEMCPY] += cost
            path.functions[MEMCPY] += cost
        elif home is None:
            charge(function, sum(by_file.values()), frozenset())
        else:
            path.functions[short(function[1])] += sum(by_file.values())
            for file, cost in by_file.items():
                path.layers[layer_of(file) or home] += cost
                path.files[file_of(file) or Path(file).name] += cost
    return path


def _is_cpp_library(function: tuple) -> bool:
    return "/c++/" in function[0] or function[1].startswith(("std::", "void std::", "boost::"))


def count(program: Path, seconds: float = 300) -> Counts:
    """Runs the program under callgrind. Raises NotComparable, RuntimeError."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NotComparable("there is no valgrind: tools/setup")
    with tempfile.TemporaryDirectory(prefix="vireo-budget-") as folder:
        done = subprocess.run(["timeout", str(seconds), valgrind, "--tool=callgrind", "--collect-atstart=no",
                               f"--callgrind-out-file={folder}/out", str(program)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{program.name} failed under callgrind:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
        made_by = re.search(r"^made by: (.*)$", done.stdout, re.M)[1]
        rounds = {name: int(n) for name, n in re.findall(r"^path: (.*), (\d+) rounds$", done.stdout, re.M)}
        dumps = dict(parse(f.read_text()) for f in sorted(Path(folder).glob("out.*")))
    version = subprocess.run([valgrind, "--version"], capture_output=True, text=True).stdout.strip()
    paths = {}
    for name, n in rounds.items():
        seen = dumps[name]
        paths[name] = Path_({k: round(v / n) for k, v in seen.layers.items()},
                            {k: round(v / n, 1) for k, v in sorted(seen.functions.items()) if v / n >= 0.05},
                            {k: v / n for k, v in seen.files.items()})
        if paths[name].total + paths[name].layers["dev"] == 0:
            raise RuntimeError(f"{name}: nothing of Vireo was seen: has the program its debugging information?")
    return Counts(f"{made_by}, {version}", paths)


# ---- bench/BUDGET.md
_COLUMNS = ("budget", "sum", *(x for x in LAYERS if x != "dev"), MEMCPY, "dev")


def write(counts: Counts, budgets: dict[str, int]) -> str:
    """`budgets`: those that stand; a path without one gets what it needs and a tenth, in fifties."""
    names = list(counts.paths)
    lines = ["# Instructions by path and layer", "",
             "User instructions of one round of each path, of one host, over the `mem` device in lock-step and virtual time",
             "(`tests/budget`): what a path costs, by the layer in whose files it is written. `sum` is the stack without memcpy and",
             "without the device, which is the tests'. System calls, libc's wrappers and preload's entry points are not in it.", "",
             "    bench/budget            # counts, and compares with this file, as tools/check does",
             "    bench/budget --write    # after a deliberate change: this file anew; the commit says why", "",
             f"A `sum`, memcpy or device that rises by more than {TOLERANCE:.0%}, and a `sum` above its budget, fail. Budgets are set by hand",
             "and stay when the counts are written anew, so that many small rises need a reason, too.", "",
             f"Made by: {counts.made_by}", "",
             f"| path | {' | '.join(_COLUMNS)} |", "|---|" + "---:|" * len(_COLUMNS)]
    for name in names:
        p = counts.paths[name]
        budget = budgets.get(name) or -(-int(p.total * 1.1) // 50) * 50
        cells = {**p.layers, "sum": p.total, "budget": budget}
        lines.append(f"| {name} | " + " | ".join(f"{cells.get(c, 0):.0f}" for c in _COLUMNS) + " |")
    lines += ["", "## By function", "", "With what is inlined into it; the paths in the order of above.", "",
              "| function | " + " | ".join(str(i) for i in range(1, len(names) + 1)) + " |", "|---|" + "---:|" * len(names)]
    functions = sorted({f for p in counts.paths.values() for f in p.functions},
                       key=lambda f: (-max(p.functions.get(f, 0) for p in counts.paths.values()), f))
    for f in functions:
        cells = [f"{counts.paths[n].functions[f]:g}" if f in counts.paths[n].functions else "" for n in names]
        lines.append(f"| {f} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def read(text: str) -> Counts:
    made_by = re.search(r"^Made by: (.*)$", text, re.M)[1]
    rows = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    counts = Counts(made_by, {})
    names: list[str] = []
    functions = False
    for row in rows:
        if row[0] == "function":
            functions, names = True, list(counts.paths)
        elif functions:
            for name, cell in zip(names, row[1:]):
                if cell:
                    counts.paths[name].functions[row[0]] = float(cell)
        elif row[0] != "path":
            cells = dict(zip(_COLUMNS, map(int, row[1:])))
            counts.budgets[row[0]] = cells["budget"]
            counts.paths[row[0]] = Path_({k: cells[k] for k in (*LAYERS, MEMCPY)})
    return counts


def comparable(now: Counts, kept: Counts) -> None:
    """Raises NotComparable: another compiler, other flags or vectors make other instructions."""
    if now.made_by != kept.made_by:
        raise NotComparable(f"the counts kept are of {kept.made_by}; this is {now.made_by}")


def rises(name: str, now: Counts, kept: Counts) -> list[str]:
    """What is wrong with a path, and where it comes from; empty: nothing."""
    if name not in kept.paths:
        return ["is not in bench/BUDGET.md"]
    if name not in now.paths:
        return ["was not counted"]
    new, old = now.paths[name], kept.paths[name]
    wrong = []
    for what, was, is_ in (("sum", old.total, new.total), (MEMCPY, old.layers[MEMCPY], new.layers[MEMCPY]),
                           ("dev", old.layers["dev"], new.layers["dev"])):
        if is_ > was * (1 + TOLERANCE):
            part = f"{is_ / was - 1:+.1%}" if was else "new"
            wrong.append(f"{what}: {is_:.0f} instructions, {was:.0f} before ({part}, at most {TOLERANCE:+.0%})")
    if new.total > kept.budgets[name]:
        wrong.append(f"sum: {new.total:.0f} instructions, the budget is {kept.budgets[name]}")
    if wrong:
        grown = {f: new.functions.get(f, 0) - old.functions.get(f, 0) for f in {*new.functions, *old.functions}}
        for f, n in sorted(grown.items(), key=lambda x: (-x[1], x[0]))[:8]:
            if n >= 1:
                wrong.append(f"  {n:+7.1f}  {f} ({old.functions.get(f, 0):g} before)")
    return wrong
