#!/usr/bin/python3
"""Inside the machine: runs the steps of a plan one by one and writes what became of each case, as lines of JSON.

A plan: {"tree": the sources, "build": what is built, "modules": [...], "nics": {MAC: name}, "steps": [...]}. A step is a suite,
{"title": put before the names of its cases, "suite": script, "options": [...]}, or a program of GoogleTest's, with "program" in
the script's place.
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

SAID = Path("/run/said")
PYTHON = "/usr/bin/python3"


def name_nics(names: dict[str, str]) -> None:
    """Kernels number interfaces as they find them; the plan knows them by their addresses. What a kernel joins for an e1000e
    to part, QEMU's parts into fragments of IP, not into segments, as no NIC does: so nothing is joined."""
    shown = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True).stdout)
    for link in shown:
        if name := names.get(link.get("address", "")):
            is_e1000e = Path("/sys/class/net", link["ifname"], "device/driver").resolve().name == "e1000e"
            subprocess.run(["ip", "link", "set", link["ifname"], "name", name, *(("gso_max_segs", "1") if is_e1000e else ())], check=True)


def report(out, title: str, case: str, passed: bool, error: str, notes: list[str] = []) -> None:
    out.write(json.dumps({"case": f"{title}: {case}", "passed": passed, "error": error, "notes": notes}) + "\n")
    out.flush()


def run_suite(tree: Path, step: dict, out, folder: Path) -> int:
    results = folder.with_suffix(".jsonl")
    with open(folder.with_suffix(".log"), "wb") as log:
        status = subprocess.run([PYTHON, "-B", str(tree / step["suite"]), "--quick", "--results", str(results), "--logs", str(folder),
                                 *step["options"]], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).returncode
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    for row in rows:
        report(out, step["title"], row["case"], row["passed"], row["error"], row["notes"])
    if not rows or (status != 0 and all(row["passed"] for row in rows)):
        report(out, step["title"], f"{step['suite']} runs to its end", False, folder.with_suffix(".log").read_text()[-2000:])
    return len(rows)


def run_program(build: Path, step: dict, out, folder: Path) -> int:
    """Its own tests become the cases. Those that skip themselves are neither passed nor failed, but never all of them."""
    told = folder.with_suffix(".json")
    with open(folder.with_suffix(".log"), "wb") as log:
        status = subprocess.run([str(build / step["program"]), "--gtest_brief=1", f"--gtest_output=json:{told}", *step["options"]],
                                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).returncode
    groups = json.loads(told.read_text())["testsuites"] if told.exists() else []
    rows = [(f"{group['name']}.{case['name']}", case) for group in groups for case in group["testsuite"] if case["status"] == "RUN"]
    ran = [(name, "\n".join(f["failure"] for f in case.get("failures", []))) for name, case in rows if case["result"] != "SKIPPED"]
    for name, error in ran:
        report(out, step["title"], name, not error, error)
    if len(ran) < len(rows):
        print(f"{step['title']}: {len(rows) - len(ran)} skip themselves: {[n for n, case in rows if case['result'] == 'SKIPPED']}", flush=True)
    # A crash fails the program without failing a case.
    if not ran or (status != 0 and not any(error for _, error in ran)):
        report(out, step["title"], f"{step['program']} runs to its end", False, folder.with_suffix(".log").read_text()[-2000:])
    return len(ran)


def main() -> None:
    plan = json.loads((SAID / "plan.json").read_text())
    for module in plan["modules"]:
        subprocess.run(["modprobe", module], check=True)
    name_nics(plan["nics"])
    with open(SAID / "cases.jsonl", "w") as out:
        print(f"{os.uname().release}: {len(plan['steps'])} steps, up for {time.monotonic():.0f} s", flush=True)
        for number, step in enumerate(plan["steps"], 1):
            started = time.monotonic()
            # Beside this on a file system of the guest's own: a log is many small writes.
            run, what, where = (run_suite, "suite", plan["tree"]) if "suite" in step else (run_program, "program", plan["build"])
            folder = Path("/run/logs") / f"{number:02d}-{Path(step[what]).stem}"
            folder.parent.mkdir(exist_ok=True)
            cases = run(Path(where), step, out, folder)
            subprocess.run(["cp", "-r", *map(str, folder.parent.glob(f"{folder.name}*")), str(SAID)])
            print(f"{step['title']}: {folder.name}, {cases} cases, {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
