"""The memory of the CPU: what this process takes, and what is left for it.

Linux tells it in files; in a container the limit is the container's. Elsewhere psutil is asked where it is there.
"""

from __future__ import annotations

import re
import resource
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tensormagic.reports import DeviceMemory, Gap

_ROOT = Path("/")
_UNITS = 1024  # /proc tells kibibytes


def read_cpu(root: Path = _ROOT, psutil: Any = None) -> tuple[list[DeviceMemory], list[Gap]]:
    """Return the CPU's memory.

    Args:
        root: Where the operating system's files are.
        psutil: The module of that name; by default the one that is installed, where there is none of those files.
    """
    if (root / "proc/self/statm").exists():
        return [_of_files(root)], []
    module = psutil if psutil is not None else _psutil()
    if module is None:
        return [DeviceMemory("cpu")], [Gap("devices", "what this process takes is not known here without psutil")]
    memory = module.virtual_memory()
    taken = module.Process().memory_info().rss
    return [DeviceMemory("cpu", free=memory.available, total=memory.total, process=taken)], []


def _psutil() -> Any:
    return import_module("psutil") if find_spec("psutil") is not None else None


def _of_files(root: Path) -> DeviceMemory:
    pages = int((root / "proc/self/statm").read_text(encoding="ascii").split()[1])
    told = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read(root / "proc/meminfo"), re.MULTILINE))
    total, free = (int(told[key]) * _UNITS if key in told else None for key in ("MemTotal", "MemAvailable"))
    limit, used = _container(root)
    if limit is not None and (total is None or limit < total):
        left = max(limit - (used or 0), 0)
        total, free = limit, left if free is None else min(free, left)
    return DeviceMemory("cpu", free=free, total=total, process=pages * resource.getpagesize())


def _container(root: Path) -> tuple[int | None, int | None]:
    """Return the most that this container may take, and what it takes, less the files that would make way."""
    folder = root / "sys/fs/cgroup"
    for limit, used, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, taken = _read(folder / limit).strip(), _read(folder / used).strip()
        if most.isdigit() and taken.isdigit():
            statistics = _read((folder / limit).parent / "memory.stat")
            files = re.search(rf"^{cached} (\d+)$", statistics, re.MULTILINE)
            return int(most), int(taken) - (int(files[1]) if files else 0)
    return None, None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
