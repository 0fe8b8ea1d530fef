"""Every tensor and array that a namespace or a collection reaches, as rows: cheap enough for ten thousand of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.storage_aliases import Entry, Shared, by_memory, gather, with_parts
from tensormagic.collectors.geometry.parts import named_parts
from tensormagic.collectors.kinds import sizes_of
from tensormagic.collectors.objects.children import is_stale
from tensormagic.collectors.objects.namespace import Walk, nearest, telling
from tensormagic.collectors.quiet import local_shard, number, quiet, told
from tensormagic.reports import Gap, MemoryTotal, TensorReport, TensorRow, TensorTable

MOST_ROWS = 50_000


def collect_table(
    named: Mapping[str, object],
    *,
    title: str = "",
    panels: int = 0,
    inspect: Callable[[Any, str], TensorReport],
) -> TensorTable:
    """Return what a namespace or a collection holds, a row each. Changes nothing, keeps nothing.

    ``inspect`` returns the full report of one of them, given it and its name: of the first ``panels``.
    """
    with quiet():
        walk = Walk.thorough(named)
        entries = gather(walk, torch.Tensor, np.ndarray)
        pieces = by_memory(with_parts(entries))
        groups = _numbers(entries, pieces)
        rows = tuple(
            _row(entry, groups.get(id(entry), 0), is_buffer=id(entry.item) in walk.buffers)
            for entry in entries[:MOST_ROWS]
        )
        totals = _totals(entries, pieces)
    full, found = zip(entries[:panels], rows[:panels], strict=True), len(entries)
    left_out = f"{MOST_ROWS} of {found} have a row; the totals are over all" if found > MOST_ROWS else ""
    return TensorTable(
        title=title,
        rows=rows,
        totals=totals,
        groups=len(set(groups.values())),
        looked=walk.looked,
        panels=tuple(inspect(entry.item, row.name) for entry, row in full),
        gaps=tuple(Gap("tensors", why) for why in (walk.gap, left_out) if why),
    )


def _numbers(entries: Sequence[Entry], pieces: Sequence[Shared]) -> dict[int, int]:
    """Return the number of the memory that each entry shares with another, by ``id``; numbered as they are met."""
    place: dict[int, int] = {}
    for at, piece in enumerate(pieces):
        owners = {id(entry.part_of or entry) for entry in piece.entries}
        if len(owners) > 1:
            place.update((owner, at) for owner in owners if owner not in place)
    numbers: dict[int, int] = {}
    for entry in entries:
        if id(entry) in place:
            numbers.setdefault(place[id(entry)], len(numbers) + 1)
    return {owner: numbers[at] for owner, at in place.items() if at in numbers}


def _totals(entries: Sequence[Entry], pieces: Sequence[Shared]) -> tuple[MemoryTotal, ...]:
    tensors = Counter(entry.memory.device if entry.memory else _device(entry.item) for entry in entries)
    sizes = {device: [piece.nbytes for piece in pieces if piece.device == device]
             for device in dict.fromkeys([*tensors, *(piece.device for piece in pieces)])}  # fmt: skip
    return tuple(MemoryTotal(device, tensors[device], len(each), sum(each)) for device, each in sizes.items())


def _row(entry: Entry, group: int, *, is_buffer: bool) -> TensorRow:
    item, names, kind = entry.item, entry.names, type(entry.item).__name__
    shown = nearest(telling(names)) if len(names) > 1 else names
    if not entry.is_tensor:
        array = np.ndarray
        dtype, shape, nbytes = str(array.dtype.__get__(item)), array.shape.__get__(item), array.nbytes.__get__(item)
        return TensorRow(shown[0], kind, dtype, shape, "cpu", "strided", nbytes, group, "", names=len(shown))
    return TensorRow(
        shown[0], "buffer" if is_buffer and type(item) is torch.Tensor else kind, _plain(item.dtype),
        told(lambda: sizes_of(item), ()), _device(item), _plain(item.layout), told(lambda: _nbytes(item), 0), group,
        _gradient(item), names=len(shown),
    )  # fmt: skip


@cache
def _plain(name: object) -> str:
    return str(name).removeprefix("torch.")


def _device(item: Any) -> str:
    return told(lambda: str(item.device), "unknown")


def _nbytes(item: torch.Tensor) -> int:
    item = local_shard(item)  # of a DTensor what lies in this process
    if item.layout is torch.strided:
        return number(item.numel()) * int(item.element_size())
    return sum(part.numel() * part.element_size() for _, part in named_parts(item))


def _gradient(item: torch.Tensor) -> str:
    """Return the place in autograd, read without the warning that torch gives for a non-leaf's ``.grad``."""
    if not item.requires_grad:
        return ""
    if is_stale(item):  # asked for its node it would get a new one, or refuse
        return "tracked"
    if item.is_leaf:
        return "leaf, grad" if item.grad is not None else "leaf"
    node = item.grad_fn
    return node.name() if node is not None else "tracked"
