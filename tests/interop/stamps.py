#!/usr/bin/python3
"""Time stamps of received and sent packets, the error queue, and MSG_ZEROCOPY: each case of stamper.py on the kernel and under Vireo,
whose counters show that it carried the packets."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.lab import DEVICE  # noqa: E402
from labkit.process import Failed  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PROGRAM = str(Path(__file__).resolve().parent / "stamper.py")
PORT = 6100
# Those that run under --quick over IPv6, too: what its error queue has is different.
BOTH = ("arrival_flags", "departure", "departure_names", "stream")
CASES = ("arrival_options", "arrival_flags", "arrival_not_reading", "last_stamp", "arrival_stream", "arrival_accepted", "departure",
         "departure_numbers", "departure_calls", "departure_others",
         "departure_names", "flags", "waiting", "stream", "stream_calls", "stream_statistics",
         "zerocopy")
KERNELS = ("stream_statistics",)  # the connection is the kernel's then
IN, OUT = 3, 5  # packets at least, two more than a case begins with; the first may be the kernel's, until it knows the neighbour
suite = Suite("stamps", keep_lab=True)


def run(t: Test, case: str, family: int) -> None:
    me, there = t.lab.address("A", family), t.lab.address("B", family)
    t.start("B", PYTHON, "-u", PROGRAM, "peer", there, str(PORT), name="peer", stack="kernel").await_output("ready")
    program = t.start("A", PYTHON, "-u", PROGRAM, case, me, there, str(PORT), DEVICE, name=case)
    program.wait(25)
    lines = program.stdout.splitlines()
    if len(lines) != 1 or not lines[0].startswith("done"):
        raise Failed("\n".join(lines[-12:]) or "no output")
    t.note(lines[0])
    if t.stack_of("A") != "vireo" or t.options.dry:
        return
    processes = counters.final(program.stats_file)
    refused = [] if case in KERNELS else counters.not_carried(processes)
    came, left = counters.engine_packets(processes)
    if refused or came < IN or left < OUT:
        raise Failed(f"not carried: {refused}; packets {came} in, {left} out")


for stack in ("kernel", "vireo"):
    for family in (4, 6):
        for case in CASES:
            if family == 4 or case in BOTH or "--quick" not in sys.argv[1:]:
                suite.case(f"{case}; IPv{family}; on {stack}", (stack, "kernel"), seconds=30)(
                    lambda t, case=case, family=family: run(t, case, family))

if __name__ == "__main__":
    suite.main()
