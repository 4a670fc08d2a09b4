#!/usr/bin/python3
"""nginx and haproxy are reloaded and replaced again and again while 200 connections a second come: none of them fails.

Needs `tools/setup --servers`. With --full a hundred reloads each.
"""
import os
import shutil
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit import counters  # noqa: E402
from labkit.process import wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT, RATE, BETWEEN = 5072, 200, 0.5
suite = Suite("reloads")

NGINX = """user root; worker_processes 4; pid {folder}/pid; error_log {folder}/errors;
env LD_PRELOAD; env VIREO_PROMOTE; env VMA_STATS_FILE;
events {{ worker_connections 512; }}
http {{ access_log off; server {{ listen {address}:{port}; location / {{ return 200 "hello"; }} }} }}
"""
HAPROXY = """global
  maxconn 2000
  stats socket {folder}/socket mode 600 level admin expose-fd listeners
defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
frontend f
  bind {address}:{port}
  http-request return status 200 content-type text/plain string hello
"""

# Prints how many connections there were, how many were served, the slowest in seconds, and what went wrong.
LOAD = """
import asyncio, collections, sys, time
host, port, seconds, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
served, slowest, wrong = 0, 0.0, collections.Counter()
async def ask():
    global served, slowest
    begun = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection(host, port)
        await asyncio.sleep(0.02)  # so that there are several at a time
        writer.write(b"GET / HTTP/1.0\\r\\n\\r\\n")
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.") and answer.endswith(b"hello"), answer[:40]
        served += 1
    except Exception as e: wrong[repr(e)[:70]] += 1
    slowest = max(slowest, time.monotonic() - begun)
async def main():
    begun, n, tasks = time.monotonic(), 0, []
    while time.monotonic() - begun < seconds:
        while n < (time.monotonic() - begun) * rate:
            tasks.append(asyncio.create_task(asyncio.wait_for(ask(), 15)))
            n += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks, return_exceptions=True)
    print(n, served, round(slowest, 3), dict(wrong))
asyncio.run(main())
"""


def pid_in(file: Path) -> int:
    wait_until(lambda: file.exists() and file.read_text().strip().isdigit(), 10)
    return int(file.read_text())


def is_over(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def reload_all(pid: Path) -> None:
    os.kill(pid_in(pid), signal.SIGHUP)


def reload_haproxy(pid: Path) -> None:
    os.kill(pid_in(pid), signal.SIGUSR2)


def replace(pid: Path) -> None:
    """nginx: a new master with the old one's listeners, then the old one's end."""
    old = pid_in(pid)
    os.kill(old, signal.SIGUSR2)
    wait_until(lambda: pid.exists() and pid.read_text().strip() not in ("", str(old)), 5)
    time.sleep(0.3)
    os.kill(old, signal.SIGQUIT)


def run(t: Test, program: str, config: str, change, promote: str) -> None:
    path = shutil.which(program, path="/usr/sbin:/usr/bin")
    t.expect(path is not None, f"no {program}: tools/setup --servers")
    folder, address = t.logs / program, t.lab.address("B", 4)
    folder.mkdir()
    (folder / "config").write_text(config.format(folder=folder, address=address, port=PORT))
    arguments = {"nginx": ("-c", str(folder / "config")), "haproxy": ("-D", "-W", "-p", str(folder / "pid"), "-f", str(folder / "config"))}[program]
    times = 4 if t.options.quick else 100 if t.options.full else 20
    t.start("B", path, *arguments, name=program, env={"VIREO_PROMOTE": promote}).wait(20)
    before = counters.kernel_counters(t.lab, "B")
    pid = folder / "pid"
    try:
        each = BETWEEN + (0.5 if change is replace else 0)
        load = t.start("A", PYTHON, "-c", LOAD, address, str(PORT), str(times * each + 1), str(RATE), name="load")
        time.sleep(0.5)
        for _ in range(times):
            change(pid)
            time.sleep(BETWEEN)
        load.wait(times * each + 30)
    finally:
        last = pid_in(pid)
        os.kill(last, signal.SIGTERM)
        wait_until(lambda: is_over(last), 10)
    moved = counters.delta(before, counters.kernel_counters(t.lab, "B"))
    words = load.stdout.split(maxsplit=3)
    t.expect(len(words) == 4, load.tail())
    begun, served, slowest, wrong = int(words[0]), int(words[1]), float(words[2]), words[3]
    t.note(f"{times} times: {served} of {begun} served, the slowest {slowest} s; the kernel opened {moved['tcp_passive_opens']}, "
           f"and sent {moved['tcp_rst_out']} resets")
    t.expect(served == begun, f"{begun - served} of {begun} failed: {wrong}")
    t.expect(slowest < 1.0, f"one took {slowest} s")


for setting in ("0", "proven", "1"):
    for what, program, config, change in (("nginx is reloaded", "nginx", NGINX, reload_all), ("nginx is replaced", "nginx", NGINX, replace),
                                          ("haproxy is reloaded", "haproxy", HAPROXY, reload_haproxy)):
        @suite.case(f"{what}, VIREO_PROMOTE={setting}", ("kernel", "vireo"), seconds=200)
        def _(t: Test, program=program, config=config, change=change, setting=setting) -> None:
            run(t, program, config, change, setting)

if __name__ == "__main__":
    suite.main()
