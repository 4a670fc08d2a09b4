"""Everything that must hold, part by part; called by tools/check after the packages are there.

A part reports named cases; each GoogleTest case and each black-box case counts as one. Output of what failed is shown,
all of it is in build/check/PART.log and, for the black-box suites, build/check/PART/CASE/.
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Callable

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "check"
JOBS = str(os.cpu_count() or 1)


@dataclasses.dataclass
class Outcome:
    case: str
    passed: bool
    error: str = ""


@dataclasses.dataclass
class Run:
    status: int | None  # None: out of time
    log: Path

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Checker:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self._child: subprocess.Popen | None = None

    def run(self, log: str, seconds: float, *command: str, env: dict[str, str] | None = None, show: bool = False,
            add: bool = False) -> Run:
        """Runs a command with a time limit; output to build/check/LOG.log, and shown as it comes if `show`."""
        path = LOGS / f"{log}.log"
        with open(path, "ab" if add else "wb") as out:
            out.write(f"$ {' '.join(command)}\n".encode())
            out.flush()
            self._child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                                           stdout=subprocess.PIPE if show else out, env={**os.environ, **(env or {})},
                                           start_new_session=True)
            if show:
                return self._show(path, out, seconds)
            try:
                return Run(self._child.wait(seconds), path)
            except subprocess.TimeoutExpired:
                self.stop()
                out.write(f"\nout of time after {seconds:g} s\n".encode())
                return Run(None, path)

    def _show(self, path: Path, out, seconds: float) -> Run:
        child, deadline = self._child, time.monotonic() + seconds
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.setitimer(signal.ITIMER_REAL, max(0.1, deadline - time.monotonic()))
        try:
            for line in child.stdout:
                out.write(line)
                sys.stdout.write("  " + line.decode(errors="replace"))
                sys.stdout.flush()
            return Run(child.wait(), path)
        except TimeoutError:
            self.stop()
            out.write(f"\nout of time after {seconds:g} s\n".encode())
            return Run(None, path)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def stop(self) -> None:
        """Ends the running command: it may clean up for a while, then its session is killed."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()

    # ---- parts -------------------------------------------------------------------------------------------------
    def build(self, preset: str, seconds: float, *targets: str) -> list[Outcome]:
        name = f"build {preset}"
        log = name.replace(" ", "-")
        done = self.run(log, 120, "cmake", "--preset", preset)
        if done.status == 0:
            wanted = ["--target", *targets] if targets else []
            done = self.run(log, seconds, "cmake", "--build", "--preset", preset, "-j", JOBS, *wanted, "--", "-k", "0", add=True)
        if done.status == 0:
            return [Outcome(name, True)]
        text = done.log.read_text(errors="replace").splitlines()
        at = next((i for i, line in enumerate(text) if re.search(r"\berror\b|FAILED|CMake Error", line)), max(0, len(text) - 30))
        return [Outcome(name, False, "\n".join(text[at:at + 30]))]

    def ctest(self, preset: str, seconds: float, *selection: str, prefix: tuple[str, ...] = (),
              env: dict[str, str] | None = None) -> list[Outcome]:
        """Runs a preset's tests: those that need no root beside each other, the others one by one."""
        outcomes: list[Outcome] = []
        for label, extra in (("plain", ["-LE", "root", "-j", JOBS]), ("root", ["-L", "root"])):
            if label == "root" and "-L" in selection:  # two -L are both required: root tests of that label
                extra = ["-L", "root"]
            folder = LOGS / f"gtest-{preset}-{label}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            junit = folder / "ctest.xml"
            done = self.run(f"ctest-{preset}-{label}", seconds, *prefix, "ctest", "--test-dir", str(ROOT / "build" / preset),
                            "--output-on-failure", "--timeout", "300", "--no-tests=ignore", "--repeat", "until-pass:2", "--output-junit", str(junit),
                            *selection, *extra, env={"GTEST_OUTPUT": f"json:{folder}/", "GTEST_BRIEF": "1", **(env or {})})
            if not junit.exists():
                if done.status != 0:
                    outcomes.append(Outcome(f"{preset}: ctest {label}", False, done.tail()))
                continue
            outcomes += self._collect(preset, folder, junit)
            if done.status is None:
                outcomes.append(Outcome(f"{preset}: ctest {label} within {seconds:g} s", False, done.tail()))
        return outcomes

    @staticmethod
    def _collect(preset: str, folder: Path, junit: Path) -> list[Outcome]:
        outcomes = []
        for test in ET.parse(junit).getroot().iter("testcase"):
            name, status = test.get("name"), test.get("status")
            if status not in ("run", "fail"):  # ctest calls it skipped; a test that was not run has not passed
                why = test.find("skipped")
                outcomes.append(Outcome(f"{preset}: {name}", False, f"not run: {status} {why.get('message') if why is not None else ''}"))
                continue
            failed = test.find("failure") is not None or status == "fail"
            output = (test.findtext("system-out") or "")[-4000:]
            cases, skipped = [], 0
            for report in folder.glob(f"{name}.json"):
                for group in json.loads(report.read_text()).get("testsuites", []):
                    for case in group.get("testsuite", []):
                        if case.get("status") != "RUN":
                            continue
                        if case.get("result") == "SKIPPED":
                            skipped += 1
                            continue
                        errors = "\n".join(f["failure"] for f in case.get("failures", []))
                        cases.append(Outcome(f"{preset}: {group['name']}.{case['name']}", not errors, errors))
            outcomes += cases
            if skipped:
                print(f"  {preset}: {name}: {skipped} cases skipped themselves, neither passed nor failed", flush=True)
            # A crash, a sanitizer's report or a leak fails the program without failing a case.
            if failed and all(c.passed for c in cases):
                outcomes.append(Outcome(f"{preset}: {name}", False, output))
            elif not cases and not skipped:
                outcomes.append(Outcome(f"{preset}: {name}", not failed, output))
        return outcomes

    def test_targets(self, preset: str, *selection: str) -> list[str]:
        """The programs behind a preset's selected tests; empty if it does not configure."""
        if self.run(f"configure-{preset}", 120, "cmake", "--preset", preset).status != 0:
            return []
        done = subprocess.run(["ctest", "--test-dir", str(ROOT / "build" / preset), "--show-only=json-v1", *selection],
                              capture_output=True, text=True, cwd=ROOT)
        try:
            return sorted({t["name"] for t in json.loads(done.stdout)["tests"]})
        except (ValueError, KeyError):
            return []

    def sanitized(self, preset: str, seconds: float, *selection: str, **kwargs) -> list[Outcome]:
        targets = self.test_targets(preset, *selection)
        if not targets:
            return [Outcome(f"{preset}: tests found", False, Run(None, LOGS / f"configure-{preset}.log").tail())]
        outcomes = self.build(preset, seconds, *targets)
        return outcomes + (self.ctest(preset, seconds, *selection, **kwargs) if outcomes[0].passed else [])

    def suite(self, script: str, seconds: float, *extra: str, device: str = "xdp") -> list[Outcome]:
        """One black-box program. What fails is tried once more, and both are shown: two hosts, their relay and a kernel
        share the processors with whatever else the machine does."""
        outcomes = self.suite_once(script, seconds, self.options.case, extra, device)
        again = [o.case.split(": ", 1)[1] for o in outcomes if not o.passed and ": " in o.case and not o.case.endswith("its end")]
        if not again or len(again) > 12:
            return outcomes
        print(f"  once more: {len(again)} cases", flush=True)
        second = {o.case: o for o in self.suite_once(script, seconds, "^(" + "|".join(map(re.escape, again)) + ")$", extra, device, "-again")}
        return [second.get(o.case, o) for o in outcomes]

    def suite_once(self, script: str, seconds: float, case: str | None, extra: tuple[str, ...], device: str, suffix: str = "") -> list[Outcome]:
        """Its cases come as lines of JSON."""
        path = ROOT / "tests" / script
        by = "" if device == "xdp" else f"-{device}"
        name = path.stem + by + suffix
        results = LOGS / f"{name}.jsonl"
        results.unlink(missing_ok=True)
        size = [flag for flag in ("--quick", "--full") if getattr(self.options, flag[2:])]
        only = ["--only", case] if case else []
        done = self.run(name, seconds * (4 if self.options.full else 1), "/usr/bin/python3", str(path),
                        "--results", str(results), "--logs", str(LOGS / name), "--device", device, *(extra or size), *only, show=True)
        outcomes = []
        if results.exists():
            for line in results.read_text().splitlines():
                row = json.loads(line)
                outcomes.append(Outcome(f"{row['suite']}{by}: {row['case']}", row["passed"], row["error"]))
        if only and "no case matches" in done.log.read_text(errors="replace"):
            return []
        if done.status is None or (done.status != 0 and all(o.passed for o in outcomes)):
            outcomes.append(Outcome(f"{name}: runs to its end", False, done.tail()))
        return outcomes

    def suites(self, folder: str, seconds: float) -> list[Outcome]:
        return [o for script in sorted((ROOT / "tests" / folder).glob("*.py")) if os.access(script, os.X_OK)
                for o in self.suite(f"{folder}/{script.name}", seconds)]

    def rdma(self) -> list[Outcome]:
        """What the NIC of these machines carries, carried by one in software with the ABI of an RDMA device."""
        return [*self.suites("rdma", 120), *self.suite("interop/pairings.py", 900, "--quick", "--only", "vireo", device="verbs"),
                *self.suite("integrity/integrity.py", 900, "--quick", device="verbs"),
                *(outcome for device in ("mlx5", "mlx5-striding", "mlx5-lro") for outcome in (
                    *self.suite("interop/pairings.py", 300, "--quick", "--only", "vireo to vireo", device=device),
                    *self.suite("integrity/integrity.py", 200, "--quick", "--only", "vireo to vireo", device=device))),
                *self.suite("interop/kill.py", 100, "--quick", "--only", "while a .* lives on", device="mlx5")]

    def kernels(self) -> list[Outcome]:
        """Debian's own kernel and real drivers, in an emulator."""
        setup = self.run("kernels-setup", 900, str(ROOT / "tools" / "setup"), "--kernels")
        if setup.status != 0:
            return [Outcome("kernels: packages", False, setup.tail())]
        results = LOGS / "kernels.jsonl"
        results.unlink(missing_ok=True)
        only = ["--only", self.options.case] if self.options.case else []
        done = self.run("kernels", 1300, "/usr/bin/python3", str(ROOT / "tests" / "kernels" / "kernels.py"), "--results", str(results), *only, show=True)
        rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
        outcomes = [Outcome(f"{row['suite']}: {row['case']}", row["passed"], row["error"]) for row in rows]
        if done.status is None or (done.status != 0 and all(o.passed for o in outcomes)):
            outcomes.append(Outcome("kernels: runs to its end", False, done.tail()))
        return outcomes

    def budget(self) -> list[Outcome]:
        """One outcome a path; none, and that is said, where the counts kept are another compiler's."""
        done = self.run("budget", 400, str(ROOT / "bench" / "budget"), show=True)
        if done.status == 77:
            print("  budget: skipped, neither passed nor failed", flush=True)
            return []
        found = re.findall(r"^(ok  |FAIL) (.*)\n((?:     .*\n)*)", done.log.read_text(errors="replace"), re.M)
        outcomes = [Outcome(f"budget: {path.rsplit(': ', 1)[0]}", verdict == "ok  ", why) for verdict, path, why in found]
        if not outcomes or done.status != int(any(not o.passed for o in outcomes)):
            outcomes.append(Outcome("budget: runs to its end", False, done.tail()))
        return outcomes

    def format(self) -> list[Outcome]:
        listed = subprocess.run(["git", "ls-files", "*.cpp", "*.h", "*.c"], capture_output=True, text=True, cwd=ROOT, check=True)
        files = [f for f in listed.stdout.split() if (ROOT / f).exists()]
        done = self.run("format", 300, "clang-format-19", "--dry-run", "-Werror", *files)
        bad = sorted(set(re.findall(r"^([^:\s]+):\d+:\d+: error", done.log.read_text(), re.M)))
        return [Outcome("clang-format", done.status == 0, "not formatted: " + " ".join(bad))]

    def scripts(self) -> list[Outcome]:
        """The scripts parse; they have no compiler to say so."""
        errors = []
        listed = subprocess.run(["git", "ls-files", "tools", "tests", "bench", ".ci"], capture_output=True, text=True, cwd=ROOT)
        for name in listed.stdout.split():
            path = ROOT / name
            if not path.is_file():
                continue
            head = path.read_bytes()[:64]
            if name.endswith(".py") or (head.startswith(b"#!") and b"python" in head.splitlines()[0]):
                try:
                    compile(path.read_text(), name, "exec")
                except SyntaxError as error:
                    errors.append(f"{name}: {error}")
            elif head.startswith(b"#!/bin/bash"):
                done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
                errors += [done.stderr] if done.returncode else []
        missing = subprocess.run([ROOT / "tests" / "list", "--missing"], capture_output=True, text=True)
        layers = subprocess.run([ROOT / "tests" / "layers"], capture_output=True, text=True)
        documents = subprocess.run([ROOT / "tests" / "documents"], capture_output=True, text=True)
        unused = subprocess.run([ROOT / "tests" / "unused"], capture_output=True, text=True)
        return [Outcome("scripts parse", not errors, "\n".join(errors)),
                Outcome("includes go downward, files and classes are small", layers.returncode == 0, layers.stdout + layers.stderr),
                Outcome("nothing is unused", unused.returncode == 0, unused.stdout + unused.stderr),
                Outcome("documents name what is there", documents.returncode == 0, documents.stdout + documents.stderr),
                Outcome("every case, row and clause has its test", missing.returncode == 0, missing.stdout + missing.stderr)]


