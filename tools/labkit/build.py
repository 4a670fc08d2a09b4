"""Where built things are, and the small programs of the tests: from the build, else compiled on the spot."""
from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_dir() -> Path:
    """The release build, or what VIREO_BUILD names."""
    return Path(os.environ.get("VIREO_BUILD", ROOT / "build" / "release"))


def program(source: str, *flags: str) -> Path:
    """The program made from the one file `source` (path from the root; its headers lie beside it).

    An up-to-date CMake build is used, else it is compiled into build/lab: the harness must not need the library's
    tree to configure.
    """
    path = ROOT / source
    newest = max(p.stat().st_mtime for p in (path, *path.parent.glob("*.h")))
    name = path.stem
    cmake_dir = build_dir() / path.parent.relative_to(ROOT)
    if (ROOT / "tools") in path.parents:
        cmake_dir = build_dir() / "tools"
    target = ROOT / "build" / "lab" / name
    for built in (cmake_dir / name, target):
        if built.is_file() and built.stat().st_mtime >= newest:
            return built
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{name}.{os.getpid()}")
    done = subprocess.run(["g++", "-std=c++23", "-O2", "-pthread", "-o", str(part), str(path), *flags],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"cannot compile {source}:\n{done.stderr}")
    part.rename(target)
    return target
