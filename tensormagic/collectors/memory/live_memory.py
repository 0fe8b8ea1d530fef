"""What is alive in memory now, and what explains an error out of memory."""

from __future__ import annotations

import gc
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Any

import torch

from tensormagic.collectors.devices import READERS, Reader, read_devices
from tensormagic.collectors.memory.freed import collect_releases
from tensormagic.collectors.memory.live_blocks import Block, Lines, Origin, category_of, nbytes_of, noted_line, running
from tensormagic.collectors.memory.survey import Survey, note_unnamed_referrers
from tensormagic.collectors.objects.namespace import OPTIMIZED
from tensormagic.collectors.objects.reach import Budget, Place
from tensormagic.collectors.quiet import numbers, quiet
from tensormagic.collectors.session.session_walk import THOROUGH, ObjectWalk
from tensormagic.collectors.session.watching import standing_out
from tensormagic.collectors.where.source import PACKAGE_DIRECTORY, CellNumber, location_in, location_of, names_of
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Category, DeviceMemory, Gap, Holder, LiveStorage, Location, MemoryReport, OutOfMemory

# Where the memory is, now: the walk, the devices' own counters and what stands out, as one report.

# From a block of memory to plain data: its best name, who holds it, and the tensor that stands for it.

MOST_HOLDERS = 6
_SESSION = ("history", "traceback")
_UNNAMED = ("view", "array")  # the base of what has a name, which is what a user can delete


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
        holders=(*holders[:MOST_HOLDERS], *block.saved, *block.unnamed)[:MOST_HOLDERS],
        found=len(holders) + block.in_graphs + len(block.unnamed),
        module=block.module,
        location=None if origin is None else origin.location,
        backward=origin is not None and origin.backward,
        shared=_is_shared(block),
    )


def summed(blocks: list[Block]) -> tuple[LiveStorage, ...]:
    """Return the sums of blocks that are not listed one by one: one a device and category, the largest first."""
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
    """Return what puts the name first that a user would write: their own, a plain path, of all of it."""
    path = place.path
    return place.kind in _SESSION, OPTIMIZED.search(path) is not None, ", " in path, x._is_view()


def _steps(place: Place) -> tuple[bool, int]:
    """Return what puts the path first that is quickest to write; of outputs, the one that shows the cell."""
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


# Everything that was met is let go of when this returns: looking keeps nothing alive.

MOST_LISTED = 2_000


def collect_memory(  # noqa: PLR0913  (a namespace; the rest are options, by name)
    namespace: Mapping[str, Any],
    *,
    frame: FrameType | None = None,
    more: Iterable[tuple[Place, Any]] = (),
    only: Mapping[str, Any] | None = None,
    devices: Collection[str] | None = None,
    most: int = MOST_LISTED,
    budget: Budget = THOROUGH,
    readers: tuple[tuple[str, Reader], ...] = READERS,
) -> MemoryReport:
    """Return where the memory is. Changes nothing, keeps nothing.

    Args:
        namespace: The user's names.
        frame: Of the function that asks: its variables are names, too.
        more: Other places to begin at: the variables of functions that have failed.
        only: Show only the memory that these lead to.
        devices: Show only these: ``"cuda:0"``, ``"cuda"`` for all of a kind.
        most: How many storages to list; the others are summed up.
        budget: How long to walk.
        readers: What reads the devices' counters.
    """
    with quiet(), uncollected():
        walk_session = ObjectWalk(budget).through(namespace, [*running(frame, set(namespace)), *more])
        # Asked before anything else is met: whoever holds a tensor then keeps it.
        kept, views, graphs = standing_out(walk_session, namespace) if only is None else ((), (), ())
        survey = Survey(walk_session, everything=True)
        wanted = _reached(only, budget) if only is not None else None
        blocks = [block for block in survey.blocks if wanted is None or _identities(block) & wanted]
        blocks = [block for block in blocks if _is_asked_for(block.memory.device, devices)]
        blocks.sort(key=lambda block: -block.nbytes)
        note_unnamed_referrers(blocks, survey.ours)
        if not blocks:  # nothing that was asked for: what stands out lies elsewhere
            kept, views, graphs = (), (), ()
        counters, missing = read_devices(readers)
        present = {one.device for one in counters} | {block.memory.device for block in blocks}
        line_of = Lines().of
        return MemoryReport(
            devices=_devices([one for one in counters if _is_asked_for(one.device, devices)], blocks),
            storages=tuple(live_storage(block, line_of) for block in blocks[:most]),
            left_out=summed(blocks[most:]),
            kept=kept,
            views=views,
            graphs=graphs,
            looked=survey.looked,
            title=_title(only, devices),
            gaps=(*survey.gaps, *missing, *_absent(devices or (), present)),
        )


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python look for cycles later: with ten thousand tensors that would take longer than all the rest."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _absent(devices: Collection[str], present: Collection[str]) -> Iterator[Gap]:
    """Yield a gap for each device that was asked for and is not there; nothing is ever stored on ``meta``."""
    for name in devices:
        if name != "meta" and not any(_is_asked_for(one, (name,)) for one in present):
            yield Gap("device", f"torch sees no {name} here")


