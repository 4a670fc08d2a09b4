"""By which device Vireo carries the lab's interface."""
from __future__ import annotations

from pathlib import Path

CHOICES = ("xdp", "verbs", "mlx5")


def environment(device: str, build: Path, interface: str) -> dict[str, str]:
    """What makes a program under Vireo use `device`: verbs and mlx5 run on the RDMA device in software, whose port is `interface`."""
    if device == "xdp":
        return {}
    return {"VIREO_DEVICE": device, "LD_LIBRARY_PATH": str(build / "softnic"), "SOFTNIC_WIRE": f"xdp@{interface}"}
