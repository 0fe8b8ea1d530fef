"""The collectives that this process has begun, as torch's flight recorder wrote them down: read once, at the end.

The recorder is on by default and is torch's own: nothing is added to a collective, and none is begun here. Its
interface is private: where it is not as expected nothing is told.
"""

from __future__ import annotations

import base64
import pickle
from array import array
from typing import Any

import torch

from tensormagic.collectors.where.caller import Gathered, own_frame
from tensormagic.collectors.where.source import SourceLines

MOST = 2000
_DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")


def newest_record() -> dict[str, int]:
    """Return the number of the last record of each recorder; -1 where it has none."""
    return {dump: max((one["record_id"] for one in _entries(dump, lines=False)), default=-1) for dump in _DUMPS}


def collectives_since(newest: dict[str, int], sites: SourceLines) -> dict[str, Any]:
    """Return what was begun after these records: of each its group, number, kind, sizes, line and moment; packed."""
    groups = _ranks_of_groups()
    kinds: dict[tuple[Any, ...], int] = {}
    lines: dict[Gathered, str] = {}
    numbers, which, moments = array("i"), array("i"), array("d")
    for dump in _DUMPS:
        for one in _entries(dump, lines=True)[-MOST:]:
            if one["record_id"] <= newest.get(dump, -1) or one["is_p2p"]:
                continue
            group = str(one["process_group"][0])
            frame = own_frame(one.get("frames"))
            if frame is not None and frame not in lines:
                lines[frame] = sites.at(*frame).label
            line = lines[frame] if frame is not None else ""
            operation = str(one["profiling_name"])
            sizes = str(one["input_sizes"]).replace(" ", "")
            kind = (group, tuple(groups.get(group, ())), operation, sizes, line)
            which.append(kinds.setdefault(kind, len(kinds)))
            numbers.append(one["collective_seq_id"])
            moments.append(one["time_created_ns"] * 1e-9)
    return {"kinds": list(kinds), "n": _packed(numbers), "which": _packed(which), "moments": _packed(moments)}


def _packed(numbers: array[Any]) -> str:
    return base64.b64encode(numbers.tobytes()).decode()


def _entries(dump: str, *, lines: bool) -> list[dict[str, Any]]:
    """Return what a recorder holds, the oldest first; nothing where this torch has no such recorder."""
    if not torch.distributed.is_available():
        return []
    from torch._C import _distributed_c10d

    read = getattr(_distributed_c10d, dump, None)
    if read is None:
        return []
    try:
        found = pickle.loads(read(True, lines, False))  # noqa: S301, FBT003  (torch's own, from this process; C++)
        return sorted(found.get("entries", ()), key=lambda one: int(one["record_id"]))
    except (KeyError, RuntimeError, TypeError):
        return []


def _ranks_of_groups() -> dict[str, list[int]]:
    """Return the ranks of each group that this process is in, by the group's name."""
    try:
        world = torch.distributed.distributed_c10d._world
        return {str(world.pg_names[group]): sorted(world.pg_group_ranks[group]) for group in world.pg_map}
    except (AttributeError, KeyError):
        return {}
