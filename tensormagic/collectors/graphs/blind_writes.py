"""Finds writes that autograd cannot see to tensors that a graph has saved: its gradients are then silently wrong.

``x.data`` shares the memory of ``x`` and not its count of writes. So what ``.data`` returned is known for as long as it
lives, and a write through it is noted with the memory it reached. When a backward begins, the nodes that were made
before such a write are asked what they have saved; where no such write came after the graph's oldest node (weights
that are clamped after each step, averages of weights) nothing is asked at all.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from tensormagic.collectors.geometry.overlap import Region, overlap
from tensormagic.collectors.graphs.in_place import WriteRecord
from tensormagic.collectors.graphs.saved_memory import region_of, saved_by

MOST_WRITES = 128
MOST_ALIASES = 512
MOST_COMPARED = 1 << 20  # elements, where data is set
_RESTORING = frozenset({"copy_", "data", "set_data"})
# Saved for their sizes alone, or not used in training: what they hold does not matter to the gradient.
_UNUSED = frozenset({"running_mean", "running_var"})
_SIZES_ALONE = ("MaxPool", "AvgPool", "AdaptiveAvgPool", "NllLoss", "Upsample")
_PLAIN_INDEX = (int, slice, type(None), type(Ellipsis))


class BlindWrite(NamedTuple):
    """A write through ``.data``: as any other, and the memory it reached."""

    record: WriteRecord
    region: Region


class Suspect(NamedTuple):
    """A saved tensor that was written to behind autograd's back.

    Attributes:
        place: Of its node in the walk.
        slot: Which of the node's.
        name: What the person calls it; empty where it has no name.
        shape: Its shape.
        records: The writes.
    """

    place: int
    slot: str
    name: str
    shape: tuple[int, ...]
    records: tuple[WriteRecord, ...]


class BlindWrites:
    """What was written through ``.data`` in a run."""

    def __init__(self) -> None:
        self._aliases: dict[int, weakref.ref[torch.Tensor]] = {}
        self._writes: deque[BlindWrite] = deque(maxlen=MOST_WRITES)

    def got_data(self, alias: Any) -> None:
        """Note what ``.data`` returned."""
        key, aliases = id(alias), self._aliases
        aliases[key] = weakref.ref(alias, lambda gone: aliases.pop(key, None) if aliases.get(key) is gone else None)
        if len(aliases) > MOST_ALIASES:
            aliases.pop(next(iter(aliases)))

    @property
    def live(self) -> bool:
        """Whether anything that ``.data`` returned is still there."""
        return bool(self._aliases)

    @property
    def any(self) -> bool:
        """Whether a write is remembered."""
        return bool(self._writes)

    def is_blind(self, target: Any) -> bool:
        """Return whether ``target`` is what ``.data`` returned, or a view of it."""
        aliases = self._aliases
        if not aliases or not isinstance(target, torch.Tensor):
            return False
        known = aliases.get(id(target))
        if known is not None and known() is target:
            return True
        base = target._base if target._is_view() and not target.requires_grad else None
        known = aliases.get(id(base)) if base is not None else None
        return known is not None and known() is base

    def add(self, record: WriteRecord, target: torch.Tensor, index: Any = None) -> None:
        """Note a write to ``target``, or to what a plain ``index`` picks of it."""
        items = index if isinstance(index, tuple) else (index,)
        if index is not None and all(isinstance(item, _PLAIN_INDEX) for item in items):
            target = target[index]
        if (region := region_of(target)) is not None and region.elements:
            self._writes.append(BlindWrite(record, region))

    def last_at(self, address: int) -> int:
        """Return the number that autograd had come to at the last write to what begins there; -1 without any."""
        return next((one.record.start for one in reversed(self._writes) if one.record.address == address), -1)

    def forget(self) -> None:
        """Forget everything."""
        self._aliases.clear()
        self._writes.clear()

    def concern(self, numbers: Sequence[int]) -> bool:
        """Return whether anything was written since the oldest of the nodes with these numbers was made."""
        return bool(self._writes) and len(numbers) > 0 and self._writes[-1].record.start > min(numbers)

    def suspects(
        self, nodes: Sequence[Any], numbers: Sequence[int], name: Callable[[torch.Tensor], str]
    ) -> list[Suspect]:
        """Return what the nodes of a backward that begins had saved before it was written to."""
        found: list[Suspect] = []
        for place, number in enumerate(numbers):
            writes = [one for one in self._writes if number < one.record.start]
            if writes and not hasattr(nodes[place], "variable"):
                found += _spoilt(nodes[place], place, writes, name)
        return found


def _spoilt(node: Any, place: int, writes: Sequence[BlindWrite], name: Callable[[torch.Tensor], str]) -> list[Suspect]:
    found = []
    for saved in saved_by(node):
        region = region_of(saved.tensor) if saved.versions is None and matters(node, saved.slot) else None
        if region is not None:
            records = tuple(one.record for one in writes if overlap(region, one.region) == "yes")
            if records and not _is_restored(records):
                shape = tuple(saved.tensor.shape)
                found.append(Suspect(place, saved.slot, name(saved.tensor), shape, records))
    return found


def matters(node: Any, slot: str) -> bool:
    """Return whether the gradient that a node passes on depends on what it saved there."""
    targets = node.next_functions
    if slot == "weight" and targets:
        return targets[0][0] is not None
    return slot not in _UNUSED and not (slot == "self" and node.name().startswith(_SIZES_ALONE))


def _is_restored(records: Sequence[WriteRecord]) -> bool:
    """Return whether what was there at first may have been put back: weights that were swapped for a while."""
    return len(records) > 1 and records[-1].call in _RESTORING


def differs(old: torch.Tensor, new: Any) -> bool:
    """Return whether ``old.data = new`` puts other values there; False also where finding out would cost too much.

    A network of binary weights sets its weights in every forward, and mostly to what they are.
    """
    if is_lazy(old) or not isinstance(new, torch.Tensor) or old.shape != new.shape or old.dtype != new.dtype:
        return False
    if old.device.type != "cpu" or new.device.type != "cpu" or old.numel() > MOST_COMPARED:
        return False
    return not torch.equal(old, new)