def _title(only: Mapping[str, Any] | None, devices: Collection[str] | None) -> str:
    """Return what was asked for: ``net``, ``net on cuda:0``, ``cuda``."""
    asked = ", ".join(only or ()), ", ".join(devices or ())
    return " on ".join(filter(None, asked))


def _reached(only: Mapping[str, Any], budget: Budget) -> set[int]:
    """Return the storages that some values lead to, by their names or their graphs."""
    return Survey(ObjectWalk(budget).below(only), everything=False).identities


def _identities(block: Block) -> set[int]:
    return block.identities | {block.memory.identity}


def require_devices(devices: Collection[str]) -> None:
    """Check the names of devices.

    Raises:
        TensorMagicError: where torch knows none of that name.
    """
    for name in devices:
        if not _is_known(name):
            raise TensorMagicError(f"torch knows no device {name!r}: cpu, cuda, cuda:1, mps, xpu, meta")


def _is_known(name: str) -> bool:
    try:
        return bool(torch.device(name).type)
    except (RuntimeError, TypeError):
        return False


def _is_asked_for(device: str, asked: Collection[str] | None) -> bool:
    return asked is None or device in asked or device.partition(":")[0] in asked


def _devices(counters: list[DeviceMemory], blocks: list[Block]) -> tuple[DeviceMemory, ...]:
    """Return the devices with what lies on them; those that hold nothing come where they were asked."""
    known = {device.device: device for device in counters}
    held: dict[str, list[Block]] = {}
    for block in blocks:
        held.setdefault(block.memory.device, []).append(block)
    names = [*known, *(name for name in held if name not in known)]
    return tuple(_with_live(known.get(name, DeviceMemory(name)), held.get(name, [])) for name in names)


def _with_live(device: DeviceMemory, blocks: list[Block]) -> DeviceMemory:
    live, tensors = sum(block.nbytes for block in blocks), sum(len(block.tensors) for block in blocks)
    return replace(device, live=live, storages=len(blocks), tensors=tensors)


# Where the memory was when it ran out, and what the error's message shows.

# What the messages of an out-of-memory error show: which device, how much was asked for, how much there was.
#
# Each backend of torch writes its own. The sources (torch 2.6 to 2.13, older forms where they are still met):
# ``c10/cuda/CUDACachingAllocator.cpp`` (``CUDA`` or ``HIP``), ``c10/cuda/CUDAMallocAsyncAllocator.cpp``,
# ``c10/xpu/XPUCachingAllocator.cpp``, ``aten/src/ATen/mps/MPSAllocator.mm``, ``c10/core/impl/alloc_cpu.cpp``; NumPy's
# is ``numpy/_core/_exceptions.py``.

