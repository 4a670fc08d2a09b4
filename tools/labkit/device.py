"""By which device Vireo carries the lab's interface."""
from __future__ import annotations

from pathlib import Path

CHOICES = ("xdp", "verbs", "mlx5", "mlx5-striding", "mlx5-lro")


def environment(device: str, build: Path, interface: str) -> dict[str, str]:
    """What makes a program under Vireo use `device`: all but xdp run on the RDMA device in software, whose port is `interface`."""
    if device == "xdp":
        return {}
    back_end, _, receive = device.partition("-")
    return {"VIREO_DEVICE": back_end, "VIREO_STRQ": "on" if receive == "striding" else "off",
            "VIREO_LRO": "on" if receive == "lro" else "off", "LD_LIBRARY_PATH": str(build / "softnic"), "SOFTNIC_WIRE": f"xdp@{interface}"}