def traces() -> dict[str, set[str]]:
    """What a run may not leave behind."""
    def ids(kind: str) -> set[str]:
        done = subprocess.run(["bpftool", "-j", kind, "show"], capture_output=True, text=True)
        try:
            return {f"{x.get('id')} {x.get('type')} {x.get('name', '')}" for x in json.loads(done.stdout)
                    if x.get("type") in ("xdp", "xskmap") or str(x.get("name", "")).startswith("vireo")}
        except ValueError:
            return set()
    huge = sum(int((d / "nr_hugepages").read_text()) - int((d / "free_hugepages").read_text())
               for d in Path("/sys/kernel/mm/hugepages").glob("hugepages-*"))
    mourners = {p.parent.name for p in Path("/proc").glob("[0-9]*/comm") if _text(p) == "vireo-mourner\n"}
    return {"namespaces": {p.name for p in Path("/run/netns").glob("vr-*")}, "BPF programs": ids("prog"), "BPF maps": ids("map"),
            "BPF links": ids("link"), "used huge pages": {str(n) for n in range(huge)},
            "mourners": mourners, "lab state": {p.name for p in Path("/run/vireo-lab").glob("*")}}


def left_behind(before: dict[str, set[str]]) -> dict[str, list[str]]:
    """What was not there before. A mourner ends a moment after the last of those it cleans up for."""
    for _ in range(20):
        left = {kind: sorted(now - before[kind]) for kind, now in traces().items() if now - before[kind]}
        if not left:
            break
        time.sleep(0.1)
    return left


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # the process has ended


