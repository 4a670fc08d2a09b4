#!/usr/bin/python3
"""Programs of every day that hand their sockets to children and to other programs: file servers, ssh, super-servers, backups.

No rule in the rules file. What each says and transfers is compared with a run of the kernel at both ends. heirs.py has scripts.
"""
import difflib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from labkit.process import Process, wait_until  # noqa: E402
from labkit.runner import PYTHON, Suite, Test  # noqa: E402

PORT = 5071
PAIRS = (("vireo", "kernel"), ("kernel", "vireo"), ("vireo", "vireo"))
POSTGRES = Path("/usr/lib/postgresql/15/bin")
suite = Suite("heirs_programs")

# Several clients at once, each wants back what it sends.
DIAL = """
import socket, sys, threading
kind, host, port, n, size = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
said = []
def tcp(i):
    text, got = bytes([65 + i]) * size, b""
    try:
        with socket.create_connection((host, port), timeout=4) as c:
            def feed():
                try: c.sendall(text); c.shutdown(socket.SHUT_WR)
                except OSError: pass
            t = threading.Thread(target=feed); t.start()
            while data := c.recv(65536): got += data
            t.join()
        said.append(f"{i}: {'all' if got == text else len(got)}")
    except OSError as e: said.append(f"{i}: {type(e).__name__} after {len(got)}")
def udp(i):
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as c:
            c.settimeout(2); c.connect((host, port)); good = 0
            for k in range(3 if kind == "udp" else 1):
                c.send(b"%d %d" % (i, k)); good += c.recv(100) == b"%d %d" % (i, k)
        said.append(f"{i}: {good}")
    except OSError as e: said.append(f"{i}: {type(e).__name__} after {good}")
threads = [threading.Thread(target=tcp if kind == "tcp" else udp, args=(i,)) for i in range(n)]
for t in threads:
    t.start()
    if kind == "udp": t.join()  # to the one that waits, each datagram is its next peer's
for t in threads: t.join()
print("\\n".join(sorted(said)))
"""

ACCEPTS = """
import socket
l = socket.socket(fileno=3)
while True:
    c, _ = l.accept()
    while data := c.recv(65536): c.sendall(data)
    c.close()
"""


class Run:
    """One run of a case: over the stacks of the case, or over the kernel."""

    def __init__(self, t: Test, stack: str | None):
        self.t, self.stack, self.port, self.said = t, stack, PORT + (stack is None), []
        self.folder = t.logs / (stack or "tested")
        self.folder.mkdir()
        self.address = t.lab.address("B")

    def serve(self, *command: str, protocol: str = "tcp") -> Process:
        server = self.t.start("B", *command, name="server", stack=self.stack)
        self.t.await_port("B", self.port, protocol)
        return server

    def client(self, *command: str, stdin: Path | None = None, seconds: float = 9, awaited: str = "") -> str:
        """Runs it to its end; what it said and its status are compared."""
        process = self.t.start("A", *command, stdin=stdin, name="client", stack=self.stack)
        process.wait(seconds, None)
        if awaited:
            wait_until(lambda: awaited in process.stdout, 3)
        ours = [line for line in process.stderr.splitlines() if "Vireo" in line]
        rest = [line for line in process.stderr.splitlines() if line not in ours]
        self.said += [f"{Path(command[0]).name} status {process.status}", *process.stdout.splitlines()[:20], *rest[-8:]]
        self.t.notes += [line[:150] for line in ours[:2]]
        return process.stdout

    def dial(self, kind: str = "tcp", n: int = 4, size: int = 200_000) -> None:
        self.client(PYTHON, "-c", DIAL, kind, self.address, str(self.port), str(n), str(size))

    def tree(self, path: Path) -> None:
        names = sorted(p for p in path.rglob("*") if p.is_file() and ".git" not in p.parts) if path.exists() else []
        sha = hashlib.sha256()
        for name in names:
            sha.update(str(name.relative_to(path)).encode() + name.read_bytes())
        self.said.append(f"{len(names)} files {sha.hexdigest()[:16]}")

    def text(self) -> str:
        return "\n".join(self.said).replace(str(self.folder), "FOLDER").replace(str(self.port), "PORT")

    def end(self) -> None:
        """Ends the servers and looks at what is left; what the server closes late may take a moment."""
        self.t.snapshot()
        for _, _, process in self.t._processes:
            process.stop(signal.SIGTERM, 3)
        wait_until(lambda: not self._left(), 2)
        for pid, words in self._left():
            self.said.append(f"stays behind: {words[:60]}")
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # in the last moment
                pass

    def _left(self) -> list[tuple[int, str]]:
        rows = []
        for host in "AB":
            for pid in self.t.lab.run(host, "ip", "netns", "pids", self.t.lab.netns(host)).stdout.split():
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if words and "mourner" not in words:
                    rows.append((int(pid), words))
        return rows


