"""Programs on the lab's hosts: started in their own session, output to files, never outliving the test."""
from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Failed(AssertionError):
    """A case's verdict; the text says what was expected and what was seen."""


class Process:
    """One running program. Its output is in `<log>.out` and `<log>.err`."""

    def __init__(self, command: list[str], log: Path, *, env: dict[str, str] | None = None,
                 stdin: Path | None = None, cwd: Path | None = None, shown: str | None = None):
        self.shown = shown or shlex.join(command)
        self.out_file, self.err_file = log.with_suffix(".out"), log.with_suffix(".err")
        self.stats_file: Path | None = None
        self.live_stats: list[dict] = []
        with open(stdin or os.devnull, "rb") as source, open(self.out_file, "wb") as out, \
                open(self.err_file, "wb") as err:
            self._child = subprocess.Popen(command, stdin=source, stdout=out, stderr=err, env=env, cwd=cwd,
                                           start_new_session=True, preexec_fn=_die_with_parent)
        self.pid = self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    @property
    def status(self) -> int | None:
        return self._child.poll()

    def wait(self, seconds: float, status: int | tuple[int, ...] | None = 0) -> "Process":
        """Waits for the end; Failed if it comes too late or with another status (None: any will do)."""
        try:
            got = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.shown}: still running after {seconds:g} s\n{self.tail()}") from None
        wanted = (status,) if isinstance(status, int) else status
        if wanted is not None and got not in wanted:
            raise Failed(f"{self.shown}: status {got}, not {'/'.join(map(str, wanted))}\n{self.tail()}")
        return self

    def stop(self, number: int = signal.SIGINT, seconds: float = 10) -> int | None:
        """Ends it with a signal it may handle; kills it if it does not obey. @return its status, None if killed."""
        if self.running:
            self.signal(number)
            try:
                self._child.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                return None
        return self._child.returncode

    def signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def kill(self) -> None:
        """SIGKILL to the whole session, and reaps."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._child.wait()

    @property
    def stdout(self) -> str:
        return self.out_file.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self.err_file.read_text(errors="replace")

    def tail(self, lines: int = 15) -> str:
        parts = []
        for name, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            last = text.splitlines()[-lines:]
            if last:
                parts += [f"  {name}:"] + [f"    {line}" for line in last]
        return "\n".join(parts)

    def await_output(self, text: str, seconds: float = 10) -> None:
        """Waits until the program has said `text`, on either stream."""
        wait_until(lambda: text in self.stdout or text in self.stderr or not self.running, seconds)
        if text not in self.stdout and text not in self.stderr:
            raise Failed(f"{self.shown}: did not say {text!r} within {seconds:g} s\n{self.tail()}")


def wait_until(condition, seconds: float, step: float = 0.02) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True
