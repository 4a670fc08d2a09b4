"""Two hosts on one wire: network namespaces A and B joined by a veth pair, optionally through a relay.

    A [vr0 10.77.0.1] ---- [10.77.0.2 vr0] B                      without relay
    A [vr0] ---- [ra] relay in a third namespace [rb] ---- [vr0] B    with relay
    A [vr0] ---- [ra] bridge in a third namespace [rb] ---- [vr0] B   with bridge

In the pair's place may stand interfaces that are there and joined already (`nics`), or bonds of them; vr0 is then the
interface itself, the bond, or what `upper` names on top of it.

Offloads are as the kernel sets them: over veth its segments of up to 64 KiB cross as they are, their checksums unfinished.
Where `parted` asks for it, and always with a relay, no frame is longer than the MTU. State is kept in /run/vireo-lab/NAME.json, so labs of different names coexist, each
in namespaces vr-NAME-{a,b,r}. Needs root.
"""
from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

from .build import program

STATE = Path("/run/vireo-lab")
HOSTS = ("A", "B")
DEVICE = "vr0"
_IPV4 = {"A": "10.77.0.1", "B": "10.77.0.2"}
_IPV6 = {"A": "fd77::1", "B": "fd77::2"}
_UPPERS = {"macvlan": ("mode", "bridge"), "ipvlan": ("mode", "l2")}


class LabError(RuntimeError):
    """The lab cannot be made or is not there; the text is for the user."""