def everyday(title: str, pairs=PAIRS):
    def register(function):
        for ends in pairs:
            @suite.case(f"{title}, {ends[0]} to {ends[1]}", ends)
            def _(t: Test) -> None:
                texts = []
                for stack in (None, "kernel"):
                    run = Run(t, stack)
                    function(t, run)
                    run.end()
                    texts.append(run.text())
                t.expect(texts[0] == texts[1], "\n".join(difflib.unified_diff(texts[1].splitlines(), texts[0].splitlines(), "kernel", "vireo", "", "", 1, ""))
                         + "\n" + "\n".join(t.notes))
        return function
    return register


def files(path: Path, many: int = 150, large: int = 4 << 20) -> Path:
    path.mkdir()
    for i in range(many):
        (path / f"f{i}").write_bytes(hashlib.sha256(b"%d" % i).digest() * (i + 1))
    (path / "large").write_bytes(hashlib.shake_256(b"large").digest(large))
    return path


@everyday("rsync from and to a daemon")
def _(t: Test, run: Run) -> None:
    source, up = files(run.folder / "source"), run.folder / "up"
    up.mkdir()
    conf = run.folder / "conf"
    conf.write_text("use chroot = no\nuid = root\ngid = root\n" + "".join(f"[{p.name}]\npath = {p}\nread only = no\n" for p in (source, up)))
    run.serve("rsync", "--daemon", "--no-detach", "--port", str(run.port), "--address", run.address, "--config", str(conf))
    url = f"rsync://{run.address}:{run.port}"
    run.client("rsync", "-a", "--timeout=5", f"{url}/source/", str(run.folder / "down"))
    run.tree(run.folder / "down")
    run.client("rsync", "-a", "--timeout=5", f"{source}/", f"{url}/up/")
    run.tree(up)


def repository(path: Path) -> Path:
    files(path, 60)
    environment = os.environ | {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
                                for what, value in (("NAME", "t"), ("EMAIL", "t@t"), ("DATE", "1700000000 +0000"))}
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first"), ("clone", "-q", "--bare", ".", "../bare.git")):
        subprocess.run(["git", *words], cwd=path, env=environment, check=True, capture_output=True)
    return path.parent / "bare.git"


def clone_and_push(run: Run, url: str, bare: Path, *settings: str) -> None:
    got = run.folder / "got"
    run.client("git", *settings, "clone", "-q", url, str(got))
    run.tree(got)
    if got.exists():
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "second"], cwd=got)
        run.client("git", "-C", str(got), *settings, "push", "-q", "origin", "HEAD:refs/heads/pushed")
    log = subprocess.run(["git", "-C", str(bare), "log", "--format=%s", "pushed"], capture_output=True, text=True)
    run.said.append(log.stdout)


@everyday("git daemon: clone and push")
def _(t: Test, run: Run) -> None:
    bare = repository(run.folder / "work")
    run.serve("git", "daemon", "--reuseaddr", f"--listen={run.address}", f"--port={run.port}", f"--base-path={run.folder}", "--export-all",
              "--enable=receive-pack", str(run.folder))
    clone_and_push(run, f"git://{run.address}:{run.port}/bare.git", bare)


