#!/usr/bin/python3
"""The instruction gate can fail: bench/budget's comparison with doctored budgets, and its reading of callgrind's dumps."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]
from benchkit import budget, devices  # noqa: E402
from labkit.process import Failed  # noqa: E402
from labkit.runner import Suite  # noqa: E402

suite = Suite("bench-budget")
KEPT = (ROOT / "bench" / "BUDGET.md").read_text()


def pure(name: str):
    return suite.case(name, lab=None, seconds=60)


def equal(seen, wanted) -> None:
    if seen != wanted:
        raise Failed(f"{seen!r}, not {wanted!r}")


def doctored(path: str, by: float, *layers: str):
    """The kept counts, as if they had been taken before `layers` grew to `by` times that."""
    kept = budget.read(KEPT)
    for layer in layers:
        kept.paths[path].layers[layer] /= by
    return kept


@pure("what is kept passes, and is written as it was read")
def _(_t):
    kept = budget.read(KEPT)
    table = KEPT[KEPT.index("| path |"):KEPT.index("## By function")]
    equal(len(kept.paths), sum(line.startswith("| ") for line in table.splitlines()) - 1)
    for path in kept.paths:
        equal(budget.rises(path, kept, kept), [])
    equal(budget.write(kept, kept.budgets), KEPT)


@pure("a sum that rose by 3 % fails, one by 1 % passes, and the function that grew is named")
def _(_t):
    now = budget.read(KEPT)
    stack = [name for name in budget.LAYERS if name != "dev"]
    for path in now.paths:
        before = doctored(path, 1.03, *stack)
        name = max(before.paths[path].functions, key=before.paths[path].functions.get)
        before.paths[path].functions[name] -= 50
        said = budget.rises(path, now, before)
        if not said or "sum: " not in said[0] or "+3.0%" not in said[0] or f"+50.0  {name} " not in said[1]:
            raise Failed(f"{path}: {said}")
        equal(budget.rises(path, now, doctored(path, 1.01, *stack)), [])


@pure("the devices' counts pass as kept; a rise of 3 %, and more than its share, fail")
def _(_t):
    _, kept = devices.read((ROOT / "bench" / "DEVICES.md").read_text())
    for path, n in kept.items():
        equal(devices.rises(path, n, n), [])
        risen = {**n, "verbs": (round(n["verbs"][0] * 1.03), n["verbs"][1])}
        equal(len(devices.rises(path, risen, n)), 1)
        both = n["verbs"][0] + n["provider"][0]
        too_much = {**n, "mlx5": (round(both * 0.61), n["mlx5"][1])}
        equal(len(devices.rises(path, too_much, too_much)), 1)
        equal(devices.rises(path, n, None), ["is not in bench/DEVICES.md"])


@pure("memcpy and the device have a gate of their own")
def _(_t):
    now, path = budget.read(KEPT), next(iter(budget.read(KEPT).paths))
    for layer in (budget.MEMCPY, "dev"):
        said = budget.rises(path, now, doctored(path, 1.1, layer))
        if len(said) != 1 or not said[0].startswith(f"{layer}: "):
            raise Failed(f"{layer}: {said}")


@pure("above its budget fails, however slowly it came there; a path that is missing fails")
def _(_t):
    now, kept = budget.read(KEPT), budget.read(KEPT)
    path = next(iter(kept.paths))
    kept.budgets[path] = int(kept.paths[path].total) - 1
    if "the budget is" not in "".join(budget.rises(path, now, kept)):
        raise Failed("above the budget passes")
    del kept.paths[path]
    equal(budget.rises(path, now, kept), ["is not in bench/BUDGET.md"])
    equal(budget.rises(path, kept, now), ["was not counted"])


@pure("counts of another compiler are not compared")
def _(_t):
    kept, now = budget.read(KEPT), budget.read(KEPT)
    budget.comparable(now, kept)
    now.made_by = now.made_by.replace("GNU", "Clang")
    try:
        budget.comparable(now, kept)
    except budget.NotComparable as why:
        if "Clang" not in str(why):
            raise Failed(f"it does not say why: {why}") from None
        return
    raise Failed("compared")


@pure("a dump: inlined lines go to their layer, std's own to the caller, libc's and the tests' to nobody")
def _(_t):
    dump = """desc: Trigger: Client Request: a path
fl=(1) /x/stack/tcp/input.cpp
fn=(1) vireo::tcp::input(vireo::tcp::Tcb&) [clone .isra.0]
10 100
fi=(2) sees/vireo_tcp/core/seq.h
+3 7
fi=(3) /usr/include/c++/12/bits/stl_algo.h
5 2
fe=(1)
cfi=(3)
cfn=(2) std::vector<int>::push_back(int const&)
calls=1 5
11 40
cfi=(4) ./string/memmove-vec.S
cfn=(3) __memcpy_avx_unaligned_erms
calls=1 5
11 9

fl=(3)
fn=(2)
5 40

fl=(4)
fn=(3)
5 9

fl=(5) ./malloc/malloc.c
fn=(4) malloc
5 1000

fl=(6) /x/tests/unit/sock/two_hosts.cpp
fn=(5) vireo::test::Api::recv(int)
5 1000
fi=(2)
5 1000
"""
    name, path = budget.parse(dump)
    equal(name, "a path")
    equal(path.layers, {"dev": 0, "wire/core": 7, "tcp": 142, "engine": 0, "sock": 0, "memcpy": 9})
    equal(dict(path.functions), {"tcp::input": 149, "memcpy": 9})
    equal(dict(path.files), {"stack/tcp/input.cpp": 100, "core/seq.h": 7, "stl_algo.h": 2})


if __name__ == "__main__":
    suite.main()
