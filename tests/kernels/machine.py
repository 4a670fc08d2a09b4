"""A machine of its own for a kernel that Debian packages: QEMU's emulator, no rights of the host's kernel needed.

The guest's root is this machine's, read-only by 9p beneath a tmpfs, so what is built and installed here is at the same
path there; only /run and /dev/shm are its own. One folder is written through, for what the guest has to say. It is
emulated instruction by instruction: what works is to be seen there, never how fast.
"""
from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

BOOT = Path("/boot")
MODULES = ("9p", "9pnet_virtio", "virtio_pci", "overlay")

# Until the root is mounted there is busybox alone.
INIT = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules.order); do insmod /modules/$module; done
share() { mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,$2 $1 $3; }
share root ro,cache=loose /below
mount -t tmpfs above /above
mkdir /above/files /above/work
mount -t overlay -o lowerdir=/below,upperdir=/above/files,workdir=/above/work root /root
mount -t tmpfs run /root/run
mkdir /root/run/said
share said rw,cache=none /root/run/said
for at in proc sys dev; do mount --move /$at /root/$at; done
cp /start /root/run/start
exec switch_root /root /bin/bash /run/start
"""

START = """export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t tracefs trace /sys/kernel/tracing
ulimit -l unlimited
ip link set lo up
{command}
echo $? > /run/said/status
sync
echo o > /proc/sysrq-trigger
# No program any more: what it lies on goes meanwhile, and an end of process 1 is a panic.
while :; do :; done
"""


class NoMachine(RuntimeError):
    """Something that it needs is not there; the text is for the user."""


def packaged_kernel(version: str) -> str:
    """The newest installed release of `version` ("6.1") that Debian made."""
    found = [p.name.removeprefix("vmlinuz-") for p in BOOT.glob(f"vmlinuz-{version}.*-amd64")]
    if not found:
        raise NoMachine(f"no kernel {version} in {BOOT}: tools/setup --kernels")
    return max(found, key=lambda release: [int(n) for n in re.findall(r"\d+", release)])


def _modules(kernel: str) -> list[Path]:
    """Files of MODULES and of what they need, in the order of their loading."""
    files: dict[Path, None] = {}
    for name in MODULES:
        shown = subprocess.run(["modprobe", "-S", kernel, "--show-depends", name], capture_output=True, text=True, check=True)
        files |= {Path(line.split()[1]): None for line in shown.stdout.splitlines() if line.startswith("insmod")}
    return list(files)


def _initrd(kernel: str, command: list[str], folder: Path) -> Path:
    tree = folder / "tree"
    for name in ("bin", "proc", "sys", "dev", "below", "above", "root", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), tree / "bin")
    modules = _modules(kernel)
    for file in modules:
        shutil.copy(file, tree / "modules")
    (tree / "modules.order").write_text("\n".join(file.name for file in modules) + "\n")
    (tree / "start").write_text(START.format(command=shlex.join(command)))
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = "\0".join(str(p.relative_to(tree)) for p in sorted(tree.rglob("*")))
    image = folder / "initrd"
    with open(image, "wb") as out:
        subprocess.run(["cpio", "--null", "--create", "--format=newc", "--quiet"], cwd=tree, input=names.encode(), stdout=out, check=True)
    return image


def run(kernel: str, command: list[str], said: Path, seconds: float, devices: list[str], prefix: tuple[str, ...] = (),
        megabytes: int = 2560) -> int | None:
    """Boots, runs `command` as root, and ends. What it writes into /run/said is in the folder `said` here, and the console
    in said/console. `devices` are options of QEMU; `prefix` is what it is started behind. @return the command's status,
    None if the machine ended without one."""
    status, console = said / "status", said / "console"
    status.unlink(missing_ok=True)
    share = "local,path={},mount_tag={},security_model=none,multidevs=remap{}"
    with tempfile.TemporaryDirectory(prefix="vireo-kernels-") as name:
        line = [*prefix, "timeout", "--foreground", "-k", "5", str(seconds), "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max",
                "-smp", "2", "-m", str(megabytes), "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio",
                "-kernel", str(BOOT / f"vmlinuz-{kernel}"), "-initrd", str(_initrd(kernel, command, Path(name))),
                "-append", "console=ttyS0 quiet panic=-1",
                "-virtfs", share.format("/", "root", ",readonly=on"), "-virtfs", share.format(said, "said", ""), *devices]
        with open(console, "wb") as out:
            subprocess.run(line, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=said)
    return int(status.read_text()) if status.exists() and status.read_text().strip() else None
