#!/usr/bin/env python3
"""Runs packetdrill scripts against Vireo's sockets: run.py --packetdrill BINARY --stack vireo_packetdrill.so PATH...

Each script runs in a network namespace of its own, whose net.ipv4 it may set as it likes: the stack reads it there.
Prints the failures, the sums of each folder and `N passed, N failed`; exits 1 if any failed. Needs root, or a user
namespace (unshare -r)."""
import argparse
import collections
import os
import pathlib
import subprocess
import sys

# Names that scripts leave to who runs them.
DEFINES = {"TFO_COOKIE": "3021b9d889017eeb", "CODE": "host_unreachable", "CMSG_LEVEL_IP": "SOL_IP",
           "CMSG_TYPE_RECVERR": "IP_RECVERR"}


def scripts(paths):
    for path in map(pathlib.Path, paths):
        yield from sorted(path.rglob("*.pkt")) if path.is_dir() else [path]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packetdrill", required=True, help="the packetdrill program")
    parser.add_argument("--stack", required=True, help="vireo_packetdrill.so")
    parser.add_argument("--tolerance-usecs", type=int, default=10000)
    parser.add_argument("--timeout", type=float, default=20, help="seconds of real time a script may take")
    parser.add_argument("--flags", default="", help="passed to the stack: no-merge")
    parser.add_argument("--lines", type=int, default=4, help="of what a failed script says")
    parser.add_argument("-D", "--define", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("paths", nargs="+")
    args = parser.parse_args()
    passed, failed = collections.Counter(), collections.Counter()
    unshare = ["unshare", "-n" if os.geteuid() == 0 else "-rn"]
    stack = os.path.abspath(args.stack)
    packetdrill = [os.path.abspath(args.packetdrill), "--so_filename=" + stack,
                   "--tolerance_usecs=%d" % args.tolerance_usecs]
    for name, value in {**DEFINES, **dict(d.split("=", 1) for d in args.define)}.items():
        packetdrill += ["-D", name + "=" + value]
    if args.flags:
        packetdrill.append("--so_flags=" + args.flags)
    for script in scripts(args.paths):
        command = unshare + ["env", "LD_PRELOAD=" + stack] + packetdrill + [script.name]
        try:
            run = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, timeout=args.timeout)
            error = "" if run.returncode == 0 else (run.stderr or run.stdout or "status %d" % run.returncode)
        except subprocess.TimeoutExpired:
            error = "no end after %g s" % args.timeout
        (failed if error else passed)[script.parent] += 1
        if error:
            print("FAIL %s\n  %s" % (script, "\n  ".join(error.strip().splitlines()[:args.lines])))
    for folder in sorted({*passed, *failed}):
        print("%s: %d passed, %d failed" % (folder, passed[folder], failed[folder]))
    print("%d passed, %d failed" % (passed.total(), failed.total()))
    return 1 if failed.total() else 0


if __name__ == "__main__":
    sys.exit(main())
