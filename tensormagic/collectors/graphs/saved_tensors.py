"""What nodes have saved: where, whether its version is the saved one, and which graphs keep a tensor."""

from __future__ import annotations

import gc
import re
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, NamedTuple, cast

import torch

from tensormagic.collectors.geometry.overlap import Region
from tensormagic.collectors.graphs.nodes import is_packed, isinstance_of_torch
from tensormagic.collectors.objects.namespace import is_kind
from tensormagic.collectors.quiet import number

# Looks at what live nodes have saved without unpacking it: where, and whether its version is the same.

_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")
_CUSTOM = "saved_tensors"


class Saved(NamedTuple):
    """One saved tensor of a live node.

    Attributes:
        slot: Which.
        tensor: As it is now; shares its memory with what was saved.
        versions: The version that it had and the one that it has, where it was changed in place; None where not.
    """

    slot: str
    tensor: torch.Tensor
    versions: tuple[int, int] | None


def saved_by(node: Any) -> Iterator[Saved]:
    """Yield what a node has saved, as far as it is there: not what was freed, nor what hooks have packed."""
    for slot in _slots(cast("Hashable", type(node))) if isinstance_of_torch(node) else (_CUSTOM,):
        raws = _raw(node, slot)
        several = isinstance(raws, tuple | list)
        found = list(raws) if isinstance(raws, tuple | list) else [raws]
        there = [(at, raw.data) for at, raw in enumerate(found) if raw is not None and not is_packed(raw)]
        tensors = [(at, tensor) for at, tensor in there if isinstance(tensor, torch.Tensor)]
        versions = _versions(node, slot) if tensors else None
        for at, tensor in tensors:
            changed = versions if versions is None or _version(tensor) == versions[1] else None
            yield Saved(f"{slot}[{at}]" if several else slot, tensor, changed)


def _raw(node: Any, slot: str) -> Any:
    """Return what a slot holds, or a list of such; None where it was freed."""
    try:
        return getattr(node, f"_raw_{slot}" if slot == _CUSTOM else f"_raw_saved_{slot}", None)
    except RuntimeError:
        return None


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _versions(node: Any, slot: str) -> tuple[int, int] | None:
    """Return the versions of which torch complains when what was saved is read: then, and now."""
    try:
        getattr(node, slot if slot == _CUSTOM else f"_saved_{slot}")
    except RuntimeError as error:
        found = _VERSIONS.search(str(error))
        return (int(found[2]), int(found[1])) if found else None
    return None


def is_freed(node: Any) -> bool:
    """Return whether a node had saved something, and a backward has freed it."""
    try:
        for slot in _slots(cast("Hashable", type(node))) if isinstance_of_torch(node) else (_CUSTOM,):
            getattr(node, slot if slot == _CUSTOM else f"_saved_{slot}")
    except RuntimeError as error:
        return "freed" in str(error) or "second time" in str(error)
    return False


