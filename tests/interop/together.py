#!/usr/bin/python3
"""Many processes on one NIC: all are carried, whoever they are and however they end, and the last one leaves nothing."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from together_pairs import MIB, Observer, expect_carried, expect_nothing_left, finish, size, transfer  # noqa: E402
from labkit.runner import Suite, Test  # noqa: E402

BOTH = ("vireo", "vireo")
suite = Suite("together")


@suite.case("four servers and four clients, TCP and UDP, messages and transfers", BOTH, seconds=400)
def _(t: Test) -> None:
    length = size(t, 4, 64, 512) * MIB
    with t.proof("both", least=100, allow=2):
        observers = [Observer(t, 5101, "tcp"), Observer(t, 5102, "udp", 1200)]
        bulk = [transfer(t, 5103, length), transfer(t, 5104, length // 4, 4, "poll")]
        for pair, connections in zip(bulk, (1, 4)):
            finish(t, pair, length // connections, 180, connections)
        for observer in observers:
            seen = observer.window()
            t.note(f"port {observer.port}: {seen['rounds']} rounds, longest {seen['longest']} ms")
            observer.expect_calm(seen, "beside transfers")
        t.snapshot()
        for observer in observers:
            observer.end()
        for pair in (*observers, *bulk):
            expect_carried(t, *pair.both)
    expect_nothing_left(t)


if __name__ == "__main__":
    suite.main()
