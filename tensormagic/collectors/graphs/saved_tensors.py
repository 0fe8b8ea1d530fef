"""Saved tensors of nodes: where they are, whether their version is the saved one, and which graphs keep a tensor."""

from __future__ import annotations

import gc
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, NamedTuple

import torch

from tensormagic.collectors.geometry.overlap import Region
from tensormagic.collectors.geometry.parts import storage_of
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.objects.namespace import is_kind
from tensormagic.collectors.quiet import dispatches_to_python, number

# Everything that torch shows of what live nodes have saved: without unpacking what hooks of the user's have packed.

_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")
_CUSTOM = (("saved_tensors", "_raw_saved_tensors", "saved_tensors"),)


def is_packed(raw: Any) -> bool:
    """Return whether reading a saved tensor would run a hook of the user's, or cannot be known not to.

    Where this torch does not say whether there is a hook, it is left alone. Of a list of saved tensors, as indexing
    keeps its indices, one that is packed is enough.
    """
    if isinstance(raw, (tuple, list)):  # asked of every saved tensor: ``|`` takes three times as long
        return any(is_packed(each) for each in raw if each is not None)
    return getattr(raw, "unpack_hook", raw) is not None


def is_custom(node: Any) -> bool:
    """Return whether a node is a custom ``autograd.Function``'s rather than one of torch's own."""
    return isinstance(node, torch._C._FunctionBase)


class SavedSlot(NamedTuple):
    """One slot of a live node."""

    name: str  # ``"self"``, ``"weight"``; ``"saved_tensors"`` of a custom Function.
    state: str  # ``"ok"``, ``"packed by a hook"``, ``"changed in place"``, ``"freed"`` or ``"unreadable"``.
    value: Any  # The tensor, or a tuple of them, where the state is ``"ok"``.
    raw: tuple[Any, ...]  # What torch keeps of each tensor; nothing where it was freed.
    several: bool  # Whether it is a list of tensors.
    # The version that it had and the one that it has, where it was changed in place.
    versions: tuple[int, int] | None = None