_SIZE = r"([\d.]+) (bytes|[KMGTP]i?B)"
_UNITS = {"bytes": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_DEVICES = {"CUDA": "cuda", "HIP": "cuda", "XPU": "xpu", "MPS": "mps", "PrivateUse1": "privateuseone"}

_ACCELERATOR = re.compile(rf"(?:\b(\w+) )?[Oo]ut of memory\. Tried to allocate {_SIZE}")
_MPS = re.compile(rf"MPS backend out of memory \(MPS allocated: {_SIZE}")
_ASYNC = re.compile(r"Allocation on device (\d+) would exceed allowed memory\. \(out of memory\)")
_CPU = re.compile(r"(?:can't allocate memory|not enough memory): you tried to allocate (\d+) bytes")
_MAPPED = re.compile(r"unable to mmap (\d+) bytes from file .*Cannot allocate memory", re.DOTALL)
_NUMPY = re.compile(rf"Unable to allocate {_SIZE} for an array")
_BARE = re.compile(
    r"(?:CUDA|CUDA driver|HIP) error: out of memory|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED"
    r"|CUSOLVER_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
)


def read_message(message: str, *, is_memory_error: bool = False, device: str = "cpu") -> OutOfMemory | None:
    """Return what a message shows; None where it shows something else.

    Args:
        message: Of the exception.
        is_memory_error: Whether the exception's type alone says that memory ran out (`MemoryError`,
            ``torch.OutOfMemoryError``).
        device: On which device that type says so, where the message does not tell.
    """
    found = next((described for reader in _READERS if (described := reader(message)) is not None), None)
    if found is None and is_memory_error:
        return OutOfMemory(device, None, message=message)
    return found


def _accelerator(message: str) -> OutOfMemory | None:
    asked = _ACCELERATOR.search(message)
    if asked is None:
        return None
    index = re.search(r"GPU (\d+)", message)
    device = _DEVICES.get(asked[1] or "CUDA", (asked[1] or "").lower())
    reserved = _first(message, rf"{_SIZE} is reserved by PyTorch but unallocated")
    allocated = _first(message, rf"{_SIZE} (?:is allocated by PyTorch|already allocated)")
    in_all = _first(message, rf"{_SIZE} reserved in total by PyTorch")
    return OutOfMemory(
        f"{device}:{index[1] if index else 0}",
        _bytes(asked[2], asked[3]),
        message=message,
        free=_first(message, rf"of which {_SIZE} is free", rf"{_SIZE} free;"),
        total=_first(message, rf"total capac\w*ty of {_SIZE}", rf"{_SIZE} total capacity"),
        allocated=allocated,
        reserved=in_all - allocated if in_all is not None and allocated is not None else reserved,
    )


def _mps(message: str) -> OutOfMemory | None:
    allocated = _MPS.search(message)
    if allocated is None:
        return None
    total = _first(message, rf"max allowed: {_SIZE}")
    others = _first(message, rf"other allocations: {_SIZE}")
    in_use = _bytes(allocated[1], allocated[2])
    free = None if total is None else max(total - in_use - (others or 0), 0)
    asked = _first(message, rf"Tried to allocate {_SIZE}")
    return OutOfMemory("mps:0", asked, message=message, free=free, total=total, allocated=in_use)


def _malloc_async(message: str) -> OutOfMemory | None:
    """Read what ``backend:cudaMallocAsync`` writes: a table."""
    found = _ASYNC.search(message)
    if found is None:
        return None
    return OutOfMemory(
        f"cuda:{found[1]}",
        _first(message, rf"Requested *: {_SIZE}"),
        message=message,
        free=_first(message, rf"Free \(according to CUDA\): {_SIZE}"),
        total=_first(message, rf"Device limit *: {_SIZE}"),
        allocated=_first(message, rf"Currently allocated *: {_SIZE}"),
    )


def _cpu(message: str) -> OutOfMemory | None:
    found = _CPU.search(message) or _MAPPED.search(message)
    return OutOfMemory("cpu", int(found[1]), message=message) if found else None


def _numpy(message: str) -> OutOfMemory | None:
    found = _NUMPY.search(message)
    return OutOfMemory("cpu", _bytes(found[1], found[2]), message=message) if found else None


def _bare(message: str) -> OutOfMemory | None:
    return OutOfMemory("cuda", None, message=message) if _BARE.search(message) else None


_READERS: tuple[Callable[[str], OutOfMemory | None], ...] = (
    _accelerator, _malloc_async, _mps, _cpu, _numpy, _bare,
)  # fmt: skip


def _first(message: str, *patterns: str) -> int | None:
    """Return the size that the first fitting pattern finds; None where none fits."""
    found = next((match for pattern in patterns if (match := re.search(pattern, message))), None)
    return None if found is None else _bytes(found[1], found[2])


def _bytes(value: str, unit: str) -> int:
    """Return a size as torch writes it, as a number of bytes: its ``GB`` are as large as its ``GiB``."""
    power = _UNITS[unit] if unit in _UNITS else _UNITS[unit[0]]
    return int(float(value.rstrip(".")) * 2 ** (10 * power) + 0.5)


# Where the memory was when it ran out, looked at while the error is on its way: plain data, so that nothing is kept.
#
# The functions that failed still have their variables then. Afterwards these are kept by the error's traceback, for
# as long as a notebook keeps that. They are holders like any name.

MOST_NAMED = 400
_TYPES: tuple[type[BaseException], ...] = (MemoryError, torch.OutOfMemoryError)
_READ = (*_TYPES, RuntimeError)  # the only ones whose messages are read

Variable = tuple[Place, Any]


def out_of_memory_of(error: BaseException) -> OutOfMemory | None:
    """Return what an exception says of memory that ran out; None where it is another. Reads its message alone."""
    if not isinstance(error, _READ):
        return None
    try:
        device = "cpu" if isinstance(error, MemoryError) else "cuda"
        return read_message(str(error), is_memory_error=isinstance(error, _TYPES), device=device)
    except Exception:  # a message that cannot be had shows nothing
        return None


def memory_at(
    error: BaseException, described: OutOfMemory, namespace: Mapping[str, Any], cell_number: CellNumber | None = None
) -> tuple[OutOfMemory, MemoryReport]:
    """Return where the memory was when an error was raised, and what only the functions that failed lead to.

    Args:
        error: With its traceback; nothing of it is kept.
        described: What its message shows.
        namespace: The user's names.
        cell_number: Gives a cell's execution count from its file name.
    """
    try:
        freed = collect_releases(namespace)  # first: another walk holds what it meets
        failing = list(failing_variables(error, cell_number))
        memory = collect_memory(namespace, more=failing, most=MOST_NAMED)
        memory = replace(memory, releases=freed.releases, gaps=(*memory.gaps, *freed.gaps))
        return _with_device(replace(described, only_error=_only(failing, namespace)), memory), memory
    except Exception as problem:  # memory has run out: looking, too, may need more than there is
        gap = Gap("memory", f"could not be inspected: {type(problem).__name__}: {problem}")
        return described, MemoryReport(gaps=(gap,))


def failing_variables(error: BaseException, cell_number: CellNumber | None = None) -> Iterator[Variable]:
    """Yield the variables of the functions that an exception went through, the innermost function first."""
    for frame, line in reversed(list(_frames(error.__traceback__))):
        location = location_in(frame, line, cell_number)
        for name, value in dict(names_of(frame)).items():
            yield Place(f"{frame.f_code.co_name}.<locals>.{name}", "traceback", 0, location), value


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the functions of a traceback, and the line at which each failed; names of modules are names anyway."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_flags & inspect.CO_OPTIMIZED and not code.co_filename.startswith(PACKAGE_DIRECTORY):
            yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _only(failing: list[Variable], namespace: Mapping[str, Any]) -> int:
    """Return the bytes to which these variables lead and no name does, the history's included."""
    names = {name: value for name, value in namespace.items() if not name.startswith("__")}
    with quiet():
        named = Survey(ObjectWalk(THOROUGH).below(names), everything=False).identities
        found = Survey(ObjectWalk(THOROUGH).through({}, failing), everything=False).blocks
        return sum(block.nbytes for block in found if not (block.identities | {block.memory.identity}) & named)


def _with_device(described: OutOfMemory, memory: MemoryReport) -> OutOfMemory:
    """Return the moment with what the device itself shows, where the message did not."""
    device = next((one for one in memory.devices if one.device == described.device), None)
    if device is None:
        return described
    free = device.free if described.free is None else described.free
    return replace(described, free=free, total=device.total if described.total is None else described.total)
