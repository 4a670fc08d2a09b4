#!/usr/bin/python3
"""kill -9 of processes that share a NIC, at any moment: the others go on without a stall, the peers of the dead are told,
the next process joins, and the last one leaves nothing."""
import random
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from together_pairs import (CALM, HUGE, WITNESS, KernelStill, Observer, await_traffic, expect_joins, expect_nothing_left,  # noqa: E402
                            size, transfer)
from labkit import counters  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import Suite, Test  # noqa: E402

BOTH = ("vireo", "vireo")
TOLD_WITHIN = 2.0  # seconds
suite = Suite("together_kill")


def end_of(t: Test, pair, victims, since: float) -> None:
    """The other end of a pair that lost one learns it; unless it is a server to which the client had not come yet."""
    for process in pair.both:
        if process in victims or wait_until(lambda: not process.running, max(since + TOLD_WITHIN - time.monotonic(), 0.1)):
            continue
        if wait_until(lambda: not process.running, WITNESS.worst(TOLD_WITHIN) / 100):
            continue  # the machine kept the mourner waiting
        own = counters.live(process.pid)
        t.expect(process is pair.server and not any(p["engine"]["accepted"] for p in own), f"{process.shown}: not told\n{process.tail()}\n{own}")
        process.kill()


def kill(victims) -> float:
    since = time.monotonic()
    for process in victims:
        process.kill()
    return since


def killed_beside(t: Test, observers: list[Observer], dying: list, victims: list, when: str) -> None:
    """Kills while the observers look, and lets a new pair join."""
    since = kill(victims)
    for pair in dying:
        end_of(t, pair, victims, since)
    expect_joins(t, 5190)
    for observer in observers:
        seen = observer.window()
        t.longest[observer.port] = max(t.longest.get(observer.port, 0), seen["longest"])
        observer.expect_calm(seen, when)


def rounds(t: Test) -> int:
    t.longest = {}
    return size(t, 2, 8, 200)


def seeded(t: Test) -> random.Random:
    seed = random.randrange(1 << 30)
    t.note(f"seed {seed}")
    return random.Random(seed)


@suite.case("a joiner again and again", BOTH, seconds=2000)
def _(t: Test) -> None:
    chance = seeded(t)
    with KernelStill(t):
        observers = [Observer(t, 5101, "tcp", env=CALM), Observer(t, 5102, "udp", 1200, env=CALM)]
        for number in range(rounds(t)):
            pair = transfer(t, 5103, HUGE, env=CALM)
            time.sleep(chance.uniform(0.0, 0.6))  # while it joins, or in mid-transfer
            victims = chance.choice([[pair.client], [pair.server], [pair.client, pair.server]])
            killed_beside(t, observers, [pair], victims, f"round {number}")
        for observer in observers:
            observer.expect_calm(observer.end(), "at the end")
    t.note(f"longest {t.longest}")
    expect_nothing_left(t)


@suite.case("the founders", BOTH, seconds=4000)
def _(t: Test) -> None:
    chance = seeded(t)
    for number in range(rounds(t)):
        founders = transfer(t, 5103, HUGE, env=CALM)
        await_traffic(t)
        observers = [Observer(t, 5101, "tcp", env=CALM), Observer(t, 5102, "udp", 1200, env=CALM)]
        time.sleep(chance.uniform(0.0, 0.3))
        victims = chance.choice([[founders.client], [founders.server], [founders.client, founders.server]])
        killed_beside(t, observers, [founders], victims, f"round {number}")
        for observer in observers:
            observer.expect_calm(observer.end(), f"round {number}, at the end")
        expect_nothing_left(t)
    t.note(f"longest {t.longest}")


@suite.case("all but one pair, whichever it is", BOTH, seconds=4000)
def _(t: Test) -> None:
    chance = seeded(t)
    for number in range(rounds(t)):
        pairs = [Observer(t, 5101, "tcp", env=CALM), Observer(t, 5102, "udp", 1200, env=CALM),
                 Observer(t, 5103, "tcp", 8000, 0, env=CALM)]
        bulk = transfer(t, 5104, HUGE, env=CALM)
        await_traffic(t)
        time.sleep(chance.uniform(0.0, 0.3))
        survivor = pairs.pop(chance.randrange(len(pairs)))
        victims = [process for pair in (*pairs, bulk) for process in pair.both]
        chance.shuffle(victims)
        killed_beside(t, [survivor], [], victims, f"round {number}")
        survivor.expect_calm(survivor.end(), f"round {number}, at the end")
        expect_nothing_left(t)
    t.note(f"longest {t.longest}")


@suite.case("all at once", BOTH, seconds=3000)
def _(t: Test) -> None:
    chance = seeded(t)
    for number in range(rounds(t)):
        pairs = [Observer(t, 5101, "tcp", env=CALM), Observer(t, 5102, "udp", 1200, env=CALM), transfer(t, 5103, HUGE, env=CALM)]
        time.sleep(chance.uniform(0.0, 0.5))
        victims = [process for pair in pairs for process in pair.both]
        chance.shuffle(victims)
        kill(victims)
        expect_nothing_left(t)


if __name__ == "__main__":
    suite.main()
