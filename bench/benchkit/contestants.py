"""Who is measured, on which wire."""
from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    label: str
    wire: str  # "veth", "shm", or "softnic": an RDMA device in software on a wire in shared memory
    stack: str = "kernel"  # "kernel", "vireo", "device", "lwip" (a program of its own on the bare device), or "preload": another library
    spins: bool = False  # where a case blocks, it asks again and again instead
    lab: str = "plain"  # the hosts: LABS
    spec: str | None = "latency"  # VMA_SPEC
    env: tuple[tuple[str, str], ...] = ()
    copies: bool = False  # of "device": a stream's bytes are a program's, and acknowledged
    library: Path | None = None  # of "preload"
    api: str = ""  # the way of the extra API by which datagrams are received
    device: str = "xdp"  # labkit.device.CHOICES: by which Vireo carries

    @property
    def rival(self) -> str:
        """The contestant that ratios compare this one with: Vireo on the same wire."""
        if self.wire == "softnic":
            return "vireo-verbs"
        return "vireo-shm" if self.wire == "shm" else "vireo-jumbo" if self.lab == "jumbo" else "vireo"


LABS: dict[str, dict] = {
    "plain": {"parted": True},  # MTU 1500, and no frame is longer
    "offload": {},  # segments of 64 KiB cross the veth pair
    "jumbo": {"mtu": 9000},
}

_ALL = (
    Contestant("device", "bare AF_XDP", "veth", "device"),
    Contestant("device-copy", "bare AF_XDP, copied", "veth", "device", copies=True),
    Contestant("vireo", "Vireo", "veth", "vireo"),
    Contestant("vireo-callback", "Vireo, receive callback", "veth", "vireo", api="callback"),
    Contestant("vireo-zcopy", "Vireo, recvfrom_zcopy", "veth", "vireo", api="zcopy"),
    Contestant("vireo-xtreme", "Vireo, SocketXtreme", "veth", "vireo", api="socketxtreme", env=(("VMA_SOCKETXTREME", "1"),)),
    Contestant("lwip", "lwIP, raw API", "veth", "lwip"),
    Contestant("kernel", "kernel", "veth"),
    Contestant("kernel-spin", "kernel, spinning", "veth", spins=True),
    Contestant("kernel-offload", "kernel, TSO", "veth", lab="offload"),
    Contestant("device-jumbo", "bare AF_XDP, MTU 9000", "veth", "device", lab="jumbo"),
    Contestant("vireo-jumbo", "Vireo, MTU 9000", "veth", "vireo", lab="jumbo"),
    Contestant("kernel-jumbo", "kernel, MTU 9000", "veth", lab="jumbo"),
    Contestant("vireo-adaptive", "Vireo, no profile", "veth", "vireo", spec=None),
    Contestant("vireo-interrupt", "Vireo, low_cpu", "veth", "vireo", spec="low_cpu"),
    Contestant("device-shm", "bare shm", "shm", "device"),
    Contestant("device-copy-shm", "bare shm, copied", "shm", "device", copies=True),
    Contestant("lwip-shm", "lwIP on shm, raw API", "shm", "lwip"),
    Contestant("vireo-shm", "Vireo on shm", "shm", "vireo", env=(("VIREO_DEVICE", "shm"),)),
    Contestant("bare-verbs", "bare verbs", "softnic", "device"),
    Contestant("vireo-verbs", "Vireo by verbs", "softnic", "vireo", device="verbs"),
    Contestant("vireo-mlx5", "Vireo by mlx5", "softnic", "vireo", device="mlx5"),
)
CONTESTANTS = {c.name: c for c in _ALL}


def preloaded(words: list[str]) -> dict[str, Contestant]:
    """From the options --preload NAME=PATH. Errors: ValueError for what is not that, or a name that is taken."""
    found: dict[str, Contestant] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not name or not equals or not path:
            raise ValueError(f"--preload {word}: it is NAME=PATH")
        if name in CONTESTANTS or name in found:
            raise ValueError(f"--preload {word}: there is a contestant of that name")
        if not Path(path).is_file():
            raise ValueError(f"--preload {word}: no such file")
        found[name] = Contestant(name, name, "veth", "preload", library=Path(path).resolve())
    return found