def _sh(*command: str, check: bool = True) -> subprocess.CompletedProcess:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if check and done.returncode != 0:
        raise LabError(f"{shlex.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done


def relay_binary() -> Path:
    return program("tools/relay/relay.cpp")


@dataclasses.dataclass
class Lab:
    """A lab's description; up() makes it real. As a context manager it is taken down on every way out, signals
    included (SIGINT and SIGTERM become exceptions while it is entered)."""

    name: str = "lab"
    mtu: int = 1500
    ipv6: str = "on"  # on: both families; off: IPv4 alone; only: IPv6 alone
    vlan: int = 0
    parted: bool = False  # the sender parts what it would leave to a NIC to part: frames as a wire carries them
    bridge: bool = False
    relay: str = ""
    nics: str = ""  # "eth1,eth2": A's and B's; "eth1+eth2,eth3+eth4": a bond of two each, one of which is active
    upper: str = ""  # macvlan or ipvlan on top, and alone in the host's namespace, as containers have it
    relay_pid: int = 0
    relay_start: str = ""  # start time of relay_pid, so that a reused pid is never signalled

    # ---- names and addresses -----------------------------------------------------------------------------------
    def netns(self, host: str) -> str:
        if host not in ("A", "B", "R"):
            raise LabError(f"no host {host!r}: it is A or B")
        return f"vr-{self.name}-{host.lower()}"

    def address(self, host: str, family: int = 4) -> str:
        return (_IPV4 if family == 4 else _IPV6)[host]

    @property
    def device(self) -> str:
        """The interface that bears the addresses."""
        return f"{DEVICE}.{self.vlan}" if self.vlan else DEVICE

    @property
    def needs_naming(self) -> bool:
        """Whether Vireo carries the interface only if it is named (docs/BEHAVIOUR.md, What is carried)."""
        return bool(self.nics) and self._is_built("A")

    @property
    def _state(self) -> Path:
        return STATE / f"{self.name}.json"

    @property
    def relay_stats_file(self) -> Path:
        return STATE / f"{self.name}.relay.json"

    # ---- life --------------------------------------------------------------------------------------------------
    def up(self) -> "Lab":
        self._validate()
        STATE.mkdir(mode=0o755, exist_ok=True)
        if self._state.exists():
            raise LabError(f"lab {self.name} is up already (tools/lab down --name {self.name})")
        self._save()
        try:
            self._make()
        except BaseException:
            self.down()
            raise
        self._save()
        return self

    def down(self) -> None:
        """Ends every process in the lab's namespaces, then removes them. Idempotent."""
        self._stop_relay()
        for host in ("A", "B", "R"):
            self._end_processes(self.netns(host))
        # The links first: that is synchronous, the end of a namespace is not.
        for host in HOSTS:
            if Path("/run/netns", self.netns(host)).exists():
                if not self.nics or self._is_built(host):
                    _sh("ip", "-n", self.netns(host), "link", "del", DEVICE, check=False)
                for inside, name in self._nics_of(host):
                    if not self.upper:
                        _sh("ip", "-n", self.netns(host), "link", "set", inside, "netns", "1", "name", name, check=False)
        for host in ("A", "B", "R"):
            if Path("/run/netns", self.netns(host)).exists():
                _sh("ip", "netns", "del", self.netns(host), check=False)
        self.relay_stats_file.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)
        try:
            STATE.rmdir()
        except OSError:
            pass

    def __enter__(self) -> "Lab":
        self._handlers = {}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            try:
                self._handlers[number] = signal.signal(number, raise_exit)
            except ValueError:  # not the main thread: the owner of the main thread handles signals
                break
        try:
            return self.up()
        except BaseException:
            self._restore_signals()
            raise

    def __exit__(self, *_exc) -> None:
        # A second Ctrl-C must not stop the cleaning.
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        try:
            self.down()
        finally:
            self._restore_signals()

    def _restore_signals(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @classmethod
    def load(cls, name: str = "lab") -> "Lab":
        try:
            return cls(**json.loads((STATE / f"{name}.json").read_text()))
        except FileNotFoundError:
            raise LabError(f"lab {name} is not up (tools/lab up --name {name})") from None

    @staticmethod
    def all() -> list["Lab"]:
        return [Lab.load(p.stem) for p in sorted(STATE.glob("*.json")) if not p.stem.endswith(".relay")]

    # ---- use ---------------------------------------------------------------------------------------------------
    def wrap(self, host: str, command: list[str]) -> list[str]:
        """The command line that runs `command` on a host; the command keeps the pid of the process started."""
        return ["ip", "netns", "exec", self.netns(host), *command]

    def run(self, host: str, *command: str, **kwargs) -> subprocess.CompletedProcess:
        kwargs.setdefault("capture_output", True)
        kwargs.setdefault("text", True)
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(self.wrap(host, list(command)), **kwargs)

    def relay_stats(self) -> dict:
        """Counts per direction and impairment up to now."""
        if not self._relay_alive():
            return {}
        before = self._relay_stat_time()
        os.kill(self.relay_pid, signal.SIGUSR1)
        for _ in range(200):
            if self._relay_stat_time() != before:
                break
            time.sleep(0.01)
        return json.loads(self.relay_stats_file.read_text())

    # ---- making ------------------------------------------------------------------------------------------------
    def _validate(self) -> None:
        if os.geteuid() != 0:
            raise LabError("the lab makes network namespaces: run as root")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,40}", self.name):
            raise LabError(f"bad lab name {self.name!r}: letters, digits and dashes")
        if not 576 <= self.mtu <= 65535:
            raise LabError(f"MTU {self.mtu} is outside 576..65535")
        if self.ipv6 != "off" and self.mtu < 1280:
            raise LabError("IPv6 needs an MTU of at least 1280 (or --ipv6 off)")
        if not 0 <= self.vlan <= 4094:
            raise LabError(f"VLAN {self.vlan} is outside 1..4094")
        if self.relay and self.bridge:
            raise LabError("relay or bridge: one of them")
        if self.nics and (self.relay or self.bridge or any(not 0 < len(self._nics_of(host)) < 3 for host in HOSTS)):
            raise LabError(f"bad interfaces {self.nics!r}: one or two of each host, and nothing between")
        if self.upper and (self.upper not in _UPPERS or not self.nics or "+" in self.nics):
            raise LabError(f"no {self.upper} on top: it is {' or '.join(_UPPERS)}, on one given interface of each host")
        if self.relay:
            # Say what is wrong with the impairments before anything is made.
            checked = _sh(str(relay_binary()), "--check", self.relay, check=False)
            if checked.returncode != 0:
                raise LabError(checked.stderr.strip())

    def _make(self) -> None:
        between = bool(self.relay or self.bridge)
        hosts = ("A", "B", "R") if between else HOSTS
        for host in hosts:
            _sh("ip", "netns", "add", self.netns(host))
            # No duplicate address detection and no router solicitation: addresses work at once and the wire is quiet.
            conf = "disable_ipv6=1" if host == "R" or self.ipv6 == "off" else "accept_dad=0"
            name, value = conf.split("=")
            self._write_sysctls(host, {f"net/ipv6/conf/{scope}/{name}": value for scope in ("all", "default")} |
                                {f"net/ipv6/conf/{scope}/router_solicitations": "0" for scope in ("all", "default")})
        a, b, r = (self.netns(h) for h in ("A", "B", "R"))
        if between:
            _sh("ip", "link", "add", DEVICE, "netns", a, "type", "veth", "peer", "name", "ra", "netns", r)
            _sh("ip", "link", "add", DEVICE, "netns", b, "type", "veth", "peer", "name", "rb", "netns", r)
            ends = [("A", DEVICE), ("B", DEVICE), ("R", "ra"), ("R", "rb")]
        elif self.nics:
            for host in HOSTS:
                self._take_nics(host)
            ends = [("A", DEVICE), ("B", DEVICE)]
        else:
            _sh("ip", "link", "add", DEVICE, "netns", a, "type", "veth", "peer", "name", DEVICE, "netns", b)
            ends = [("A", DEVICE), ("B", DEVICE)]
        for host, device in ends:
            parts = ("gso_max_segs", "1") if self.parted or self.relay else ()
            _sh("ip", "-n", self.netns(host), "link", "set", device, "mtu", str(self.mtu), *parts, "up")
        if self.bridge:
            _sh("ip", "-n", r, "link", "add", "br0", "type", "bridge")
            for device in ("ra", "rb"):
                _sh("ip", "-n", r, "link", "set", device, "master", "br0")
            _sh("ip", "-n", r, "link", "set", "br0", "up")
        for host in HOSTS:
            ns = self.netns(host)
            _sh("ip", "-n", ns, "link", "set", "lo", "up")
            if self.vlan:
                made = _sh("ip", "-n", ns, "link", "add", "link", DEVICE, "name", self.device, "type", "vlan",
                           "id", str(self.vlan), check=False)
                if made.returncode != 0:
                    raise LabError(f"no VLAN device: {made.stderr.strip()} (this kernel may lack CONFIG_VLAN_8021Q)")
                _sh("ip", "-n", ns, "link", "set", self.device, "up")
            if self.ipv6 != "only":
                _sh("ip", "-n", ns, "addr", "add", f"{_IPV4[host]}/24", "dev", self.device)
            if self.ipv6 != "off":
                _sh("ip", "-n", ns, "addr", "add", f"{_IPV6[host]}/64", "dev", self.device, "nodad")
        self._introduce()
        if self.relay:
            self._start_relay()

    def _introduce(self) -> None:
        """Each host knows the other's link address: the kernel sends datagrams to a neighbour that it does not know,
        so that its counters would move."""
        families = ([_IPV4] if self.ipv6 != "only" else []) + ([_IPV6] if self.ipv6 != "off" else [])
        for host, other in (HOSTS[:2], HOSTS[1::-1]):
            mac = self.run(other, "cat", f"/sys/class/net/{self.device}/address").stdout.strip()
            for addresses in families:
                _sh("ip", "-n", self.netns(host), "neigh", "replace", addresses[other], "lladdr", mac,
                    "dev", self.device, "nud", "reachable")

    # ---- given interfaces --------------------------------------------------------------------------------------
    def _nics_of(self, host: str) -> list[tuple[str, str]]:
        """Of the host: name there, and name where they come from."""
        sides = self.nics.split(",")
        names = [n for n in sides[HOSTS.index(host)].split("+") if n] if len(sides) == len(HOSTS) else []
        return [(f"nic{i}" if self._is_built(host) else DEVICE, name) for i, name in enumerate(names)]

    def _is_built(self, host: str) -> bool:
        """vr0 is made upon the host's interfaces, and none of them."""
        return bool(self.upper) or "+" in self.nics.split(",")[HOSTS.index(host)]

    def _take_nics(self, host: str) -> None:
        ns, nics = self.netns(host), self._nics_of(host)
        if self.upper:
            below = nics[0][1]
            _sh("ip", "link", "set", below, "mtu", str(self.mtu), "up")
            _sh("ip", "link", "add", "link", below, "name", DEVICE, "netns", ns, "type", self.upper, *_UPPERS[self.upper])
            return
        for inside, name in nics:
            _sh("ip", "link", "set", name, "down")
            _sh("ip", "link", "set", name, "netns", ns, "name", inside)
        if len(nics) > 1:
            _sh("ip", "-n", ns, "link", "add", DEVICE, "type", "bond", "mode", "active-backup", "miimon", "100")
            for inside, _ in nics:
                _sh("ip", "-n", ns, "link", "set", inside, "master", DEVICE)

    def _write_sysctls(self, host: str, values: dict[str, str]) -> None:
        script = "".join(f"echo {value} > /proc/sys/{name};" for name, value in values.items())
        done = self.run(host, "sh", "-ec", script)
        if done.returncode != 0 and Path("/proc/net/if_inet6").exists():
            raise LabError(f"sysctl on {host}: {done.stderr.strip()}")

    def _start_relay(self) -> None:
        self.relay_stats_file.unlink(missing_ok=True)
        child = subprocess.Popen(
            self.wrap("R", [str(relay_binary()), "--stats", str(self.relay_stats_file), "ra", "rb", self.relay]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True)
        for _ in range(500):  # it writes its first statistics when it forwards
            if self.relay_stats_file.exists():
                break
            if child.poll() is not None:
                raise LabError(f"relay: {child.stderr.read().strip()}")
            time.sleep(0.01)
        else:
            child.kill()
            raise LabError("relay: not ready after 5 s")
        child.stderr.close()
        child.returncode = 0  # it outlives this process on purpose: no warning from Popen
        self.relay_pid, self.relay_start = child.pid, _start_time(child.pid)

    def restart_relay(self, impairments: str) -> None:
        """The same hosts over another link; what was under way is lost."""
        self._stop_relay()
        self.relay = impairments
        self._start_relay()
        self._save()

    def _relay_alive(self) -> bool:
        return self.relay_pid > 0 and _start_time(self.relay_pid) == self.relay_start

    def _relay_stat_time(self) -> int:
        try:
            return self.relay_stats_file.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _stop_relay(self) -> None:
        if self._relay_alive():
            os.kill(self.relay_pid, signal.SIGTERM)
            _await_end([self.relay_pid], 2.0)
        self.relay_pid = 0

    def _end_processes(self, netns: str) -> None:
        if not Path("/run/netns", netns).exists():
            return
        for number, patience in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)):
            pids = [int(p) for p in _sh("ip", "netns", "pids", netns, check=False).stdout.split()]
            pids = [p for p in pids if p != os.getpid()]
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            if not pids or _await_end(pids, patience):
                return

    def _save(self) -> None:
        part = self._state.with_suffix(".part")
        part.write_text(json.dumps(dataclasses.asdict(self)))
        part.rename(self._state)


def raise_exit(number, _frame) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat; empty for no process and for a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _await_end(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(_start_time(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    for pid in pids:  # reap those that are our children
        try:
            os.waitpid(pid, os.WNOHANG)
        except (ChildProcessError, OSError):
            pass
    return True
