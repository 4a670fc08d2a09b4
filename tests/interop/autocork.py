#!/usr/bin/python3
"""A program that sends messages as fast as it can, with TCP_NODELAY, and then falls silent: what is sent waits for nothing that it does."""
import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.build import program  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5009
SMALL, LARGE = 8, 150  # words of 8 bytes: some, or one, to a segment
MESSAGES = {SMALL: 100_000, LARGE: 30_000}
MOST_LATE = 0.3  # seconds behind the last send, of a second of silence: the machine may be busy
suite = Suite("autocork")

# How long before the end of the connection its last byte came, and whether each message is the next.
PEER = """
import json, socket, struct, sys, time
port, words = map(int, sys.argv[1:])
l = socket.create_server(("", port))
c, _ = l.accept()
data, last = bytearray(), 0
while got := c.recv(65536):
    data += got
    last = time.monotonic()
silent = time.monotonic() - last
c.close()  # while the sender is there to hear of it
numbers = struct.unpack(f"{len(data) // 8}Q", data)
print(json.dumps({"silent": silent, "messages": len(numbers) / words, "in_order": all(n == i // words for i, n in enumerate(numbers))}))
"""


def hurry(t: Test, words: int, env: dict[str, str]) -> dict:
    """@return the counters of the sender's engine."""
    peer = t.start("B", PYTHON, "-c", PEER, str(PORT), str(words), name="peer")
    t.await_port("B", PORT)
    with t.proof("tcp", least=100):
        sender = t.start("A", str(program("tests/interop/hurried.cpp")), t.lab.address("B"), str(PORT), str(MESSAGES[words]), str(words), name="sender", env=env)
        sender.wait(30)
        peer.wait(10)
    heard = json.loads(peer.stdout)
    t.expect(heard["messages"] == MESSAGES[words] and heard["in_order"], str(heard))
    t.expect(heard["silent"] > 1 - MOST_LATE, f"the last bytes came {1 - heard['silent']:.3f} s after they were sent")
    if t.options.dry:
        return {}
    return counters.final(sender.stats_file)[0]["engine"]


for ends in (("vireo", "vireo"), ("vireo", "kernel")):
    @suite.case(f"messages share segments, and the last do not wait for the program (to {ends[1]})", ends, seconds=60)
    def _(t: Test) -> None:
        engine = hurry(t, SMALL, {})
        t.expect(t.options.dry or engine["corks"] > 0, f"none waited for company: {engine}")

    # Whether they share doorbells is the window's to say: where that is shut they leave by ACKs.
    @suite.case(f"segments do not wait for the program (to {ends[1]})", ends, seconds=60)
    def _(t: Test) -> None:
        hurry(t, LARGE, {})


@suite.case("VIREO_AUTOCORK=0: none waits", ("vireo", "vireo"), seconds=60)
def _(t: Test) -> None:
    for words in (SMALL, LARGE):
        engine = hurry(t, words, {"VIREO_AUTOCORK": "0"})
        t.expect(t.options.dry or engine["corks"] + engine["shared_doorbells"] == 0, str(engine))


if __name__ == "__main__":
    suite.main()
