"""What is alive in memory now, and what explains an error out of memory."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.devices import READERS, Reader, read_devices
from tensormagic.collectors.geometry.parts import named_parts, storage_of
from tensormagic.collectors.memory.freed import collect_freeable
from tensormagic.collectors.memory.live_tensors import (
    Block,
    LiveTensors,
    category_of,
    line_of,
    nbytes_of,
    note_lenders,
    note_unnamed_referrers,
    running,
)  # fmt: skip
from tensormagic.collectors.objects.children import is_kind
from tensormagic.collectors.objects.namespace import OPTIMIZED
from tensormagic.collectors.objects.referents import BASE_KINDS, SESSION_KINDS, Place
from tensormagic.collectors.quiet import numbers, quiet, told
from tensormagic.collectors.session.session_walk import THOROUGH, ObjectWalk
from tensormagic.collectors.session.watching import standing_out
from tensormagic.collectors.where.caller import entries_of
from tensormagic.collectors.where.source import (
    PACKAGE_DIRECTORY,
    CellNumber,
    failing_line,
    location_in,
    location_of,
    names_of,
)
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Category, DeviceMemory, Gap, Holder, LiveStorage, MemoryReport, OutOfMemory
from tensormagic.reports.base import gc_paused
from tensormagic.words import error_text

MOST_HOLDERS = 6


def live_storage(block: Block) -> LiveStorage:
    """Return a block as plain data."""

    def preference(pair: tuple[Place, torch.Tensor]) -> tuple[int, ...]:
        """Put the name first that a user would write: their own, a plain path, of all of it, quick to write.

        Of outputs, the one that shows the cell; a parameter's before that of its entry in a ``state_dict()``.
        """
        place, x = pair
        path, is_part = place.path, id(x) in block.composed
        kept = place.kind in SESSION_KINDS, OPTIMIZED.search(path) is not None, ", " in path, x._is_view(), is_part
        is_entry = not is_kind(x, nn.Parameter)
        return *kept, not path.startswith("Out["), is_entry, path.count(".") + path.count("[")

    named = [pair for pair in block.places if pair[0].kind not in BASE_KINDS]
    places = list({(place.path, place.location): (place, x) for place, x in reversed(named)}.values())[::-1]
    places.sort(key=preference)
    place, x = places[0] if places else (None, next(iter(block.tensors.values()), None))
    name = f"{place.path}{_ending(x, block)}" if x is not None and place is not None else ""
    stands = block.part if x is None or id(x) in block.composed else x
    holders = []
    for at, held in places[:MOST_HOLDERS]:
        where = at.location
        if where is not None and not where.text:
            where = replace(where, text=location_of(where.filename, where.line, where.function).text)
        nbytes = 0 if held is x else nbytes_of(held)
        path = name if at is place else at.path
        holders.append(Holder(path, at.kind, "tensor" if held is x else "storage", nbytes, where))
    memory = block.memory
    known = memory.address and len(block.identities) == 1  # what several lie over is somebody else's memory
    storage, on_cpu = block.part.untyped_storage(), memory.device == "cpu" and memory.address != 0
    origin = line_of(storage) if known else None
    return LiveStorage(
        name=name, nbytes=memory.nbytes, device=memory.device,
        category=category_of(block.roles), dtype=str(stands.dtype).removeprefix("torch."),
        shape=told(lambda: numbers(stands.shape), ()), tensors=len(block.tensors),
        holders=(*holders, *block.lenders, *block.saved, *block.unnamed)[:MOST_HOLDERS],
        found=len(places) + block.lent + block.in_graphs + len(block.unnamed), module=block.module,
        location=None if origin is None else origin.location, backward=origin is not None and origin.backward,
        # Two storages lie over one memory, or it is another's, or a file's.
        shared=len(block.identities) > 1 or (on_cpu and (storage.is_shared() or not storage.resizable())),
    )  # fmt: skip


def _ending(x: torch.Tensor, block: Block) -> str:
    """Return what gives a user the part of a tensor that a block is: ``.values()``; nothing where it is all of it."""
    every = named_parts(x) if id(x) in block.composed else ()
    return next((f".{name}()" for name, part in every if storage_of(part) in block.identities), "")


def summed(blocks: list[Block]) -> tuple[LiveStorage, ...]:
    """Return the sums of blocks that are not listed one by one: one a device and category, the largest first."""
    sums: dict[tuple[str, Category], list[int]] = defaultdict(list)
    for block in blocks:
        sums[block.memory.device, category_of(block.roles)].append(block.nbytes)
    found = [LiveStorage("", sum(sizes), *key, tensors=len(sizes)) for key, sizes in sums.items()]
    return tuple(sorted(found, key=lambda one: -one.nbytes))


MOST_LISTED = 2_000


def collect_memory(  # noqa: PLR0913  (a namespace; the rest are options, by name)
    namespace: Mapping[str, Any],
    *,
    frame: FrameType | None = None,
    more: Iterable[tuple[Place, Any]] = (),
    only: Mapping[str, Any] | None = None,
    devices: Collection[str] | None = None,
    most: int = MOST_LISTED,
    readers: tuple[tuple[str, Reader], ...] = READERS,
) -> MemoryReport:
    """Return where the memory is. Changes nothing, keeps nothing.

    The variables of ``frame``, the function that asks, are names, too, and so are ``more``: those of functions that
    have failed. ``only`` and ``devices`` (``"cuda:0"``, or ``"cuda"`` for all of a kind) leave out all other memory. Of
    more than ``most`` storages the rest is summed up; ``readers`` read the devices' counters.
    """
    with quiet(), gc_paused():  # with ten thousand tensors a search would take longer than all the rest
        walk_session = ObjectWalk(THOROUGH).through(namespace, [*running(frame, set(namespace)), *more])
        # Asked before anything else is met: whoever holds a tensor then keeps it.
        retained, views, graphs = standing_out(walk_session, namespace) if only is None else ((), (), ())
        found = LiveTensors(walk_session, everything=True)
        blocks = [block for block in found.blocks if _is_asked_for(block.memory.device, devices)]
        if only is not None:  # what these lead to, by their names or their graphs
            wanted = LiveTensors(ObjectWalk(THOROUGH).below(only), everything=False).identities
            blocks = [block for block in blocks if block.identities & wanted]
        blocks.sort(key=lambda block: -block.nbytes)
        note_lenders(blocks, namespace)
        note_unnamed_referrers(blocks, found.ours)
        if not blocks:  # nothing that was asked for: what stands out lies elsewhere
            retained, views, graphs = (), (), ()
        counters, missing = read_devices(readers)
        present = {one.device for one in counters} | {block.memory.device for block in blocks}
        absent = [  # nothing is ever stored on ``meta``
            name for name in devices or () if name != "meta" and not any(_is_asked_for(one, (name,)) for one in present)
        ]
        asked = ", ".join(only or ()), ", ".join(devices or ())
        return MemoryReport(
            devices=_devices([one for one in counters if _is_asked_for(one.device, devices)], blocks),
            storages=tuple(map(live_storage, blocks[:most])), left_out=summed(blocks[most:]),
            retained=retained, views=views, graphs=graphs, looked=found.looked,
            title=" on ".join(filter(None, asked)),  # "net", "net on cuda:0", "cuda"
            gaps=(*found.gaps, *missing, *(Gap("device", f"torch sees no {name} here") for name in absent)),
        )  # fmt: skip


def require_devices(devices: Collection[str]) -> None:
    """Check the names of devices.

    Raises:
        TensorMagicError: where torch knows none of that name.
    """
    name: Any = devices
    try:
        for name in devices:
            torch.device(name)
    except (RuntimeError, TypeError):
        raise TensorMagicError(f"torch knows no device {name!r}: cpu, cuda, cuda:1, mps, xpu, meta") from None


def _is_asked_for(device: str, asked: Collection[str] | None) -> bool:
    return asked is None or device in asked or device.partition(":")[0] in asked


def _devices(counters: list[DeviceMemory], blocks: list[Block]) -> tuple[DeviceMemory, ...]:
    """Return the devices with what lies on them; those that hold nothing come where they were asked."""
    known = {device.device: device for device in counters}
    found = []
    for name in dict.fromkeys((*known, *(block.memory.device for block in blocks))):
        mine = [block for block in blocks if block.memory.device == name]
        live, tensors = sum(block.nbytes for block in mine), sum(len(block.tensors) for block in mine)
        device = known.get(name, DeviceMemory(name))
        found.append(replace(device, live=live, storages=len(mine), tensors=tensors))
    return tuple(found)


# Where the memory was when it ran out, looked at while the error is on its way: plain data, so that nothing is kept.
# The functions that failed still have their variables then: holders like any name.

MOST_NAMED = 400
Variable = tuple[Place, Any]


def memory_at(
    error: BaseException, described: OutOfMemory, namespace: Mapping[str, Any], cell_number: CellNumber | None = None
) -> tuple[OutOfMemory, MemoryReport]:
    """Return where the memory was when an error was raised, and what only the functions that failed lead to.

    Of the error and its traceback nothing is kept.
    """
    try:
        freed = collect_freeable(namespace)  # first: another walk holds what it meets
        failing = list(failing_variables(error, cell_number))
        memory = collect_memory(namespace, more=failing, most=MOST_NAMED)
        memory = replace(memory, freeable=freed.freeable, gaps=(*memory.gaps, *freed.gaps))
        only_error = _only(failing, namespace)
    except Exception as problem:  # memory has run out: looking, too, may need more than there is
        return described, MemoryReport(gaps=(Gap("memory", f"could not be inspected: {error_text(problem)}"),))
    device = next((one for one in memory.devices if one.device == described.device), DeviceMemory(""))
    free = device.free if described.free is None else described.free  # what the message did not say
    total = device.total if described.total is None else described.total
    return replace(described, only_error=only_error, free=free, total=total), memory


def failing_variables(error: BaseException, cell_number: CellNumber | None = None) -> Iterator[Variable]:
    """Yield the variables of the functions that an exception went through, the innermost function first."""
    for entry in reversed(entries_of(error)):
        frame, code = entry.tb_frame, entry.tb_frame.f_code  # names of modules are names anyway
        if code.co_flags & inspect.CO_OPTIMIZED and not code.co_filename.startswith(PACKAGE_DIRECTORY):
            location = location_in(frame, failing_line(entry), cell_number)
            for name, value in dict(names_of(frame)).items():
                yield Place(f"{code.co_name}.<locals>.{name}", "traceback", 0, location), value


def _only(failing: list[Variable], namespace: Mapping[str, Any]) -> int:
    """Return the bytes to which these variables lead and no name does, the history's included."""
    names = {name: value for name, value in namespace.items() if not name.startswith("__")}
    with quiet():
        named = LiveTensors(ObjectWalk(THOROUGH).below(names), everything=False).identities
        found = LiveTensors(ObjectWalk(THOROUGH).through({}, failing), everything=False).blocks
        return sum(block.nbytes for block in found if not block.identities & named)
