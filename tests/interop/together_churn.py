#!/usr/bin/python3
"""Processes come and go on one NIC: each is carried, and nothing of the packet memory is lost by them."""
import json
import sys
from collections import Counter
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from together_pairs import CALM, MIB, Observer, expect_carried, expect_nothing_left, finish, frames, size, transfer  # noqa: E402
from labkit import counters  # noqa: E402
from labkit.build import program  # noqa: E402
from labkit.process import Process, wait_until  # noqa: E402
from labkit.runner import Suite, Test  # noqa: E402

BOTH = ("vireo", "vireo")
ROUNDS = 20
AT_ONCE = 8
LEAST_FRAMES = 2000  # of a process that joins one other: an eighth of what that one left, 2048, less what is drifted away
DRIFT = 2048  # one posts a frame, another receives it
suite = Suite("together_churn")


def short_lived(t: Test, protocol: str, number: int) -> Process:
    tool = str(program("tests/interop/rounds.cpp"))
    return t.start("A", tool, "client", protocol, t.lab.address("B"), "5101", "1000", "0", str(ROUNDS), name=f"{number}-{protocol}", env=CALM)


def expect_served(t: Test, client: Process) -> None:
    client.wait(20)
    seen = json.loads(client.stdout.splitlines()[-1])
    t.expect((seen["rounds"], seen["lost"], seen["wrong"]) == (ROUNDS, 0, 0), f"{client.shown}: {seen}")
    expect_carried(t, client, least=ROUNDS)


def alone_again(t: Test, process: Process) -> Counter:
    """Frames of the group when all but `process` are buried, which takes a second."""
    # Some may be with the kernel for good: nobody's after ten seconds.
    known = {"free", "queue", "gone", 0}
    wait_until(lambda: set(frames(process)) <= known, 3)
    now = frames(process)
    t.expect(set(now) <= known and now["gone"] <= 64, f"frames of those who are gone: {dict(now)}")
    return now


def expect_frames_are_back(t: Test, process: Process, before: Counter) -> None:
    now = alone_again(t, process)
    t.expect(now["free"] >= before["free"] - DRIFT and now[0] >= before[0] - DRIFT, f"frames were {dict(before)}, are {dict(now)}")


def expect_joiner_has_frames(t: Test) -> None:
    last = transfer(t, 5190, 16 * MIB, 4, "poll", env=CALM)
    finish(t, last, 16 * MIB, 60, 4)
    expect_carried(t, *last.both, least=1000)
    if not t.options.dry:
        pool = counters.final(last.client.stats_file)[0]["engine"]["pool_size"]
        t.expect(pool >= LEAST_FRAMES, f"the last one got {pool} frames")


@suite.case("clients one after the other and several at once against one server", BOTH, seconds=600)
def _(t: Test) -> None:
    with t.proof("both", least=1000, allow=4):
        stays = Observer(t, 5101, "tcp", env=CALM)
        second = transfer(t, 5102, MIB, env=CALM)  # from now on none is alone
        finish(t, second, MIB, 20)
        before = alone_again(t, stays.client)
        for number in range(size(t, 10, 50, 500)):
            expect_served(t, short_lived(t, "tcp" if number % 2 else "udp", number))
        for wave in range(size(t, 1, 3, 30)):
            clients = [short_lived(t, "tcp" if number % 2 else "udp", 1000 * (wave + 1) + number) for number in range(AT_ONCE)]
            for client in clients:
                expect_served(t, client)
        stays.expect_calm(stays.window(), "beside those that come and go", 200)
        expect_frames_are_back(t, stays.client, before)
        expect_joiner_has_frames(t)
        t.note(f"frames {dict(before)}, then {dict(frames(stays.client))}")
        stays.end()
    expect_nothing_left(t)


@suite.case("servers that are killed, one after the other", BOTH, seconds=600)
def _(t: Test) -> None:
    stays = Observer(t, 5101, "tcp", env=CALM)
    second = transfer(t, 5102, MIB, env=CALM)
    finish(t, second, MIB, 20)
    before = [alone_again(t, p) for p in stays.both]
    for number in range(size(t, 5, 20, 200)):
        pair = transfer(t, 5103 + number % 10, 1 << 40, env=CALM)
        wait_until(lambda: not pair.client.running, 0.1)
        for process in pair.both:
            process.kill()
    stays.expect_calm(stays.window(), "beside those that are killed")
    for process, then in zip(stays.both, before):
        expect_frames_are_back(t, process, then)
    expect_joiner_has_frames(t)
    t.note(f"frames {dict(before[0])}, then {dict(frames(stays.server))}")
    stays.end()
    expect_nothing_left(t)


if __name__ == "__main__":
    suite.main()
