#!/usr/bin/env python3
"""Runs packetdrill scripts against the engine: run.py --packetdrill BINARY --stack vireo_packetdrill.so PATH...

Each script runs in a network namespace of its own, so that the sysctls it sets are its own. Prints the failures and
`N passed, N failed`; exits 1 if any failed. Needs root, or a user namespace (unshare -rn)."""
import argparse
import os
import pathlib
import subprocess
import sys


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
    parser.add_argument("paths", nargs="+")
    args = parser.parse_args()
    # Scripts set up the device and the host they believe in: give them one.
    setup = 'ip tuntap add tun0 mode tun 2>/dev/null; ip link set tun0 up 2>/dev/null; exec "$@"'
    unshare = ["unshare", "-n" if os.geteuid() == 0 else "-rn", "sh", "-c", setup, "sh"]
    passed, failed = 0, 0
    for script in scripts(args.paths):
        stack = os.path.abspath(args.stack)
        command = unshare + ["env", "LD_PRELOAD=" + stack, os.path.abspath(args.packetdrill), "--so_filename=" + stack,
                             "--tolerance_usecs=%d" % args.tolerance_usecs, script.name]
        if args.flags:
            command.insert(-1, "--so_flags=" + args.flags)
        try:
            run = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, timeout=args.timeout)
            error = "" if run.returncode == 0 else (run.stderr or run.stdout or "status %d" % run.returncode)
        except subprocess.TimeoutExpired:
            error = "no end after %g s" % args.timeout
        if error:
            failed += 1
            print("FAIL %s\n  %s" % (script, "\n  ".join(error.strip().splitlines()[:4])))
        else:
            passed += 1
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
