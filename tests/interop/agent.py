"""A process of a test that stays, and is told what to do: a line of JSON on stdin is a request, a line of JSON on stdout its answer."""
import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

from labkit.process import Failed
from labkit.runner import OURS, PYTHON, Test


class Agent:
    """`program`: of this folder."""

    def __init__(self, t: Test, host: str, stack: str, name: str, program: str):
        log = t.options.logs / f"{stack}-{name}"
        env = t.environment(stack, log.with_suffix(".stats"))
        moved = [f"{k}={env.pop(k)}" for k in list(env) if k.startswith(OURS)]  # the library is for the program alone
        script = str(Path(__file__).resolve().parent / program)
        with open(log.with_suffix(".err"), "ab") as err:
            self._child = subprocess.Popen(t.lab.wrap(host, ["env", *moved, PYTHON, "-u", script]), env=env, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=err, start_new_session=True)
        self.name, self.pid, self._rest = name, self._child.pid, b""
        self._listen()

    def tell(self, **request) -> None:
        try:
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"process {self.name} has ended: status {self._child.wait()}") from None

    def _listen(self, seconds: float = 10):
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if not select.select([self._child.stdout], [], [], max(0, until - time.monotonic()))[0]:
                raise Failed(f"process {self.name} does not answer")
            data = os.read(self._child.stdout.fileno(), 1 << 16)
            if not data:
                raise Failed(f"process {self.name} has ended: status {self._child.wait()}")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    answer = _listen

    def ask(self, **request):
        self.tell(**request)
        return self._listen()

    def end(self, number: int = signal.SIGKILL) -> None:
        if number == signal.SIGKILL:
            self._child.kill()
        self._child.stdin.close()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()