@lru_cache(maxsize=512)
def _slots(kind: Any) -> tuple[tuple[str, str, str], ...]:
    """Return where nodes of a class save tensors: the name, and the attributes that give it raw and unpacked."""
    if issubclass(kind, torch._C._FunctionBase):
        return _CUSTOM
    names = [name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_")]
    # Interned, as Python finds them fastest.
    return tuple((name, sys.intern(f"_raw_saved_{name}"), sys.intern(f"_saved_{name}")) for name in names)


def read_slots(node: Any, most: int | None = None) -> Iterator[SavedSlot]:
    """Yield what a node has saved, slot by slot, at most so many.

    Reading raises after a saved tensor was changed in place and after the graph was freed: both are states.
    """
    for name, raw, value in _slots(node.__class__)[:most]:
        kept, several, read, versions = (), False, None, None
        try:
            found = getattr(node, raw)
            several = isinstance(found, (tuple, list))
            kept = tuple(found) if several else (found,)
            state = "packed by a hook" if is_packed(found) else "ok"
            read = _unpack(node, value, kept) if state == "ok" else None
        except RuntimeError as error:
            text = str(error)
            named = _VERSIONS.search(text)
            versions = (int(named[2]), int(named[1])) if named else None
            freed = "freed" in text or "second time" in text
            state = "changed in place" if "inplace" in text or named else "freed" if freed else "unreadable"
        yield SavedSlot(name, state, read, kept, several, versions)


def _unpack(node: Any, value: str, kept: tuple[Any, ...]) -> Any:
    """Return what torch unpacks, but tensors whose own class answers as they lie there: a result would be detached."""
    lying = [None if raw is None else raw.data for raw in kept]
    if not any(map(dispatches_to_python, lying)):
        return getattr(node, value)
    with torch._C._DisableTorchDispatch():
        read = getattr(node, value)
    if not isinstance(read, (tuple, list)):
        return lying[0]
    return tuple(x if dispatches_to_python(x) else each for x, each in zip(lying, read, strict=True))


def raw_saved(node: Any) -> Iterator[Any]:
    """Yield what torch keeps of each tensor that a node has saved."""
    for _, raw, _ in _slots(node.__class__):
        found = getattr(node, raw)
        yield from found if isinstance(found, (tuple, list)) else (found,)


def saved_tensor(node: Any, slot: str) -> torch.Tensor | None:
    """Return one tensor that a node of torch's has saved, to read its numbers.

    None where it is not there, changed, packed by a hook, or where code of its own class would answer.
    """
    try:
        kept = getattr(node, f"_raw_saved_{slot}")
        several = isinstance(kept, (tuple, list))
        if several or is_packed(kept) or (kept is not None and dispatches_to_python(kept.data)):
            return None
        found = getattr(node, f"_saved_{slot}")
    except (RuntimeError, AttributeError):
        return None
    return found if isinstance(found, torch.Tensor) else None


def saved_argument(node: Any, name: str, default: Any = None) -> Any:
    """Return an argument that is not a tensor, as a node has saved it."""
    return getattr(node, f"_saved_{name}", default)


def live_saved(node: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Yield the state of everything a live node saves, and the tensor where it can be had without running a hook."""
    for slot in read_slots(node):
        if slot.state == "ok":
            yield from (("ok", tensor) for _, tensor in tensors_in(slot))
        else:
            yield slot.state, None


def tensors_in(slot: SavedSlot) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors of a slot that can be read, with their names: a few operations save a list of tensors."""
    if slot.several and slot.value is not None:
        return [(f"{slot.name}[{at}]", x) for at, x in enumerate(slot.value) if isinstance(x, torch.Tensor)]
    return [(slot.name, slot.value)] if isinstance(slot.value, torch.Tensor) else []


class Saved(NamedTuple):
    """One saved tensor of a live node."""

    slot: str  # Which.
    tensor: torch.Tensor  # As it is now; shares its memory with what was saved.
    # The version that it had and the one that it has, where it was changed in place; None where not.
    versions: tuple[int, int] | None


def saved_by(node: Any) -> Iterator[Saved]:
    """Yield what a node has saved, as far as it is there: not what was freed, nor what hooks have packed."""
    for slot in read_slots(node):
        for at, raw in enumerate(slot.raw):
            if raw is not None and not is_packed(raw) and isinstance(tensor := raw.data, torch.Tensor):
                changed = slot.versions
                if changed is not None and (tensor.is_inference() or tensor._version != changed[1]):
                    changed = None
                yield Saved(f"{slot.name}[{at}]" if slot.several else slot.name, tensor, changed)


def is_freed(node: Any) -> bool:
    """Return whether a node had saved something, and a backward has freed it."""
    return any(slot.state == "freed" for slot in read_slots(node))


def memory_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return first byte and one past the last of the storage under a tensor; None where it has none."""
    try:
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        return (start, start + storage.nbytes()) if start and storage.nbytes() else None
    except (RuntimeError, NotImplementedError):  # sparse, meta, wrapped
        return None


def region_of(tensor: torch.Tensor) -> Region | None:
    """Return the region of memory that a tensor reads, counted from address 0; None where it has none."""
    try:
        size = tensor.element_size()
        return Region.of(tensor.data_ptr(), tuple(tensor.shape), [step * size for step in tensor.stride()], size)
    except (RuntimeError, NotImplementedError):
        return None


def same_start(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether two tensors have equally many elements, from the same address on."""
    try:
        return x.numel() == y.numel() > 0 and x.data_ptr() == y.data_ptr() != 0
    except RuntimeError:
        return False


# Which autograd graphs keep a tensor or its storage: as a saved tensor of a node, or as the leaf it adds to.
# Of what a hook of the user's has packed the tensors are looked for that lie in what it made. What was changed in place
# torch shows no more as saved; it is kept all the same, and read as it lies there.

NODE_LIMIT = 5_000
MOST_ITEMS = 64  # of a list that a custom Function keeps; objects that what a hook has packed is made of
PACKED = ", packed by a hook"


@dataclass(frozen=True, slots=True)
class SavedHere:
    """A node that keeps the tensor or its storage."""

    root: str  # the name of the tensor whose graph it is
    path: str  # ``"graph of loss: MmBackward0, saved as self"``
    holds: Literal["tensor", "storage"]  # the tensor itself, or another one over its storage
    nbytes: int  # bytes of the saved tensor where it is another one
    identity: int  # of the C++ tensor


def saved_in_graphs(
    roots: Iterable[tuple[Any, str]], x: torch.Tensor, storage: int | None
) -> tuple[list[SavedHere], bool]:
    """Return the nodes that keep x or its storage, whose identity is given, and whether all nodes were looked at.

    Each root comes with the name of the tensor that it made; a node counts to the first that leads to it.
    """
    seen: set[Any] = set()
    found: list[SavedHere] = []
    for root, name in roots:
        for node in walk_nodes([root], NODE_LIMIT, seen):
            for slot, tensor in kept_by(node):
                same = tensor is not None and tensor._cdata == x._cdata
                if tensor is not None and (same or (storage is not None and storage_of(tensor) == storage)):
                    holds: Literal["tensor", "storage"] = "tensor" if same else "storage"
                    path, nbytes = path_of(node, name, slot), number(tensor.nbytes)
                    found.append(SavedHere(name, path, holds, nbytes, tensor._cdata))
    return found, len(seen) < NODE_LIMIT


def path_of(node: Any, root: str, slot: str) -> str:
    """Return what a node holds as a user reads it: ``"graph of loss: MmBackward0, saved as self"``."""
    how = "adds its gradient" if slot == "variable" else slot if slot.startswith("ctx.") else f"saved as {slot}"
    return f"graph of {root}: {node.name().rsplit('::', 1)[-1]}, {how}"


def kept_by(node: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Yield what a node keeps, by the name of the slot.

    None stands for what it keeps and does not show at all. What a custom Function keeps as attributes of its context
    nothing ever frees.
    """
    if type(node).__name__ == "AccumulateGrad":
        yield "variable", node.variable
        return
    of_torch = not is_custom(node)  # a user may have called the class itself, too: no graph has that
    for slot in read_slots(node):
        if slot.state == "ok":
            yield from ((slot.name if of_torch else name, tensor) for name, tensor in tensors_in(slot))
        elif slot.state != "freed" and not slot.raw:
            yield slot.name, None
        else:  # what was changed in place since as it lies there, unchecked
            yield from _as_stored(slot, of_torch=of_torch)
    for name, value in [] if of_torch else list(vars(node).items()):
        if is_kind(value, torch.Tensor):
            yield f"ctx.{name}", value
        elif type(value) in {list, tuple}:
            several = enumerate(value[:MOST_ITEMS])
            yield from ((f"ctx.{name}[{at}]", item) for at, item in several if is_kind(item, torch.Tensor))


def _as_stored(slot: SavedSlot, *, of_torch: bool) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Yield saved tensors as they lie there, and those in what hooks have made of others, which may keep none here."""
    for at, each in enumerate(slot.raw):
        if each is not None and is_packed(each):
            yield from ((f"{slot.name}{PACKED}", tensor) for tensor in _tensors_in(each.data))
        elif each is not None and is_kind(each.data, torch.Tensor):
            yield slot.name if of_torch or slot.state == "packed by a hook" else f"{slot.name}[{at}]", each.data


def _tensors_in(item: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that an object is made of: in containers, attributes and closures, a few steps deep."""
    pending, seen = deque([item]), set[int]()
    while pending and len(seen) < MOST_ITEMS:
        each = pending.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if is_kind(each, torch.Tensor):
            yield each
        elif isinstance(each, FunctionType):
            pending.extend(each.__closure__ or ())
        elif not isinstance(each, type | ModuleType | MethodType | FrameType | torch.nn.Module):
            pending.extend(gc.get_referents(each))


# Backward formulas that divide by (a function of) a saved tensor, or take its logarithm: op → the slot to look at
# when NaN or Inf comes out. From torch's derivatives.yaml.
SINGULAR_SLOTS = {
    "LogBackward0": "self", "Log2Backward0": "self", "Log10Backward0": "self", "Log1PBackward0": "self",
    "SqrtBackward0": "result", "RsqrtBackward0": "result", "ReciprocalBackward0": "result",
    "DivBackward0": "other", "DivBackward1": "other", "PowBackward0": "self", "PowBackward1": "self",
    "NormBackward0": "self", "LinalgVectorNormBackward0": "self", "AcosBackward0": "self", "AsinBackward0": "self",
    "AcoshBackward0": "self", "AtanhBackward0": "self", "XlogyBackward0": "other",
    "StdBackward0": "result", "CdistBackward0": "cdist", "BinaryCrossEntropyBackward0": "self",
}  # fmt: skip
REGULAR: set[type] = set()  # types of nodes that have no such slot, among those met


def singular_slot(node: Any) -> str | None:
    """Return the saved tensor at which the backward of ``node`` may not be finite, or None where there is none."""
    if type(node) in REGULAR:
        return None
    slot = SINGULAR_SLOTS.get(node.name())
    if slot is None and type(node).__name__ == node.name().rpartition("::")[2]:  # a type of its own: asked once
        REGULAR.add(type(node))
    if slot is None or slot != "self" or not node.name().startswith("PowBackward0"):
        return slot
    exponent = saved_argument(node, "exponent", 0)
    return None if isinstance(exponent, int | float) and exponent >= 1 else slot  # a whole slope everywhere