@lru_cache(maxsize=512)
def _slots(kind: Hashable) -> tuple[str, ...]:
    return tuple(name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_"))


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
#
# Nothing is unpacked that a hook of the person's has packed: of what the hook made of it the tensors are looked for
# that lie in it. What was changed in place since torch shows no more as saved; it is kept all the same, and read as
# it lies there.

NODE_LIMIT = 5_000
MOST_ITEMS = 64  # of a list that a custom Function keeps; objects that what a hook has packed is made of
PACKED = ", packed by a hook"

Root = tuple[Any, str]
_HOW = {"variable": "adds its gradient"}


@dataclass(frozen=True, slots=True)
class SavedHere:
    """A node that keeps the tensor or its storage.

    Attributes:
        root: The name of the tensor whose graph it is.
        path: ``"graph of loss: MmBackward0, saved as self"``.
        holds: The tensor itself, or another one over its storage.
        nbytes: Bytes of the saved tensor where it is another one.
        identity: Of the C++ tensor.
        is_original: Whether the node keeps that very tensor, rather than a detached one of its own.
    """

    root: str
    path: str
    holds: Literal["tensor", "storage"]
    nbytes: int
    identity: int
    is_original: bool


def saved_in_graphs(
    roots: Iterable[tuple[Any, str]], x: torch.Tensor, storage: int | None
) -> tuple[list[SavedHere], bool]:
    """Return the nodes that keep x or its storage, and whether all nodes were looked at.

    Args:
        roots: Nodes to begin at, each with the name of the tensor that it made; a node counts to the first that leads
            to it.
        x: The tensor.
        storage: Identity of its storage; None where it has none.
    """
    seen: set[Any] = set()
    found: list[SavedHere] = []
    for root in roots:
        for node, name in _new_nodes(root, seen):
            found += _at(node, name, x, storage)
    return found, len(seen) < NODE_LIMIT


def _new_nodes(root: Root, seen: set[Any]) -> Iterator[Root]:
    """Yield the nodes of a graph that were not met before, each with the graph's name, until there are too many."""
    pending = deque([root])
    while pending and len(seen) < NODE_LIMIT:
        node, name = pending.popleft()
        if node in seen:
            continue
        seen.add(node)
        yield node, name
        pending.extend((after, name) for after, _ in node.next_functions if after is not None)


def _at(node: Any, name: str, x: torch.Tensor, storage: int | None) -> Iterator[SavedHere]:
    for slot, tensor in kept_by(node):
        if tensor is None:
            continue
        same = tensor._cdata == x._cdata
        if not same and (storage is None or _storage_of(tensor) != storage):
            continue
        holds: Literal["tensor", "storage"] = "tensor" if same else "storage"
        yield SavedHere(name, path_of(node, name, slot), holds, number(tensor.nbytes), tensor._cdata, is_original=same)


def _storage_of(x: torch.Tensor) -> int:
    try:
        return int(x.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return 0  # it has none


def path_of(node: Any, root: str, slot: str) -> str:
    """Return what a node holds as a person reads it: ``"graph of loss: MmBackward0, saved as self"``."""
    how = _HOW.get(slot) or (slot if slot.startswith("ctx.") else f"saved as {slot}")
    return f"graph of {root}: {node.name().rsplit('::', 1)[-1]}, {how}"


def kept_by(node: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Yield what a node keeps, by the name of the slot.

    None stands for what it keeps and does not show at all.
    """
    if type(node).__name__ == "AccumulateGrad":
        yield "variable", node.variable
    elif isinstance(node, torch._C._FunctionBase):  # a person may have called the class itself, too: no graph has that
        yield from _kept_by_custom(node)
    else:
        for raw in _raw_slots(cast("Hashable", type(node))):
            yield from _read(node, raw)


@lru_cache(maxsize=512)
def _raw_slots(kind: Hashable) -> tuple[str, ...]:
    """Return the attributes by which torch's own nodes show what they saved, unpacked."""
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def _read(node: Any, raw: str) -> Iterator[tuple[str, torch.Tensor | None]]:
    slot = raw.removeprefix("_raw_saved_")
    try:
        kept = getattr(node, raw)
        if is_packed(kept):
            yield from _within_packed(kept, slot)
            return
        values = _shown(node, kept, slot)
    except RuntimeError as error:
        if not _is_freed(error):
            yield slot, None
        return
    for value in values if isinstance(values, tuple | list) else (values,):
        if is_kind(value, torch.Tensor):
            yield slot, value


def _shown(node: Any, kept: Any, slot: str) -> Any:
    """Return what a slot keeps; what was changed in place since as it lies there, unchecked."""
    try:
        return getattr(node, f"_saved_{slot}")
    except RuntimeError as error:
        if _is_freed(error):
            raise
        return [each.data for each in _each(kept)]


def _each(kept: Any) -> tuple[Any, ...]:
    return tuple(each for each in kept if each is not None) if isinstance(kept, tuple | list) else (kept,)


def _within_packed(kept: Any, slot: str) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Yield the tensors in what hooks have made of saved ones; where there is none, these are kept elsewhere."""
    for each in _each(kept):
        if is_packed(each):
            yield from ((f"{slot}{PACKED}", tensor) for tensor in _tensors_in(each.data))
        elif is_kind(each.data, torch.Tensor):
            yield slot, each.data


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


def _is_freed(error: RuntimeError) -> bool:
    """Return whether torch refuses to show a saved tensor because it is not there any more."""
    return "second time" in str(error) or "freed" in str(error)


def _kept_by_custom(node: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Yield what a custom Function saved, and what it keeps as attributes of its context, which nothing ever frees."""
    saved: tuple[torch.Tensor | None, ...] = ()
    try:
        if any(map(is_packed, kept := node._raw_saved_tensors)):
            yield from _within_packed(kept, "saved_tensors")
        else:
            saved = _shown_by_custom(node, kept)
    except RuntimeError as error:
        if not _is_freed(error):
            yield "saved_tensors", None
    yield from ((f"saved_tensors[{at}]", value) for at, value in enumerate(saved) if value is not None)
    for name, value in list(vars(node).items()):
        if is_kind(value, torch.Tensor):
            yield f"ctx.{name}", value
        elif type(value) in {list, tuple}:
            several = enumerate(value[:MOST_ITEMS])
            yield from ((f"ctx.{name}[{at}]", item) for at, item in several if is_kind(item, torch.Tensor))


def _shown_by_custom(node: Any, kept: Any) -> tuple[torch.Tensor | None, ...]:
    try:
        return cast("tuple[torch.Tensor | None, ...]", node.saved_tensors)
    except RuntimeError as error:
        if _is_freed(error):
            raise
        return tuple(each.data for each in _each(kept))
