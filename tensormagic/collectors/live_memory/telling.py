"""From a block of memory to plain data: its best name, who holds it, and the tensor that stands for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from tensormagic.collectors.live_memory.blocks import Block
from tensormagic.collectors.live_memory.categories import category_of
from tensormagic.collectors.live_memory.lines import Origin, noted_line
from tensormagic.collectors.live_memory.parts import nbytes_of
from tensormagic.collectors.objects.naming import OPTIMIZED
from tensormagic.collectors.objects.reach import Place
from tensormagic.collectors.quiet import numbers
from tensormagic.collectors.where.source import location_of
from tensormagic.reports import Category, Holder, LiveStorage, Location

MOST_HOLDERS = 6
_SESSION = ("history", "traceback")
_UNNAMED = ("view", "array")  # the base of what has a name, which is what a person can delete


def live_storage(block: Block, line_of: Callable[[torch.UntypedStorage], Origin | None] = noted_line) -> LiveStorage:
    """Return a block as plain data.

    Args:
        block: The block.
        line_of: Gives the line that allocated a storage, where it is known.
    """
    places = sorted(_named(block), key=lambda pair: (_rank(*pair), id(pair[1]) in block.composed, *_steps(pair[0])))
    place, x = places[0] if places else (None, next(iter(block.tensors.values()), None))
    stands = block.part if x is None or id(x) in block.composed else x
    memory, holders, origin = block.memory, _holders(places, x), _origin(block, line_of)
    return LiveStorage(
        name=place.path if place is not None else "",
        nbytes=memory.nbytes,
        device=memory.device,
        category=category_of(block.roles),
        dtype=str(stands.dtype).removeprefix("torch."),
        shape=_shape(stands),
        tensors=len(block.tensors),
        holders=(*holders[:MOST_HOLDERS], *block.saved, *block.strangers)[:MOST_HOLDERS],
        found=len(holders) + block.in_graphs + len(block.strangers),
        module=block.module,
        location=None if origin is None else origin.location,
        backward=origin is not None and origin.backward,
        shared=_is_shared(block),
    )


def summed(blocks: list[Block]) -> tuple[LiveStorage, ...]:
    """Return the sums of blocks that are not told of one by one: one a device and category, the largest first."""
    sums: dict[tuple[str, Category], list[int]] = {}
    for block in blocks:
        entry = sums.setdefault((block.memory.device, category_of(block.roles)), [0, 0])
        entry[0] += block.nbytes
        entry[1] += 1
    found = [LiveStorage("", nbytes, *key, tensors=count) for key, (nbytes, count) in sums.items()]
    return tuple(sorted(found, key=lambda one: -one.nbytes))


def _named(block: Block) -> list[tuple[Place, torch.Tensor]]:
    places = [pair for pair in block.places if pair[0].kind not in _UNNAMED]
    return list({(place.path, place.location): (place, x) for place, x in reversed(places)}.values())[::-1]


def _rank(place: Place, x: torch.Tensor) -> tuple[bool, bool, bool, bool]:
    """Return what puts the name first that a person would write: their own, a plain path, of all of it."""
    path = place.path
    return place.kind in _SESSION, OPTIMIZED.search(path) is not None, ", " in path, x._is_view()


def _steps(place: Place) -> tuple[bool, int]:
    """Return what puts the path first that is quickest to write; of outputs, the one that tells the cell."""
    return not place.path.startswith("Out["), place.path.count(".") + place.path.count("[")


def _holders(places: list[tuple[Place, torch.Tensor]], stands: torch.Tensor | None) -> list[Holder]:
    return [_holder(place, x, stands) for place, x in places]


def _holder(place: Place, x: torch.Tensor, stands: torch.Tensor | None) -> Holder:
    if x is stands:
        return Holder(place.path, place.kind, "tensor", 0, _with_text(place.location))
    return Holder(place.path, place.kind, "storage", nbytes_of(x), _with_text(place.location))


def _with_text(place: Location | None) -> Location | None:
    if place is None or place.text:
        return place
    return replace(place, text=location_of(place.filename, place.line, place.function).text)


def _origin(block: Block, line_of: Callable[[torch.UntypedStorage], Origin | None]) -> Origin | None:
    """Return the line that allocated a block; one that several storages lie over is somebody else's memory."""
    return None if block.identities or not block.memory.address else line_of(block.part.untyped_storage())


def _shape(x: torch.Tensor) -> tuple[int, ...]:
    try:
        return numbers(x.shape)
    except Exception:  # sizes that are not known as numbers raise all kinds of errors
        return ()


def _is_shared(block: Block) -> bool:
    """Return whether torch is not alone on a memory: two storages lie over it, or it is another's, or a file's."""
    if block.identities:
        return True
    storage = block.part.untyped_storage()
    return (
        block.memory.device == "cpu" and block.memory.address != 0 and (storage.is_shared() or not storage.resizable())
    )
