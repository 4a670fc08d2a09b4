#!/usr/bin/python3
"""A process that shares a NIC is stopped, or reads nothing: the others do not notice, and it goes on when it is let."""
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from together_pairs import (CALM, MIB, Observer, Pair, await_traffic, expect_carried, expect_joins, expect_nothing_left,  # noqa: E402
                            finish, packets, size, transfer)
from labkit.build import program  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import Suite, Test  # noqa: E402

BOTH = ("vireo", "vireo")
STOPPED = 2.0  # seconds
PATIENCE = 2.0  # that a process has with the group's members
FLOOD = 10000  # datagrams, more than twice what FILL holds
suite = Suite("together_stopped")


def observers(t: Test) -> list[Observer]:
    return [Observer(t, 5101, "tcp", env=CALM), Observer(t, 5102, "udp", 1200, env=CALM)]


def watch(t: Test, watchers: list[Observer], seconds: float, when: str, most_lost: int = 0) -> None:
    """The time since the last look, and the next `seconds`."""
    time.sleep(seconds)
    for observer in watchers:
        seen = observer.window()
        t.note(f"{when}: port {observer.port} {seen['rounds']} rounds, longest {seen['longest']} ms, {seen['lost']} lost")
        if most_lost == 0:
            observer.expect_calm(seen, when)
        else:
            t.expect(seen["end"] == "goes on" and not seen["wrong"] and seen["lost"] <= most_lost and seen["rounds"] > 100 * seconds,
                     f"{when}: port {observer.port} saw {seen}")


def end_all(t: Test, watchers: list[Observer]) -> None:
    for observer in watchers:
        observer.expect_calm(observer.end(), "at the end")
        expect_carried(t, *observer.both)
    expect_nothing_left(t)


def stop_one(t: Test, is_founder: bool, which: str) -> None:
    length = size(t, 256, 1024, 4096) * MIB
    watchers = [] if is_founder else observers(t)
    with t.proof("both", least=100, allow=2):
        bulk = transfer(t, 5103, length, env=CALM)
        watchers = watchers or observers(t)
        await_traffic(t)
        watch(t, watchers, 0.0, "before")
        stopped = getattr(bulk, which)
        for _ in range(size(t, 1, 2, 10)):
            stopped.signal(signal.SIGSTOP)
            watch(t, watchers, STOPPED, "while it is stopped")
            stopped.signal(signal.SIGCONT)
            await_traffic(t)
            watch(t, watchers, 0.5, "when it goes on")
        finish(t, bulk, length, 150)
        expect_carried(t, *bulk.both)
        end_all(t, watchers)


for is_founder in (True, False):
    for which in ("server", "client"):
        @suite.case(f"the {'founder' if is_founder else 'last joiner'} in mid-transfer is stopped, a {which}", BOTH, seconds=400)
        def _(t: Test, is_founder=is_founder, which=which) -> None:
            stop_one(t, is_founder, which)


def flooded(t: Test, port: int, pause_us: int) -> Pair:
    tool, address = str(program("tests/interop/rounds.cpp")), t.lab.address("B")
    deaf = t.start("B", tool, "deaf", address, str(port), name=f"{port}-deaf", env=CALM)
    t.await_port("B", port, "udp")
    flood = t.start("A", tool, "flood", address, str(port), "1200", str(pause_us), name=f"{port}-flood", env=CALM)
    # Not stopped while it joins: it could hold the group's lock.
    t.expect(t.options.dry or wait_until(lambda: packets(deaf)[0] > 0, 10), f"nothing comes to port {port}")
    return Pair(deaf, flood, port)


def beside_a_flood(t: Test, watchers: list[Observer], floods: list[Pair], is_stopped: bool, most_lost: int = 0) -> None:
    for flood in floods:
        if is_stopped:
            flood.server.signal(signal.SIGSTOP)
    for _ in range(10):  # of a busy machine
        watch(t, watchers, size(t, 3, 6, 60), "beside the flood", most_lost)
        if t.options.dry or all(packets(flood.client)[1] > FLOOD for flood in floods):
            break
    expect_joins(t, 5104)
    watch(t, watchers, 0.0, "when another has joined", most_lost)
    for flood in floods:
        sent = packets(flood.client)[1]
        t.expect(t.options.dry or sent > FLOOD, f"{sent} datagrams are no flood")
        flood.server.signal(signal.SIGCONT)
    for flood in floods:
        for process in flood.both:
            process.stop(signal.SIGTERM)
    end_all(t, watchers)


for is_stopped, what in ((False, "reads nothing"), (True, "is stopped")):
    for pause_us in (20, 0):
        @suite.case(f"one that {what} is flooded, {'with pauses' if pause_us else 'as fast as can be'}", BOTH, seconds=120)
        def _(t: Test, is_stopped=is_stopped, pause_us=pause_us) -> None:
            # At full speed the flood may take all frames before the one that is to drop it runs.
            beside_a_flood(t, observers(t), [flooded(t, 5105, pause_us)], is_stopped, 0 if pause_us else 20)

    @suite.case(f"three that each {what} are flooded, the others speak seldom".replace("each reads", "read").replace("each is", "are"), BOTH, seconds=120)
    def _(t: Test, is_stopped=is_stopped) -> None:
        watchers = [Observer(t, 5101, "tcp", pause_us=700_000, env=CALM), Observer(t, 5102, "udp", 1200, 800_000, env=CALM)]
        beside_a_flood(t, watchers, [flooded(t, 5105 + i, 100) for i in range(3)], is_stopped)


@suite.case("the founder is stopped and alone: the next process is the kernel's, later ones join", BOTH, seconds=60)
def _(t: Test) -> None:
    founder = Observer(t, 5101, "tcp", env=CALM)
    founder.client.signal(signal.SIGSTOP)
    since = time.monotonic()
    second = transfer(t, 5102, MIB, env=CALM)
    finish(t, second, MIB, 20)
    took = time.monotonic() - since
    if not t.options.dry:
        t.expect(packets(second.client) == (0, 0), f"carried: {packets(second.client)}")
        t.expect("stopped" in second.client.stderr, f"no word of why: {second.client.stderr!r}")
    t.expect(took < PATIENCE + 2.5, f"the second process took {took:.1f} s")
    founder.client.signal(signal.SIGCONT)
    t.expect(founder.window()["rounds"] > 0, "the founder does not go on")
    expect_joins(t, 5103)
    founder.end()
    expect_nothing_left(t)


@suite.case("the founder is stopped, another member is not: the next process joins", BOTH, seconds=60)
def _(t: Test) -> None:
    founder, awake = Observer(t, 5101, "tcp", env=CALM), Observer(t, 5102, "udp", env=CALM)
    for process in founder.both:
        process.signal(signal.SIGSTOP)
    expect_joins(t, 5103)
    awake.expect_calm(awake.window(), "when another joined")
    for process in founder.both:
        process.signal(signal.SIGCONT)
    t.expect(founder.window()["rounds"] > 10, "the founder does not go on")
    for pair in (founder, awake):
        pair.end()
    expect_nothing_left(t)


if __name__ == "__main__":
    suite.main()