def _out_of_time(_number, _frame) -> None:
    raise TimeoutError


def _exit(number, _frame) -> None:
    sys.exit(128 + number)


def main() -> int:
    tests = "-L", "threads"
    parts: dict[str, tuple[str, Callable[[Checker], list[Outcome]]]] = {
        "build": ("release build with GCC", lambda c: c.build("release", 2700)),
        "unit": ("every test known to CTest", lambda c: c.ctest("release", 600)),
        "interop": ("real programs in every pairing, kills, missing rights", lambda c: c.suites("interop", 900)),
        "heirs": ("children and other programs that get sockets, beside the kernel", lambda c: c.suite("heirs/heirs.py", 900)),
        "apps": ("web server, asyncio, programs that speak to groups", lambda c: c.suites("apps", 400)),
        "integrity": ("byte-compared transfers", lambda c: c.suites("integrity", 1500)),
        "kernels": ("a packaged kernel and real drivers, in an emulator", Checker.kernels),
        "rdma": ("programs of libibverbs, pairings and transfers over verbs and mlx5, on a device in software", Checker.rdma),
        "abi": ("preloading is free, exported names", lambda c: c.suites("abi", 300)),
        "bench": ("statistics and report of bench/run, its programs over loopback", lambda c: c.suites("bench", 120)),
        "budget": ("instructions of each path, against bench/BUDGET.md", Checker.budget),
        "asan": ("all unit tests under ASan and UBSan", lambda c: c.sanitized(
            "asan", 2700, env={"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1", "UBSAN_OPTIONS": "print_stacktrace=1"})),
        "tsan": ("the tests labelled `threads` under TSan", lambda c: c.sanitized(
            "tsan", 900, *tests, prefix=("setarch", os.uname().machine, "-R"))),
        "clang": ("build with Clang, warnings are errors", lambda c: c.build("clang", 2700)),
        "format": ("clang-format", Checker.format),
        "scripts": ("scripts parse, includes go downward, files and classes are small, nothing is unused, documents name what is there", Checker.scripts),
    }
    parser = argparse.ArgumentParser(prog="tools/check", description="Builds and tests everything.")
    parser.add_argument("--list", action="store_true", help="the parts")
    parser.add_argument("--only", default="", metavar="PART,...")
    parser.add_argument("--skip", default="", metavar="PART,...")
    parser.add_argument("--case", default="", metavar="REGEX", help="black-box cases whose name matches")
    parser.add_argument("--deep", action="store_true", help="also the parts asan, tsan and clang, which build everything anew")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small transfers")
    size.add_argument("--full", action="store_true", help="the sizes of a release: 1 GiB each way")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:10} {text}" for name, (text, _) in parts.items()))
        return 0
    only, skip = ([p for p in words.split(",") if p] for words in (options.only, options.skip))
    unknown = [p for p in (*only, *skip) if p not in parts]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are: {' '.join(parts)}")
    if not options.deep and not only:
        skip += ["asan", "tsan", "clang"]
    if os.geteuid() != 0:
        sys.exit("tools/check: run as root: the tests make network namespaces")

    LOGS.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGHUP, _exit)
    checker = Checker(options)
    before = traces()
    outcomes: list[Outcome] = []
    try:
        for name, (_, function) in parts.items():
            if (only and name not in only) or name in skip:
                continue
            print(f"== {name}", flush=True)
            started = time.monotonic()
            got = function(checker)
            for o in got:
                if not o.passed and not name in ("interop", "heirs", "apps", "integrity", "kernels", "abi", "bench", "budget"):  # those have shown theirs
                    print(f"  FAIL {o.case}\n    " + o.error.strip().replace("\n", "\n    "), flush=True)
            failed = sum(not o.passed for o in got)
            print(f"   {name}: {len(got) - failed} passed, {failed} failed, {time.monotonic() - started:.0f} s", flush=True)
            outcomes += got
    finally:
        checker.stop()
    left = left_behind(before)
    outcomes.append(Outcome("nothing is left behind", not left, json.dumps(left)))
    bad = [o for o in outcomes if not o.passed]
    if bad:
        print("\nfailed:")
        for o in bad:
            print(f"  {o.case}: {(o.error.strip().splitlines() or [''])[0][:160]}")
        print(f"logs: {LOGS}")
    (LOGS / "outcomes.json").write_text(json.dumps([dataclasses.asdict(o) for o in outcomes], indent=1))
    print(f"{len(outcomes) - len(bad)} passed, {len(bad)} failed", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
