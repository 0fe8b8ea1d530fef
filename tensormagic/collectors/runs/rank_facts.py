"""What a rank knows of itself: its place, its groups, and the collectives it took part in."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import pickle
from array import array
from collections import UserDict
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.kinds.subclasses import placement_text
from tensormagic.collectors.objects.holdings import attributes_of, is_a
from tensormagic.collectors.objects.identity import outermost_call
from tensormagic.collectors.quiet import answers_itself, here
from tensormagic.collectors.where.caller import Gathered, own_frame
from tensormagic.collectors.where.source import SourceLines

# What a rank tells of itself beside norms: what its forward was given, its generators, buffers and placements.
#
# All of it is read from what lies in this process.

_MOST_READ = 65_536  # elements of an input that are read for its hash
_MOST_TENSORS = 64
_hash_tensor = getattr(torch, "hash_tensor", None)
_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def hash_of(x: torch.Tensor) -> int:
    """Return 64 bits of a tensor, whatever the order of its elements is read in: of equal ones the same.

    The sum of what it stores, taken as whole numbers, and torch's own hash, in which equal elements cancel out.
    """
    if x.layout is not torch.strided or (whole := _WHOLE.get(x.element_size())) is None or x.is_complex():
        return 0
    total = int(x.contiguous().view(whole).sum(dtype=torch.int64).item())
    other = int(_hash_tensor(x).view(torch.int64).item()) if _hash_tensor is not None else 0
    return (total * _ODD ^ other) & _MASK


class Forwards:
    """What the outermost module was given since the last pass: the first call of it that made a node.

    Attributes:
        given: A number that is the same for the same values; None where they cannot be read.
        sizes: The first size of each tensor.
        state: Of the generators, as that call began; None where it was not read.
    """

    def __init__(self) -> None:
        self.given: int | None = None
        self.sizes: tuple[int, ...] = ()
        self.state: int | None = None

    def note(self, frame: FrameType) -> bool:
        """Look at the outermost module that runs in a frame; returns whether there is one."""
        call = outermost_call(frame)
        if call is None:
            return False
        self.given, self.sizes, self.state = None, (), None
        tensors = [x for _, x in zip(range(_MOST_TENSORS), _tensors_in(call, 4), strict=False)]
        local = [here(x) for x in tensors]
        if not local or any(answers_itself(x) or x.device.type == "meta" for x in local) or _is_captured():
            return True
        total = 0
        for x in local:
            step = max(x.numel() // _MOST_READ, 1)
            read = x.detach().reshape(-1)[::step] if step > 1 else x.detach()
            total = (total * _ODD + hash_of(read) + len(x.shape)) & _MASK
        self.given, self.sizes = total, tuple(int(x.shape[0]) for x in local if x.dim())
        self.state = generators()
        return True

    def taken(self) -> dict[str, Any] | None:
        """Return what is written of it, and forget it."""
        if self.given is None:
            return None
        drew = self.state is not None and self.state != generators()
        told = {"given": f"{self.given:016x}", "sizes": self.sizes[:1], "state": f"{self.state:016x}", "drew": drew}
        self.given = self.state = None
        return told


def _is_captured() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


def generators() -> int:
    """Return a number for the state of torch's generators of the CPU and of the current device; nothing is drawn."""
    found = hashlib.blake2b(torch.default_generator.get_state().numpy().tobytes(), digest_size=8)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        at = torch.cuda.default_generators[torch.cuda.current_device()]
        found.update(at.get_state().numpy().tobytes())
    return int.from_bytes(found.digest(), "little")


def _tensors_in(value: Any, depth: int) -> Iterator[torch.Tensor]:
    """Yield the tensors in what a module was given, in order."""
    if is_a(value, torch.Tensor):
        yield value
    elif not depth:
        return
    elif is_a(value, list | tuple):
        for each in list(value):
            yield from _tensors_in(each, depth - 1)
    elif is_a(value, dict):
        for each in list(dict.values(value)):
            yield from _tensors_in(each, depth - 1)
    elif is_a(value, UserDict) or dataclasses.is_dataclass(value):
        yield from _tensors_in(dict(attributes_of(value)), depth - 1)


def buffers_of(wrapped: Iterable[Any]) -> dict[str, str]:
    """Return a number for each buffer of what `DistributedDataParallel` does not send around, by its path."""
    found = {}
    for module in wrapped:
        if not getattr(module, "broadcast_buffers", True):
            for name, buffer in module.named_buffers():
                if type(buffer) in {torch.Tensor, torch.nn.Buffer} and buffer.is_floating_point():
                    found[name] = f"{hash_of(buffer.detach()):016x}"
    return found


def placed(parameters: Iterable[tuple[int, Any]]) -> dict[str, Any]:
    """Return on which mesh and how the DTensors among parameters are spread; by the numbers they are given with."""
    meshes: dict[tuple[Any, ...], int] = {}
    coordinates: list[list[int]] = []
    of = []
    for number, parameter in parameters:
        if here(parameter) is parameter:
            continue
        spec = parameter._spec
        mesh = spec.mesh
        names = tuple(mesh.mesh_dim_names or ())
        key = (names, tuple(mesh.mesh.shape), tuple(mesh.mesh.flatten().tolist()))
        if key not in meshes:
            meshes[key] = len(meshes)
            coordinates.append(list(mesh.get_coordinate() or ()))
        of.append([number, meshes[key], [placement_text(one) for one in spec.placements], list(map(int, spec.shape))])
    return {"meshes": list(meshes), "coordinates": coordinates, "of": of}


# The collectives that this process has begun, as torch's flight recorder wrote them down: read once, at the end.
#
# The recorder is on by default and is torch's own: nothing is added to a collective, and none is begun here. Its
# interface is private: where it is not as expected nothing is told.

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