@everyday("pg_basebackup -X stream", PAIRS[:1])
def _(t: Test, run: Run) -> None:
    data = t.logs / "cluster"
    if not data.exists():
        data.mkdir()
        shutil.chown(data, "postgres")
        subprocess.run(["runuser", "-u", "postgres", "--", str(POSTGRES / "initdb"), "-D", str(data), "-A", "trust", "-N"], cwd=t.logs, check=True, capture_output=True)
        with open(data / "pg_hba.conf", "a") as f:
            f.write("host all all 10.77.0.0/24 trust\nhost replication all 10.77.0.0/24 trust\n")
    run.serve("runuser", "-u", "postgres", "--", str(POSTGRES / "postgres"), "-D", str(data), "-h", run.address, "-p", str(run.port), "-k", str(data), "-F")
    run.client(str(POSTGRES / "pg_basebackup"), "-h", run.address, "-p", str(run.port), "-U", "postgres", "-D", str(run.folder / "backup"), "-X", "stream", "-c", "fast", "-N",
               seconds=20)
    check = subprocess.run([str(POSTGRES / "pg_verifybackup"), str(run.folder / "backup")], capture_output=True, text=True)
    run.said.append(check.stdout + check.stderr)


def sshd(run: Run) -> list[str]:
    """Starts one; the words of its clients."""
    key, host_key = run.folder / "key", run.folder / "host_key"
    for path in (key, host_key):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, capture_output=True)
    conf = run.folder / "sshd_config"
    conf.write_text(f"Port {run.port}\nListenAddress {run.address}\nHostKey {host_key}\nAuthorizedKeysFile {key}.pub\nStrictModes no\nUsePAM no\n"
                    "PidFile none\nPermitRootLogin yes\nPasswordAuthentication no\nSubsystem sftp /usr/lib/openssh/sftp-server\n")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    run.serve("/usr/sbin/sshd", "-D", "-e", "-f", str(conf))
    return ["-F", "none", "-i", str(key), "-o", f"Port={run.port}", "-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no",
            "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "ConnectTimeout=4"]


@everyday("ssh: a command, and ssh -f")
def _(t: Test, run: Run) -> None:
    words, at = sshd(run), f"root@{run.address}"
    large = files(run.folder / "source", 1) / "large"
    run.said.append(hashlib.sha256(run.client("ssh", *words, at, f"base64 {large}", seconds=9).encode()).hexdigest())
    run.said = [line for line in run.said if len(line) < 70]
    run.client("ssh", *words, at, "sha256sum; exit 7", stdin=large)
    run.client("ssh", *words, "-f", at, "sleep 0.5; echo later", awaited="later")


@everyday("ssh: later commands through one connection")
def _(t: Test, run: Run) -> None:
    words, at = [*sshd(run), "-o", "ControlMaster=auto", "-o", f"ControlPath={run.folder}/c", "-o", "ControlPersist=20"], f"root@{run.address}"
    for i in range(3):
        run.client("ssh", *words, at, f"echo {i}; head -c 300000 /dev/zero | sha256sum")
    run.client("ssh", *words, "-O", "exit", at)


@everyday("scp and sftp")
def _(t: Test, run: Run) -> None:
    words, at = sshd(run), f"root@{run.address}"
    source, batch = files(run.folder / "source", 10, 2 << 20), run.folder / "batch"
    run.client("scp", *words, "-q", "-r", str(source), f"{at}:{run.folder}/up")
    run.tree(run.folder / "up")
    run.client("scp", *words, "-q", "-r", f"{at}:{source}", str(run.folder / "down"))
    run.tree(run.folder / "down")
    batch.write_text(f"put {source}/large {run.folder}/put\nget {source}/large {run.folder}/got\n")
    run.client("sftp", *words, "-q", "-b", str(batch), at)
    run.said += [hashlib.sha256((run.folder / n).read_bytes()).hexdigest() if (run.folder / n).exists() else "none" for n in ("put", "got")]


@everyday("ssh -L")
def _(t: Test, run: Run) -> None:
    words, at = sshd(run), f"root@{run.address}"
    t.start("B", "socat", "TCP-LISTEN:5080,bind=127.0.0.1,reuseaddr,fork", "EXEC:cat", name="echo", stack="kernel")
    t.start("A", "ssh", *words, "-N", "-L", "127.0.0.1:5081:127.0.0.1:5080", at, name="forward", stack=run.stack)
    if wait_until(lambda: ":5081 " in t.lab.run("A", "ss", "-Hlnt").stdout, 5):
        client = t.start("A", PYTHON, "-c", DIAL, "tcp", "127.0.0.1", "5081", "3", "300000", name="dial", stack="kernel").wait(9, None)
        run.said.append(client.stdout)
    else:
        run.said.append("no forwarding")


@everyday("git over ssh")
def _(t: Test, run: Run) -> None:
    words = sshd(run)
    bare = repository(run.folder / "work")
    clone_and_push(run, f"root@{run.address}:{bare}", bare, "-c", "core.sshCommand=ssh " + " ".join(words))


for title, protocol, kind, listen, serves in (
        ("TCP-LISTEN,fork EXEC:cat", "tcp", "tcp", "TCP-LISTEN:{port},bind={address},reuseaddr,fork", "EXEC:cat"),
        ("TCP-LISTEN,fork PIPE", "tcp", "tcp", "TCP-LISTEN:{port},bind={address},reuseaddr,fork", "PIPE"),
        ("UDP-LISTEN,fork PIPE", "udp", "udp", "UDP-LISTEN:{port},bind={address},reuseaddr,fork", "PIPE"),
        ("UDP-RECVFROM,fork EXEC:cat", "udp", "once", "UDP-RECVFROM:{port},bind={address},reuseaddr,fork", "EXEC:cat")):
    @everyday(f"socat {title}", PAIRS)
    def _(t: Test, run: Run, protocol=protocol, kind=kind, listen=listen, serves=serves) -> None:
        run.serve("socat", "-t", "3", "-T", "1", listen.format(port=run.port, address=run.address), serves, protocol=protocol)
        run.dial(kind)


@everyday("socat as client, with a child", PAIRS[:1])
def _(t: Test, run: Run) -> None:
    run.serve("socat", f"TCP-LISTEN:{run.port},bind={run.address},reuseaddr,fork", "EXEC:cat")
    run.client("socat", "-t", "3", f"TCP:{run.address}:{run.port}", "SYSTEM:echo one; head -n 1 >&2")
    run.client("socat", "-t", "3", f"EXEC:head -c 300000 /dev/zero!!SYSTEM:sha256sum >&2", f"TCP:{run.address}:{run.port}")


for title, command in (
        ("systemd-socket-activate", ("systemd-socket-activate", "-l", "{at}", PYTHON, "-c", ACCEPTS)),
        ("systemd-socket-activate, the program preloaded", ("systemd-socket-activate", "-E", "LD_PRELOAD", "-l", "{at}", PYTHON, "-c", ACCEPTS)),
        ("systemd-socket-activate --accept --inetd", ("systemd-socket-activate", "-l", "{at}", "--accept", "--inetd", "cat")),
        ("inetd", ("inetd", "-i", "{conf}")),
        ("tcpserver", ("tcpserver", "-HR", "{address}", "{port}", "cat"))):
    @everyday(title, PAIRS[1:2])
    def _(t: Test, run: Run, command=command) -> None:
        conf = run.folder / "inetd.conf"
        conf.write_text(f"{run.address}:{run.port} stream tcp nowait root /usr/bin/cat cat\n")
        run.serve(*(word.replace("{at}", f"{run.address}:{run.port}").replace("{conf}", str(conf)).replace("{address}", run.address)
                    .replace("{port}", str(run.port)) for word in command))
        run.dial()


if __name__ == "__main__":
    suite.main()
